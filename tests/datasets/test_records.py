"""Tables with a question."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_geometric.loader import DataLoader

from hsa_geo.data import Domain
from hsa_geo.datasets.records import VALUES, Records, draw_table, table_key, table_tree
from hsa_geo.errors import BuilderError, HSAWarning, ShapeError, UnsupportedError

OPTIONS = {"sizes": [50, 20, 20], "records": [2, 5], "keys": 3, "words": 4, "seed": 1}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return Records(tmp_path_factory.mktemp("records"), options=OPTIONS, log=False)


@pytest.mark.parametrize("keys", [1, 2, 4])
def test_exactly_one_record_fits(keys):
    rng = np.random.default_rng(0)
    for answer in range(VALUES):
        table = draw_table(rng, answer, records=(1, 8), keys=keys, words=3)
        (question,) = np.flatnonzero(table[:, -1] == VALUES)
        fits = (table[:, :-1] == table[question, :-1]).all(1)
        fits[question] = False
        assert table[fits, -1].tolist() == [answer]


def test_no_key_alone_tells():
    """Of the records that share the first key with the question most are not the one asked for."""
    rng = np.random.default_rng(0)
    shares = []
    for _ in range(300):
        table = draw_table(rng, 3, records=(8, 8))
        (question,) = np.flatnonzero(table[:, -1] == VALUES)
        same = table[:, 0] == table[question, 0]
        same[question] = False
        shares.append(1 / same.sum())
    assert np.mean(shares) < 0.6


def test_the_question_stands_anywhere():
    rng = np.random.default_rng(0)
    tables = [draw_table(rng, 0, records=(4, 4)) for _ in range(200)]
    places = [int(np.flatnonzero(table[:, -1] == VALUES)[0]) for table in tables]
    assert np.bincount(places).min() > 20


def test_tree():
    table = draw_table(np.random.default_rng(1), 4, records=(3, 3))
    tree = table_tree(table)
    assert tree.validate()
    assert tree.depth == 2
    assert tree.tree_domain[-1] == Domain.SET
    assert tree.tree_domain[tree.num_leaves : -1].tolist() == [Domain.SEQUENCE] * 4
    assert tree.tree_pos[: tree.num_leaves, 0].tolist() == [0, 1, 2] * 4
    assert tree.symbol_x[tree.question_node] == 2 * 16 + VALUES
    assert tree.y.tolist() == [4]


def test_dataset(dataset):
    train, validation, test = dataset.split()
    assert len(test) == 20
    assert (len(train), len(validation)) == (50, 20)
    assert dataset.column("y")[test].bincount().tolist() == [2] * 10
    assert int(dataset._data.symbol_x.max()) == dataset.num_symbols - 1
    batch = next(iter(DataLoader(dataset[test.tolist()], batch_size=20)))
    rows, _ = batch.plan.leaves_under(batch.plan.slots_of(batch.question_node))
    assert (batch.symbol_x[rows] == dataset.num_symbols - 1).all()
    assert batch.plan.num_trees == 20


def test_a_larger_training_set_leaves_the_others(dataset, tmp_path):
    more = Records(tmp_path, options={**OPTIONS, "sizes": [90, 20, 20]}, log=False)
    for old, new in zip(dataset.split()[2], more.split()[2]):
        assert torch.equal(dataset[int(old)].symbol_x, more[int(new)].symbol_x)


def tables_of(dataset, rows, keys=2):
    """What each table holds, whatever the order of its records."""
    width = keys + 1
    return [
        tuple(sorted(map(tuple, dataset[int(i)].symbol_x.view(-1, width).tolist()))) for i in rows
    ]


def test_no_table_is_in_two_splits_and_answers_are_equally_frequent(tmp_path):
    """So few tables that many are drawn twice: those of a later split are drawn anew."""
    options = {"sizes": [300, 100, 60], "records": [1, 2], "keys": 1, "words": 6}
    dataset = Records(tmp_path, options=options, log=False)
    parts = dataset.split()
    assert [len(part) for part in parts] == options["sizes"]
    for part in parts:
        assert dataset.column("y")[part].bincount().tolist() == [len(part) // 10] * 10
    train, validation, test = (set(tables_of(dataset, part, 1)) for part in parts)
    assert not train & validation
    assert not (train | validation) & test
    assert len(train) < 300  # within a split a table may come twice
    assert dataset.report["redrawn"] > 10
    again = Records(tmp_path / "again", options=options, log=False)
    assert all(torch.equal(a.symbol_x, b.symbol_x) for a, b in zip(dataset, again))


def test_too_few_tables(tmp_path):
    options = {"sizes": [300, 0, 300], "records": [1, 1], "keys": 1, "words": 2}
    with pytest.raises(BuilderError, match="too few tables with the answer 0 that no later split"):
        Records(tmp_path, options=options, log=False)


def test_tables_are_the_same_but_for_the_order_of_records():
    table = np.array([[0, 5, 1], [3, 4, 2], [3, 4, VALUES]])
    assert table_key(table) == table_key(table[[2, 0, 1]])
    # The same words and values in every column, and the same answer of the same question.
    other = np.array([[0, 5, 2], [3, 4, 1], [3, 4, VALUES]])
    assert table_key(table) != table_key(other)
    assert table_key(table) != table_key(np.array([[0, 4, 1], [3, 5, 2], [3, 4, VALUES]]))


def test_files_of_the_version_before_are_not_reused_silently(tmp_path, monkeypatch):
    options = {"sizes": [10, 0, 0]}
    monkeypatch.setattr(Records, "build_version", 1)
    Records(tmp_path, options=options, log=False)
    monkeypatch.undo()
    with pytest.warns(HSAWarning, match="build_version=1, not 2"):
        Records(tmp_path, options=options, log=False)


@pytest.mark.parametrize(
    "options",
    [{"records": [3, 2]}, {"keys": 0}, {"words": 1}, {"shared": 1.5}, {"answer": 10}],
)
def test_what_cannot_be_drawn(options):
    with pytest.raises(ShapeError, match=next(iter(options))):
        draw_table(np.random.default_rng(0), **{"answer": 0, **options})


def test_unknown_options(tmp_path):
    with pytest.raises(UnsupportedError, match="'rows' is unknown"):
        Records(tmp_path, options={"rows": 3})
