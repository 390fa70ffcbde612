from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from hsa_geo.cli.arrays import MAX_STEPS, is_npy, read_array, sequence_tree
from hsa_geo.cli.sources import Kind, read_tree
from hsa_geo.errors import BuilderError, HSAWarning, LimitError


def npy(array, **options):
    out = io.BytesIO()
    np.save(out, array, **options)
    return out.getvalue()


@pytest.mark.parametrize(
    ("table", "values"),
    [
        ("1,2\n3,4\n", [[1, 2], [3, 4]]),
        ("Zeit;Höhe\r\n1;2\r\n\r\n3;-4e2\r\n", [[1, 2], [3, -400]]),
        ("t\tx\n0\t.5", [[0, 0.5]]),
        ("5\n6\n7", [[5], [6], [7]]),
        ('"1","2"\n', [[1, 2]]),
    ],
)
def test_tables(table, values):
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "latin-1"):
        found = read_array(table.encode(encoding), "a.csv")
        assert found.dtype == np.float32
        assert found.tolist() == values


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("a,b\n1,2\n3\n", "line 3 of 'a.csv' has 1 columns, but the first row 2"),
        ("a,b\n1,\n", "line 2 of 'a.csv' has '' in column 2, which is no number"),
        ("1,x\n", "line 1 of 'a.csv' has 'x' in column 2"),
        ("page.html,news\nb.html,shop\n", "line 2 of 'a.csv' has 'b.html' in column 1"),
        ("a;b\n1,5;2,5\n", "has '1,5' in column 1"),
        ("a,b\n", "holds no row of numbers"),
        (" \n", "holds no row of numbers"),
        ('1,"' + "2" * 200_000, "is no table"),
    ],
)
def test_what_is_no_table(table, says):
    with pytest.raises(BuilderError, match=says):
        read_array(table.encode(), "a.csv")


def test_arrays_of_numpy():
    array = np.arange(12, dtype=np.int16).reshape(3, 2, 2)
    assert is_npy(npy(array))
    assert np.array_equal(read_array(npy(array), "a.npy"), array)
    assert np.array_equal(read_array(npy(np.asfortranarray(array)), "a.npy"), array)


def huge():
    """A header that promises far more than there is."""
    data = npy(np.zeros(10))
    return data.replace(b"(10,)", b"(10000000000000,)")[: len(data)]


@pytest.mark.parametrize(
    "data",
    [
        npy(np.array([{"a": 1}], dtype=object), allow_pickle=True),
        npy(np.array(["a"])),
        npy(np.array([1j])),
        npy(np.zeros(10))[:-1],
        b"\x93NUMPY",
        b"\x93NUMPY\x01\x00\x05\x00(((((",
        huge(),
    ],
    ids=["pickle", "text", "complex", "short", "head", "broken", "huge"],
)
def test_what_is_no_array(data):
    with pytest.raises(BuilderError, match=r"a\.npy"):
        read_array(data, "a.npy")


def test_sequences():
    tree = sequence_tree(np.zeros((5, 3), dtype=np.float32), 2)
    assert (tree.num_leaves, tree.depth, tree.x.shape) == (5, 3, (5, 3))
    assert tree.tree_name[5:] == [
        *("steps 0-1", "steps 2-3", "step 4", "steps 0-3", "step 4", "sequence"),
    ]
    for nothing in (np.zeros((0, 3)), np.float32(1)):
        with pytest.raises(BuilderError, match="has no step"):
            sequence_tree(np.asarray(nothing), 2)


@pytest.mark.parametrize("kind", [Kind.sequence, Kind.video, Kind.image])
@pytest.mark.parametrize("shape", [(10**7, 0), (10**9, 0), (3, 0, 4, 3)])
def test_arrays_without_columns(kind, shape):
    with pytest.raises(BuilderError, match=r"in 'a\.npy' has no number in a step: give one column"):
        read_tree(npy(np.zeros(shape)), Path("a.npy"), kind)


def test_more_steps_than_a_tree_should_have():
    with pytest.raises(LimitError, match="has more than 1048576 steps: cut it into parts"):
        sequence_tree(np.zeros((MAX_STEPS + 1, 1), dtype=np.int8), 16)


@pytest.mark.parametrize("data", [b"1,nan\n-inf,4\n", npy(np.array([[1, np.nan], [np.inf, 4]]))])
def test_numbers_that_are_not_finite_are_told(data):
    with pytest.warns(HSAWarning, match=r"2 of the 4 numbers of 'a\.csv' are nan or infinite"):
        array = read_array(data, "a.csv")
    assert np.isfinite(array).sum() == 2
