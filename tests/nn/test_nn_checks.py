"""Likely mistakes in what layers and models are made of and called with: one clear sentence."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data

from hsa_geo.builders import from_text
from hsa_geo.data import Domain, SignalTree, TreePlan
from hsa_geo.errors import (
    DomainError,
    FileFormatError,
    HSAError,
    PathError,
    ShapeError,
    UnsupportedError,
)
from hsa_geo.nn import (
    DeepSetConv,
    FlatConv,
    FourierPosition,
    GraphPosition,
    HSAConv,
    HSAEncoder,
    LearnedPosition,
    OffsetBias,
    PositionEmbedding,
    QueryReadout,
    SignalClassifier,
    SubtreeClassifier,
    TokenEncoder,
    token_bags,
)
from hsa_geo.nn.checks import check_tree, is_size

TREE = SignalTree.from_parents(
    [3, 3, 3, -1], x=torch.randn(3, 8), domain=Domain.SEQUENCE, pos=[0, 1, 2, 0]
)
CONV, ENCODER, FLAT = HSAConv(8, 4), HSAEncoder(8, heads=2), FlatConv(8, 4)
MODEL = SignalClassifier({"text": TokenEncoder(64, 8)}, num_classes=2, channels=8)
SUBTREES = SubtreeClassifier(num_ids=64, num_classes=2, channels=8)
NO_TREES = {
    "str": "to be or not",
    "none": None,
    "list": [TREE, TREE],
    "empty list": [],
    "data": Data(x=torch.randn(3, 8)),
    "tensor": torch.zeros(2, 3),
    "graph": nx.path_graph(3),
}


def one_sentence(error: BaseException) -> str:
    text = str(error)
    assert text.endswith(".")
    assert "\n" not in text
    return text


@pytest.mark.parametrize("given", NO_TREES.values(), ids=NO_TREES)
@pytest.mark.parametrize(
    "call",
    [
        lambda tree: CONV(TREE.x, tree),
        lambda tree: ENCODER(TREE.x, tree),
        lambda tree: FLAT(TREE.x, tree),
        lambda tree: DeepSetConv(8, 4)(TREE.x, tree),
        MODEL,
        SUBTREES,
        lambda tree: token_bags(tree, 64),
        lambda tree: PositionEmbedding(8)(tree),
    ],
    ids=["HSAConv", "HSAEncoder", "FlatConv", "DeepSet", "Signal", "Subtree", "bags", "position"],
)
def test_no_tree(call, given):
    with pytest.raises(ShapeError) as caught:
        call(given)
    one_sentence(caught.value)


def test_what_to_do_with_lists_and_texts():
    with pytest.raises(ShapeError, match=r"Batch\.from_data_list.*DataLoader"):
        MODEL([TREE, TREE])
    with pytest.raises(
        ShapeError, match="'to be': make a tree of it with a builder, such as from_"
    ):
        MODEL("to be")
    check_tree(Batch.from_data_list([TREE, TREE]))
    assert MODEL(from_text("To be.", hash_buckets=64)).shape == (1, 2)


@pytest.mark.parametrize("name", ["position", "pair_bias"])
@pytest.mark.parametrize("given", ["sequence", torch.zeros(3), True, 8, PositionEmbedding])
@pytest.mark.parametrize("layer", [HSAConv, FlatConv])
def test_no_module(layer, name, given):
    with pytest.raises(UnsupportedError, match=rf"{name} is .* give a module") as caught:
        layer(8, 4, **{name: given})
    one_sentence(caught.value)


@pytest.mark.parametrize(
    "module", [FourierPosition(1, 8), LearnedPosition(9), GraphPosition(8, 8)], ids=lambda m: str(m)
)
def test_a_module_of_one_domain_as_position_of_all(module):
    what = r"PositionEmbedding\(domains=\{domain: "
    with pytest.raises(ShapeError, match=what + type(module).__name__):
        HSAConv(8, 4, position=module)(TREE.x, TREE)


@pytest.mark.parametrize("given", [FourierPosition(1, 8), "a", torch.zeros(3), lambda tree: None])
def test_no_maker_of_positions(given):
    with pytest.raises(UnsupportedError, match=r"give a function without arguments"):
        HSAEncoder(8, heads=2, position=given)
    made = HSAEncoder(8, heads=2, position=lambda: PositionEmbedding(8, 2))
    assert made(TREE.x, TREE).shape == (3, 8)


def test_flat_positions_of_nodes():
    with pytest.raises(ShapeError, match=r"gives \[4, 1, 8\]: \[3, 1 or 1, P\] is needed"):
        FlatConv(8, 4, position=lambda tree: torch.zeros(4, 1, 8))(TREE.x, TREE)


@pytest.mark.parametrize("domains", [{"sequence": None}, {9: None}, {(1, 2): None}, [1], "a"])
def test_domains_that_are_none(domains):
    with pytest.raises(DomainError, match=r"Domain\.SEQUENCE") as caught:
        PositionEmbedding(8, domains=domains)
    one_sentence(caught.value)


def test_a_domain_without_a_module():
    with pytest.raises(UnsupportedError, match="domains has 3 for SEQUENCE"):
        PositionEmbedding(8, domains={Domain.SEQUENCE: 3})


SIZES = ["8", None, 2.5, 0, -2, True, [8], torch.tensor(8)]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(
    "make",
    [
        lambda n: HSAConv(n, 4),
        lambda n: HSAConv(8, n),
        lambda n: HSAConv(8, 4, heads=n),
        lambda n: FlatConv(n, 4),
        lambda n: DeepSetConv(8, n),
        lambda n: HSAEncoder(n),
        lambda n: HSAEncoder(8, heads=n),
        lambda n: SignalClassifier({"text": TokenEncoder(64, 8)}, n, channels=8),
        lambda n: SignalClassifier({"text": TokenEncoder(64, 8)}, 2, channels=n),
        lambda n: SubtreeClassifier(n, 2),
        lambda n: SubtreeClassifier(64, n),
        lambda n: TokenEncoder(n, 8),
        lambda n: FourierPosition(n, 8),
        lambda n: FourierPosition(1, n),
        lambda n: LearnedPosition(n),
        lambda n: GraphPosition(n),
        lambda n: OffsetBias(n),
        lambda n: QueryReadout(8, num_queries=n),
        lambda n: PositionEmbedding(n),
    ],
)
def test_sizes(make, size):
    with pytest.raises(ShapeError) as caught:
        make(size)
    if not isinstance(size, torch.Tensor):
        assert repr(size) in one_sentence(caught.value)


def test_sizes_of_numpy(tmp_path):
    assert is_size(np.int64(3))
    assert HSAConv(np.int64(8), np.int64(4), heads=np.int32(2))(TREE.x, TREE).shape == (3, 8)
    sizes = {"num_classes": np.int64(2), "channels": np.int64(8), "heads": np.int64(2)}
    encoders = {"text": TokenEncoder(np.int64(64), 8)}
    SignalClassifier(encoders, **sizes, dropout=np.float32(0.5)).save(tmp_path)
    assert SignalClassifier.from_pretrained(tmp_path).config["channels"] == 8


@pytest.mark.parametrize("share", ["0.1", None, -0.1, 1.5, float("nan"), [0.1]], ids=str)
@pytest.mark.parametrize(
    "make",
    [
        lambda p: HSAConv(8, 4, dropout=p),
        lambda p: HSAEncoder(8, heads=2, dropout=p),
        lambda p: SignalClassifier({"text": TokenEncoder(64, 8)}, 2, channels=8, dropout=p),
        lambda p: SubtreeClassifier(64, 2, token_dropout=p),
        lambda p: TokenEncoder(64, 8, dropout=p),
    ],
)
def test_shares(make, share):
    with pytest.raises(ShapeError, match=r"dropout=.* is no probability"):
        make(share)


@pytest.mark.parametrize("x", ["x", None, 3, [[0.0] * 8] * 3, np.zeros((3, 8), "float32")])
def test_no_features(x):
    for layer in (CONV, ENCODER, FLAT):
        with pytest.raises(ShapeError):
            layer(x, TREE)


@pytest.mark.parametrize("given", [None, "a", object()])
def test_no_rows_and_no_index(given):
    with pytest.raises(ShapeError, match="give a bool mask"):
        TREE.restrict(given)
    with pytest.raises(ShapeError, match="tree_index="):
        TreePlan.from_index(given, TREE.tree_level)
    with pytest.raises(ShapeError, match="tree_level="):
        TreePlan.from_index(TREE.tree_index, given)


def test_folders_and_files_in_each_others_place(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileFormatError, match="it is a folder"):
        SignalTree.load(tmp_path)
    with pytest.raises(PathError, match="is a folder: give the name of a file"):
        TREE.save(tmp_path)
    with pytest.raises(PathError, match=r"'.*none' does not exist: 'tree' needs a folder"):
        TREE.save(tmp_path / "none" / "tree")
    with pytest.raises(PathError, match=r"'.*file' is no folder"):
        TREE.save(tmp_path / "file" / "tree")
    for path in (tmp_path / "file", tmp_path / "file" / "model"):
        with pytest.raises(PathError, match="file' is a file, not a folder"):
            MODEL.save_pretrained(path)
    for name, what in (("file", "is a file"), ("none", "does not exist"), ("", r"config\.json")):
        with pytest.raises(FileFormatError, match=what):
            SignalClassifier.from_pretrained(tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]
    assert issubclass(PathError, HSAError)
