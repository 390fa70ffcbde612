"""Does the hierarchy of a page help where words and pictures meet?  One command gives the table.

Pages of a manual (or emojis) are classified by their section from words, from pictures, and from
both, by hierarchical attention and by models of the same size: flat attention, flat attention
that is told the hierarchy, DeepSet, no attention; and by TF-IDF with logistic regression.

    python examples/multimodal_pages.py --data grass --seeds 3
    python examples/multimodal_pages.py --data all          # one after the other

Every variant is tried with each of ``--rates`` on the first fold; the learning rate with the best
validation accuracy is used for all folds and seeds.  Every run has a process of its own and is kept
in ``--out``; a command that was killed goes on.  Test items are looked at once, at the end; the
epoch is chosen on validation items.  Whole groups of pages (sub-sections) are on one side, and are
what the statistics draw.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
from comparison import (
    Job,
    Record,
    best_rates,
    exit_code,
    positive,
    positive_rate,
    recipe_key,
    run_jobs,
)
from comparison_table import markdown, rows_of, save_report, show, shown, wide_console
from multimodal_runs import ATTENTIONS, BASELINES, MODALITIES, Settings, load, run

import hsa_geo
from hsa_geo._files import write_text

DATA = ("gimp-help", "grass", "emojis")
_NAMES = {
    "hsa": "HSA",
    "flat": "flat",
    "told": "flat, told the hierarchy",
    "deep_set": "DeepSet",
    "none": "no attention",
}
_WHAT = {"both": "words and pictures", "text": "words", "image": "pictures"}
TITLES = {
    f"{attention}-{which}": f"{_NAMES[attention]}, {_WHAT[which]}"
    for which in MODALITIES
    for attention in ATTENTIONS
} | BASELINES


def arguments(args: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    known = Settings()
    parser.add_argument("--root", default="data", help="folder of the datasets")
    parser.add_argument("--out", type=Path, default=Path("runs/multimodal_pages"))
    parser.add_argument("--data", choices=(*DATA, "all"), default=known.data)
    parser.add_argument("--variants", nargs="+", choices=list(TITLES), default=list(TITLES))
    parser.add_argument("--seeds", type=positive, default=3)
    parser.add_argument("--workers", type=positive, default=2, help="processes at once")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    for name in ("folds", "max_words", "max_side", "channels", "layers", "epochs", "budget"):
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=positive, default=getattr(known, name))
    parser.add_argument("--limit", type=positive, help="use so many items only, for a trial")
    parser.add_argument("--vectors", choices=("learned", "glove"), default=known.vectors)
    parser.add_argument(
        "--rates", type=positive_rate, nargs="+", default=[3e-3], help="learning rates"
    )
    parser.add_argument("--dropout", type=float, default=known.dropout)
    return parser.parse_args(args)


def main(args: list[str] | None = None) -> int:
    """Parse the command line and go."""
    given = arguments(args)

    def every() -> None:
        for data in DATA if given.data == "all" else [given.data]:
            compare_models(argparse.Namespace(**{**vars(given), "data": data}))

    return exit_code(every)


def compare_models(given: argparse.Namespace) -> None:
    """Run what has not been run, and print and write the table."""
    console = wide_console()
    settings = Settings(
        **{key: value for key, value in vars(given).items() if key in asdict(Settings())}
    )
    data = load(given.root, settings)  # built here, once
    folder = given.out / f"{settings.data}-{recipe_key(settings, hsa_geo.__version__)}"
    root = os.path.abspath(given.root)

    def records_of(jobs: list[Job]) -> list[Record]:
        return run_jobs(
            jobs,
            run,
            folder,
            arguments=(root, settings),
            recipe=lambda job: recipe_key(ATTENTIONS.get(job.variant.partition("-")[0])),
            workers=given.workers,
            console=None if given.quiet else console,
        )

    trained = [variant for variant in given.variants if variant not in BASELINES]
    best = {variant: f"{variant}@{given.rates[0]:g}" for variant in trained}
    if len(given.rates) > 1:
        best = best_rates(
            records_of([Job(f"{name}@{rate:g}") for name in trained for rate in given.rates])
        )
    records = records_of(
        [
            Job(best.get(variant, variant), fold, seed)
            for seed in range(given.seeds)
            for fold in range(settings.folds)
            for variant in given.variants
            if seed == 0 or variant in trained  # one seed of the others says all
        ]
    )
    for record in records:
        record.variant = record.variant.partition("@")[0]
    items = np.unique(np.concatenate([record.items for record in records]))
    group = data.column("group_id").numpy()[items]
    reference = next(v for v in ("hsa-both", *given.variants) if v in given.variants)
    rows = rows_of(records, TITLES, reference, group)
    cut = shown({name: getattr(settings, name) for name in ("max_words", "max_side")})
    title = f"{settings.data}: {len(items)} items, {len(data.classes)} classes; {cut}"
    show(rows, title, console)
    write_text(folder / "table.md", f"{title}\n\n{markdown(rows)}\n")
    save_report(
        folder / "report.json",
        {settings.data: rows},
        range(given.seeds),
        title=title,
        settings=asdict(settings),
        rates=best,
        classes=list(data.classes),
        items=len(items),
        groups=len(np.unique(group)),
    )
    console.print(f"{folder / 'table.md'}, {folder / 'report.json'}")


if __name__ == "__main__":
    sys.exit(main())
