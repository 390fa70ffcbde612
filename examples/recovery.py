"""Every layer of a sentence encoder replaced, and what a short distillation recovers.

    python examples/recovery.py --task food --least 64
    python examples/recovery.py --task brown4
    python examples/recovery.py --quick

The probe is that of ``zero_shot.py``: a logistic regression on the vectors of the unmodified
all-MiniLM-L6-v2, which stays as it is.  Attention of all six layers is replaced and the probe asked;
then the layers are trained to give what they gave before, on the texts of the training part without
their labels (:func:`hsa_geo.hf.recover`), and the probe is asked again.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from comparison import exit_code, positive, positive_rate
from language_data import TASKS, prepare
from rich.console import Console
from transformers import AutoTokenizer
from zero_shot import ALL, Setting, fitted, hits_of, neighbours, outcome, row_of, show, text_of

import hsa_geo
from hsa_geo.datasets import MiniLM
from hsa_geo.hf import recover, replace_attention, restore_attention

#: Words of a text at most in the training; longer texts are trained on in parts.
PART = 300


def main(args: list[str] | None = None) -> int:
    """Parse the command line and go."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--task", choices=TASKS, default="food", help="(default: %(default)s)")
    parser.add_argument("--root", type=Path, default=Path("data"), help="where data are kept")
    parser.add_argument("--out", type=Path, default=Path("runs/recovery"))
    parser.add_argument("--fold", type=int, default=0, help="of five (default: %(default)s)")
    parser.add_argument("--least", type=positive, help="only texts of so many words or more")
    parser.add_argument("--tie", choices=["block", "key"], default="key")
    parser.add_argument("--window", type=positive, default=4, help="(default: %(default)s)")
    parser.add_argument("--train", choices=["attention", "layers"], default="layers")
    parser.add_argument("--lr", type=positive_rate, default=5e-4, help="(default: %(default)s)")
    parser.add_argument("--batch-tokens", type=positive, default=1024, help="tokens of a step")
    parser.add_argument("--epochs", type=positive, default=1, help="(default: %(default)s)")
    parser.add_argument("--texts", type=positive, help="train on so many texts at most")
    parser.add_argument("--seconds", type=positive, default=600, help="most seconds of training")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--validation", action="store_true", help="ask about validation texts")
    parser.add_argument("--quick", action="store_true", help="few texts")
    given = parser.parse_args(args)
    console = Console(markup=False, emoji=False, highlight=False)
    return exit_code(lambda: run(given, console))


def run(given: argparse.Namespace, console: Console) -> int:
    """Fit the probe, ask it before and after the recovery, print and keep the table."""
    corpus = prepare(given.root, given.task, "glove", ["given"])
    encoder = MiniLM(given.root / "minilm")
    train, validation, test = corpus.split(given.fold, 5)
    if given.least:
        long = np.array([tree.num_nodes >= given.least for tree in corpus.trees])
        train, validation, test = (part[long[part]] for part in (train, validation, test))
    if given.quick:
        train, validation, test = train[:200], validation[:50], test[:50]
    asked = validation if given.validation else test
    setting = Setting(ALL, given.tie, given.window)

    def encode(how: Setting | None, rows: np.ndarray) -> Any:
        return outcome(encoder, how, [text_of(corpus, i) for i in rows])

    known, checked = encode(None, train), encode(None, validation)
    probe = fitted(known.vectors, corpus.y[train], checked.vectors, corpus.y[validation])
    base = encode(None, asked)
    right = hits_of(probe, base, corpus.y[asked], asked)
    nearest = neighbours(base.vectors, known.vectors)
    rows: list[dict[str, Any]] = []

    def ask(title: str, how: Setting | None) -> None:
        found = base if how is None else encode(how, asked)
        hit = hits_of(probe, found, corpus.y[asked], asked)
        near = neighbours(found.vectors, known.vectors)
        layers = () if how is None else how.layers
        rows.append(row_of(title, layers, found, base, hit, right, near, nearest))
        rows[-1]["same answer"] = float(
            (probe.predict(found.vectors) == probe.predict(base.vectors)).mean()
        )
        console.print(f"{title}: {rows[-1]['accuracy']:.3f}")

    ask("unmodified", None)
    ask(setting.title, setting)
    texts = list(parts(text_of(corpus, i) for i in train[: given.texts]))
    recovery, used = recovered(encoder, setting, texts, given)
    ask(f"{setting.title}, recovered", setting)
    show(rows, f"{TASKS[given.task].title}: {len(asked)} texts", console)
    console.print(f"{len(texts)} training texts without labels: {recovery}, {used:.0f} s of CPU")
    save(given, rows, {**asdict(recovery), "cpu seconds": used, "texts": len(texts)})
    return 0


def parts(texts: Iterable[str], most: int = PART) -> Iterable[str]:
    """Texts in parts of so many words at most, none of which is empty."""
    for text in texts:
        words = text.split()
        for begin in range(0, len(words), most):
            yield " ".join(words[begin : begin + most])


def recovered(
    encoder: MiniLM, setting: Setting, texts: list[str], given: argparse.Namespace
) -> tuple[Any, float]:
    """Train the encoder in place; what was done, and the seconds of CPU that it took."""
    model = encoder.encoder.module
    tokenizer = AutoTokenizer.from_pretrained(encoder.encoder.name, local_files_only=True)
    replace_attention(
        model, list(setting.layers), setting.window, setting.kind, tokenizer=tokenizer
    )
    begin = time.process_time()
    try:
        recovery = recover(
            model,
            texts,
            tokenizer,
            train=given.train,
            epochs=given.epochs,
            seconds=given.seconds,
            lr=given.lr,
            batch_tokens=given.batch_tokens,
            seed=given.seed,
        )
    finally:
        restore_attention(model)  # the weights stay; zero_shot.py replaces attention by itself
    return recovery, time.process_time() - begin


def save(given: argparse.Namespace, rows: list[dict[str, Any]], recovery: dict[str, Any]) -> None:
    """Keep the table as JSON, with date, versions and settings."""
    given.out.mkdir(parents=True, exist_ok=True)
    names = ("torch", "transformers", "scikit-learn", "numpy")
    settings = {k: v for k, v in vars(given).items() if k not in ("root", "out")}
    report = {
        "date": datetime.date.today().isoformat(),
        "versions": {name: version(name) for name in names} | {"hsa_geo": hsa_geo.__version__},
        "threads": torch.get_num_threads(),
        "settings": settings,
        "recovery": recovery,
        "rows": rows,
    }
    path = given.out / f"{given.task}-{given.tie}{given.window}-fold{given.fold}.json"
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
