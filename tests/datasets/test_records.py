"""Tables with a question."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_geometric.loader import DataLoader

from hsa_geo.data import Domain
from hsa_geo.datasets.records import VALUES, Records, draw_table, table_tree
from hsa_geo.errors import ShapeError, UnsupportedError

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
    assert len(train) + len(validation) + dataset.report["repeated"] == 70
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


def test_repeated_tables_are_left_out(tmp_path):
    options = {"sizes": [300, 0, 300], "records": [1, 1], "keys": 1, "words": 2}
    dataset = Records(tmp_path, options=options, log=False)
    keys = [tuple(map(tuple, sorted(t.symbol_x.view(-1, 2).tolist()))) for t in dataset]
    assert len(set(keys)) == len(keys) == 20  # two words, ten values
    assert dataset.report["repeated"] == 580


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
