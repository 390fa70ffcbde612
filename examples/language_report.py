"""What the comparison on texts asks of its records: as good?  better than TF-IDF?  how long?"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from comparison import Record
from comparison_statistics import compare, hits
from comparison_table import Row, rows_of
from language_data import Corpus
from language_training import HIERARCHIES, VARIANTS
from rich.console import Console

#: HSA may be so much worse than flat attention and still count as good as it.
MARGIN = 0.015
#: The two that the test of equivalence compares.
PAIR = ("hsa", "flat")
#: Words of a document at which the table by length cuts.
LENGTHS = (0, 25, 50, 100, 200, 500, 10**9)
#: Its rows are of at least so many documents.
ENOUGH = 100


def groups_of(corpus: Corpus, records: list[Record], variant: str) -> np.ndarray | None:
    """Group of each tested document, where documents belong together."""
    if "group_id" not in corpus.trees[0]:
        return None
    group = corpus.dataset.column("group_id").numpy().reshape(-1)
    return group[hits(records, variant).items]


def equivalence(rows: list[Row], variant: str) -> dict[str, Any]:
    """Is it as good as the reference, within the margin?"""
    gap = next(row.gap for row in rows if row.variant == variant)
    assert gap is not None
    answer = "yes" if gap.equivalent(MARGIN) else "not shown"
    if gap.low90 > MARGIN or gap.high90 < -MARGIN:
        answer = "no"
    not_worse = "yes" if gap.not_worse(MARGIN) else "not shown"
    text = (
        f"HSA - flat = {gap.mean:+.4f}, 90% interval [{gap.low90:+.4f}, {gap.high90:+.4f}]: "
        f"equal within {MARGIN}: {answer}; at most {MARGIN} worse: {not_worse}"
    )
    return {"equivalent": answer, "not_worse": not_worse, "text": text, **asdict(gap)}


def best_against(
    records: list[Record],
    other: str,
    titles: dict[str, str],
    group: np.ndarray | None,
    console: Console,
) -> dict[str, Any]:
    """HSA over the hierarchy that is best on validation documents, against another on test ones.

    The choice is made for every fold by itself: a validation document of one fold is a test
    document of another.  Only the seeds count that all hierarchies have.
    """
    some = {name: [r for r in records if r.variant == name] for name in HIERARCHIES}
    some = {name: own for name, own in some.items() if own}
    if not some:
        return {}
    seeds = set.intersection(*({r.seed for r in own} for own in some.values()))
    chosen, scores, own = {}, {}, []
    for fold in sorted({r.fold for r in itertools.chain(*some.values())}):
        there = {
            name: [r for r in mine if r.fold == fold and r.seed in seeds]
            for name, mine in some.items()
        }
        score = {name: float(np.mean([r.validation for r in rs])) for name, rs in there.items()}
        best = max(score, key=lambda name: score[name])
        chosen[fold], scores[fold] = best, score
        own += [replace(record, variant="best") for record in there[best]]
    gap = compare(hits(own, "best"), hits(records, other), group)
    counts = Counter(chosen.values())
    which = ", ".join(f"{titles[name]}: {n} of {len(chosen)} folds" for name, n in counts.items())
    console.print(
        f"best HSA by validation of each fold ({which}) - {titles[other]} = "
        f"{gap.mean:+.4f} [{gap.low:+.4f}, {gap.high:+.4f}], p = {gap.p:.4f}"
    )
    return {"variants": chosen, "validation": scores, "seeds": sorted(seeds), **asdict(gap)}


def by_length(
    corpus: Corpus, records: list[Record], variants: list[str], console: Console
) -> dict[str, list[Row]]:
    """Accuracy by the number of words of a document."""
    size = np.array([tree.num_nodes for tree in corpus.trees])
    out = {}
    for low, high in itertools.pairwise(LENGTHS):
        some = [cut(record, size, low, high) for record in records if record.variant in variants]
        documents = len({i for r in some if r.variant == variants[0] for i in r.items})
        if documents < ENOUGH:
            continue
        group = groups_of(corpus, some, variants[-1])
        rows = rows_of(some, {v: VARIANTS[v].title for v in variants}, variants[-1], group)
        gap = compare(hits(some, variants[0]), hits(some, variants[-1]), group)
        name = f"{low} to {high - 1} words" if high < 10**9 else f"{low} words and more"
        out[name] = rows
        console.print(
            f"{name}, {documents} documents: {rows[0].accuracy:.3f} and "
            f"{rows[-1].accuracy:.3f}, difference {gap.mean:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]"
        )
    return out


def cut(record: Record, size: np.ndarray, low: int, high: int) -> Record:
    """The documents of a record with ``low`` to ``high - 1`` words."""
    keep = [low <= size[i] < high for i in record.items]

    def some(values: list[int]) -> list[int]:
        return [v for v, k in zip(values, keep) if k]

    return replace(
        record,
        items=some(record.items),
        predicted=some(record.predicted),
        target=some(record.target),
    )
