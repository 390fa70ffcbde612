"""The ListOps dataset, and files of expressions."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch_geometric.loader import DataLoader

from hsa_geo.datasets.listops import ListOps, draw_splits, read_listops, write_listops
from hsa_geo.datasets.listops_notation import CLOSE, Expressions
from hsa_geo.datasets.records import Records
from hsa_geo.errors import BuilderError, FileFormatError, LabelError, ShapeError, UnsupportedError

OPTIONS = {"sizes": [60, 20, 25], "max_leaves": 30, "max_depth": 3, "seed": 5}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return ListOps(tmp_path_factory.mktemp("listops"), options=OPTIONS, log=False)


def test_splits_share_nothing_and_are_balanced():
    sets = draw_splits([500, 100, 105], min_leaves=5, max_leaves=20, max_depth=3)
    assert [len(some) for some in sets] == [500, 100, 105]
    keys = [key for some in sets for key in some.encoded()]
    assert len(set(keys)) == len(keys)
    for some in sets:
        counts = np.bincount(some.values(), minlength=10)
        assert counts.max() - counts.min() <= 1
        leaves = np.add.reduceat((some.tokens != CLOSE).astype(int), some.ptr[:-1])
        assert leaves.min() >= 5
        assert leaves.max() <= 20
    assert len({*np.diff(np.flatnonzero(np.diff(sets[0].values())))}) > 1  # in no order of values


def test_a_larger_training_set_leaves_the_others():
    small, large = (draw_splits([n, 30, 30], max_leaves=40) for n in (50, 400))
    assert [s.encoded() for s in small[1:]] == [s.encoded() for s in large[1:]]


def test_the_same_in_another_process():
    code = (
        "from hsa_geo.datasets.listops import draw_splits\n"
        "print(*[s.text(0) for s in draw_splits([20, 10], seed=7)], sep='|')"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "|".join(s.text(0) for s in draw_splits([20, 10], seed=7))
    assert out.stdout.strip() != "|".join(s.text(0) for s in draw_splits([20, 10], seed=8))


def test_what_cannot_be_found():
    with pytest.raises(BuilderError, match="only 0 turned up"):
        draw_splits([10], min_leaves=50, max_leaves=60, max_depth=1)
    with pytest.raises(BuilderError, match="only"):
        draw_splits([100_000], min_leaves=3, max_leaves=3, max_depth=1, max_args=2)


def test_dataset(dataset):
    train, validation, test = dataset.split()
    assert [len(rows) for rows in (train, validation, test)] == OPTIONS["sizes"]
    assert dataset.num_classes == 10
    sets = draw_splits(OPTIONS["sizes"], **{k: v for k, v in OPTIONS.items() if k != "sizes"})
    assert dataset.column("y").tolist() == np.concatenate([s.values() for s in sets]).tolist()
    assert all(tree.validate() for tree in dataset[torch.from_numpy(test)])
    batch = next(iter(DataLoader(dataset, batch_size=8)))
    assert batch.y.shape == (8,)
    assert batch.plan.num_trees == 8


def test_loaded_again(dataset):
    again = ListOps(dataset.root, options=OPTIONS, log=False)
    assert torch.equal(again.column("y"), dataset.column("y"))
    assert torch.equal(again[3].symbol_x, dataset[3].symbol_x)


def test_unknown_options(tmp_path):
    with pytest.raises(UnsupportedError, match="option 'depth' is unknown"):
        ListOps(tmp_path, options={"depth": 3})


@pytest.mark.parametrize("kind", [ListOps, Records])
@pytest.mark.parametrize("sizes", [[5, -1, 0], "522", [5, 2], [5.0, 1, 1], 7, None])
def test_sizes_that_are_none(tmp_path, kind, sizes):
    with pytest.raises(ShapeError, match="must be three whole numbers"):
        kind(tmp_path, options={"sizes": sizes})


@pytest.mark.parametrize("layout", ["original", "lra"])
def test_files(tmp_path, layout):
    (some,) = draw_splits([30])
    write_listops(tmp_path / "x.tsv", some, layout)
    first = (tmp_path / "x.tsv").read_text().split("\n")[0]
    assert first.startswith("Source\t") if layout == "lra" else first[1] == "\t"
    assert read_listops(tmp_path / "x.tsv").encoded() == some.encoded()


def test_parentheses_of_the_original_files(tmp_path):
    path = tmp_path / "x.tsv"
    path.write_text("8\t( ( ( [MAX 8 ) ( ( ( [MED 3 ) 6 ) ] ) ) ] )\n\n4\t4\n")
    assert [read_listops(path).text(i) for i in (0, 1)] == ["[MAX 8 [MED 3 6 ] ]", "4"]


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        ("3\t[MAX 1 2 ]\n", LabelError, "line 1 .* says 3, but the value .* is 2"),
        ("2\t[MAX 1 2 ]\n[MAX 1 2 ]\n", FileFormatError, "line 2"),
        ("12\t[MAX 1 2 ]\n", FileFormatError, "line 1"),
        ("2\t[MAX 1 2\n", FileFormatError, "no expression"),
        ("2\t[AVG 1 2 ]\n", FileFormatError, "no token"),
        (b"\xff\xfe\x00", FileFormatError, "UTF-8"),
    ],
)
def test_broken_files(tmp_path, content, error, message):
    path = tmp_path / "x.tsv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(error, match=message):
        read_listops(path)


def test_unknown_layout(tmp_path):
    with pytest.raises(UnsupportedError, match="layout='csv'"):
        write_listops(tmp_path / "x", Expressions.parse([]), "csv")
