"""Does hierarchy help on texts?  HSA against flat attention and plain baselines, on real data.

    python examples/hierarchical_language.py                     # food reviews, GloVe
    python examples/hierarchical_language.py --task movie
    python examples/hierarchical_language.py --task brown4 --features glove
    python examples/hierarchical_language.py --task food --features minilm
    python examples/hierarchical_language.py --task food --ablations
    python examples/hierarchical_language.py --task all          # one task after the other
    python examples/hierarchical_language.py --rates 1e-3 3e-3   # the better one of each model
    python examples/hierarchical_language.py --quick             # a look: little data, two epochs

Documents are trees of paragraphs, sentences and words; words have frozen vectors.  All models
have the same size, settings and training; only what mixes the words differs.  Every fold's test
documents are predicted once by every seed, differences are paired by document.  Finished runs
are kept in ``--out`` and not repeated.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import asdict
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
from language_baselines import BASELINES
from language_data import FEATURES, MINILM_LAYER, TASKS, prepare
from language_report import PAIR, best_against, by_length, equivalence, groups_of
from language_training import ABLATIONS, MODELS, VARIANTS, Settings, run, settings_of
from rich.console import Console

import hsa_geo
from hsa_geo._files import write_text

QUICK = "a quick run shows that all works; it trains too little for its accuracies to mean anything"


def main() -> int:
    """Parse the command line and go."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--task", choices=[*TASKS, "all"], default="food", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--features", choices=FEATURES, default="glove", help="(default: %(default)s)"
    )
    parser.add_argument("--root", type=Path, default=Path("data"), help="where data are kept")
    parser.add_argument("--out", type=Path, default=Path("runs/hierarchical_language"))
    parser.add_argument("--folds", type=positive, default=5, help="(default: %(default)s)")
    parser.add_argument(
        "--run-folds", type=positive, help="run only the first so many folds (default: all)"
    )
    several = ", ".join(f"{name} {task.seeds}" for name, task in TASKS.items())
    parser.add_argument("--seeds", type=positive, help=f"number of seeds (default: {several})")
    parser.add_argument(
        "--pair-seeds",
        type=positive,
        help="number of seeds of HSA and of flat attention, which the test of equivalence compares "
        "(default: as many as of the others)",
    )
    parser.add_argument("--models", nargs="+", choices=[*VARIANTS, *BASELINES], metavar="MODEL")
    parser.add_argument(
        "--rates",
        type=positive_rate,
        nargs="+",
        help="learning rates that every model is tried with on the first fold and seed; the one "
        "with the best validation accuracy is used (default: the one of the settings)",
    )
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
    console = wide_console(markup=False, emoji=False, highlight=False)

    def every() -> None:
        for task in TASKS if args.task == "all" else [args.task]:
            compare_models(argparse.Namespace(**{**vars(args), "task": task}), console)

    return exit_code(every)


def named(variant: str, rate: float | None, task: str, settings: Settings) -> str:
    """What a job of a variant and a learning rate is called: its name alone at the usual rate."""
    usual = settings_of(task, VARIANTS[variant], settings).lr
    return variant if rate is None or rate == usual else f"{variant}@{rate:g}"


def rate_of(job: str, task: str, settings: Settings) -> float:
    """The learning rate of what :func:`named` gave."""
    variant, _, rate = job.partition("@")
    return float(rate or settings_of(task, VARIANTS[variant], settings).lr)


def compare_models(args: argparse.Namespace, console: Console) -> None:
    """Run what has not been run, print the tables and write the report."""
    begin = time.perf_counter()
    settings, task = Settings(**FEATURES[args.features]), TASKS[args.task]
    made_of = [MINILM_LAYER] if args.features == "minilm" else []
    folds = range(1 if args.quick else min(args.run_folds or args.folds, args.folds))
    seeds = range(1 if args.quick else args.seeds or task.seeds)
    pair_seeds = range(1 if args.quick else args.pair_seeds or len(seeds))
    names = args.models or [*MODELS, "tfidf", f"{args.features}_mean"]
    if args.ablations:
        names = [*names, *(name for name in ABLATIONS if name not in names)]
    # Fetched, built and featurised once, before several processes want it.
    used = [VARIANTS[name].hierarchy for name in names if name in VARIANTS]
    corpus = prepare(args.root, args.task, args.features, used, "minilm_mean" in names)

    out = args.out / f"{args.task}-{args.features}"
    folder = out / recipe_key(args.folds, args.quick, hsa_geo.__version__)

    def records_of(jobs: list[Job]) -> list[Record]:
        return run_jobs(
            jobs,
            run,
            folder,
            arguments=(args.root, args.task, args.features, args.folds, settings, args.quick),
            recipe=lambda job: recipe_key(
                settings, task.made_by, VARIANTS.get(job.variant.partition("@")[0]), *made_of
            ),
            workers=args.workers,
            console=console,
        )

    rates = args.rates or [None]
    tried = {
        name: list(dict.fromkeys(named(name, rate, args.task, settings) for rate in rates))
        for name in names
        if name in VARIANTS
    }
    best = {name: some[0] for name, some in tried.items()}
    if any(len(some) > 1 for some in tried.values()):
        best = best_rates(records_of([Job(name) for some in tried.values() for name in some]))
    jobs = [
        Job(best.get(name, name), fold, seed)
        for seed in range(max(len(seeds), len(pair_seeds)))
        for fold in folds
        for name in names
        # Baselines have no seed.
        if seed in (pair_seeds if name in PAIR else seeds if name in VARIANTS else range(1))
    ]
    records = records_of(jobs)
    for record in records:
        record.variant = record.variant.partition("@")[0]

    titles = {name: VARIANTS[name].title for name in names if name in VARIANTS}
    titles |= {name: BASELINES[name] for name in names if name in BASELINES}
    reference = "flat" if "flat" in names else names[0]
    group = groups_of(corpus, records, reference)
    rows = rows_of(records, titles, reference, group)
    parts = [task.title, f"{args.features}, {len(corpus.trees)} documents", shown(task.options)]
    parts.append(f"{len(folds)} of {args.folds} folds, {len(seeds)} seed(s)")
    title = "; ".join(part for part in parts if part)
    show(rows, title, console)
    tables = {"all": rows}
    verdict = {}
    if set(PAIR) <= set(names):
        verdict = equivalence(rows, "hsa")
        console.print(QUICK if args.quick else verdict["text"])
        tables |= by_length(corpus, records, list(PAIR), console)
    if "tfidf" in names:
        verdict["against TF-IDF"] = best_against(records, "tfidf", titles, group, console)
    report = {
        "task": args.task,
        "title": title,
        "options of the dataset": dict(task.options),
        "documents": len(corpus.trees),
        "features": args.features,
        "layer of MiniLM": MINILM_LAYER if args.features == "minilm" else None,
        "folds": [len(folds), args.folds],
        "seeds of HSA and flat attention": list(pair_seeds),
        "settings": asdict(settings) | dict(task.settings),
        "rates": {name: rate_of(job, args.task, settings) for name, job in best.items()},
        "equivalence": verdict,
        "seconds": time.perf_counter() - begin,
    }
    out.mkdir(parents=True, exist_ok=True)
    save_report(out / "report.json", tables, list(seeds), **report)
    write_text(out / "report.md", f"{title}\n\n{markdown(rows)}\n")
    console.print(f"report in {out / 'report.json'}; {time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
