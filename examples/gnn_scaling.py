"""One training step on one large graph, in a process of its own with a limit on its memory."""

from __future__ import annotations

import ctypes
import gc
import json
import math
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gnn_layers import matched
from gnn_tasks import villages
from torch_geometric.data import Data

from hsa_geo.data import SignalTree
from hsa_geo.transforms import CommunityHierarchy

SIZES = (1_000, 4_000, 16_000, 64_000, 100_000)
#: Models by name: label, mixer, dropout of attention weights.
MODELS = {
    "none": ("GNN", "none", 0.0),
    "virtual_node": ("GNN + virtual node", "virtual_node", 0.0),
    "gps": ("GPSConv, multihead", "gps", 0.0),
    "gps_dropout": ("GPSConv, multihead, attention dropout", "gps", 0.5),
    "hsa": ("GNN + HSAConv, communities", "hsa", 0.0),
    "hsa_dropout": ("GNN + HSAConv, communities, attention dropout", "hsa", 0.5),
}
#: Features, classes, and the model that all of them share but for the mixer.
SHAPE: dict[str, Any] = {"in_channels": 32, "out_channels": 10}
OPTIONS: dict[str, Any] = {"local": "gcn", "channels": 64, "layers": 2, "heads": 4}


def large_graph(nodes: int, seed: int = 0) -> Data:
    """Communities of about 40 nodes, each node with about six friends in its own and one anywhere.

    Example:
        >>> large_graph(1000).num_nodes
        1000
    """
    rng = np.random.default_rng(seed)
    k = max(1, nodes // 40)
    sizes = np.bincount(rng.integers(0, k, nodes), minlength=k)
    community, edge = villages(sizes[sizes > 0], rng)
    far = torch.from_numpy(rng.integers(0, nodes, (2, nodes // 2)))
    far = far[:, far[0] != far[1]]
    generator = torch.Generator().manual_seed(seed)
    return Data(
        x=torch.randn(nodes, SHAPE["in_channels"], generator=generator),
        edge_index=torch.cat([edge, far, far.flip(0)], dim=1),
        y=torch.from_numpy(community % SHAPE["out_channels"]),
    )


def resolutions(nodes: int) -> list[float]:
    """Resolutions of Louvain's method that shrink groups by about 32 from level to level.

    Example:
        >>> resolutions(100_000)
        [3125.0, 97.65625, 3.0517578125]
    """
    values = [nodes / 32]
    while values[-1] > 32:
        values.append(values[-1] / 32)
    return values


def prepare(nodes: int, folder: Path) -> dict[str, Any]:
    """Write the graph with its hierarchy, which is found once, to ``{nodes}.safetensors``."""
    graph = large_graph(nodes)
    start = time.process_time()
    tree = CommunityHierarchy(resolutions(nodes))(graph)
    found = time.process_time() - start
    tree.save(folder / f"{nodes}.safetensors")
    return {
        "nodes": nodes,
        "edges": graph.edge_index.size(1) // 2,
        "levels": int(tree.tree_level.max()),
        "pairs": tree.plan.num_pairs,
        "hierarchy_seconds": found,
    }


def in_fresh_process(request: dict[str, Any]) -> dict[str, Any]:
    """Answer of :func:`serve` in a process of its own, or what became of it.

    Args:
        request: ``model``, ``file``, ``threads``, and what a step may take: ``gigabytes`` more
            memory and, all steps together, ``seconds`` of processors.

    Returns:
        ``seconds`` and ``bytes``, or ``failed``: ``"memory"`` or ``"time"``.

    Raises:
        RuntimeError: If the process fails otherwise; the message ends with what it said last.
    """
    command = [sys.executable, str(Path(__file__)), json.dumps(request)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer
    if done.returncode == -signal.SIGXCPU:
        return {"failed": "time"}
    said = done.stderr.strip() or "nothing"
    if "allocate" in said or "MemoryError" in said:
        return {"failed": "memory"}
    raise RuntimeError(f"a process for {request} ended with {done.returncode}: {said}")


def serve(request: dict[str, Any]) -> dict[str, Any]:
    """Steps (forward, loss, backward) of one model on one graph: median seconds, most memory.

    Seconds are those of processors, which other work on the machine hardly changes.
    """
    torch.set_num_threads(request["threads"])
    _, mixer, dropout = MODELS[request["model"]]
    torch.manual_seed(0)
    model = matched(mixer, **SHAPE, **OPTIONS, attention_dropout=dropout)
    small = CommunityHierarchy(resolutions(200))(large_graph(200))
    tree = SignalTree.load(request["file"])
    tree.plan  # noqa: B018  (found once for a graph)

    def step(graph: SignalTree) -> float:
        model.zero_grad()
        start = time.process_time()
        torch.nn.functional.cross_entropy(model(graph), graph.y).backward()
        return time.process_time() - start

    step(small)  # compiles
    before = start_peak()
    limit(request["gigabytes"], request["seconds"])
    seconds = [step(tree)]
    rise = read_status("VmHWM") - before
    while len(seconds) < 3 and sum(seconds) < 5:
        seconds.append(step(tree))
    return {"seconds": float(np.median(seconds)), "bytes": rise, "steps": len(seconds)}


def limit(gigabytes: float, seconds: float) -> None:
    """Refuse memory beyond what the process holds now and so much more, and likewise time."""
    memory = read_status("VmSize") + int(gigabytes * 1e9)
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    until = math.ceil(time.process_time() + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (until, until + 5))


def start_peak() -> int:
    """Give freed memory back, start the peak of resident memory anew, return what is resident."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return read_status("VmRSS")


def read_status(key: str) -> int:
    """A size of /proc/self/status in bytes (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(key)).split()[1])


def measure(
    sizes: list[int], folder: Path, *, gigabytes: float, seconds: float, threads: int, say: Any
) -> dict[str, Any]:
    """All models at all sizes; a model that failed at one size is not tried at larger ones.

    Args:
        sizes: Numbers of nodes, increasing.
        folder: Where graphs are kept meanwhile.
        gigabytes: By how much the memory of a process may grow in a step.
        seconds: Processor seconds that all steps of a process may take.
        threads: Torch threads.
        say: Told what was measured.
    """
    rows: list[dict[str, Any]] = []
    gone: dict[str, str] = {}
    for nodes in sizes:
        row = prepare(nodes, folder)
        say(f"{nodes} nodes: hierarchy in {row['hierarchy_seconds']:.1f} s")
        row["results"] = {}
        for name in MODELS:
            if name in gone:
                row["results"][name] = {"failed": gone[name], "tried": False}
                continue
            request = {
                "model": name,
                "file": str(folder / f"{nodes}.safetensors"),
                "threads": threads,
                "gigabytes": gigabytes,
                "seconds": seconds,
            }
            answer = in_fresh_process(request)
            row["results"][name] = answer
            if "failed" in answer:
                gone[name] = answer["failed"]
            say(f"{nodes} nodes, {name}: {answer}")
        rows.append(row)
    limits = {"gigabytes": gigabytes, "seconds": seconds, "threads": threads}
    parameters = {
        name: matched(m, **SHAPE, **OPTIONS).num_parameters for name, (_, m, _) in MODELS.items()
    }
    return {"limits": limits, "rows": rows, "parameters": parameters}


if __name__ == "__main__":
    print(json.dumps(serve(json.loads(sys.argv[1]))))
