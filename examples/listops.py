"""Does the hierarchy pay where the answer lies in the structure?  One command gives the table.

Two generated tasks whose trees are given: ``records`` (a table of records and a question: the
value of the one record all of whose keys fit) and ``listops`` (the value of nested lists of
operations).  Hierarchical attention against models of the same size: flat attention, flat
attention told the hierarchy (depth and path of every leaf, and the way between any two), DeepSet,
no attention; and against logistic regression of a bag of symbols.

    python examples/listops.py --task records
    python examples/listops.py --task all          # one after the other

Every variant is tried with each of ``--rates`` on the first ``--tries`` seeds; the learning rate
with the best mean validation accuracy is used for all seeds.  Test trees are looked at once, at
the end.  Every run has a process of its own and is kept in ``--out``; a command that was killed
goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path

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
from listops_runs import MODELS, STRENGTHS, Settings, load, run

import hsa_geo
from hsa_geo._files import write_text

#: Settings of the tables in the documentation.
TASKS = {
    "records": Settings("records", (3000, 1000, 2000), epochs=10),
    "listops": Settings(
        "listops", (3000, 1000, 2000), {"max_depth": 3, "max_leaves": 40}, layers=3, epochs=10
    ),
}


def arguments(args: list[str] | None = None) -> argparse.Namespace:
    """The command line; sizes that are not given are those of :data:`TASKS`."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--task", choices=[*TASKS, "all"], default="records")
    parser.add_argument("--root", default="data", help="folder of the datasets")
    parser.add_argument("--out", type=Path, default=Path("runs/listops"))
    parser.add_argument("--variants", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--seeds", type=positive, default=5)
    parser.add_argument("--rates", type=positive_rate, nargs="+", default=[1e-3, 3e-3])
    parser.add_argument(
        "--tries", type=positive, default=2, help="seeds that every rate is tried with"
    )
    parser.add_argument("--sizes", type=int, nargs=3, metavar=("TRAIN", "VALIDATION", "TEST"))
    parser.add_argument("--data", type=json.loads, help="options of the dataset, as JSON")
    for name in ("channels", "layers", "epochs", "budget"):
        parser.add_argument(f"--{name}", type=positive)
    parser.add_argument("--workers", type=positive, default=2, help="processes at once")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    given = parser.parse_args(args)
    if given.task == "all" and given.data is not None:
        parser.error("--data are options of one dataset: name its --task.")
    return given


def settings_of(given: argparse.Namespace) -> Settings:
    """The settings of the task, changed as the command line says."""
    names = ("channels", "layers", "epochs", "budget", "data", "sizes")
    changes = {name: value for name in names if (value := getattr(given, name)) is not None}
    if "sizes" in changes:
        changes["sizes"] = tuple(changes["sizes"])
    return replace(TASKS[given.task], **changes)


def main(args: list[str] | None = None) -> int:
    """Parse the command line and go."""
    given = arguments(args)

    def every() -> None:
        for task in TASKS if given.task == "all" else [given.task]:
            compare_models(argparse.Namespace(**{**vars(given), "task": task}))

    return exit_code(every)


def recipe_of(job: Job) -> str:
    """What the record of a job depends on, beside the settings."""
    what = MODELS[job.variant.partition("@")[0]]
    return recipe_key(what) if what[1] is not None else recipe_key(what, STRENGTHS)


def compare_models(given: argparse.Namespace) -> None:
    """Run what has not been run, and print and write the table."""
    console = wide_console()
    settings = settings_of(given)
    root = Path(os.path.abspath(given.root))
    load(settings, root)  # built here, once
    folder = given.out / f"{settings.task}-{recipe_key(settings, hsa_geo.__version__)}"

    def records_of(jobs: list[Job]) -> list[Record]:
        return run_jobs(
            jobs,
            run,
            folder,
            arguments=(root, settings),
            recipe=recipe_of,
            workers=given.workers,
            console=None if given.quiet else console,
        )

    tries = [
        Job(f"{variant}@{rate:g}", 0, seed)
        for seed in range(min(given.tries, given.seeds))
        for variant in given.variants
        if MODELS[variant][1] is not None
        for rate in given.rates
    ]
    tries += [Job(variant) for variant in given.variants if MODELS[variant][1] is None]
    best = best_rates(records_of(tries))
    records = records_of(
        [
            Job(best[variant], 0, seed)
            for seed in range(given.seeds)
            for variant in given.variants
            if seed == 0 or MODELS[variant][1] is not None  # one seed of the others says all
        ]
    )
    for record in records:
        record.variant = record.variant.partition("@")[0]
    titles = {variant: title for variant, (title, _) in MODELS.items()}
    reference = next(v for v in ("flat_told", *given.variants) if v in given.variants)
    rows = rows_of(records, titles, reference)
    train, _, test = settings.sizes
    parts = [f"{settings.task}: {train} trees to train on, {test} to test", shown(settings.data)]
    title = "; ".join(part for part in parts if part)
    show(rows, title, console)
    write_text(folder / "table.md", f"{title}\n\n{markdown(rows)}\n")
    save_report(
        folder / "report.json",
        {settings.task: rows},
        range(given.seeds),
        title=title,
        settings=asdict(settings),
        rates=best,
    )
    console.print(f"{folder / 'table.md'}, {folder / 'report.json'}")


if __name__ == "__main__":
    sys.exit(main())
