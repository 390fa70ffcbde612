"""The file of collated trees: exact, complete or absent, and no pickle."""

import json
import pickle

import pytest
import torch
from safetensors.torch import save_file

from hsa_geo.data import SignalTree
from hsa_geo.datasets.collated import (
    collate_trees,
    load_collated,
    save_collated,
    trees_of,
    write_bytes,
)
from hsa_geo.errors import FileFormatError, UnsupportedError


def some_trees(**more):
    out = []
    for k in (1, 3, 2):
        tree = SignalTree.from_parents(
            [k] * k + [-1],
            name=[f"wört {i}\n" for i in range(k)] + [""],
            text_x=torch.arange(2 * k).view(k, 2) - 70000,
            text_index=torch.arange(k),
            image_x=torch.zeros(0, 12, dtype=torch.uint8),
            image_index=torch.zeros(0, dtype=torch.int64),
            form_node=torch.tensor([k]),
            half=torch.rand(k).half(),
            wide=torch.tensor([2**40 + k]),
            yes=torch.tensor([True]),
        )
        for key, value in more.items():
            tree[key] = value
        out.append(tree)
    return out


def assert_same(a, b):
    assert set(a.keys()) == set(b.keys())
    assert a.num_nodes == b.num_nodes
    for key in a.keys():  # noqa: SIM118
        if isinstance(a[key], torch.Tensor):
            assert a[key].dtype == b[key].dtype, key
            assert torch.equal(a[key], b[key]), key
        else:
            assert a[key] == b[key], key


@pytest.mark.parametrize("count", [1, 3])
def test_round_trip(tmp_path, count):
    trees = some_trees(note="text")[:count]
    data, slices = collate_trees(trees)
    save_collated(tmp_path / "f", data, slices, extra={"a": [1, "ü"]})
    data, slices, extra = load_collated(tmp_path / "f")
    assert extra == {"a": [1, "ü"]}
    back = trees_of(data, slices)
    assert len(back) == count
    for a, b in zip(trees, back):
        assert_same(a, b)
        b.validate()
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_trees_that_were_cut_out_collate_again(tmp_path):
    trees = some_trees()
    data, slices = collate_trees(trees_of(*collate_trees(trees)))
    for a, b in zip(trees, trees_of(data, slices)):
        assert_same(a, b)


def test_no_trees(tmp_path):
    save_collated(tmp_path / "f", SignalTree(), {})
    data, slices, _ = load_collated(tmp_path / "f")
    assert trees_of(data, slices) == []


def test_strings_that_are_no_text(tmp_path):
    tree = SignalTree.from_parents([1, -1], name=["\ud800 lone", "\0"])
    save_collated(tmp_path / "f", tree, None)
    assert load_collated(tmp_path / "f")[0].tree_name == ["\ud800 lone", "\0"]


def test_integers_are_stored_narrow(tmp_path):
    tree = SignalTree.from_parents([1, -1], small=torch.arange(100_000) % 7)
    save_collated(tmp_path / "f", tree, None)
    assert (tmp_path / "f").stat().st_size < 110_000


@pytest.mark.parametrize("value", [{"a": 1}, [1.5], [torch.rand(1)], [["a"], [1]], object()])
def test_what_is_not_stored(tmp_path, value):
    tree = SignalTree.from_parents([1, -1])
    tree.odd = value
    with pytest.raises(UnsupportedError, match=r"'odd' is a .*make it a tensor"):
        save_collated(tmp_path / "f", tree, None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("header", ["[]", "1", "null", '"a"', "[" * 99_999])
def test_header_that_is_no_object(tmp_path, header):
    save_file({}, tmp_path / "f", {"hsa_geo": header})
    with pytest.raises(FileFormatError, match="is damaged"):
        load_collated(tmp_path / "f")


@pytest.mark.parametrize("damage", ["empty", "garbage", "cut", "pickle", "foreign", "schema"])
def test_damaged(tmp_path, damage):
    path = tmp_path / "f"
    save_collated(path, *collate_trees(some_trees()))
    content = path.read_bytes()
    if damage == "empty":
        path.write_bytes(b"")
    elif damage == "garbage":
        path.write_bytes(b"\xff" * 100)
    elif damage == "cut":
        path.write_bytes(content[:-20])
    elif damage == "pickle":
        path.write_bytes(pickle.dumps(_Bomb()))
    elif damage == "foreign":
        save_file({"a": torch.zeros(1)}, path)
    else:
        save_file({}, path, {"hsa_geo": json.dumps({"format": "hsa_geo.collated", "schema": 99})})
    with pytest.raises(FileFormatError, match="remove it to make it anew"):
        load_collated(path)
    assert not _Bomb.went_off


class _Bomb:
    went_off = False

    def __reduce__(self):
        return _go_off, ()


def _go_off():
    _Bomb.went_off = True


def test_lacking_parts(tmp_path):
    header = {
        "format": "hsa_geo.collated",
        "schema": 1,
        "fields": {"x": {"kind": "tensor", "dtype": "int64"}},
        "slices": None,
        "extra": {},
    }
    for change in (
        {},
        {"fields": {"x": {}}},
        {"fields": {"x": {"kind": "code"}}},
        {"fields": {}, "slices": ["x"]},
        {"fields": 3},
    ):
        save_file({}, tmp_path / "f", {"hsa_geo": json.dumps({**header, **change})})
        with pytest.raises(FileFormatError, match=r"lacks a part|is damaged"):
            load_collated(tmp_path / "f")


def test_a_file_that_is_not_there(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError):
        load_collated(tmp_path / "f")

    def removed(*args, **kwargs):
        raise RuntimeError("unable to open file")

    monkeypatch.setattr("safetensors.safe_open", removed)
    with pytest.raises(FileNotFoundError):
        load_collated(tmp_path / "f")
    (tmp_path / "f").touch()
    with pytest.raises(FileFormatError, match="is damaged"):
        load_collated(tmp_path / "f")


def test_a_wrong_bit_is_found(tmp_path):
    path = tmp_path / "f"
    save_collated(path, *collate_trees(some_trees()))
    content = path.read_bytes()
    first = 8 + int.from_bytes(content[:8], "little")  # of the tensors
    for place in range(first, len(content), 13):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(FileFormatError, match="is damaged"):
            load_collated(path)


def test_write_bytes_keeps_the_old_file_when_it_fails(tmp_path, monkeypatch):
    path = tmp_path / "f"
    write_bytes(path, b"old")

    def fail(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("hsa_geo.datasets.collated.os.replace", fail)
    with pytest.raises(OSError, match="No space"):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]
