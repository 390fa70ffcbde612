"""HSA inside a pretrained cross-encoder, without training, at its own task: ranking passages.

    python examples/zero_shot_ranking.py             # how well passages are ranked
    python examples/zero_shot_ranking.py --measure   # divergence of every layer, on other queries
    python examples/zero_shot_ranking.py --race      # seconds of the whole model, side by side
    python examples/zero_shot_ranking.py --quick

A query is the one-line summary of a module of GRASS GIS, without the module's name; the passage
that answers it is the beginning of that module's description, and 30 other passages are those of
other modules that share most words with the query.  Attention of some layers of the cross-encoder
is replaced, nothing is trained, and the passages are ranked again: how often is the right one
first, and what is the mean of one over its rank (MRR)?  Which layers lend themselves to it is
measured on other queries, without a look at the answers (``--measure``).  What was computed is
kept, and a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from comparison import exit_code, positive, recipe_key
from comparison_statistics import Hits
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.feature_extraction.text import TfidfVectorizer
from zero_shot_encoding import GROUPINGS, Counter, Outcome, Setting, attending, named
from zero_shot_race import raced
from zero_shot_race import save as save_race
from zero_shot_race import show as show_race
from zero_shot_rivals import RIVALS
from zero_shot_table import Row, row_of, save, show

import hsa_geo
from hsa_geo._files import replacing
from hsa_geo.builders.html import parse_html
from hsa_geo.datasets import CrossEncoder
from hsa_geo.datasets.manual_sections import manual_of
from hsa_geo.hf import Clusters, Sentences, measure_layers
from hsa_geo.hf.intercept import tokenizer_special_ids

LAYERS = 12
#: Passages that are ranked beside the right one, and the fewest words of a passage and a query.
OTHERS, WORDS, QUERY = 30, 64, 4
#: Every third query is for choosing layers, the others are for reporting.
PARTS = {"validation": (0,), "test": (1, 2)}
ALTERNATE, ALL = (7, 9, 11), tuple(range(12))
#: Three layers that diverge least over key-tied windows, on other queries (``--measure``).
CHOSEN = (2, 10, 11)
#: Ids of "!", "." and "?" in the vocabulary of the cross-encoder.
GROUPINGS["sentences"] = partial(Sentences, (999, 1012, 1029))
SETTINGS = [
    *(Setting(ALTERNATE, "key", window) for window in (4, 8)),
    *(Setting(ALTERNATE, "block", window) for window in (4, 8)),
    Setting(ALTERNATE, "local", 8),
    Setting(ALTERNATE, "pooled", 4),
    Setting(CHOSEN, "key", 4),
    Setting(CHOSEN, "block", 8),
    Setting(ALTERNATE, "key", 4, "sentences"),
    Setting(ALTERNATE, "key", 8, "clusters"),
    *(Setting(ALL, kind, 8) for kind in ("key", "block", *RIVALS)),
]


@dataclass(frozen=True)
class Question:
    """A query, and passages of which the first is the right one."""

    query: str
    passages: list[str]


def main(args: list[str] | None = None) -> int:
    """Parse the command line and go."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--root", type=Path, default=Path("data"), help="where data are kept")
    parser.add_argument("--out", type=Path, default=Path("runs/zero_shot"))
    parser.add_argument("--queries", type=positive, default=50, help="(default: %(default)s)")
    parser.add_argument("--cut", type=positive, default=64, help="most words of a passage")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="of settings, as files are named")
    parser.add_argument("--threads", type=positive, help="of torch")
    parser.add_argument("--measure", action="store_true", help="divergence of layers, not ranks")
    parser.add_argument("--race", action="store_true", help="measure seconds, not ranks")
    parser.add_argument("--rounds", type=positive, default=5, help="of the race")
    parser.add_argument("--quick", action="store_true", help="few queries, few settings")
    given = parser.parse_args(args)
    if given.quick:
        given.queries, given.rounds = min(given.queries, 3), 1
    console = Console(markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console.width = 160
    return exit_code(lambda: run(given, console))


def run(given: argparse.Namespace, console: Console) -> None:
    """Rank with every setting, or time them; print and keep the table."""
    begin = time.perf_counter()
    if given.threads:
        torch.set_num_threads(given.threads)
    quick = ["key-windows8-layers7911", "local-windows8-layers01234567891011"]
    settings = named(SETTINGS, quick if given.quick else given.only)
    encoder = CrossEncoder(given.root / "cross_encoder")
    questions = questions_of(given.root / "manual_pages", given.cut)
    if given.measure:
        measure(encoder, chosen(questions, "validation", 3), console)
        return
    questions = chosen(questions, "test", given.queries)
    if given.race:
        settings = [setting for setting in settings if setting.kind not in RIVALS]
        race(given, encoder, questions[0], settings, console)
        return
    key = recipe_key([[q.query, *q.passages] for q in questions], hsa_geo.__version__)
    cache = given.out / "grass" / key
    base = scores(encoder, None, questions, cache)
    tables: dict[str, list[Row]] = {"first": [], "mrr": []}
    title = f"{len(questions)} queries, {OTHERS + 1} passages of {WORDS} to "
    title += f"{given.cut} words each; "
    titles = {"first": title + "how often the right one is first", "mrr": title + "MRR"}
    for setting in [None, *settings]:
        found = scores(encoder, setting, questions, cache)
        for name, rows in tables.items():
            pair = (hits(found.vectors, name), hits(base.vectors, name))
            near = found.vectors.argmax(1), base.vectors.argmax(1)
            rows.append(row_of(setting, unit(found), unit(base), *pair, *near, LAYERS))
            path = given.out / f"ranking_{name}.json"
            save(path, rows, "grass", titles[name], time.perf_counter() - begin)
        said = "unmodified" if setting is None else f"{setting.title}, {list(setting.layers)}"
        first, mrr = (rows[-1].accuracy for rows in tables.values())
        console.print(f"{said}: {first:.3f}, {mrr:.3f}, {time.perf_counter() - begin:.0f} s")
    for name, rows in tables.items():
        show(rows, titles[name], console)
    console.print("'same neighbour' is here how often the first passage stays the same.")


def measure(encoder: CrossEncoder, questions: list[Question], console: Console) -> None:
    """Print what each layer's attention diverges by, and what would be left of its operations."""
    batches = [
        batch for one in questions for _, batch in encoder.batches(one.query, one.passages[:12])
    ]
    special = tokenizer_special_ids(encoder.tokenizer)
    options = measure_layers(
        encoder.module, batches, (4, 8, Clusters(8)), ("key", "block"), special_ids=special
    )
    table = Table(title="divergence of a token's attention, in nats")
    for heading in ("groups", "tie", "of operations", *map(str, range(LAYERS))):
        table.add_column(heading, justify="left" if heading in ("groups", "tie") else "right")
    for hierarchy, tie in dict.fromkeys((o.hierarchy, o.tie) for o in options):
        row = [o for o in options if (o.hierarchy, o.tie) == (hierarchy, tie)]
        share = f"{row[0].flops / row[0].flat_flops:.3f}"
        table.add_row(str(hierarchy), tie, share, *(f"{o.kl:.2f}" for o in row))
    console.print(table)


def race(
    given: argparse.Namespace,
    encoder: CrossEncoder,
    question: Question,
    settings: Sequence[Setting],
    console: Console,
) -> None:
    """Time every setting on one query with its passages, print and keep the table."""
    special = tokenizer_special_ids(encoder.tokenizer)
    laps = raced(
        *(encoder.module, settings, special),
        lambda: encoder.scores(question.query, question.passages),
        given.rounds,
    )
    title = f"a query with {len(question.passages)} passages of up to {given.cut} words, "
    title += f"threads: {torch.get_num_threads()}, rounds: {given.rounds}"
    show_race(laps, title, LAYERS, console)
    save_race(given.out / "ranking_race.json", laps, title, LAYERS)


def questions_of(root: Path, cut: int) -> list[Question]:
    """Queries with the right passage and the nearest others, by words."""
    folder = manual_of("grass").archive.unpacked(root / "raw", log=True)
    pairs = [found for file in sorted(folder.glob("*.html")) if (found := summary(file))]
    queries, passages = [q for q, _ in pairs], [" ".join(p.split()[:cut]) for _, p in pairs]
    words = TfidfVectorizer(stop_words="english", sublinear_tf=True)
    near = (words.fit(passages).transform(queries) @ words.transform(passages).T).toarray()
    np.fill_diagonal(near, -1)
    order = np.argsort(-near, axis=1, kind="stable")[:, :OTHERS]
    return [
        Question(query, [passages[i], *(passages[j] for j in order[i])])
        for i, query in enumerate(queries)
    ]


def summary(file: Path) -> tuple[str, str] | None:
    """The summary of a page and the text of its description, if both are long enough."""
    page = parse_html(file.read_bytes())
    meta = page.css_first("meta[name=description]")
    heads = [head for head in page.css("h2") if head.text().strip() == "DESCRIPTION"]
    if meta is None or not heads:
        return None
    _, _, query = (meta.attributes.get("content") or "").partition(":")
    parts, node = [], heads[0].next
    while node is not None and node.tag not in ("h1", "h2"):
        parts.append(node.text(deep=True))
        node = node.next
    passage = " ".join(" ".join(parts).split())
    long = len(query.split()) >= QUERY and len(passage.split()) >= WORDS
    return (" ".join(query.split()), passage) if long else None


def chosen(questions: list[Question], part: str, count: int) -> list[Question]:
    """The queries of a part, so many of them, evenly chosen."""
    some = [q for i, q in enumerate(questions) if i % 3 in PARTS[part]]
    return some[:: max(1, len(some) // count)][:count]


def scores(
    encoder: CrossEncoder, setting: Setting | None, questions: list[Question], cache: Path
) -> Outcome:
    """Scores of all passages ``[queries, passages]``; those that are kept are not computed."""
    path = cache / f"{'unmodified' if setting is None else setting.name}.npz"
    special = tokenizer_special_ids(encoder.tokenizer)
    made, cost = np.full((len(questions), OTHERS + 1), np.nan), np.zeros((len(questions), 2))
    if path.is_file():
        with np.load(path, allow_pickle=False) as kept:
            made, cost = kept["scores"], kept["cost"]
    missing = [i for i in range(len(questions)) if np.isnan(made[i, 0])]
    cache.mkdir(parents=True, exist_ok=True)
    for i in track(missing, path.stem, disable=not missing):
        counter = Counter()
        with attending(encoder.module, setting, special, counter):
            made[i] = encoder.scores(questions[i].query, questions[i].passages)
        cost[i] = counter.flat, counter.replaced
        with replacing(path) as new, open(new, "wb") as file:
            np.savez(file, scores=made, cost=cost)
    flat, replaced = cost.sum(0)
    return Outcome(made, int(flat), int(replaced))


def hits(made: np.ndarray, name: str) -> Hits:
    """Of each query, whether the right passage is first, or one over its rank."""
    rank = 1 + (made[:, 1:] >= made[:, :1]).sum(1)
    value = (rank == 1) if name == "first" else 1 / rank
    return Hits(value.astype(float)[None], np.arange(len(made)), (0,))


def unit(found: Outcome) -> Outcome:
    """Scores of a query, centred and of length 1, so that a cosine is a correlation."""
    centred = found.vectors - found.vectors.mean(1, keepdims=True)
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    return Outcome(centred / np.maximum(length, 1e-12), found.flat, found.replaced)


if __name__ == "__main__":
    sys.exit(main())
