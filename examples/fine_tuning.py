"""Ordinary fine-tuning of a pretrained encoder with hierarchical attention inside.

    python examples/fine_tuning.py                    # food reviews of 64 words and more
    python examples/fine_tuning.py --attention flat
    python examples/fine_tuning.py --quick

all-MiniLM-L6-v2 gets a fresh head with two classes; attention of all its layers is replaced by
key-tied HSA, and the whole model is trained on labelled texts, as one would without HSA: AdamW, a
few passes, cross-entropy.  The loop is plain PyTorch and knows nothing of HSA; the ``Trainer`` of
transformers does as well.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from comparison import exit_code, positive, positive_rate
from language_data import TASKS, prepare
from rich.console import Console
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from zero_shot import texts_of

from hsa_geo._files import write_text
from hsa_geo.datasets import MiniLM
from hsa_geo.hf import Windows, replace_attention
from hsa_geo.hf.unlabelled import Texts


def main(args: list[str] | None = None) -> int:
    """Parse the command line and go."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--task", choices=TASKS, default="food", help="(default: %(default)s)")
    parser.add_argument("--root", type=Path, default=Path("data"), help="where data are kept")
    parser.add_argument("--out", type=Path, default=Path("runs/fine_tuning"))
    parser.add_argument("--least", type=positive, default=64, help="only texts of so many words")
    parser.add_argument("--most", type=positive, help="only the first so many of these texts")
    parser.add_argument("--attention", choices=["key", "block", "flat"], default="key")
    parser.add_argument("--window", type=positive, default=4, help="(default: %(default)s)")
    parser.add_argument("--lr", type=positive_rate, default=1e-4, help="(default: %(default)s)")
    parser.add_argument("--epochs", type=positive, default=2, help="(default: %(default)s)")
    parser.add_argument("--batch-tokens", type=positive, default=2048, help="tokens of a step")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="few texts, one pass")
    given = parser.parse_args(args)
    if given.quick:
        given.least, given.most, given.epochs = 10, 80, 1
    console = Console(markup=False, emoji=False, highlight=False)
    return exit_code(lambda: run(given, console))


def run(given: argparse.Namespace, console: Console) -> None:
    """Train, test, say so."""
    corpus = prepare(given.root, given.task, "glove", ["given"])
    folder = MiniLM(given.root / "minilm").encoder.name
    chosen = texts_of(corpus, given.least, given.most)
    texts = [" ".join(corpus.dataset.words(i)) for i in chosen]
    tested = np.isin(chosen, corpus.split(0, 5)[2])

    torch.manual_seed(given.seed)  # of the new head
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModelForSequenceClassification.from_pretrained(
        folder, num_labels=len(corpus.classes), local_files_only=True
    )
    if given.attention != "flat":
        windows = Windows(given.window)
        replace_attention(model, "all", windows, given.attention, tokenizer=tokenizer)

    labels = torch.from_numpy(corpus.y[chosen])
    begin = time.perf_counter(), time.process_time()
    steps = fine_tune(model, Texts(texts, tokenizer, 512), labels, np.flatnonzero(~tested), given)
    seconds, used = time.perf_counter() - begin[0], time.process_time() - begin[1]
    found = accuracy(model, Texts(texts, tokenizer, 512), labels, np.flatnonzero(tested))
    console.print(
        f"{given.attention}: {found:.3f} of {tested.sum()} texts, trained on {(~tested).sum()}, "
        f"{steps} steps, {seconds:.0f} s, {used:.0f} s of CPU"
    )
    settings = {k: v for k, v in vars(given).items() if k not in ("root", "out")}
    report = {"settings": settings, "accuracy": found, "tested": int(tested.sum())}
    report |= {"steps": steps, "seconds": seconds, "cpu_seconds": used}
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / f"{given.task}-{given.attention}.json"
    write_text(path, json.dumps(report, indent=1) + "\n")


def fine_tune(
    model: Any, texts: Texts, labels: torch.Tensor, rows: np.ndarray, given: argparse.Namespace
) -> int:
    """Train on labelled texts in place.

    Args:
        model: With a head for classes.
        texts: The texts.
        labels: The class of each.
        rows: Which are trained on.
        given: ``lr``, ``epochs``, ``batch_tokens`` and ``seed``.

    Returns:
        The number of steps.
    """
    plan = [
        batch
        for epoch in range(given.epochs)
        for batch in texts.batches(rows.tolist(), given.batch_tokens, seed=given.seed + epoch)
    ]
    optimizer = torch.optim.AdamW(model.parameters(), lr=given.lr, weight_decay=0.01, fused=True)
    rate = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, given.lr, total_steps=len(plan) + 1, pct_start=0.1
    )
    model.train()
    for batch in plan:
        loss = model(**texts.inputs(batch), labels=labels[batch]).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rate.step()
    return len(plan)


@torch.no_grad()
def accuracy(model: Any, texts: Texts, labels: torch.Tensor, rows: np.ndarray) -> float:
    """Share of texts whose class the model says."""
    model.eval()
    right = 0
    for batch in texts.batches(rows.tolist(), 4096, seed=0):
        right += int((model(**texts.inputs(batch)).logits.argmax(-1) == labels[batch]).sum())
    return right / len(rows)


if __name__ == "__main__":
    sys.exit(main())
