"""HSA inside a pretrained sentence encoder, without training: what it saves and what it costs.

    python examples/zero_shot.py                     # food reviews
    python examples/zero_shot.py --task brown4
    python examples/zero_shot.py --quick

Texts become vectors by the frozen all-MiniLM-L6-v2.  A logistic regression on the vectors of the
unmodified model is the probe; then attention of some layers is replaced, nothing is trained again,
and the probe is asked the same questions.  Besides accuracy the table has how often the nearest
training text stays the same, the operations of attention (counted) and the seconds of attention and
of the whole model (measured), against the unmodified model and, at the same cost, against local
windows and against mean-pooled keys without the theorem.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from comparison import exit_code, positive
from comparison_statistics import Hits, compare
from language_data import TASKS, Corpus, prepare
from rich.console import Console
from rich.table import Table
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from zero_shot_rivals import RIVALS, Rival, Timed

import hsa_geo
from hsa_geo.datasets import MiniLM
from hsa_geo.hf import Windows
from hsa_geo.hf.intercept import Layers
from hsa_geo.hf.plans import Pass, Plans
from hsa_geo.hf.replace import Hierarchical
from hsa_geo.ops import count_pairs

ALTERNATE, ALL = (1, 3, 5), (0, 1, 2, 3, 4, 5)
STRENGTHS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)


@dataclass(frozen=True)
class Setting:
    """Layers, and what they do instead: ``"block"``, ``"key"`` or a rival."""

    layers: tuple[int, ...]
    kind: str
    window: int

    @property
    def title(self) -> str:
        """What the table calls it."""
        names = {"block": "HSA, block-tied", "key": "HSA, key-tied"}
        names |= {"local": "local windows", "pooled": "pooled keys"}
        return f"{names[self.kind]}, windows of {self.window}"


SETTINGS = [
    Setting(layers, kind, window)
    for layers in (ALTERNATE, ALL)
    for kind in ("block", "key", *RIVALS)
    for window in (4, 8, 16)
]


@dataclass
class Outcome:
    """What a model gave: vectors, times, operations of attention."""

    vectors: np.ndarray
    seconds: float
    attention_seconds: float
    pairs: int


def main(args: list[str] | None = None) -> int:
    """Parse the command line and go."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--task", choices=TASKS, default="food", help="(default: %(default)s)")
    parser.add_argument("--root", type=Path, default=Path("data"), help="where data are kept")
    parser.add_argument("--out", type=Path, default=Path("runs/zero_shot"))
    parser.add_argument("--fold", type=int, default=0, help="of five (default: %(default)s)")
    parser.add_argument("--least", type=positive, help="only texts of so many words or more")
    parser.add_argument("--quick", action="store_true", help="few texts, few settings")
    given = parser.parse_args(args)
    console = Console(markup=False, emoji=False, highlight=False)
    return exit_code(lambda: run(given, console))


def run(given: argparse.Namespace, console: Console) -> int:
    """Encode with every setting, ask the probe, print and keep the table."""
    begin = time.perf_counter()
    corpus = prepare(given.root, given.task, "glove", ["given"])
    encoder = MiniLM(given.root / "minilm")
    train, validation, test = corpus.split(given.fold, 5)
    if given.least:
        long = np.array([tree.num_nodes >= given.least for tree in corpus.trees])
        train, validation, test = (part[long[part]] for part in (train, validation, test))
    settings = SETTINGS
    if given.quick:
        train, validation, test = train[:200], validation[:50], test[:50]
        settings = [Setting(ALTERNATE, "key", 8), Setting(ALTERNATE, "local", 8)]
    texts = [text_of(corpus, i) for i in range(len(corpus.trees))]

    def encode(setting: Setting | None, rows: np.ndarray) -> Outcome:
        return outcome(encoder, setting, [texts[i] for i in rows])

    known, checked, base = encode(None, train), encode(None, validation), encode(None, test)
    probe = fitted(known.vectors, corpus.y[train], checked.vectors, corpus.y[validation])
    right = hits_of(probe, base, corpus.y[test], test)
    nearest = neighbours(base.vectors, known.vectors)
    rows = [row_of("unmodified", (), base, base, right, right, nearest, nearest)]
    for setting in settings:
        found = encode(setting, test)
        hit = hits_of(probe, found, corpus.y[test], test)
        near = neighbours(found.vectors, known.vectors)
        rows.append(row_of(setting.title, setting.layers, found, base, hit, right, near, nearest))
        console.print(f"{setting.title}, layers {list(setting.layers)}: {rows[-1]['accuracy']:.3f}")
    show(rows, f"{TASKS[given.task].title}: {len(test)} texts", console)
    save(given, rows, time.perf_counter() - begin)
    return 0


def text_of(corpus: Corpus, number: int) -> str:
    """The text of a document, as far as its words are leaves."""
    return " ".join(corpus.dataset.words(number))


def outcome(encoder: MiniLM, setting: Setting | None, texts: list[str]) -> Outcome:
    """Encode texts with some layers replaced; all layers' attention is timed."""
    layers = Layers.of(encoder.encoder.module)
    special = (*encoder.encoder.before, *encoder.encoder.after)
    handlers: dict[int, Timed] = {}
    counter = Counter(special, setting)
    for number in range(len(layers.modules)):
        inner = None
        if setting is not None and number in setting.layers:
            inner = handler_of(setting, special)
        handlers[number] = Timed(inner)
    begin = time.perf_counter()
    counted = Counted(handlers[0], counter)
    with layers.intercepted({**handlers, 0: counted}):
        vectors = encoder.sentences(texts).numpy()
    seconds = time.perf_counter() - begin - counter.seconds
    replaced = 0 if setting is None else len(setting.layers)
    flat = (len(layers.modules) - replaced) * counter.flat
    return Outcome(
        vectors,
        seconds,
        sum(handler.seconds for handler in handlers.values()),
        flat + replaced * counter.tied,
    )


def handler_of(setting: Setting, special: tuple[int, ...]) -> Any:
    """The handler of replaced layers."""
    windows = Windows(setting.window)
    if setting.kind in RIVALS:
        return Rival(setting.kind, windows, special)
    return Hierarchical(Plans(windows, special), setting.kind)


class Counter:
    """Counts the pairs of every batch, flat and over windows."""

    def __init__(self, special: tuple[int, ...], setting: Setting | None) -> None:
        self.plans = Plans(Windows(4 if setting is None else setting.window), special)
        self.tie = "block" if setting is not None and setting.kind == "block" else "key"
        self.flat = self.tied = 0
        self.seconds = 0.0

    def see(self, state: Pass, key: torch.Tensor, mask: torch.Tensor | None) -> None:
        """Count a batch, from what its first layer sees."""
        begin = time.perf_counter()
        plan = state.batch(mask, key).plan
        self.tied += count_pairs(plan, tie=self.tie)
        self.flat += int(plan.count[: plan.num_trees].square().sum())
        self.seconds += time.perf_counter() - begin


class Counted:
    """The handler of the first layer, where batches are counted, too."""

    def __init__(self, handler: Timed, counter: Counter) -> None:
        self.handler, self.counter = handler, counter

    def begin(self, ids: Any, pixels: Any) -> Any:
        """The model is about to run."""
        return self.counter.plans.begin(ids, pixels), self.handler.begin(ids, pixels)

    def __call__(
        self, state: Any, module: Any, query: Any, key: Any, *more: Any, **options: Any
    ) -> Any:
        """Count, and attend."""
        self.counter.see(state[0], key, more[1])
        return self.handler(state[1], module, query, key, *more, **options)


def fitted(x: np.ndarray, y: np.ndarray, check: np.ndarray, truth: np.ndarray) -> Any:
    """The probe, with the strength that is best on validation texts."""
    best, found = -1.0, None
    for strength in STRENGTHS:
        probe = make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=2000))
        score = float(probe.fit(x, y).score(check, truth))
        if score > best:
            best, found = score, probe
    assert found is not None
    return found


def hits_of(probe: Any, found: Outcome, y: np.ndarray, items: np.ndarray) -> Hits:
    """Which texts the probe got right."""
    right = (probe.predict(found.vectors) == y).astype(float)
    order = np.argsort(items)
    return Hits(right[order][None], items[order], (0,))


def neighbours(vectors: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The nearest training text of every text, by cosine."""
    return (vectors @ known.T).argmax(1)


def row_of(
    title: str,
    layers: tuple[int, ...],
    found: Outcome,
    base: Outcome,
    hit: Hits,
    right: Hits,
    near: np.ndarray,
    nearest: np.ndarray,
) -> dict[str, Any]:
    """One row of the table."""
    gap = compare(hit, right)
    cosine = (found.vectors * base.vectors).sum(1) / np.maximum(
        np.linalg.norm(found.vectors, axis=1) * np.linalg.norm(base.vectors, axis=1), 1e-12
    )
    changed = len(layers)
    untouched = base.pairs / 6 * (6 - changed)
    return {
        "title": title,
        "layers": list(layers),
        "accuracy": float(hit.right.mean()),
        "gap": asdict(gap),
        "same neighbour": float((near == nearest).mean()),
        "cosine": float(cosine.mean()),
        "share of operations": found.pairs / base.pairs,
        "share in replaced layers": (
            (found.pairs - untouched) / (base.pairs / 6 * changed) if changed else 1.0
        ),
        "attention seconds": found.attention_seconds,
        "seconds": found.seconds,
    }


def show(rows: list[dict[str, Any]], title: str, console: Console) -> None:
    """Print the table."""
    table = Table(title=title)
    headings = ("layers", "attention", "accuracy", "minus unmodified", "same neighbour", "cosine")
    headings += ("operations", "of replaced", "attention s", "whole s")
    for heading in headings:
        left = heading in ("layers", "attention")
        table.add_column(heading, justify="left" if left else "right")
    for row in rows:
        table.add_row(*cells(row))
    console.print(table)


def cells(row: dict[str, Any]) -> list[str]:
    """A row as text."""
    gap = row["gap"]
    return [
        " ".join(map(str, row["layers"])),
        row["title"],
        f"{row['accuracy']:.3f}",
        f"{gap['mean']:+.3f} [{gap['low']:+.3f}, {gap['high']:+.3f}]" if row["layers"] else "",
        f"{row['same neighbour']:.2f}",
        f"{row['cosine']:.3f}",
        f"{row['share of operations']:.3f}",
        f"{row['share in replaced layers']:.3f}",
        f"{row['attention seconds']:.1f}",
        f"{row['seconds']:.1f}",
    ]


def save(given: argparse.Namespace, rows: list[dict[str, Any]], seconds: float) -> None:
    """Keep the table as JSON, with date, versions and settings."""
    given.out.mkdir(parents=True, exist_ok=True)
    names = ("torch", "transformers", "scikit-learn", "numpy")
    report = {
        "date": datetime.date.today().isoformat(),
        "versions": {name: version(name) for name in names} | {"hsa_geo": hsa_geo.__version__},
        "threads": torch.get_num_threads(),
        "task": given.task,
        "fold": given.fold,
        "least words": given.least,
        "seconds": seconds,
        "rows": rows,
    }
    path = given.out / f"{given.task}.json"
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
