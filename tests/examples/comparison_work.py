"""Jobs for the tests of comparisons; a module of its own, as processes import it."""

from __future__ import annotations

import os

import numpy as np
import torch
from comparison import Job, Record


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


def fail_on_fold_one(job: Job) -> Record:
    """Breaks on the second fold."""
    if job.fold == 1:
        raise RuntimeError("fold 1 breaks")
    return guess(job, 1.0)
