"""How fast is hierarchical attention?  Against flat attention, PyG's layers, and a projection.

    python examples/benchmarks/attention.py                        # everything, ten minutes
    python examples/benchmarks/attention.py --quick                # small sizes, under a minute
    python examples/benchmarks/attention.py --check                # do all backends agree?
    python examples/benchmarks/attention.py --million              # one document, 10^6 leaves
    python examples/benchmarks/attention.py --out docs/measured    # tables and picture into files

Times are medians with quartiles, forward without gradients and forward with backward.  Within a
shape and size all contenders take turns, round after round, so that what else the machine does
hits them alike; compare ratios, not runs.  Memory is the most that the resident memory of the
process rose during one call, outputs and gradients included, over the size of q, k, v and out
together.  What is too slow or too large is left out with a line that says so.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from attention_check import check
from attention_fresh import in_fresh_process, serve
from attention_limits import Limits
from attention_measure import measure, measure_scaling, quartiles, warm_up
from attention_plot import need_matplotlib, plot
from attention_report import (
    goals_table,
    markdown,
    memory_table,
    million_table,
    scaling_table,
    work_table,
)
from attention_rivals import CONTENDERS, OURS
from attention_shapes import SHAPES, make_work

from hsa_geo.errors import HSAError

#: Fresh processes: contender, leaves, number of processes.
MEMORY = [("numba", 65536, 5), ("block", 65536, 3), ("flat", 16384, 3)]
MEMORY_QUICK = [("numba", 16384, 1), ("block", 16384, 1)]


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n")[0],
        epilog="shapes: " + "; ".join(f"{name}: {shape.text}" for name, shape in SHAPES.items()),
    )
    add = parser.add_argument
    add("--check", action="store_true", help="compare the backends, measure nothing")
    add("--million", action="store_true", help="one forward pass of a document of 10^6 leaves")
    add("--quick", action="store_true", help="smaller sizes and fewer rounds")
    add(
        "--shapes",
        nargs="+",
        choices=SHAPES,
        default=list(SHAPES),
        metavar="SHAPE",
        help=f"of {', '.join(SHAPES)} (default: all)",
    )
    add(
        "--sizes",
        nargs="+",
        type=size,
        metavar="N",
        help="leaves, for every shape (default: by shape)",
    )
    add(
        "--contenders",
        nargs="+",
        choices=CONTENDERS,
        default=list(CONTENDERS),
        metavar="NAME",
        help=f"of {', '.join(CONTENDERS)} (default: all)",
    )
    add("--heads", type=positive, default=8, help="H (default: %(default)s)")
    add("--dim", type=positive, default=64, help="D, channels of a head (default: %(default)s)")
    add("--rounds", type=positive, help="rounds (default: 7, with --quick 3)")
    add(
        "--budget",
        type=float,
        default=2.0,
        help="seconds after which three rounds are enough of a contender (default: %(default)s)",
    )
    add(
        "--threads",
        type=positive,
        default=torch.get_num_threads(),
        help="threads of PyTorch (default: %(default)s)",
    )
    add("--seed", type=int, default=0, help="of trees and inputs (default: %(default)s)")
    add("--device", default="cpu", help="cpu or cuda (default: %(default)s)")
    add(
        "--flat-limit",
        type=positive,
        default=Limits.flat,
        metavar="N",
        help="most leaves of a tree for flat attention (default: %(default)s)",
    )
    add(
        "--pair-limit",
        type=positive,
        default=Limits.pairs,
        metavar="P",
        help="most sibling pairs for a message per pair (default: %(default)s)",
    )
    add("--out", type=Path, metavar="DIR", help="write attention.json, .md and .png there")
    add("--child", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.device != "cpu" and not torch.cuda.is_available():
        parser.error(f"--device {args.device}: PyTorch finds no CUDA device here; use cpu.")
    if args.check and args.million:
        parser.error("--check and --million are two things: run one after the other.")
    if args.check or args.million:
        fixed = ["quick", "out", "rounds"] + (["sizes"] if args.million else [])
        for name in fixed:
            if getattr(args, name):
                parser.error(f"--{name} is for the whole benchmark: leave it out.")
    return args


def positive(text: str) -> int:
    """A positive integer of the command line."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive: give 1 or more")
    return value


def size(text: str) -> int:
    """A number of leaves: one has nothing to attend to."""
    value = int(text)
    if value < 2:
        raise argparse.ArgumentTypeError(f"{text} is no number of leaves: give 2 or more")
    return value


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line asks; 1 if backends disagree or a package is missing."""
    args = parse(arguments)
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)  # parameters of layers
    if args.child is not None:
        print(json.dumps(serve(args.child)))
        return 0
    options = {name: getattr(args, name) for name in ("heads", "dim", "seed", "device")}
    try:
        if args.check:
            table, good = check(args.shapes, args.sizes, options)
            table.show()
            print("all backends agree" if good else "BACKENDS DISAGREE: see WRONG above")
            return 0 if good else 1
        if args.million:
            return million(args, options)
        return benchmark(args, options)
    except HSAError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def benchmark(args: argparse.Namespace, options: dict[str, Any]) -> int:
    """Measure everything, print it, and write it where asked to."""
    if args.out is not None:
        need_matplotlib()
        args.out.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    gc.collect()
    gc.freeze()  # what was imported stays: collections between measurements need not look there
    rounds = args.rounds or (3 if args.quick else 7)
    budget = 0.5 if args.quick else args.budget
    limits = Limits(flat=args.flat_limit, pairs=args.pair_limit)
    report: dict[str, Any] = {
        "command": " ".join(["python examples/benchmarks/attention.py", *sys.argv[1:]]),
        "machine": machine(),
        "settings": options | {"threads": args.threads, "rounds": rounds, "budget": budget},
        "works": [],
        "scaling": None,
        "memory": [],
        "left_out": [],
    }
    for name in args.shapes:
        new = args.contenders if name == args.shapes[0] else set(OURS) & set(args.contenders)
        warm_up(name, list(new), limits, options)
        shape = SHAPES[name]
        for leaves in args.sizes or (shape.quick if args.quick else shape.sizes):
            work = make_work(name, leaves, **options)

            def say(text: str, what: str = f"{name}, {leaves:,} leaves") -> None:
                progress(f"{what}: {text}")

            given: dict[str, Any] = {"rounds": rounds, "budget": budget, "limits": limits}
            report["works"].append(measure(work, args.contenders, say=say, **given))
            del work
            progress("")
            work_table(report["works"][-1]).show()
    if args.sizes is None and "document" in args.shapes and args.device == "cpu":
        extras(args, options, rounds, report)
    else:
        why = "scaling and memory of fresh processes: for documents of default sizes, on the CPU"
        report["left_out"].append(why)
    report["seconds"] = time.perf_counter() - begin
    goals_table(report).show()
    for line in report["left_out"]:
        print(f"left out: {line}")
    print(f"{report['seconds']:.0f} s")
    if args.out is not None:
        (args.out / "attention.json").write_text(json.dumps(report, indent=1) + "\n")
        (args.out / "attention.md").write_text(markdown(report), encoding="utf-8")
        if "document" in args.shapes:
            plot(report, args.out / "attention.png")
        print(f"wrote {args.out}/attention.json, .md and .png")
    return 0


def extras(
    args: argparse.Namespace, options: dict[str, Any], rounds: int, report: dict[str, Any]
) -> None:
    """Growth of the time with the size, and memory of fresh processes."""
    progress("growth with the size")
    keys = [key for key in ("numba", "projection") if key in args.contenders]
    small, large = (1024, 16384) if args.quick else (16384, 262144)
    report["scaling"] = measure_scaling(keys, small, large, rounds, options)
    progress("")
    scaling_table(report["scaling"]).show()
    for key, leaves, count in MEMORY_QUICK if args.quick else MEMORY:
        if key not in args.contenders:
            continue
        answers = []
        for number in range(count):
            progress(f"memory of {CONTENDERS[key].label}, process {number + 1} of {count}")
            answers.append(in_fresh_process(child(args, options, key, leaves)))
        rises = [answer["rise"] for answer in answers]
        if None in rises:
            report["left_out"].append("memory of fresh processes: needs Linux with glibc")
            break
        found = {"key": key, "leaves": leaves, "qkvo_bytes": answers[0]["qkvo_bytes"]}
        found |= quartiles(rises)
        report["memory"].append(found | {"ratio": found["median"] / found["qkvo_bytes"]})
    progress("")
    memory_table(report["memory"]).show()


def child(
    args: argparse.Namespace, options: dict[str, Any], key: str, leaves: int
) -> dict[str, Any]:
    """What a fresh process is asked."""
    return {"key": key, "leaves": leaves, "threads": args.threads, "options": options}


def million(args: argparse.Namespace, options: dict[str, Any]) -> int:
    """One forward pass of a document of a million leaves, in a fresh process."""
    leaves = 1_000_000
    print(f"needs about {5 * 4 * leaves * args.heads * args.dim / 2**30 + 1:.0f} GiB of memory")
    million_table(in_fresh_process(child(args, options, "numba", leaves)), leaves).show()
    return 0


def machine() -> dict[str, str]:
    """What it ran on and with."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [s.partition(":")[2] for s in info.read_text().splitlines() if "model name" in s]
        cpu = names[0].strip() if names else cpu
    found = {"CPU": f"{cpu}, {os.cpu_count()} cores", "Python": platform.python_version()}
    if torch.cuda.is_available():
        found["GPU"] = torch.cuda.get_device_name()
    for package in ("torch", "torch_geometric", "numba", "h-transformer-1d"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def progress(text: str) -> None:
    """One line that is written over, where somebody looks."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
