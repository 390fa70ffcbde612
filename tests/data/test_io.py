from __future__ import annotations

import json
import os
import struct
import sys

import pytest
import safetensors.torch
import torch
from data_cases import assert_same, full_tree, full_trees, page_tree
from torch_geometric.data import Batch, Data

from hsa_geo.data import SignalTree
from hsa_geo.data.io import CONTENT, FORMAT, SCHEMA, load, save
from hsa_geo.errors import FileFormatError, HSAError, PathError, TreeError, UnsupportedError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tree.safetensors"


def saved(tree, path):
    tree.save(path)
    return SignalTree.load(path)


# What comes back #################################################################################


@pytest.mark.parametrize("seed", range(8))
def test_tree(seed, path):
    tree = full_tree(seed)
    back = saved(tree, path)
    assert type(back) is SignalTree
    assert_same(back, tree)
    assert list(back.to_dict()) == list(tree.to_dict())
    assert repr(back.plan) == repr(tree.plan)


def test_batch(path):
    batch = Batch.from_data_list(full_trees(6), follow_batch=["text_x"], exclude_keys=["y"])
    back = saved(batch, path)
    assert type(back) is type(batch)
    assert_same(back.to_dict(), batch.to_dict())
    assert back.num_graphs == 6
    assert_same(back.to_data_list(), batch.to_data_list())
    assert_same(
        Batch.from_data_list(back[2:4]).to_dict(), Batch.from_data_list(batch[2:4]).to_dict()
    )


def test_batch_of_batches_and_of_one(path):
    outer = Batch.from_data_list(
        [Batch.from_data_list(full_trees(2)), Batch.from_data_list(full_trees(3))]
    )
    assert_same(saved(outer, path).to_dict(), outer.to_dict())
    single = Batch.from_data_list([SignalTree.from_parents([-1])])
    assert_same(saved(single, path).to_data_list(), single.to_data_list())


def test_changed_batch(path):
    batch = Batch.from_data_list(full_trees(3))
    batch.x = torch.rand(batch.num_nodes, 9)
    batch.extra = torch.rand(2)
    back = saved(batch, path)
    assert_same(back.to_dict(), batch.to_dict())
    assert_same(back.to_data_list(), batch.to_data_list())


@pytest.mark.parametrize(
    "dtype",
    [
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    ],
)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (2, 3, 4)])
def test_tensors(dtype, shape, path):
    tree = page_tree()
    tree.value = (torch.rand(shape) * 9).to(dtype)
    assert_same(saved(tree, path), tree)


def test_views_strides_shared_memory_and_gradients(path):
    tree = page_tree()
    base = torch.arange(24.0).view(4, 6)
    tree.column = base[:, 2]
    tree.flipped = base.t()
    tree.same = base
    tree.again = base
    tree.spread = torch.ones(1).expand(50)
    tree.weight = torch.nn.Parameter(torch.rand(3))
    back = saved(tree, path)
    for key in ("column", "flipped", "same", "again", "spread"):
        assert_same(back[key], tree[key])
    assert type(back.weight) is torch.Tensor
    assert not back.weight.requires_grad
    back.same.zero_()
    assert torch.equal(back.again, base)


@pytest.mark.parametrize(
    "value",
    [
        True,
        False,
        0,
        -(2**70),
        0.1,
        float("inf"),
        -0.0,
        "",
        "zwölf \x00 \ud800 🌳",
        [],
        (),
        {},
        ["a", None, 1, 1.5, True],
        (1, (2, ["x", ()])),
        {"a": {"b": torch.arange(3), "": [torch.zeros(0)]}},
        [torch.tensor(1), torch.tensor([True])],
    ],
    ids=repr,
)
def test_values(value, path):
    tree = page_tree(value=value)
    assert_same(saved(tree, path)["value"], value)


def test_nan_and_odd_names(path):
    tree = page_tree()
    tree["nan"] = float("nan")
    tree["a b/c.d"] = torch.ones(1)
    tree[""] = 1
    back = saved(tree, path)
    assert back["nan"] != back["nan"]
    assert back["a b/c.d"].item() == back[""] == 1


def test_chain_of_5000_levels(path):
    tree = SignalTree.from_parents(range(-1, 4_999), name=["n"] * 5_000)
    assert_same(saved(tree, path), tree)


def test_plan_is_not_written(path):
    tree = full_tree(1)
    tree.save(path)
    size = path.stat().st_size
    _ = tree.plan.buckets
    tree.save(path)
    assert path.stat().st_size == size


def test_no_pickle_in_the_file(path):
    full_tree(1).save(path)
    text = path.read_bytes()
    metadata = json.loads(text[8 : 8 + struct.unpack("<Q", text[:8])[0]])["__metadata__"]
    assert metadata == {"format": FORMAT, "schema": str(SCHEMA)}


# What cannot be saved ############################################################################


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {1: 2},
        {"a": {1, 2}},
        [b"bytes"],
        lambda: 0,
        torch.eye(3).to_sparse(),
        torch.zeros(2, dtype=torch.complex128),
        torch.zeros(2, device="meta"),
        torch.nn.Linear(1, 1),
        1j,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_stored_is_named(value, path):
    tree = page_tree()
    tree.save(path)
    before = path.read_bytes()
    tree.odd_one = value
    with pytest.raises(UnsupportedError, match="'odd_one'"):
        tree.save(path)
    assert path.read_bytes() == before  # and nothing else is left
    assert os.listdir(path.parent) == [path.name]


def test_endless_value(path):
    tree = page_tree()
    tree.loop = []
    tree.loop.append(tree.loop)
    with pytest.raises(UnsupportedError, match="'loop' is nested too deep"):
        tree.save(path)


def test_only_sound_trees_are_saved(path):
    tree = page_tree()
    tree.tree_level[0] = 7
    with pytest.raises(TreeError, match="node 0 has level 7"):
        tree.save(path)
    with pytest.raises(UnsupportedError, match="not a Data"):
        save(Data(), path)
    assert not path.exists()


def test_a_failed_write_leaves_the_old_file(path, monkeypatch):
    page_tree().save(path)
    before = path.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        full_tree(0).save(path)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.skipif(sys.platform == "win32", reason="links and permissions are POSIX's")
def test_links_and_permissions(path, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(path)
    page_tree().save(link)
    assert link.is_symlink()
    assert_same(load(path), page_tree())
    mask = os.umask(0)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask


# Bad files #######################################################################################


def test_missing_files_raise_as_always(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none")
    with pytest.raises(PathError, match="no folder' does not exist"):
        page_tree().save(tmp_path / "no folder" / "tree")
    assert not list(tmp_path.iterdir())


def test_every_truncation(path):
    page_tree(x=torch.rand(7, 2)).save(path)
    whole = path.read_bytes()
    for length in [*range(0, len(whole), 97), 7, 8, 9, len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(FileFormatError, match=r"tree\.safetensors"):
            load(path)


def test_every_flipped_byte(path):
    """Either an error of ours or a sound tree; most of the bytes are numbers."""
    tree = page_tree(x=torch.rand(7, 2), form_node=torch.tensor([3]))
    tree.save(path)
    whole = path.read_bytes()
    refused = 0
    for at in range(0, len(whole), 7):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            assert load(path).validate()
        except FileFormatError:
            refused += 1
    assert refused > len(whole) // 7 // 2


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"abc",
        b"\x00" * 64,
        b"\xff" * 64,
        b"PK\x03\x04" + b"\x00" * 60,
        b"\x80\x04\x95" + b"." * 40,
        struct.pack("<Q", 2) + b"{}",
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 4) + b"null",
        struct.pack("<Q", 60_000) + b"[" * 60_000,
        struct.pack("<Q", 3) + b"{}\xff",
        struct.pack("<Q", 99_000_000) + b"{}",
        struct.pack("<Q", 2**63) + b"{}",
    ],
    ids=lambda content: content[:12].hex() or "empty",
)
def test_foreign_files(content, path):
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match="cannot read a tree from"):
        load(path)


def test_other_safetensors(path):
    safetensors.torch.save_file({"weight": torch.rand(3)}, path)
    with pytest.raises(FileFormatError, match="another program"):
        load(path)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("2", "schema version 2, newer than 1.*upgrade"),
        ("9" * 5000, "newer"),
        ("0", "the first is 1"),
        ("-1", "'-1'"),
        ("one", "'one'"),
        ("²", "schema"),
        ("", "schema"),
    ],
)
def test_schema(schema, message, path):
    page_tree().save(path)
    tensors = safetensors.torch.load_file(path)
    safetensors.torch.save_file(tensors, path, {"format": FORMAT, "schema": schema})
    with pytest.raises(FileFormatError, match=message):
        load(path)


def rewrite(path, change):
    """Change the description and the tensors of a file."""
    tensors = safetensors.torch.load_file(path)
    content = json.loads(tensors.pop(CONTENT).numpy().tobytes())
    new = change(content, tensors)
    text = new if isinstance(new, bytes) else json.dumps(content).encode()
    tensors[CONTENT] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    safetensors.torch.save_file(tensors, path, {"format": FORMAT, "schema": str(SCHEMA)})


def set_value(key, value):
    def change(content, tensors):
        for pair in content["attributes"]:
            if pair[0] == key:
                pair[1] = value

    return change


def set_tensor(key, value):
    def change(content, tensors):
        name = next(name for name in tensors if name.endswith(f".{key}"))
        tensors[name] = value(tensors[name]) if callable(value) else value

    return change


def update(**fields):
    return lambda content, tensors: content.update(fields)


def append(field, *values):
    return lambda content, tensors: content[field].extend(values)


def text_for_index(content, tensors):
    set_value("tree_index", "abc")(content, tensors)
    tensors.pop(next(name for name in tensors if name.endswith("tree_index")))


HOSTILE = {
    "no json": lambda content, tensors: b"{",
    "nan": lambda content, tensors: b'{"type": NaN}',
    "duplicate names": lambda content, tensors: b'{"type": "tree", "type": "tree"}',
    "deep json": lambda content, tensors: b"[" * 100_000,
    "list": lambda content, tensors: b"[]",
    "nothing": lambda content, tensors: b"{}",
    "huge number": lambda content, tensors: b'{"type": ' + b"9" * 10_000 + b"}",
    "no type": lambda content, tensors: content.pop("type") and None,
    "odd type": update(type="__import__"),
    "more fields": update(run="rm"),
    "attributes": update(attributes={"x": 1}),
    "pairs": update(attributes=[["x", 1, 2]]),
    "names": update(attributes=[[1, 2]]),
    "twice": append("attributes", ["num_nodes", 7]),
    "unknown tag": append("attributes", ["odd", {"code": "1"}]),
    "two tags": append("attributes", ["odd", {"list": [], "tuple": []}]),
    "bad float": append("attributes", ["odd", {"float": "1"}]),
    "unknown tensor": append("attributes", ["odd", {"tensor": "nowhere"}]),
    "tensor twice": append("attributes", ["odd", {"tensor": "1.tree_index"}]),
    "unused tensor": lambda content, tensors: tensors.update({"weight": torch.ones(1)}),
    "none": append("attributes", ["odd", None]),
    "num_nodes text": set_value("num_nodes", "7"),
    "num_nodes bool": set_value("num_nodes", True),
    "num_nodes wrong": set_value("num_nodes", 6),
    "num_nodes missing": lambda content, tensors: content["attributes"].pop(0) and None,
    "index text": text_for_index,
    "index range": set_tensor("tree_index", lambda t: t + 1),
    "index negative": set_tensor("tree_index", lambda t: t - 1),
    "index float": set_tensor("tree_index", lambda t: t.float()),
    "index shape": set_tensor("tree_index", torch.zeros(4, dtype=torch.int64)),
    "level huge": set_tensor("tree_level", lambda t: t + 2**60),
    "level short": set_tensor("tree_level", lambda t: t[:-1]),
    "level empty": set_tensor("tree_level", lambda t: t[:0]),
    "domain": set_tensor("tree_domain", lambda t: t + 50),
    "pos": set_tensor("tree_pos", lambda t: t * float("nan")),
    "x rows": set_tensor("x", torch.rand(3, 2)),
    "names short": set_value("tree_name", {"list": ["a"]}),
    "names no list": set_value("tree_name", 3),
    "private": update(private=[["_num_graphs", 1]]),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_descriptions(case, path):
    page_tree(x=torch.rand(7, 2)).save(path)
    rewrite(path, HOSTILE[case])
    with pytest.raises(FileFormatError, match="cannot read a tree from") as caught:
        load(path)
    assert len(str(caught.value)) < 600


def private(key, change):
    def edit(content, tensors):
        for pair in content["private"]:
            if pair[0] == key:
                pair[1] = change(pair[1])

    return edit


HOSTILE_BATCH = {
    "tree with slices": update(type="tree"),
    "half of the slices": lambda content, tensors: content["private"].pop() and None,
    "unknown": append("private", ["__class__", 1]),
    "graphs": private("_num_graphs", lambda v: 10**15),
    "fewer graphs": private("_num_graphs", lambda v: v - 1),
    "graphs text": private("_num_graphs", lambda v: "3"),
    "num_nodes": private("_num_nodes", lambda v: {"list": [1, 1, 1]}),
    "num_nodes number": private("_num_nodes", lambda v: 5),
    "slices": private("_slice_dict", lambda v: {"dict": []}),
    "slices list": private("_slice_dict", lambda v: []),
    "increments": private("_inc_dict", lambda v: {"dict": []}),
    "x slices": lambda content, tensors: tensors.update(
        {
            name: torch.tensor([0, 1, 2, 3])
            for name, t in tensors.items()
            if name.endswith("_slice_dict") and t.shape == (4,) and t[-1] == 21
        }
    ),
}


@pytest.mark.parametrize("case", HOSTILE_BATCH)
def test_hostile_batches(case, path):
    Batch.from_data_list([page_tree(x=torch.rand(7, 2)) for _ in range(3)]).save(path)
    rewrite(path, HOSTILE_BATCH[case])
    with pytest.raises(FileFormatError, match="cannot read a tree from"):
        load(path)


def test_errors_have_their_cause(path):
    page_tree().save(path)
    rewrite(path, set_tensor("tree_level", lambda t: t + 1))
    with pytest.raises(FileFormatError, match="node 10 has level 1 but is a root") as caught:
        load(path)
    assert isinstance(caught.value.__cause__, HSAError)
