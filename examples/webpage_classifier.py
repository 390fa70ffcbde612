"""Which kinds of form does a web page hold?  HSA on real pages, from the archive to the answer.

    python examples/webpage_classifier.py                       # the whole comparison
    python examples/webpage_classifier.py --quick               # one fold, one seed
    python examples/webpage_classifier.py --predict PAGE.html   # ask the trained model

954 pages with annotated forms (``FormPages``) become signal trees.  Every form is a subtree with a
label of its own; the model reads each form in the context of its page, and a page has the types
of its forms.  Compared are hierarchical attention, flat attention and DeepSet with the same
number of parameters, and TF-IDF with logistic regression, in five folds grouped by web domain.
Finished runs are kept in ``--out`` and not repeated, so a run that was killed goes on.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import multiprocessing
import os
import resource
import shutil
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from webpage_baselines import run_baselines
from webpage_data import READER, Pages
from webpage_training import Settings, run, score

import hsa_geo
from hsa_geo.errors import FileFormatError, HSAError
from hsa_geo.pages import PageClassifier, focus

FOLDS = 5
NAMES = {
    "hsa": "HSA",
    "flat": "flat attention",
    "deep_set": "DeepSet",
    "tfidf_page": "TF-IDF + LR, page text",
    "tfidf_page_attributes": "TF-IDF + LR, page text and attributes",
    "tfidf_form": "TF-IDF + LR per form, text",
    "tfidf_form_attributes": "TF-IDF + LR per form, text and attributes",
}
Labels = dict[int, np.ndarray]  # by seed: labels of all test pages [pages, 8]


def main() -> int:
    """Parse the command line and go."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--root",
        type=Path,
        default=Path("data/form_pages"),
        help="where the dataset is kept (default: %(default)s)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/webpage_classifier"),
        help="where runs, model and report go (default: %(default)s)",
    )
    parser.add_argument("--quick", action="store_true", help="one fold, one seed, fewer epochs")
    parser.add_argument("--seeds", type=positive, help="number of seeds (default: 3)")
    parser.add_argument(
        "--workers",
        type=positive,
        default=min(2, os.cpu_count() or 1),
        help="training processes (default: %(default)s)",
    )
    parser.add_argument("--predict", type=Path, metavar="FILE.html", help="classify one page")
    args = parser.parse_args()
    if args.quick and args.seeds is not None:
        parser.error("--quick trains with one seed: leave --seeds out.")
    if args.quick and args.predict is not None:
        parser.error("--predict takes the best model there is: leave --quick out.")
    plain: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False}
    console = Console(**plain)
    try:
        if args.predict is not None:
            return classify(args.predict, args.out, console)
        return compare(args, console)
    except (HSAError, OSError) as error:
        line = " ".join(f"error: {error}".splitlines())
        Console(stderr=True, soft_wrap=True, **plain).print(line, style="red")
        return 1


def positive(text: str) -> int:
    """A positive integer of the command line."""
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def compare(args: argparse.Namespace, console: Console) -> int:
    """Train and test everything, print the table, save the model."""
    begin = time.perf_counter()
    settings = replace(Settings(), epochs=5) if args.quick else Settings()
    folds, seeds = (1, 1) if args.quick else (FOLDS, args.seeds or 3)
    home = args.out / "quick" if args.quick else args.out
    pages = Pages.read(args.root, log=True)
    # Finished runs count again only if they were made of the same thing.
    recipe = [asdict(settings), READER.options, hsa_geo.__version__, inspect.getsource(focus)]
    key = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:8]
    out = home / key
    out.mkdir(parents=True, exist_ok=True)

    tasks = [
        (a, f, s) for s in range(seeds) for f in range(folds) for a in ("flat", "hsa", "deep_set")
    ]
    labels: dict[str, Labels] = {name: {} for name in NAMES}
    tested = np.concatenate([pages.split(f)[2] for f in range(folds)])
    place = {int(page): i for i, page in enumerate(tested)}

    def keep(name: str, seed: int, chosen: Any, values: Any) -> None:
        table = labels[name].setdefault(seed, np.zeros((len(tested), 8), dtype=int))
        table[[place[int(page)] for page in chosen]] = values

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with (
        Progress(*columns, console=console) as progress,
        ProcessPoolExecutor(
            args.workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=torch.set_num_threads,
            initargs=(max(1, (os.cpu_count() or 1) // args.workers),),
        ) as pool,
    ):
        futures = [pool.submit(run, args.root, out, "hsa", None, 0, settings)]
        futures += [pool.submit(run, args.root, out, a, f, s, settings) for a, f, s in tasks]
        plain = [
            pool.submit(run_baselines, args.root, attributes, fold)
            for attributes in (False, True)
            for fold in range(folds)
        ]
        bar = progress.add_task("training", total=len(futures) + len(plain))
        records = []
        try:
            for future in as_completed([*futures, *plain]):
                if future in plain:
                    for name, (chosen, values) in future.result().items():
                        keep(name, 0, chosen, values)
                else:
                    record = future.result()
                    records.append(record)
                    if record["fold"] is not None:
                        keep(record["attention"], record["seed"], record["pages"], record["labels"])
                progress.advance(bar)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    (home / "model").mkdir(exist_ok=True)
    for name in ("model.safetensors", "config.json"):  # the run keeps its own, for the next time
        part = home / "model" / f"{name}.part"
        shutil.copyfile(out / "model" / name, part)
        part.replace(home / "model" / name)

    report = evaluate(pages.y[tested], pages.group[tested], labels)
    report["parameters"] = {r["attention"]: r["parameters"] for r in records}
    report["seconds"] = time.perf_counter() - begin
    report["peak_gigabytes"] = peak_gigabytes(args.workers)
    (home / "report.json").write_text(json.dumps(report, indent=2), encoding="utf-8")
    show(report, len(tested), seeds, console)
    sizes = ", ".join(f"{NAMES[name]} {size:,}" for name, size in report["parameters"].items())
    console.print(f"parameters: {sizes}")
    console.print(
        f"model in {home / 'model'}, report in {home / 'report.json'}; "
        f"{report['seconds']:.0f} s, at most {report['peak_gigabytes']:.1f} GB"
    )
    return 0


def peak_gigabytes(workers: int) -> float:
    """Upper bound of the memory in use: this process and its largest worker, times workers."""
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # kilobytes on Linux
    worker = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return (own + workers * worker) * 1024 / 1e9


def evaluate(
    y: np.ndarray, group: np.ndarray, labels: dict[str, Labels], draws: int = 1000
) -> dict[str, Any]:
    """F1 (mean over seeds) with 95% intervals from a bootstrap over web domains.

    Differences to HSA are drawn on the same domains, so they are paired.
    """
    domains = [np.flatnonzero(group == g) for g in np.unique(group)]
    rng = np.random.default_rng(0)
    # Counts per page and class are enough for F1, whatever pages are drawn.
    count = {
        (name, seed): np.stack([y * p, p, y])  # hit, said, true
        for name, by_seed in labels.items()
        for seed, p in by_seed.items()
    }

    def f1(rows: np.ndarray) -> dict[str, np.ndarray]:
        out: dict[str, list[np.ndarray]] = {name: [] for name in labels}
        for (name, _), value in count.items():
            hit, said, true = value[:, rows].sum(1)  # [8] each
            macro = np.mean(2 * hit / np.maximum(said + true, 1))
            micro = 2 * hit.sum() / max((said + true).sum(), 1)
            out[name].append(np.array([macro, micro]))
        return {name: np.mean(values, 0) for name, values in out.items()}

    exact = f1(np.arange(len(y)))
    drawn = [
        f1(np.concatenate([domains[i] for i in rng.integers(0, len(domains), len(domains))]))
        for _ in range(draws)
    ]
    report: dict[str, Any] = {"models": {}}
    for name in labels:
        values = np.array([d[name] for d in drawn])
        gap = np.array([d["hsa"] - d[name] for d in drawn])
        per_seed = [score(y, p) for p in labels[name].values()]
        report["models"][name] = {
            "f1": exact[name].tolist(),
            "interval": np.percentile(values, [2.5, 97.5], axis=0).T.tolist(),
            "hsa_minus": (exact["hsa"] - exact[name]).tolist(),
            "hsa_minus_interval": np.percentile(gap, [2.5, 97.5], axis=0).T.tolist(),
            "seeds": per_seed,
        }
    return report


def show(report: dict[str, Any], pages: int, seeds: int, console: Console) -> None:
    """Print the table."""
    table = Table(title=f"Kinds of form on {pages} test pages; {seeds} seed(s), 95% intervals")
    for column in ("model", "macro-F1", "micro-F1", "HSA minus it: macro", "micro", "real?"):
        table.add_column(column, justify="left" if column == "model" else "right")
    for name, title in NAMES.items():
        row = report["models"][name]
        cells = [f"{v:.3f} [{a:.3f}, {b:.3f}]" for v, (a, b) in zip(row["f1"], row["interval"])]
        if name == "hsa":
            gaps = ["", "", ""]
        else:
            pairs = list(zip(row["hsa_minus"], row["hsa_minus_interval"]))
            real = ["yes" if a > 0 or b < 0 else "no" for _, (a, b) in pairs]
            gaps = [f"{v:+.3f} [{a:+.3f}, {b:+.3f}]" for v, (a, b) in pairs]
            gaps.append(f"{real[0]} / {real[1]}")
        table.add_row(title, *cells, *gaps)
    console.print(table)


def classify(path: Path, out: Path, console: Console) -> int:
    """Print the labels of one page, with probabilities, and those of its forms."""
    page = path.read_bytes()  # a missing page is said before a missing model
    if not (out / "model").is_dir() and (out / "quick" / "model").is_dir():
        out = out / "quick"
        console.print(f"(the model of a --quick run, in {out})", soft_wrap=True)
    if not (out / "model").is_dir():
        raise FileFormatError(
            f"there is no model in {str(out)!r}: run this program without --predict first, which "
            "trains one."
        )
    found = PageClassifier.load(out / "model").predict(page)
    what = ", ".join(found.labels) if found.labels else "no form of a known type"
    console.print(f"{path}: {what}", soft_wrap=True)
    table = Table("type of form", "probability")
    for name, p in found.probabilities.items():
        table.add_row(name, f"{p:.3f}")
    console.print(table)
    for i, form in enumerate(found.forms):
        line = f"form {i + 1} of {len(found.forms)}: {form.label} ({form.probability:.3f})"
        console.print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
