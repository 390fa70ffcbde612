"""Message passing and hierarchical attention in turns, against what else sees the whole graph.

    python examples/gnn_pipeline.py                          # everything, about eleven minutes
    python examples/gnn_pipeline.py --quick                  # one seed, small graphs, two minutes
    python examples/gnn_pipeline.py --dataset Cora           # a dataset that PyG fetches
    python examples/gnn_pipeline.py --out docs/measured      # tables into files

Ordinary graphs get the hierarchy of their communities (Louvain, from edges alone) by a transform;
a GNN then alternates GIN or GCN with ``HSAConv`` over it.  Compared at equal parameters are the
same GNN without it, with a virtual node, PyG's ``GPSConv`` with multi-head attention, and
``HSAConv`` over a hierarchy in which chance placed the nodes; then one training step of each on
graphs that grow to 100,000 nodes.  Finished trainings are kept in ``--keep`` and not repeated, so a
run that was killed goes on.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import sys
import tempfile
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from gnn_report import markdown, scaling_tables, summary, task_table
from gnn_scaling import SIZES, measure
from gnn_tasks import TASKS, named
from gnn_training import contenders_of, kept

from hsa_geo.errors import HSAError

#: Seeds of KarateClub, which takes no time, for each seed of the others.
MORE_SEEDS = {"karate": 4}
#: Tasks of ``--quick``, and their epochs.
QUICK = {"relay": 10, "ring": 15, "karate": 30}


def main(argv: list[str] | None = None) -> int:
    """Parse the command line and go."""
    args = parsed(argv)
    begin = time.perf_counter()
    try:
        report: dict[str, Any] = {"machine": machine(), "runs": trained(args)}
        report["tasks"] = summary(report["runs"])
        for task, rows in report["tasks"].items():
            task_table(task, rows).show()
        if args.sizes:
            limits = {"gigabytes": args.memory, "seconds": args.seconds, "threads": args.threads}
            with tempfile.TemporaryDirectory() as folder:
                report["scaling"] = measure(args.sizes, Path(folder), say=say, **limits)
            for table in scaling_tables(report["scaling"]):
                table.show()
    except (HSAError, OSError) as error:
        print(" ".join(f"error: {error}".split()), file=sys.stderr)
        return 1
    report["seconds"] = time.perf_counter() - begin
    report["trained_seconds"] = sum(run["seconds"] for run in report["runs"])
    print(f"{report['seconds']:.0f} s, trainings {report['trained_seconds']:.0f} s of processors")
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "gnn_pipeline.json").write_text(json.dumps(report, indent=1) + "\n")
        (args.out / "gnn_pipeline.md").write_text(markdown(report), encoding="utf-8")
        print(f"wrote {args.out}/gnn_pipeline.json and .md")
    return 0


def parsed(argv: list[str] | None) -> argparse.Namespace:
    """The command line, checked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--quick", action="store_true", help="three tasks, one seed, fewer epochs, small graphs")
    add("--tasks", nargs="+", choices=TASKS, help="some of the generated tasks and KarateClub")
    add("--dataset", metavar="NAME", help="only this: a task, Cora, CiteSeer, PubMed or a TU name")
    add("--root", type=Path, default=Path("data/pyg"), help="folder for what PyG fetches")
    add("--keep", type=Path, default=Path("runs/gnn_pipeline"), help="folder of finished trainings")
    add("--local", choices=("gin", "gcn"), help="message passing (default: the task's own)")
    add("--epochs", type=int, help="passes over the training graphs (default: the task's own)")
    add("--seeds", type=int, help="number of seeds (default: 5; with --quick 1)")
    add("--workers", type=int, default=min(2, os.cpu_count() or 1), help="training processes")
    add("--sizes", type=int, nargs="*", help="nodes of the growing graphs; none: leave them out")
    add("--memory", type=float, default=8.0, help="GB by which a step may grow memory (8)")
    add("--seconds", type=float, default=60.0, help="processor seconds for steps of a model (60)")
    add("--threads", type=int, default=1, help="threads of the steps on growing graphs (1)")
    add("--out", type=Path, help="folder for gnn_pipeline.json and .md")
    args = parser.parse_args(argv)
    if args.dataset and args.tasks:
        parser.error("--dataset and --tasks both say what to train on: give one of them.")
    if args.sizes is None:
        small = SIZES[1:2] if args.quick else SIZES
        args.sizes = [] if args.dataset or args.tasks else list(small)
    args.sizes = sorted(args.sizes)
    args.seeds = args.seeds if args.seeds is not None else 1 if args.quick else 5
    if args.quick and not args.tasks:
        args.tasks = list(QUICK)
    lowest = min([args.epochs or 1, args.seeds, args.workers, args.threads, *args.sizes])
    if lowest < 1 or args.memory <= 0 or args.seconds <= 0:
        parser.error(
            "--seeds, --epochs, --workers, --threads, --sizes, --memory, --seconds: above 0."
        )
    return args


def trained(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Results of all tasks with all seeds, in their order, from as many processes as asked for."""
    chosen = [args.dataset] if args.dataset else args.tasks or list(TASKS)
    if args.dataset:  # fetched, or refused, before there are several processes
        import numpy as np

        named(args.dataset, args.root, np.random.default_rng(0))
    jobs = [(task, seed) for task in chosen for seed in range(args.seeds * MORE_SEEDS.get(task, 1))]
    jobs.sort(key=lambda job: job[0] == "karate")  # the short ones last
    options = {"root": args.root, "local": args.local}
    epochs = QUICK if args.quick else {}
    found = {}
    with ProcessPoolExecutor(
        args.workers, mp_context=multiprocessing.get_context("spawn"), initializer=one_thread
    ) as pool:
        futures = {
            pool.submit(
                kept, args.keep, *job, epochs=args.epochs or epochs.get(job[0]), **options
            ): job
            for job in jobs
        }
        try:
            for future in as_completed(futures):
                job = futures[future]
                found[job] = future.result()
                say(f"{job[0]}, seed {job[1]}: {len(contenders_of(job[0]))} models trained")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [found[job] for job in sorted(jobs, key=lambda job: (chosen.index(job[0]), job[1]))]


def one_thread() -> None:
    """Set up a worker: small models gain nothing from more threads."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=UserWarning, module="torch")


def machine() -> dict[str, str]:
    """What it ran on and with."""
    info, cpu = Path("/proc/cpuinfo"), platform.machine()
    if info.exists():
        names = [s.partition(":")[2] for s in info.read_text().splitlines() if "model name" in s]
        cpu = names[0].strip() if names else cpu
    packages = {name: version(name) for name in ("torch", "torch_geometric")}
    return {
        "CPU": f"{cpu} ({os.cpu_count()} cores)",
        "Python": platform.python_version(),
    } | packages


def say(text: str) -> None:
    """A line of progress, apart from the results."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
