"""Fuzz the builders: ``python tests/fuzz/fuzz_builders.py --cases 100000 --builder html``.

Every case is drawn from (seed, builder, number) alone, so a failure is repeated by
``--only NUMBER``.  A case fails if the builder raises anything but an error of hsa_geo (OSError
for paths), warns of anything but an HSAWarning, makes a tree that is not valid or lacks an
attribute, takes more than ``--seconds``, needs more than ``--memory`` MiB more than at the start,
or ends the process; one case in 16 is built twice and must give the same tree.  Cases run in a
process of their own, so that a crash or a hang costs one case.

With ``--atheris N`` atheris (``pip install atheris``) guides N draws by the coverage of hsa_geo.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import multiprocessing
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
import types
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))

import fuzz_html
import fuzz_image
import fuzz_nested
import fuzz_networkx
import fuzz_text
import torch
from fuzz_case import Case, FromBytes

from hsa_geo.testing import assert_builds_or_refuses, assert_trees_equal

BUILDERS: dict[str, Callable[[random.Random, Path], Case]] = {
    "html": fuzz_html.case,
    "image": fuzz_image.case,
    "text": fuzz_text.case,
    "networkx": fuzz_networkx.case,
    "nested": fuzz_nested.case,
}
SECONDS, MEMORY = 10.0, 2048


class Hang(BaseException):
    """A case took too long; no Exception, so that no builder takes it for one of its own."""


def draw(builder: str, seed: int, number: int, folder: Path) -> Case:
    """The case of a number."""
    return BUILDERS[builder](random.Random(f"{seed}:{builder}:{number}"), folder)


def make_folder(folder: Path) -> Path:
    """Files that pages may name."""
    files = fuzz_image.seed_files()
    (folder / "sub").mkdir(exist_ok=True)
    for name, data in (("a.png", files[0]), ("b.gif", files[2]), ("sub/c.jpg", files[1])):
        (folder / name).write_bytes(data)
    with contextlib.suppress(FileExistsError):
        (folder / "loop").symlink_to("loop")
    return folder


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise Hang inside when the time is up."""

    def stop(*_: Any) -> None:
        raise Hang(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if before is not None:
            signal.signal(signal.SIGALRM, before)


def check(case: Case, *, twice: bool = False, seconds: float = SECONDS) -> str:
    """``"tree"`` or ``"refused"``; raises whatever shows a fault."""

    def build() -> Any:
        made = case()
        return made[0] if case.options.get("return_labels") else made

    with at_most(seconds):
        tree = assert_builds_or_refuses(build, allowed=case.allowed)
        if tree is None:
            return "refused"
        if case.keys is not None and set(tree.keys()) - {"num_nodes"} != case.keys - {"num_nodes"}:
            raise AssertionError(f"attributes: {sorted(set(tree.keys()) ^ case.keys)}")
        if twice and case.repeatable:
            again = assert_builds_or_refuses(build, allowed=case.allowed)
            if again is None:
                raise AssertionError("refused when built again")
            assert_trees_equal(again, tree)
    return "tree"


def kind_of(error: BaseException) -> str:
    """What tells failures apart: the first line of the error, and where in hsa_geo it arose."""
    root: BaseException = error
    while isinstance(root, AssertionError) and root.__cause__ is not None:
        root = root.__cause__
    frames = traceback.extract_tb(root.__traceback__)
    ours = [f"{Path(f.filename).name}:{f.lineno}" for f in frames if "hsa_geo" in f.filename]
    text = re.sub(r"\d+|'[^']*'", "_", str(error))[:100]
    return f"{type(root).__name__} at {ours[-1] if ours else '?'}: {text}"


def run_range(
    builder: str, seed: int, numbers: range, args: argparse.Namespace, shared: Any, results: Any
) -> None:
    """Work of one process: failures go to a pipe, the present case and counts to ``shared``."""
    torch.set_num_threads(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what decoders written in C say
    with tempfile.TemporaryDirectory() as name:
        folder = make_folder(Path(name))
        _limit_memory(args.memory)
        for number in numbers:
            shared[0] = number
            started = time.monotonic()
            case = None
            try:
                case = draw(builder, seed, number, folder)
                found = check(case, twice=number % 16 == 0, seconds=args.seconds)
                if time.monotonic() - started > 2 * args.seconds:  # in a call that no signal ends
                    raise Hang(f"more than {2 * args.seconds} s in one call")
                shared[1 if found == "tree" else 2] += 1
            except (Exception, Hang) as error:
                trace = "".join(traceback.format_exception(error))[-6000:]
                results.send((number, kind_of(error), trace, repr(case)[:20_000]))
    results.send(None)


def _limit_memory(mebibytes: int) -> None:
    if mebibytes:
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        limit = used + mebibytes * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


class Log:
    """Counts, and one saved file for each kind of failure."""

    def __init__(self, builder: str, seed: int, out: Path | None) -> None:
        self.builder, self.seed, self.out = builder, seed, out
        self.counts: Counter[str] = Counter()
        self.kinds: dict[str, list[int]] = {}

    def failure(self, number: int, kind: str, trace: str, call: str) -> None:
        """Note a failure; save the first of its kind."""
        self.counts["failed"] += 1
        self.kinds.setdefault(kind, []).append(number)
        if len(self.kinds[kind]) > 1:
            return
        print(f"{self.builder} seed {self.seed} case {number}: {kind}", flush=True)
        if self.out is None:
            return
        self.out.mkdir(parents=True, exist_ok=True)
        place = self.out / f"{self.builder}-{hashlib.sha1(kind.encode()).hexdigest()[:10]}.json"
        saved = {"builder": self.builder, "seed": self.seed, "number": number, "kind": kind}
        saved |= {"call": call.encode("ascii", "backslashreplace").decode(), "trace": trace}
        place.write_text(json.dumps(saved, indent=1))


def fuzz(builder: str, seed: int, numbers: range, args: argparse.Namespace) -> Log:
    """All cases of a builder, in processes that are started anew when one ends."""
    context = multiprocessing.get_context("fork")
    log = Log(builder, seed, args.out)
    start = numbers.start
    while start < numbers.stop:
        shared = context.Array("q", [start, 0, 0], lock=False)  # case, trees, refused
        results, theirs = context.Pipe(duplex=False)
        work = range(start, numbers.stop)
        process = context.Process(
            target=run_range, args=(builder, seed, work, args, shared, theirs), daemon=True
        )
        process.start()
        theirs.close()
        found = _follow(process, results, shared, log, 6 * args.seconds)
        process.join()
        start = numbers.stop
        if found:
            found = found if found == "is stuck" else f"ended with code {process.exitcode}"
            log.failure(shared[0], f"the process {found}", "", "")
            start = shared[0] + 1
        log.counts += Counter(tree=shared[1], refused=shared[2])
    return log


def _follow(process: Any, results: Any, shared: Any, log: Log, patience: float) -> str:
    """Note the failures of a process until it ends; what is wrong if it ends too early."""
    seen, since = -1, time.monotonic()
    while True:
        try:
            if results.poll(1.0):
                result = results.recv()
                if result is None:
                    return ""
                log.failure(*result)
        except EOFError:
            return "ended"
        if shared[0] != seen:
            seen, since = shared[0], time.monotonic()
        elif time.monotonic() - since > patience:
            process.kill()
            return "is stuck"


def guided(builder: str, count: int, args: argparse.Namespace) -> None:
    """Let atheris choose the draws; it ends the process, with an error at a failure."""
    import atheris

    with tempfile.TemporaryDirectory() as name:
        folder = make_folder(Path(name))

        def one(data: bytes) -> None:
            check(BUILDERS[builder](FromBytes(data), folder), seconds=args.seconds)

        for code in _functions_of_builders():
            atheris.instrument_func(code)
        corpus = folder / "corpus"
        corpus.mkdir()
        for number in range(200):
            (corpus / str(number)).write_bytes(random.Random(number).randbytes(1000))
        options = ["-max_len=4096", "-len_control=0", f"-runs={count}", f"-seed={args.seed + 1}"]
        atheris.Setup([sys.argv[0], *options, str(corpus)], one)
        atheris.Fuzz()


def _functions_of_builders() -> list[Any]:
    """Functions and methods of hsa_geo.builders, which are what coverage is measured of."""
    found: list[Any] = []
    for name, module in list(sys.modules.items()):
        if name.startswith("hsa_geo.builders."):
            things = [thing for thing in vars(module).values() if thing.__class__ is type]
            for scope in (vars(module), *map(vars, things)):
                found += [
                    thing
                    for thing in scope.values()
                    if isinstance(thing, types.FunctionType) and thing.__module__ == name
                ]
    return found


def main(argv: list[str] | None = None) -> int:
    """The command line; returns 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1000, help="cases of each builder")
    parser.add_argument("--builder", choices=BUILDERS, action="append", help="default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--only", type=int, help="repeat one case here, and show it")
    parser.add_argument("--out", type=Path, help="folder for a file of each kind of failure")
    parser.add_argument("--pages", type=Path, help="folder with more pages (*.html) to mutate")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--memory", type=int, default=MEMORY, help="MiB; 0 for no limit")
    parser.add_argument("--atheris", type=int, default=0, metavar="N")
    args = parser.parse_args(argv)
    if args.pages is not None:
        for path in sorted(args.pages.glob("*.html")):
            fuzz_html.PAGES.append(path.read_text("utf-8", "replace"))
    builders = args.builder or list(BUILDERS)
    if args.only is not None:
        with tempfile.TemporaryDirectory() as name:
            case = draw(builders[0], args.seed, args.only, make_folder(Path(name)))
            print(ascii(repr(case))[:4000], flush=True)
            print(check(case, twice=True, seconds=args.seconds))
        return 0
    if args.atheris:
        guided(builders[0], args.atheris, args)
    failed = 0
    for builder in builders:
        began = time.monotonic()
        log = fuzz(builder, args.seed, range(args.first, args.first + args.cases), args)
        counts, kinds = log.counts, log.kinds
        print(
            f"{builder}: {sum(counts.values())} cases from {args.first}, seed {args.seed}: "
            f"{counts['tree']} trees, {counts['refused']} refused, {counts['failed']} failed of "
            f"{len(kinds)} kinds, {time.monotonic() - began:.0f} s",
            flush=True,
        )
        for kind, numbers in sorted(kinds.items(), key=lambda item: -len(item[1])):
            print(f"  {len(numbers)} x {kind}; e.g. {numbers[:3]}")
        failed += counts["failed"]
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
