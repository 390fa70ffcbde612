"""HSA inside the fine-tuned RoBERTa classifiers of the paper's third experiment, without training.

    python examples/zero_shot_classifiers.py --task imdb       # model and texts from their hub
    python examples/zero_shot_classifiers.py --task sst2 --layers 7 9 11
    python examples/zero_shot_classifiers.py --task mrpc --model FOLDER --data validation.csv

Layers 7, 9 and 11 attend over windows: as the paper's (block-tied, special tokens in windows like
all others), with special tokens as children of the root, and key-tied.  Nothing is trained.  The
table has accuracy with the paired difference, and the operations of attention.

Models and texts come from the Hugging Face hub by name (a network is needed), or from a folder and
a file (.parquet, .csv with a header) with the columns that the hub's have.  Weights are read from
safetensors files alone; where the hub has only a pickle for a model, convert it first.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from comparison import exit_code, positive
from comparison_statistics import Hits
from rich.console import Console
from zero_shot_encoding import Counter, Outcome, Setting, attending
from zero_shot_table import Row, row_of, save, show

from hsa_geo._optional import require
from hsa_geo.errors import FileFormatError, UnsupportedError
from hsa_geo.hf.intercept import Layers, default_special_ids


@dataclass(frozen=True)
class Task:
    """A classifier and the texts that it is tested on.

    Attributes:
        title: What the table calls it.
        model: Name of the classifier on the hub.
        data: Name of the data set on the hub.
        file: The file in it.
        columns: Of one text or two; the labels are in ``label``.
    """

    title: str
    model: str
    data: str
    file: str
    columns: tuple[str, ...]


def _glue(title: str, model: str, part: str, *columns: str) -> Task:
    file = f"{part}/validation-00000-of-00001.parquet"
    return Task(title, f"textattack/roberta-base-{model}", "nyu-mll/glue", file, columns)


TASKS = {
    "imdb": Task(
        "IMDB, film reviews",
        "textattack/roberta-base-imdb",
        "stanfordnlp/imdb",
        "plain_text/test-00000-of-00001.parquet",
        ("text",),
    ),
    "agnews": Task(
        "AG News, topics",
        "textattack/roberta-base-ag-news",
        "fancyzhx/ag_news",
        "data/test-00000-of-00001.parquet",
        ("text",),
    ),
    "sst2": _glue("SST-2, sentiment", "SST-2", "sst2", "sentence"),
    "cola": _glue("CoLA, grammar", "CoLA", "cola", "sentence"),
    "mrpc": _glue("MRPC, paraphrases", "MRPC", "mrpc", "sentence1", "sentence2"),
    "qnli": _glue("QNLI, questions and answers", "QNLI", "qnli", "question", "sentence"),
    "rte": _glue("RTE, entailment", "RTE", "rte", "sentence1", "sentence2"),
}


def settings_of(layers: tuple[int, ...]) -> list[Setting]:
    """What is compared."""
    return [
        Setting(layers, "block", 4, "paper's windows"),
        Setting(layers, "block", 4),
        Setting(layers, "block", 8),
        Setting(layers, "key", 4),
        Setting(layers, "key", 8),
        Setting(layers, "local", 16),
    ]


def main(args: list[str] | None = None) -> int:
    """Parse the command line and go."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--task", choices=TASKS, default="imdb", help="(default: %(default)s)")
    parser.add_argument("--model", help="a folder, or another name on the hub")
    parser.add_argument("--data", type=Path, help="a .parquet or .csv file")
    parser.add_argument("--layers", type=int, nargs="+", default=[7, 9, 11])
    parser.add_argument("--most", type=positive, help="only so many texts, evenly chosen")
    parser.add_argument("--batch", type=positive, default=16, help="texts (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("runs/zero_shot_classifiers"))
    given = parser.parse_args(args)
    console = Console(markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console.width = 160
    return exit_code(lambda: run(given, console))


def run(given: argparse.Namespace, console: Console) -> None:
    """Classify with every setting, print and keep the table."""
    begin, task = time.perf_counter(), TASKS[given.task]
    model, tokenizer = loaded(given.model or task.model)
    count = len(Layers.of(model).modules)
    if not all(0 <= layer < count for layer in given.layers):
        raise UnsupportedError(
            f"--layers {given.layers}: the model has {count} layers, 0 to {count - 1}."
        )
    texts, labels = texts_of(task, given.data)
    if given.most is not None:
        some = slice(None, None, max(1, len(texts) // given.most))
        texts, labels = texts[some][: given.most], labels[some][: given.most]
    classifier = Classifier(model, tokenizer, given.batch)
    cut = classifier.cut(texts)
    if cut:
        console.print(f"{cut} of {len(texts)} texts are longer than the model reads, and cut.")
    base = classifier.classify(texts, None)
    right = hits_of(base, labels)
    accuracy, most = float(right.right.mean()), float(np.bincount(labels).max() / len(labels))
    if accuracy < most:
        console.print(
            f"warning: the unmodified model is right in {accuracy:.3f} of the texts and the most "
            f"frequent label in {most:.3f}: its labels may be numbered in another order."
        )
    nothing = np.zeros(len(texts), int)
    rows: list[Row] = [row_of(None, base, base, right, right, nothing, nothing, count)]
    for setting in settings_of(tuple(sorted(set(given.layers)))):
        found = classifier.classify(texts, setting)
        same = (found.vectors.argmax(1) == base.vectors.argmax(1)).astype(int) - 1
        hit = hits_of(found, labels)
        rows.append(row_of(setting, found, base, hit, right, same, nothing, count))
    title = f"{task.title}: {len(texts)} texts"
    show(rows, title, console)
    console.print("'same neighbour' is here how often the answer stays the same.")
    seconds = time.perf_counter() - begin
    save(given.out / f"{given.task}.json", rows, given.task, title, seconds)


def loaded(name: str) -> tuple[Any, Any]:
    """A classifier and its tokenizer, from the hub or a folder."""
    transformers: Any = require("transformers", extra="hf", purpose="a pretrained classifier")
    try:
        model, report = transformers.AutoModelForSequenceClassification.from_pretrained(
            name, use_safetensors=True, trust_remote_code=False, output_loading_info=True
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except ValueError as error:
        raise FileFormatError(f"{name!r} holds no classifier: {error}") from error
    if report["missing_keys"]:
        raise FileFormatError(
            f"{name!r} lacks the weights {sorted(report['missing_keys'])[:3]}: give a classifier "
            "that was trained."
        )
    return model.eval(), tokenizer


def texts_of(task: Task, path: Path | None) -> tuple[list[tuple[str, ...]], np.ndarray]:
    """Texts (or pairs) and labels, from the hub or a file.

    Raises:
        FileFormatError: If the file is not what it should be.
    """
    if path is None:
        hub: Any = require("huggingface_hub", extra="hf", purpose="texts from the hub")
        path = Path(hub.hf_hub_download(task.data, task.file, repo_type="dataset"))
    try:
        if path.suffix == ".csv":
            table = require("pyarrow.csv", extra="datasets", purpose="CSV").read_csv(path)
        else:
            reader = require("pyarrow.parquet", extra="datasets", purpose="Parquet")
            table = reader.read_table(path)
        columns = [table[name].to_pylist() for name in (*task.columns, "label")]
    except (KeyError, ValueError) as error:  # pyarrow's errors are ValueErrors
        raise FileFormatError(
            f"'{path}' does not hold the columns {[*task.columns, 'label']}: {error}."
        ) from error
    *parts, labels = columns
    for text in (text for part in parts for text in part):
        if not isinstance(text, str):
            raise FileFormatError(f"'{path}' holds {text!r} where a text belongs.")
    if not labels or not all(isinstance(label, int) and label >= 0 for label in labels):
        raise FileFormatError(f"'{path}' has no labels, or other ones than 0, 1, 2, ...")
    return list(zip(*parts)), np.array(labels)


def hits_of(found: Outcome, labels: np.ndarray) -> Hits:
    """Which texts were got right."""
    right = (found.vectors.argmax(1) == labels).astype(float)
    return Hits(right[None], np.arange(len(labels)), (0,))


class Classifier:
    """A classifier that is asked about many texts, of like length in a batch.

    Args:
        model: The model.
        tokenizer: Its tokenizer.
        batch: Texts at a time.
    """

    def __init__(self, model: Any, tokenizer: Any, batch: int) -> None:
        self.model, self.tokenizer, self.batch = model, tokenizer, batch
        # RoBERTa's positions begin behind that of the padding.
        held = getattr(model.config, "max_position_embeddings", 512)
        if model.config.model_type in ("roberta", "xlm-roberta"):
            held -= model.config.pad_token_id + 1
        self.most = min(held, tokenizer.model_max_length)
        self.special = default_special_ids(model.config)

    def cut(self, texts: list[tuple[str, ...]]) -> int:
        """How many texts are longer than the model reads."""
        ids = self.tokenizer(*map(list, zip(*texts)), verbose=False)["input_ids"]
        return sum(len(one) > self.most for one in ids)

    @torch.inference_mode()
    def classify(self, texts: list[tuple[str, ...]], setting: Setting | None) -> Outcome:
        """Probabilities of the classes, scaled to length 1; operations."""
        counter, out = Counter(), []
        order = np.argsort([sum(map(len, text)) for text in texts], kind="stable")
        with attending(self.model, setting, self.special, counter):
            for begin in range(0, len(order), self.batch):
                rows = [texts[i] for i in order[begin : begin + self.batch]]
                inputs = self.tokenizer(
                    *map(list, zip(*rows)),
                    padding=True,
                    truncation=True,
                    max_length=self.most,
                    return_tensors="pt",
                )
                out.append(self.model(**inputs).logits.softmax(-1))
        found = torch.cat(out).numpy()
        found[order] = found / np.linalg.norm(found, axis=1, keepdims=True)
        return Outcome(found, counter.flat, counter.replaced)


if __name__ == "__main__":
    sys.exit(main())
