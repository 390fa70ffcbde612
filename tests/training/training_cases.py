"""A small task and model for the tests of training, and a script that child processes run."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import time
from pathlib import Path

import safetensors.torch
import torch
from torch import nn

from hsa_geo.data import SignalTree
from hsa_geo.nn import HSAEncoder, subtree_mean
from hsa_geo.training import Options, fit


def make_trees(count: int, seed: int = 0) -> list[SignalTree]:
    """Two levels of words; the class is whether a group holds two words of the rare kind."""
    generator = torch.Generator().manual_seed(seed)
    trees = []
    for _ in range(count):
        groups = int(torch.randint(2, 5, (), generator=generator))
        sizes = torch.randint(1, 5, (groups,), generator=generator)
        leaves = int(sizes.sum())
        parent = (leaves + torch.repeat_interleave(torch.arange(groups), sizes)).tolist()
        parent += [leaves + groups] * groups + [-1]
        words = torch.randint(0, 6, (leaves,), generator=generator)
        inner = torch.arange(leaves, leaves + groups)
        trees.append(
            SignalTree.from_parents(
                parent,
                word_x=words,
                word_index=torch.arange(leaves),
                y=torch.tensor([int((words == 0).any())]),
                group_node=inner,
            )
        )
    return trees


class Model(nn.Module):
    """Embedding, encoder, mean, linear; with dropout unless told otherwise."""

    def __init__(self, dropout: float = 0.2, channels: int = 8, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.words = nn.Embedding(6, channels)
        self.encoder = HSAEncoder(channels, num_layers=1, heads=2, dropout=dropout)
        self.head = nn.Linear(channels, 2)

    def forward(self, batch):
        x = self.words(batch.word_x)
        return self.head(subtree_mean(self.encoder(x, batch), batch))


def cross_entropy(model, batch):
    """Loss of every tree."""
    return nn.functional.cross_entropy(model(batch), batch.y, reduction="none")


def group_loss(model, batch):
    """Loss of every group but those of one leaf: items are no trees, and have weights."""
    x = model.encoder(model.words(batch.word_x), batch)
    nodes = batch.group_node
    leaves = batch.plan.count[batch.plan.node_slot[nodes]]
    target = leaves % 2
    losses = nn.functional.cross_entropy(
        model.head(subtree_mean(x, batch, nodes)), target, reduction="none"
    )
    return losses, (leaves > 1).float()


def minus_loss(model, batches):
    """A metric that tells any two sets of weights apart."""
    return -float(torch.cat([cross_entropy(model, batch) for batch in batches]).mean())


LOSSES = {"trees": cross_entropy, "groups": group_loss}


def main(folder: str, text: str) -> None:
    """Train as the JSON text (a dict, or a list of them) says; all that came out is in the folder.

    Beside the fields of Options a dict may hold ``folder`` (below the folder), ``trees``,
    ``dropout``, ``loss``, ``seconds_per_step`` and ``die_after`` (calls of the loss in rank 0).
    """
    torch.set_num_threads(1)
    rank = int(os.environ.get("RANK", 0))
    given = json.loads(text)
    for job in given if isinstance(given, list) else [given]:
        out = Path(folder, job.pop("folder", "."))
        out.mkdir(exist_ok=True)
        slow, die_after = job.pop("seconds_per_step", 0.0), job.pop("die_after", None)
        count, dropout = job.pop("trees", 60), job.pop("dropout", 0.2)
        compute = LOSSES[job.pop("loss", "trees")]
        calls = itertools.count(1)
        (out / "calls").write_bytes(b"")

        def loss(
            model, batch, compute=compute, slow=slow, die_after=die_after, calls=calls, out=out
        ):
            count = next(calls)
            if rank == 0:
                with open(out / "calls", "ab") as file:  # its size is the number of calls
                    file.write(b".")
                if count == die_after:
                    os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(slow)
            return compute(model, batch)

        model = Model(dropout, seed=rank)  # the first process's weights are what counts
        result = fit(
            model,
            make_trees(count),
            make_trees(20, seed=1),
            loss=loss,
            metric=minus_loss,
            options=Options(**job),
            folder=out,
            resume=True,
            log=False,
        )
        safetensors.torch.save_file(model.state_dict(), out / f"final-{rank}.safetensors")
        (out / f"result-{rank}.json").write_text(json.dumps(vars(result)))


if __name__ == "__main__":
    main(*sys.argv[1:])
