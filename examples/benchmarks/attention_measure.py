"""Time and peak memory of contenders that take turns."""

from __future__ import annotations

import ctypes
import gc
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from attention_limits import Limits
from attention_rivals import CONTENDERS
from attention_shapes import SHAPES, Work, make_work

#: At least as many samples, however long they take.
FEWEST = 3


def quartiles(samples: list[float]) -> dict[str, float]:
    """Median, quartiles and number of samples.

    >>> quartiles([1.0, 2.0, 3.0])
    {'median': 2.0, 'q1': 1.5, 'q3': 2.5, 'n': 3}
    """
    q1, median, q3 = (float(x) for x in np.percentile(samples, [25, 50, 75]))
    return {"median": median, "q1": q1, "q3": q3, "n": len(samples)}


class Taker:
    """Runs a contender forward, or forward and backward, and says how long it took."""

    def __init__(self, key: str, work: Work) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what other people's layers say about themselves
            self.run = CONTENDERS[key].build(work)
        self.trains, self.cuda = CONTENDERS[key].trains, work.q.is_cuda
        self.grad: torch.Tensor | None = None

    def __call__(self, backward: bool) -> float:
        """Seconds of one call; memory of earlier gradients is given back before."""
        self._clear()
        start = self._now()
        if backward:
            self.run.forward().backward(self.grad)
            return self._now() - start
        with torch.no_grad():
            self.run.forward()
        return self._now() - start

    def prepare(self) -> None:
        """Run once, since plans are completed at need, and draw a gradient of the output."""
        with torch.no_grad():
            out = self.run.forward()
        if self.trains:
            self.grad = torch.randn_like(out)

    def peak(self, backward: bool) -> tuple[int | None, float]:
        """Bytes by which memory rose at most during one call, outputs included, and its seconds."""
        self._clear()
        gc.collect()
        if self.cuda:
            self._now()
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            seconds = self(backward)
            return int(torch.cuda.max_memory_allocated() - before), seconds
        resident = start_peak()
        seconds = self(backward)
        return None if resident is None else read_status("VmHWM") - resident, seconds

    def _clear(self) -> None:
        for x in self.run.inputs:
            x.grad = None

    def _now(self) -> float:
        if self.cuda:
            torch.cuda.synchronize()
        return time.perf_counter()


def start_peak() -> int | None:
    """Give freed memory back, start the peak of resident memory anew, and return what is resident.

    None where the system has no such peak (other than Linux with glibc).
    """
    try:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        return read_status("VmRSS")
    except (OSError, AttributeError, TypeError):
        return None


def read_status(key: str) -> int:
    """A size of /proc/self/status in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(key)).split()[1])


def measure(
    work: Work,
    keys: list[str],
    *,
    rounds: int,
    budget: float,
    limits: Limits,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """All contenders in turns, round after round, on one shape at one size.

    Args:
        work: The shape.
        keys: Keys of :data:`~attention_rivals.CONTENDERS`.
        rounds: Number of rounds.
        budget: Seconds after which a contender, forward or with backward, has run often enough,
            once it ran three times.
        limits: What is too large.
        say: Told what is being done.

    Returns:
        What the report needs: sizes, quartiles of seconds, peak bytes, and what was left out.
    """
    takers, skipped = {}, {}
    for key in keys:
        reason = CONTENDERS[key].skip(work, limits)
        if reason is None:
            takers[key] = Taker(key, work)
        else:
            skipped[key] = reason
    modes = [(key, b) for key in takers for b in (False, True)[: 1 + takers[key].trains]]
    peaks, spent = {}, dict.fromkeys(modes, 0.0)
    samples: dict[tuple[str, bool], list[float]] = {mode: [] for mode in modes}
    for number, (key, backward) in enumerate(modes):
        say(f"warm-up and memory, {CONTENDERS[key].label} ({number + 1} of {len(modes)})")
        if not backward:
            takers[key].prepare()
        peaks[key, backward], seconds = takers[key].peak(backward)
        if seconds > budget:  # too slow to run it and not to count it
            samples[key, backward].append(seconds)
            spent[key, backward] += seconds
    gc.collect()
    gc.disable()
    try:
        for number in range(rounds):
            say(f"round {number + 1} of {rounds}")
            shift = number * 5 % max(len(modes), 1)  # nobody always runs behind the same one
            for mode in modes[shift:] + modes[:shift]:
                if spent[mode] > budget and len(samples[mode]) >= FEWEST:
                    continue
                samples[mode].append(takers[mode[0]](mode[1]))
                spent[mode] += samples[mode][-1]
            gc.collect()
    finally:
        gc.enable()
    results: dict[str, Any] = {}
    for (key, backward), times in samples.items():
        name = "train" if backward else "forward"
        results.setdefault(key, {})[name] = quartiles(times) | {"peak": peaks[key, backward]}
    plan = work.plan
    return {
        "shape": work.shape,
        "text": SHAPES[work.shape].text,
        "leaves": plan.num_leaves,
        "trees": plan.num_trees,
        "levels": plan.num_levels,
        "pairs": plan.num_pairs,
        "qkvo_bytes": work.qkvo_bytes,
        "results": results,
        "skipped": skipped,
    }


def warm_up(shape: str, keys: list[str], limits: Limits, options: dict[str, Any]) -> None:
    """Run every contender once on a small tree, so that nothing is compiled later."""
    work = make_work(shape, SHAPES[shape].tiny, **options)
    for key in keys:
        if CONTENDERS[key].skip(work, limits) is None:
            taker = Taker(key, work)
            taker.prepare()
            for backward in (False, True)[: 1 + taker.trains]:
                taker(backward)


def measure_scaling(
    keys: list[str], small: int, large: int, rounds: int, options: dict[str, Any]
) -> dict[str, Any]:
    """Forward of a document of two sizes in turns."""
    works = {n: make_work("document", n, **options) for n in (small, large)}
    limits = Limits()
    takers = {
        (key, n): Taker(key, work)
        for key in keys
        for n, work in works.items()
        if CONTENDERS[key].skip(work, limits) is None
    }
    samples: dict[tuple[str, int], list[float]] = {mode: [] for mode in takers}
    for number in range(rounds + 1):
        for mode, taker in takers.items():
            seconds = taker(False)
            if number:
                samples[mode].append(seconds)
    out: dict[str, Any] = {"small": small, "large": large, "results": {}}
    for (key, n), times in samples.items():
        out["results"].setdefault(key, {})["small" if n == small else "large"] = quartiles(times)
    return out
