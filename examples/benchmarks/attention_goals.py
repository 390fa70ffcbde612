"""What hierarchical attention is to reach on two CPU cores, and whether a report shows it.

"Over" is always the ratio of two medians of one interleaved run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from attention_rivals import CONTENDERS
from attention_shapes import SHAPES

#: The backend that is to reach the goals.
DEFAULT = "numba"


@dataclass(frozen=True)
class Goal:
    """A measure with its bar; ``value`` is None where the report does not have it."""

    what: str
    value: float | None
    bar: float
    at_least: bool

    @property
    def verdict(self) -> str:
        """Met, missed, or not measured.

        >>> Goal("speed", 3.0, 4.0, at_least=True).verdict
        'missed'
        """
        if self.value is None:
            return "not measured"
        met = self.value >= self.bar if self.at_least else self.value <= self.bar
        return "met" if met else "missed"


def goals(report: dict[str, Any]) -> list[Goal]:
    """All goals, with what a report says about them."""
    found = {(work["shape"], work["leaves"]): work["results"] for work in report["works"]}

    def over(key: str, shape: str, leaves: int, mode: str = "forward") -> float | None:
        """Time of another contender over ours."""
        results = found.get((shape, leaves), {})
        if mode not in results.get(key, {}) or mode not in results.get(DEFAULT, {}):
            return None
        return float(results[key][mode]["median"] / results[DEFAULT][mode]["median"])

    def under(key: str, shape: str, leaves: int) -> float | None:
        """Time of ours over another contender."""
        value = over(key, shape, leaves)
        return None if value is None else 1 / value

    large = [n for n in SHAPES["document"].sizes if n >= 4096]
    batches = [("batch64", 16384), ("batch600", 19200)]
    out = [
        Goal(f"flat SDPA over HSA, forward, {n:,} leaves", over("flat", "document", n), bar, True)
        for n, bar in ((1024, 4), (4096, 20), (16384, 60))
    ]
    for n, bar in ((4096, 15), (16384, 50)):
        value = over("flat", "document", n, "train")
        out.append(Goal(f"flat SDPA over HSA, forward + backward, {n:,} leaves", value, bar, True))
    for n in large:
        value = under("projection", "document", n)
        out.append(Goal(f"HSA over one projection, forward, {n:,} leaves", value, 1.0, False))
    scaling, value = report["scaling"], None
    if scaling and (scaling["small"], scaling["large"]) == (16384, 262144):
        value = scaling_ratio(scaling, DEFAULT) if DEFAULT in scaling["results"] else None
    out.append(Goal("time of 262,144 leaves over that of 16,384", value, 18, False))
    rises = {(m["key"], m["leaves"]): m["ratio"] for m in report["memory"]}
    what = "rise of peak memory in forward over q + k + v + out, 65,536 leaves"
    out.append(Goal(what, rises.get((DEFAULT, 65536)), 1.0, False))
    for shape, n in [*(("document", n) for n in large), *batches]:
        text = SHAPES[shape].text if shape != "document" else f"{n:,} leaves"
        value = over("plan", shape, n)
        out.append(Goal(f"plan over HSA forward, {text}", value, 0.25, False))
    for key in ("transformer_conv", "propagate"):
        value = over(key, "document", 4096)
        out.append(
            Goal(f"{CONTENDERS[key].label} over HSA, forward, 4,096 leaves", value, 20, True)
        )
    for (shape, n), bar in zip(batches, (1, 2)):
        what = f"padded SDPA over HSA, forward + backward, {SHAPES[shape].text}"
        out.append(Goal(what, over("flat", shape, n, "train"), bar, True))
    return out


def scaling_ratio(scaling: dict[str, Any], key: str) -> float:
    """Time of the larger document over that of the smaller."""
    at = scaling["results"][key]
    return float(at["large"]["median"] / at["small"]["median"])
