"""Every layer of a sentence encoder replaced, and what a short distillation recovers.

    python examples/recovery.py                     # food reviews of 64 words and more
    python examples/recovery.py --task brown4
    python examples/recovery.py --quick

The probes are those of ``zero_shot.py``: logistic regressions on the vectors of the unmodified
all-MiniLM-L6-v2, one for each of five folds.  Attention of all six layers is replaced, and the
probes are asked about the texts of some folds.  Then the layers are trained to give what they gave
before, on the texts of the other folds without labels (:func:`hsa_geo.hf.recover`); the probes,
which stay as they are, are asked again.

Vectors of the unmodified model are kept in ``--out`` and not computed again.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from comparison import exit_code, positive, positive_rate, recipe_key
from comparison_statistics import Hits
from language_data import TASKS, prepare
from rich.console import Console
from transformers import AutoTokenizer
from zero_shot import ALL, FOLDS, LAYERS, folds_of, probes_of, texts_of
from zero_shot_encoding import Outcome, Setting, outcome
from zero_shot_table import Row, markdown, row_of, show

import hsa_geo
from hsa_geo._files import replacing, write_text
from hsa_geo.datasets import MiniLM
from hsa_geo.hf import Recovery, Windows, recover, replace_attention, restore_attention

#: Words of a text at most in the training; longer texts are trained on in parts.
PART = 400


@dataclass(frozen=True)
class Recovered(Setting):
    """A setting, after the recovery."""

    @property
    def title(self) -> str:
        """What the table calls it."""
        return f"{super().title}, recovered"


def main(args: list[str] | None = None) -> int:
    """Parse the command line and go."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--task", choices=TASKS, default="food", help="(default: %(default)s)")
    parser.add_argument("--root", type=Path, default=Path("data"), help="where data are kept")
    parser.add_argument("--out", type=Path, default=Path("runs/recovery"))
    parser.add_argument("--least", type=positive, default=64, help="only texts of so many words")
    parser.add_argument("--cut", type=positive, help="only the first so many words of a text")
    parser.add_argument("--most", type=positive, help="only the first so many of these texts")
    parser.add_argument(
        "--asked",
        type=int,
        choices=range(FOLDS),
        nargs="+",
        default=[0, 1],
        help="folds that are asked about, and not trained on (default: 0 1)",
    )
    parser.add_argument("--tie", choices=["block", "key"], default="key")
    parser.add_argument("--window", type=positive, default=4, help="(default: %(default)s)")
    parser.add_argument("--train", choices=["attention", "layers"], default="layers")
    parser.add_argument("--lr", type=positive_rate, default=2e-4, help="(default: %(default)s)")
    parser.add_argument("--batch-tokens", type=positive, default=1024, help="tokens of a step")
    parser.add_argument("--texts", type=positive, help="train on so many of the others at most")
    parser.add_argument("--epochs", type=positive, default=1, help="(default: %(default)s)")
    parser.add_argument("--seconds", type=positive, default=600, help="most seconds of training")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="few texts")
    given = parser.parse_args(args)
    if given.quick:
        given.least, given.most, given.seconds = 10, 80, 10
    console = Console(markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console.width = 160
    return exit_code(lambda: run(given, console))


def run(given: argparse.Namespace, console: Console) -> None:
    """Ask the probes before and after the recovery, print and keep the table."""
    corpus = prepare(given.root, given.task, "glove", ["given"])
    encoder = MiniLM(given.root / "minilm")
    chosen = texts_of(corpus, given.least, given.most)
    texts = [" ".join(corpus.dataset.words(i)[: given.cut]) for i in chosen]
    fold, y = folds_of(corpus, chosen), corpus.y[chosen]
    asked = np.flatnonzero(np.isin(fold, given.asked))
    setting = Setting(ALL, given.tie, given.window)

    folder = given.out / given.task / recipe_key(texts, hsa_geo.__version__)
    base = kept(folder / "unmodified.npz", lambda: outcome(encoder, None, texts))
    probes = probes_of(base.vectors, y, fold, sorted(set(given.asked)))
    some = [texts[i] for i in asked]
    before = outcome(encoder, setting, some)
    unmodified = Outcome(base.vectors[asked], before.flat, 0)  # operations of these texts alone

    rows: list[Row] = []
    right = answers(probes, unmodified.vectors, asked)
    nearest = neighbours(unmodified.vectors, base.vectors, asked)

    def ask(how: Setting | None, found: Outcome) -> None:
        said = answers(probes, found.vectors, asked)
        near = neighbours(found.vectors, base.vectors, asked)
        hit, known = (Hits((x == y[asked]).astype(float)[None], asked, (0,)) for x in (said, right))
        rows.append(row_of(how, found, unmodified, hit, known, near, nearest, LAYERS))
        same = (said == right).mean()
        console.print(f"{rows[-1].title}: {rows[-1].accuracy:.3f}, {same:.3f} answered alike")

    ask(None, unmodified)
    ask(setting, before)
    others = [texts[i] for i in np.setdiff1d(np.arange(len(texts)), asked)][: given.texts]
    recovery, used = recovered(encoder, setting, list(parts(others)), given)
    ask(Recovered(ALL, given.tie, given.window), outcome(encoder, setting, some))
    title = f"{TASKS[given.task].title}: {len(asked)} texts, all layers replaced"
    title += f", the first {given.cut} words of each" if given.cut else ""
    show(rows, title, console)
    console.print(f"trained on {len(others)} other texts: {recovery}, {used:.0f} s of CPU")
    save(given, title, rows, {**asdict(recovery), "cpu_seconds": used, "texts": len(others)})


def kept(path: Path, make: Any) -> Outcome:
    """An outcome from a file, or made and kept there."""
    if not path.is_file():
        made = make()
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as new, open(new, "wb") as file:
            np.savez(file, vectors=made.vectors, flat=made.flat, replaced=made.replaced)
    with np.load(path, allow_pickle=False) as file:
        return Outcome(file["vectors"], int(file["flat"]), int(file["replaced"]))


def answers(
    probes: Sequence[tuple[np.ndarray, Any]], vectors: np.ndarray, asked: np.ndarray
) -> np.ndarray:
    """What the probe of its fold says of every asked text ``[asked]``."""
    said = np.full(len(asked), -1)
    for test, probe in probes:
        mine = np.isin(asked, test)
        said[mine] = probe.predict(vectors[mine])
    return said


def neighbours(vectors: np.ndarray, known: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Of every asked text the nearest other one among the unmodified vectors of all."""
    near = vectors @ known.T
    near[np.arange(len(asked)), asked] = -2
    return near.argmax(1)


def parts(texts: Iterable[str], most: int = PART) -> Iterable[str]:
    """Texts in parts of so many words at most."""
    for text in texts:
        words = text.split()
        for begin in range(0, len(words), most):
            yield " ".join(words[begin : begin + most])


def recovered(
    encoder: MiniLM, setting: Setting, texts: list[str], given: argparse.Namespace
) -> tuple[Recovery, float]:
    """Train the encoder in place; what was done, and the seconds of CPU that it took."""
    model = encoder.encoder.module
    tokenizer = AutoTokenizer.from_pretrained(encoder.encoder.name, local_files_only=True)
    windows = Windows(setting.window)
    replace_attention(model, list(setting.layers), windows, setting.kind, tokenizer=tokenizer)
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
        restore_attention(model)  # the weights stay; outcome() replaces attention by itself
    return recovery, time.process_time() - begin


def save(
    given: argparse.Namespace, title: str, rows: Sequence[Row], recovery: dict[str, Any]
) -> None:
    """Keep the table as JSON and Markdown, with date, versions and settings."""
    names = ("torch", "transformers", "scikit-learn", "numpy")
    report: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "versions": {name: version(name) for name in names} | {"hsa_geo": hsa_geo.__version__},
        "threads": torch.get_num_threads(),
        "settings": {k: v for k, v in vars(given).items() if k not in ("root", "out")},
        "title": title,
        "recovery": recovery,
        "rows": [asdict(row) for row in rows],
    }
    path = given.out / f"{given.task}-{given.tie}{given.window}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(report, indent=1) + "\n")
    write_text(path.with_suffix(".md"), f"{title}\n\n{markdown(rows)}\n")


if __name__ == "__main__":
    sys.exit(main())
