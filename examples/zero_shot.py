"""HSA inside a pretrained sentence encoder, without training: what it saves and what it costs.

    python examples/zero_shot.py                     # food reviews of 64 words and more
    python examples/zero_shot.py --task brown4
    python examples/zero_shot.py --quick

Texts become vectors by the frozen all-MiniLM-L6-v2.  A logistic regression on the vectors of the
unmodified model is the probe; then attention of some layers is replaced, nothing is trained again,
and the probe is asked the same questions.  Five folds, so that every text is asked about once by a
probe that never saw it.  Besides accuracy the table has how often the nearest other text stays the
same, the operations of attention (counted) and the seconds of attention and of the whole model
(measured on some of the texts, all settings in turns), against the unmodified model, against local
windows, and against mean-pooled keys without the theorem.  A plot shows accuracy over operations.

Vectors are kept in ``--out`` and not computed again.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from comparison import exit_code, positive, recipe_key
from comparison_statistics import Hits
from language_data import TASKS, Corpus, prepare
from rich.console import Console
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from zero_shot_encoding import Outcome, Setting, outcome
from zero_shot_table import Row, draw, row_of, save, show

import hsa_geo
from hsa_geo._files import replacing
from hsa_geo.datasets import MiniLM
from hsa_geo.errors import ShapeError

LAYERS = 6
ALTERNATE, ALL = (1, 3, 5), (0, 1, 2, 3, 4, 5)
FOLDS = 5
#: Strengths of the probe, the best of which is found by cross-validation on its training texts.
STRENGTHS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 1.0)

KINDS = (("block", 4), ("block", 8), ("key", 4), ("key", 8), ("pooled", 8), ("local", 16))
SETTINGS = [Setting(ALTERNATE, kind, window) for kind, window in KINDS]
SETTINGS += [Setting(ALTERNATE, "key", 8, "clusters")]
SETTINGS += [Setting(ALL, kind, window) for kind, window in KINDS if window != 4 or kind == "block"]


def main(args: list[str] | None = None) -> int:
    """Parse the command line and go."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--task", choices=TASKS, default="food", help="(default: %(default)s)")
    parser.add_argument("--root", type=Path, default=Path("data"), help="where data are kept")
    parser.add_argument("--out", type=Path, default=Path("runs/zero_shot"))
    parser.add_argument(
        "--least",
        type=positive,
        default=64,
        help="only texts of so many words or more (default: %(default)s)",
    )
    parser.add_argument("--cut", type=positive, help="only the first so many words of a text")
    parser.add_argument("--most", type=positive, help="only the first so many of these texts")
    parser.add_argument(
        "--timed",
        type=int,
        default=64,
        help="texts that are timed, on average lengths; 0: no times (default: %(default)s)",
    )
    parser.add_argument("--rounds", type=positive, default=3, help="of times (default: 3)")
    parser.add_argument("--quick", action="store_true", help="few texts, few settings")
    given = parser.parse_args(args)
    if given.quick:
        given.least, given.most, given.rounds, given.timed = 10, 120, 1, min(given.timed, 4)
    console = Console(markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console.width = 160
    return exit_code(lambda: run(given, console))


def run(given: argparse.Namespace, console: Console) -> None:
    """Encode with every setting, ask the probes, print and keep the table."""
    begin = time.perf_counter()
    corpus = prepare(given.root, given.task, "glove", ["given"])
    encoder = MiniLM(given.root / "minilm")
    chosen = texts_of(corpus, given.least, given.most)
    texts = [" ".join(corpus.dataset.words(i)[: given.cut]) for i in chosen]
    settings = SETTINGS
    if given.quick:
        settings = [Setting(ALTERNATE, "key", 8), Setting(ALTERNATE, "local", 8)]
    folder = given.out / given.task / recipe_key(texts, hsa_geo.__version__)

    def encoded(setting: Setting | None) -> Outcome:
        path = folder / f"{'unmodified' if setting is None else setting.name}.npz"
        if path.is_file():
            with np.load(path, allow_pickle=False) as kept:
                return Outcome(kept["vectors"], int(kept["flat"]), int(kept["replaced"]))
        found = outcome(encoder, setting, texts)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as new, open(new, "wb") as file:
            np.savez(file, vectors=found.vectors, flat=found.flat, replaced=found.replaced)
        return found

    base = encoded(None)
    probes = probes_of(base.vectors, corpus.y[chosen], folds_of(corpus, chosen))
    right = hits_of(probes, base.vectors, corpus.y[chosen])
    nearest = neighbours(base.vectors, base.vectors)
    rows: list[Row] = [row_of(None, base, base, right, right, nearest, nearest, LAYERS)]
    for setting in settings:
        found = encoded(setting)
        hit = hits_of(probes, found.vectors, corpus.y[chosen])
        near = neighbours(found.vectors, base.vectors)
        rows.append(row_of(setting, found, base, hit, right, near, nearest, LAYERS))
        console.print(
            f"{setting.title}, layers {list(setting.layers)}: {rows[-1].accuracy:.3f}, "
            f"{time.perf_counter() - begin:.0f} s"
        )
    if given.timed:
        some = texts[:: max(1, len(texts) // given.timed)][: given.timed]
        rows = timed(rows, encoder, some, given.rounds)
    title = f"{TASKS[given.task].title}: {len(texts)} texts of {given.least} words and more"
    title += f", the first {given.cut} words of each" if given.cut else ""
    show(rows, title, console)
    path = given.out / f"{given.task}.json"
    save(path, rows, given.task, title, time.perf_counter() - begin)
    draw({title: rows}, path.with_suffix(".svg"))
    console.print(f"table in {path}, picture in {path.with_suffix('.svg')}")


def texts_of(corpus: Corpus, least: int, most: int | None) -> np.ndarray:
    """Numbers of the texts that are long enough."""
    long = [i for i, tree in enumerate(corpus.trees) if tree.num_nodes >= least]
    if most is not None:  # of every class, and all through the data
        long = long[:: max(1, len(long) // most)][:most]
    if len(long) < 10 * FOLDS:
        raise ShapeError(f"only {len(long)} texts have {least} words: ask for less by --least.")
    return np.array(long)


def folds_of(corpus: Corpus, chosen: np.ndarray) -> np.ndarray:
    """The fold in which each chosen text is tested ``[texts]``."""
    fold = np.full(len(corpus.trees), -1)
    for number in range(FOLDS):
        fold[corpus.split(number, FOLDS)[2]] = number
    return fold[chosen]


def probes_of(
    x: np.ndarray, y: np.ndarray, fold: np.ndarray, folds: Sequence[int] = range(FOLDS)
) -> list[tuple[np.ndarray, Any]]:
    """For each of some folds: its texts, and a probe of the vectors of all others."""
    probes = []
    for number in folds:
        train = fold != number
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
        probe = GridSearchCV(model, {"logisticregression__C": STRENGTHS}, cv=5)
        probes.append((np.flatnonzero(~train), probe.fit(x[train], y[train])))
    return probes


def hits_of(probes: Sequence[tuple[np.ndarray, Any]], x: np.ndarray, y: np.ndarray) -> Hits:
    """Which texts the probe of their fold got right."""
    right = np.zeros(len(y))
    for test, probe in probes:
        right[test] = probe.predict(x[test]) == y[test]
    return Hits(right[None], np.arange(len(y)), (0,))


def neighbours(vectors: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Of every text the nearest other one, by cosine with the vectors of the unmodified model."""
    near = vectors @ known.T
    np.fill_diagonal(near, -2)
    return near.argmax(1)


def timed(rows: list[Row], encoder: MiniLM, texts: list[str], rounds: int) -> list[Row]:
    """The rows with seconds, medians over rounds in which all settings take turns."""
    taken: list[list[tuple[float, float]]] = [[] for _ in rows]
    for turn in range(rounds + 1):
        for row, one in zip(rows, taken):
            found = outcome(encoder, row.setting, texts, count=False)
            if turn:  # in the first, code is compiled and plans are made
                one.append((found.seconds, found.attention_seconds))
    return [
        replace(
            row,
            seconds=statistics.median(whole for whole, _ in one) / len(texts),
            attention_seconds=statistics.median(part for _, part in one) / len(texts),
        )
        for row, one in zip(rows, taken)
    ]


if __name__ == "__main__":
    sys.exit(main())
