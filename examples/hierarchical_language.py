"""Does hierarchy help on texts?  HSA against flat attention and plain baselines, on real data.

    python examples/hierarchical_language.py                     # food reviews, GloVe
    python examples/hierarchical_language.py --task movie
    python examples/hierarchical_language.py --task brown4 --features glove
    python examples/hierarchical_language.py --task food --features minilm
    python examples/hierarchical_language.py --task food --ablations
    python examples/hierarchical_language.py --quick             # a look: little data, two epochs

Documents are trees of paragraphs, sentences and words; words have frozen vectors.  All models
have the same size, settings and training; only what mixes the words differs.  Every fold's test
documents are predicted once by every seed, differences are paired by document.  Finished runs
are kept in ``--out`` and not repeated.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from comparison import Job, Record, recipe_key, run_jobs
from comparison_statistics import compare, hits
from comparison_table import Row, markdown, rows_of, save_report, show
from language_baselines import BASELINES
from language_data import FEATURES, TASKS, Corpus, prepare
from language_training import ABLATIONS, MODELS, VARIANTS, Settings, run
from rich.console import Console

import hsa_geo
from hsa_geo.errors import HSAError

#: HSA may be so much worse than flat attention and still count as good as it.
MARGIN = 0.015
#: The two that the test of equivalence compares.
PAIR = ("hsa", "flat")
#: Words of a document at which the table by length cuts.
LENGTHS = (0, 25, 50, 100, 200, 500, 10**9)


def main() -> int:
    """Parse the command line and go."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--task", choices=TASKS, default="food", help="(default: %(default)s)")
    parser.add_argument(
        "--features", choices=FEATURES, default="glove", help="(default: %(default)s)"
    )
    parser.add_argument("--root", type=Path, default=Path("data"), help="where data are kept")
    parser.add_argument("--out", type=Path, default=Path("runs/hierarchical_language"))
    parser.add_argument("--folds", type=positive, default=5, help="(default: %(default)s)")
    parser.add_argument(
        "--run-folds", type=positive, help="run only the first so many folds (default: all)"
    )
    parser.add_argument("--seeds", type=positive, help="number of seeds (default: 3)")
    parser.add_argument(
        "--pair-seeds",
        type=positive,
        help="number of seeds of HSA and of flat attention, which the test of equivalence compares "
        "(default: as many as of the others)",
    )
    parser.add_argument("--models", nargs="+", choices=[*VARIANTS, *BASELINES], metavar="MODEL")
    parser.add_argument("--ablations", action="store_true", help="run the ablations, too")
    parser.add_argument(
        "--quick", action="store_true", help="one fold, one seed, two epochs of a tenth"
    )
    parser.add_argument("--workers", type=positive, default=min(2, os.cpu_count() or 1))
    args = parser.parse_args()
    if args.quick and (args.seeds or args.pair_seeds or args.run_folds):
        parser.error(
            "--quick runs one fold and one seed: leave --seeds, --pair-seeds and --run-folds out."
        )
    console = Console(markup=False, emoji=False, highlight=False)
    try:
        return compare_models(args, console)
    except (HSAError, OSError) as error:
        line = " ".join(f"error: {error}".splitlines())
        Console(stderr=True, soft_wrap=True, markup=False, emoji=False).print(line, style="red")
        return 1


def positive(text: str) -> int:
    """A positive integer of the command line."""
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def compare_models(args: argparse.Namespace, console: Console) -> int:
    """Run what has not been run, print the tables and write the report."""
    begin = time.perf_counter()
    settings = Settings()
    folds = range(1 if args.quick else min(args.run_folds or args.folds, args.folds))
    seeds = range(1 if args.quick else args.seeds or 3)
    pair_seeds = range(1 if args.quick else args.pair_seeds or len(seeds))
    names = args.models or [*MODELS, "tfidf", f"{args.features}_mean"]
    if args.ablations:
        names = [*names, *(name for name in ABLATIONS if name not in names)]
    # Fetched, built and featurised once, before several processes want it.
    used = [VARIANTS[name].hierarchy for name in names if name in VARIANTS]
    corpus = prepare(args.root, args.task, args.features, used, "minilm_mean" in names)

    jobs = [
        Job(name, fold, seed)
        for seed in range(max(len(seeds), len(pair_seeds)))
        for fold in folds
        for name in names
        # Baselines have no seed.
        if seed in (pair_seeds if name in PAIR else seeds if name in VARIANTS else range(1))
    ]
    out = args.out / f"{args.task}-{args.features}"
    folder = out / recipe_key(args.folds, args.quick, hsa_geo.__version__)
    arguments = (args.root, args.task, args.features, args.folds, settings, args.quick)
    records = run_jobs(
        jobs,
        run,
        folder,
        arguments=arguments,
        recipe=lambda job: recipe_key(settings, TASKS[args.task], VARIANTS.get(job.variant)),
        workers=args.workers,
        console=console,
    )

    titles = {name: VARIANTS[name].title for name in names if name in VARIANTS}
    titles |= {name: BASELINES[name] for name in names if name in BASELINES}
    reference = "flat" if "flat" in names else names[0]
    group = groups_of(corpus, records, reference)
    rows = rows_of(records, titles, reference, group)
    console.print(f"{TASKS[args.task].title}; {args.features}, {len(corpus.trees)} documents")
    show(rows, f"{len(folds)} of {args.folds} folds, {len(seeds)} seed(s)", console)
    tables = {"all": rows}
    verdict = {}
    if set(PAIR) <= set(names):
        verdict = equivalence(rows, "hsa")
        console.print(verdict["text"])
        tables |= by_length(corpus, records, list(PAIR), console)
    if "tfidf" in names:
        verdict["against TF-IDF"] = best_against(records, "tfidf", titles, group, console)
    report = {
        "task": args.task,
        "features": args.features,
        "folds": [len(folds), args.folds],
        "seeds of HSA and flat attention": list(pair_seeds),
        "settings": asdict(settings) | dict(TASKS[args.task].settings),
        "equivalence": verdict,
        "seconds": time.perf_counter() - begin,
    }
    out.mkdir(parents=True, exist_ok=True)
    save_report(out / "report.json", tables, list(seeds), **report)
    (out / "report.md").write_text(markdown(rows) + "\n", encoding="utf-8")
    console.print(f"report in {out / 'report.json'}; {time.perf_counter() - begin:.0f} s")
    return 0


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
    """The HSA model that is best on validation documents, against another on test documents."""
    score: dict[str, float] = {}
    for name in titles:
        if name.startswith("hsa"):
            score[name] = float(np.mean([r.validation for r in records if r.variant == name]))
    if not score:
        return {}
    best = max(score, key=lambda name: score[name])
    gap = compare(hits(records, best), hits(records, other), group)
    console.print(
        f"best HSA by validation ({titles[best]}, {score[best]:.3f} there) - {titles[other]} = "
        f"{gap.mean:+.4f} [{gap.low:+.4f}, {gap.high:+.4f}], p = {gap.p:.4f}"
    )
    return {"variant": best, "validation": score, **asdict(gap)}


def by_length(
    corpus: Corpus, records: list[Record], variants: list[str], console: Console
) -> dict[str, list[Row]]:
    """Accuracy by the number of words of a document."""
    size = np.array([tree.num_nodes for tree in corpus.trees])
    out = {}
    for low, high in itertools.pairwise(LENGTHS):
        some = [cut(record, size, low, high) for record in records if record.variant in variants]
        if sum(len(r.items) for r in some if r.variant == variants[0]) < 100:
            continue
        group = groups_of(corpus, some, variants[-1])
        rows = rows_of(some, {v: VARIANTS[v].title for v in variants}, variants[-1], group)
        gap = compare(hits(some, variants[0]), hits(some, variants[-1]), group)
        name = f"{low} to {high - 1} words" if high < 10**9 else f"{low} words and more"
        out[name] = rows
        console.print(
            f"{name}: {rows[0].accuracy:.3f} and {rows[-1].accuracy:.3f}, difference "
            f"{gap.mean:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]"
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


if __name__ == "__main__":
    sys.exit(main())
