"""Jobs for the tests of comparisons; a module of its own, as processes import it."""

from __future__ import annotations

import os
import resource
import signal

import numpy as np
import torch
from comparison import Job, Record

from hsa_geo.errors import DiskFullError


def guess(job: Job, share: float) -> Record:
    """Right on about that share of a hundred items; leaves its process id as a parameter count."""
    rng = np.random.default_rng([job.fold, job.seed])
    right = rng.random(100) < share
    first = 100 * job.fold
    block = torch.zeros(job.seed * 50_000_000, dtype=torch.uint8)  # memory of its own
    return Record(
        job.variant,
        job.fold,
        job.seed,
        items=list(range(first, first + 100)),
        predicted=right.astype(int).tolist(),
        target=[1] * 100,
        parameters=os.getpid(),
        epochs=torch.get_num_threads() + 0 * block.numel(),
    )


def fill_the_disk(job: Job) -> Record:
    """Says what a run says that finds no room."""
    raise DiskFullError("no room: free some.")


def leave_little_room(job: Job) -> Record:
    """From here on the process cannot make files of more than 100 bytes, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
    return guess(job, 1.0)


def fail_on_fold_one(job: Job) -> Record:
    """Breaks on the second fold."""
    if job.fold == 1:
        raise RuntimeError("fold 1 breaks")
    return guess(job, 1.0)
