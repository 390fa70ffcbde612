"""One forward pass in a process of its own, where nothing else has left memory behind."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from attention_limits import Limits
from attention_measure import Taker, read_status, start_peak, warm_up
from attention_rivals import CONTENDERS
from attention_shapes import make_work


def in_fresh_process(request: dict[str, Any]) -> dict[str, Any]:
    """Answer of :func:`serve` in a process of its own.

    Args:
        request: ``key``, ``leaves``, ``threads``, and ``options`` of
            :func:`~attention_shapes.make_work`.

    Raises:
        RuntimeError: If the process fails; the message ends with what it said last.
    """
    command = [sys.executable, str(Path(__file__).with_name("attention.py"))]
    command += ["--child", json.dumps(request)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr.strip() or "nothing").splitlines()[-1]
        raise RuntimeError(f"a process for {request} ended with {done.returncode}: {said}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def serve(request: dict[str, Any]) -> dict[str, Any]:
    """One forward pass of a document in this process, after one of a small document.

    Returns:
        Seconds of the tree, the plan and the forward pass, bytes of q, k, v and out, and by how
        many bytes resident memory rose at most during the forward pass, the outputs included.
    """
    torch.set_num_threads(request["threads"])
    key, options = request["key"], request["options"]
    warm_up("document", [key], Limits(), options)
    start = time.perf_counter()
    work = make_work("document", request["leaves"], **options)
    made = time.perf_counter() - start
    start = time.perf_counter()
    CONTENDERS["plan"].build(work).forward()
    planned = time.perf_counter() - start
    taker = Taker(key, work)
    gc.collect()
    before = start_peak()
    seconds = taker(False)
    rise = None if before is None else read_status("VmHWM") - before
    return {
        "made": made,
        "plan": planned,
        "forward": seconds,
        "rise": rise,
        "qkvo_bytes": work.qkvo_bytes,
        "total": read_status("VmHWM") if before is not None else None,
    }
