"""Many training runs, each in a process of its own, kept on disk; what the comparisons share.

A *job* is a variant (a model, a baseline), a fold and a seed.  Its *record* says what was
predicted for which test items, and what the run cost.  Records are files: a finished job is read,
not repeated, so a comparison that was killed goes on where it was.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from hsa_geo._files import write_text
from hsa_geo.errors import HSAError
from hsa_geo.training.memory import peak_memory, reset_peak_memory

#: Format of the records; others are made anew.
SCHEMA = 2


@dataclass(frozen=True, order=True)
class Job:
    """One run: the name of a variant, a fold of the data, a seed."""

    variant: str
    fold: int = 0
    seed: int = 0

    @property
    def file(self) -> str:
        """Name of the file of its record."""
        return f"{self.variant}-fold{self.fold}-seed{self.seed}.json"


@dataclass
class Record:
    """What one run gave.

    Attributes:
        variant, fold, seed: The job.
        items: Ids of the test items.
        predicted: What was said of each.
        target: What is true of each.
        validation: Metric on the validation part, which chose the epoch.
        parameters: Number of trained parameters, 0 for what has none to speak of.
        epochs: Epochs trained.
        seconds_per_epoch: Mean time of an epoch's steps, without validation.
        seconds: Time of the whole run, reading the data included.
        peak_bytes: Largest memory of the run's process, counted from where the run begins, and
            anew from where :func:`hsa_geo.training.fit` begins to train.
    """

    variant: str
    fold: int
    seed: int
    items: list[int]
    predicted: list[int]
    target: list[int]
    validation: float = float("nan")
    parameters: int = 0
    epochs: int = 0
    seconds_per_epoch: float = float("nan")
    seconds: float = float("nan")
    peak_bytes: int = 0

    @property
    def accuracy(self) -> float:
        """Share of right predictions."""
        return float(np.mean(np.asarray(self.predicted) == np.asarray(self.target)))


def recipe_key(*parts: Any) -> str:
    """Eight digits that change with the settings that records are made of.

    Args:
        *parts: Dataclasses or anything that JSON can hold.

    Returns:
        The key; put records of different keys into different folders.
    """
    content = json.dumps([SCHEMA, *parts], sort_keys=True, default=_plain)
    return hashlib.sha256(content.encode()).hexdigest()[:8]


def _plain(part: Any) -> Any:
    """What JSON cannot hold: a dataclass as a dict, anything else as text."""
    return asdict(part) if is_dataclass(part) and not isinstance(part, type) else str(part)


def best_rates(records: list[Record]) -> dict[str, str]:
    """The best rate of each variant, by mean validation accuracy.

    Args:
        records: Of jobs of the variants ``name@rate``, or of plain names.

    Returns:
        ``name@rate`` by name.
    """
    scores: dict[str, list[float]] = {}
    for record in records:
        scores.setdefault(record.variant, []).append(record.validation)
    best: dict[str, str] = {}
    for name, score in scores.items():
        variant = name.partition("@")[0]
        if variant not in best or np.mean(score) > np.mean(scores[best[variant]]):
            best[variant] = name
    return best


def positive(text: str) -> int:
    """A whole number of the command line, from 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is too few: give a whole number from 1.")
    return value


def positive_rate(text: str) -> float:
    """A learning rate of the command line."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no learning rate: give a number above 0.")
    return value


def exit_code(program: Callable[[], Any]) -> int:
    """Run a program; an error that it is prepared for is one line on stderr, without a traceback.

    Args:
        program: What to run.

    Returns:
        0, or 1 after such an error (of hsa_geo, or of a file).
    """
    try:
        program()
    except (HSAError, OSError) as error:
        line = " ".join(f"error: {error}".splitlines())
        Console(stderr=True, soft_wrap=True, markup=False, emoji=False).print(line, style="red")
        return 1
    return 0


def run_jobs(
    jobs: Sequence[Job],
    run: Callable[..., Record],
    folder: Path,
    *,
    arguments: Iterable[Any] = (),
    recipe: Callable[[Job], str] | None = None,
    workers: int = 2,
    console: Console | None = None,
) -> list[Record]:
    """Run the jobs that have no record yet, several at once, and return all records.

    Every run gets a process of its own, so that its peak memory is its own, and an equal share of
    the cores.

    Args:
        jobs: What to run; started in this order.
        run: A function of a module, ``run(job, *arguments) -> Record``.
        folder: Where the records are kept; made if missing.
        arguments: Further arguments of ``run``; they are pickled.
        recipe: What a job is made by; a record of another recipe is made anew.
            (default: all records of the folder are of one recipe)
        workers: Processes at once.
        console: Where the progress bar goes. (default: none)

    Returns:
        The records, in the order of the jobs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made_by = {job: recipe(job) if recipe else "" for job in jobs}
    done = {job: _read(folder / job.file, job, made_by[job]) for job in jobs}
    todo = [job for job in jobs if done[job] is None]
    arguments = tuple(arguments)
    threads = max(1, (os.cpu_count() or 1) // workers)
    context = multiprocessing.get_context("spawn" if sys.platform == "win32" else "forkserver")
    if hasattr(context, "set_forkserver_preload"):  # imports once, not in every run
        context.set_forkserver_preload(["__main__", "torch", "hsa_geo.nn", "comparison"])
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with (
        Progress(*columns, console=console, disable=console is None) as progress,
        ThreadPoolExecutor(workers) as pool,
    ):

        def alone(job: Job) -> Record:
            with ProcessPoolExecutor(1, mp_context=context) as process:
                return process.submit(
                    _work, run, job, folder, made_by[job], threads, arguments
                ).result()

        futures = {pool.submit(alone, job): job for job in todo}
        bar = progress.add_task("runs", total=len(todo))
        try:
            for future in as_completed(futures):
                done[futures[future]] = future.result()
                progress.advance(bar)
        except BaseException:
            pool.shutdown(cancel_futures=True)  # runs that have begun end and are kept
            raise
    return [record for job in jobs if (record := done[job]) is not None]


def _work(
    run: Callable[..., Record],
    job: Job,
    folder: Path,
    recipe: str,
    threads: int,
    arguments: tuple[Any, ...],
) -> Record:
    """One run, in its process; its record is complete on disk, or not there."""
    torch.set_num_threads(threads)
    reset_peak_memory(torch.device("cpu"))  # not what the process that made this one held
    begin = time.perf_counter()
    record = run(job, *arguments)
    record.seconds = time.perf_counter() - begin
    record.peak_bytes = peak_memory(torch.device("cpu"))
    content = {"schema": SCHEMA, "recipe": recipe, **asdict(record)}
    write_text(folder / job.file, json.dumps(content))
    return record


def _read(path: Path, job: Job, recipe: str) -> Record | None:
    """The record of a finished job, None where there is none that can be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if (content.pop("schema"), content.pop("recipe")) != (SCHEMA, recipe):
            return None
        record = Record(**content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    same = (record.variant, record.fold, record.seed) == (job.variant, job.fold, job.seed)
    return record if same else None
