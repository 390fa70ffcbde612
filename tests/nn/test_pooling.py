"""Readouts, node by node by hand."""

from __future__ import annotations

import copy

import pytest
import torch
import torch._dynamo
from torch import Tensor, nn
from torch_geometric.data import Batch

from hsa_geo.data import SignalTree
from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.nn import AttentionReadout, HierarchicalReadout, QueryReadout, SubtreeReadout
from hsa_geo.nn.pooling import READOUTS, hierarchical_mean, make_readout
from hsa_geo.ops.plain_tree import PlainTree
from hsa_geo.testing import SHAPES, assert_forest_equals_trees, random_tree
from hsa_geo.transforms import RepeatLeaves

CHANNELS = 6
readouts = pytest.mark.parametrize("name", READOUTS)


def make(name: str, heads: int = 2) -> nn.Module:
    torch.manual_seed(0)
    readout = make_readout(name, CHANNELS, heads)
    for parameter in readout.parameters():
        nn.init.normal_(parameter)
    return readout.double()


def tree_with(seed: int, shape: str = "mixed", weighted: bool = False) -> SignalTree:
    tree = random_tree(seed, shape=shape)
    generator = torch.Generator().manual_seed(seed)
    tree.x = torch.randn(tree.num_leaves, CHANNELS, generator=generator, dtype=torch.float64)
    if weighted:
        tree.leaf_weight = torch.randint(1, 4, (tree.num_leaves,), generator=generator)
    return tree


def naive_root(x: Tensor, tree: SignalTree) -> Tensor:
    """``[M, C]``, by a walk from the leaves up."""
    plain = PlainTree.of(tree)
    out: list[Tensor] = [x.new_zeros(x.size(1))] * len(plain.children)
    for row, leaf in enumerate(plain.leaves):
        out[leaf] = x[row]
    for node in reversed(plain.order):
        if plain.children[node]:
            out[node] = torch.stack([out[child] for child in plain.children[node]]).mean(0)
    return torch.stack(out)


def naive(readout: nn.Module, x: Tensor, tree: SignalTree) -> Tensor:
    """``[M, C]`` of any readout."""
    if isinstance(readout, HierarchicalReadout):
        return naive_root(x, tree)
    rows = []
    for under in PlainTree.of(tree).under:
        part = x[under]  # [n, C]
        if isinstance(readout, SubtreeReadout):
            rows.append(part.mean(0))
        elif isinstance(readout, AttentionReadout):
            theta = (part @ readout.lin.weight.t()).softmax(0)  # [n, H]
            heads = part.view(len(part), readout.heads, -1)
            rows.append(torch.einsum("nh,nhd->hd", theta, heads).flatten())
        else:
            key, value = (part @ w.t() for w in readout.lin_kv.weight.chunk(2))
            key, value = (t.view(len(part), readout.heads, -1) for t in (key, value))
            score = torch.einsum("nhd,shd->nsh", key, readout.query) * key.size(2) ** -0.5
            out = torch.einsum("nsh,nhd->shd", score.softmax(0), value)
            rows.append(readout.lin_out(out.flatten()))
    return torch.stack(rows)


@readouts
@pytest.mark.parametrize("shape", SHAPES)
def test_every_node(name, shape):
    """Leaves, inner nodes, chains of single children, the root; in any order, repeated."""
    for seed in range(3):
        tree, readout = tree_with(seed, shape), make(name)
        nodes = torch.randint(tree.num_tree_nodes, (30,))
        expected = naive(readout, tree.x, tree)
        assert torch.allclose(readout(tree.x, tree, nodes), expected[nodes], atol=1e-10)
        assert torch.allclose(readout(tree.x, tree), expected[-1:], atol=1e-10)


@readouts
def test_batches_and_plans(name):
    readout = make(name)
    trees = [tree_with(seed) for seed in range(6)] + [tree_with(0, "single")]
    assert_forest_equals_trees(lambda t: readout(t.x, t), trees, atol=1e-10)
    for seed, tree in enumerate(trees):
        tree.form_node = torch.randint(tree.num_tree_nodes, (seed % 3 + 1,))
    batch = Batch.from_data_list(trees)
    expected = torch.cat([readout(t.x, t, t.form_node) for t in trees])
    assert torch.allclose(readout(batch.x, batch, batch.form_node), expected, atol=1e-10)
    assert torch.allclose(readout(batch.x, batch.plan, batch.form_node), expected, atol=1e-10)


@readouts
@pytest.mark.parametrize("seed", range(8))
def test_a_leaf_of_weight_w_counts_as_w_leaves(name, seed):
    tree, readout = tree_with(seed, "any", weighted=True), make(name)
    if tree.num_leaves == 1:
        tree = tree_with(seed, "mixed", weighted=True)
    tree.inner_node = torch.arange(tree.num_leaves, tree.num_tree_nodes)
    big = RepeatLeaves()(tree.clone())
    assert big.num_leaves == int(tree.leaf_weight.sum())
    assert torch.allclose(readout(tree.x, tree), readout(big.x, big), atol=1e-10)
    of_tree = readout(tree.x, tree, tree.inner_node)
    assert torch.allclose(of_tree, readout(big.x, big, big.inner_node), atol=1e-10)


@readouts
def test_gradients(name):
    tree, readout = tree_with(8, weighted=True), make(name)
    nodes = torch.tensor([tree.num_tree_nodes - 1, 0, tree.num_leaves, 0])
    x = tree.x[:, :CHANNELS].clone().requires_grad_()
    parameters = list(readout.parameters())
    assert torch.autograd.gradcheck(
        lambda x, *_: readout(x, tree, nodes), (x, *parameters), fast_mode=True
    )
    readout(x, tree, nodes).square().sum().backward()
    assert all((p.grad != 0).any() for p in parameters)


@readouts
def test_no_nodes(name):
    tree, readout = tree_with(1), make(name)
    out = readout(tree.x, tree, torch.empty(0, dtype=torch.int64))
    assert out.shape == (0, CHANNELS)


@readouts
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_other_dtypes(name, dtype):
    tree, readout = tree_with(2), make(name)
    out = copy.deepcopy(readout).to(dtype)(tree.x.to(dtype), tree)
    assert out.dtype == dtype
    atol = 1e-5 if dtype == torch.float32 else 0.1
    assert torch.allclose(out.double(), readout(tree.x, tree), atol=atol)


@readouts
def test_under_autocast(name):
    tree, readout = tree_with(2), make(name).float()
    x = tree.x.float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = readout(x, tree)
    assert torch.allclose(out.float(), readout(x, tree), atol=0.1)


@pytest.mark.parametrize("name", ["attention", "query"])
def test_large_scores(name):
    """Scores of 1e4 and more: the largest wins, nothing is nan."""
    tree, readout = tree_with(2), make(name)
    x = (1e4 * tree.x).requires_grad_()
    out = readout(x, tree)
    assert torch.allclose(out, naive(readout, x, tree)[-1:], rtol=1e-6)
    out.sum().backward()
    assert x.grad.isfinite().all()


def test_deep_trees():
    """A caterpillar of 3,000 levels: shares of 2 ** -3000 are told from those of 2 ** -2999."""
    levels = 3000
    spine = torch.arange(levels) + levels + 1  # root last
    parent = torch.cat([spine[:1], spine, spine[1:], torch.tensor([-1])])
    tree = SignalTree.from_parents(parent)
    assert tree.depth == levels
    x = torch.zeros(tree.num_leaves, 1, dtype=torch.float64)
    deepest = int(tree.tree_level[: tree.num_leaves].argmax())
    x[deepest] = 1.0
    above = int(tree.tree_index[0][tree.tree_index[1] == deepest])
    higher = int(tree.tree_index[0][tree.tree_index[1] == above])
    mean = hierarchical_mean(x, tree, torch.tensor([above, higher]))
    assert torch.allclose(mean, torch.tensor([[0.5], [0.25]], dtype=torch.float64), atol=1e-9)
    ones = hierarchical_mean(torch.ones_like(x), tree)
    assert torch.allclose(ones, torch.ones_like(ones), atol=1e-9)


def test_attention_starts_as_the_mean():
    tree = tree_with(3)
    readout = AttentionReadout(CHANNELS, heads=2).double()
    assert torch.allclose(readout(tree.x, tree), tree.x.mean(0, keepdim=True))


@readouts
@pytest.mark.parametrize("given", [False, True])
def test_one_graph_for_all_batches(name, given):
    pytest.importorskip("numba")
    readout = make(name).float()
    torch._dynamo.reset()
    compiled = torch.compile(readout, fullgraph=True, dynamic=True, backend="aot_eager")
    with torch._dynamo.config.patch(error_on_recompile=True):
        for seed in range(4):
            trees = [tree_with(10 * seed + i, "any", weighted=given) for i in range(2 + seed)]
            batch = Batch.from_data_list(trees)
            x = batch.x.float().requires_grad_()
            nodes = torch.arange(batch.num_nodes) if given else None
            results = []
            for fn in (compiled, readout):
                out = fn(x, batch, nodes)
                results.append((out, *torch.autograd.grad(out.square().sum(), x)))
            for actual, expected in zip(*results):
                assert torch.allclose(actual, expected, atol=1e-4)
    torch._dynamo.reset()


def test_no_plan_inside_a_graph():
    pytest.importorskip("numba")
    tree, readout = tree_with(3), make("query")
    torch._dynamo.reset()
    with pytest.raises(UnsupportedError, match="not its plan"):
        torch.compile(readout, backend="eager")(tree.x, tree.plan)
    torch._dynamo.reset()


@readouts
def test_what_is_refused(name):
    tree, readout = tree_with(3), make(name)
    with pytest.raises(ShapeError, match=rf"N={tree.num_leaves} leaves"):
        readout(tree.x[1:], tree)
    with pytest.raises(ShapeError, match="nodes is of type list"):
        readout(tree.x, tree, [3])
    with pytest.raises(ShapeError, match="holds 9999"):
        readout(tree.x, tree, torch.tensor([9999]))
    if name in ("attention", "query"):
        with pytest.raises(ShapeError, match=rf"floating point \[N, {CHANNELS}\]"):
            readout(tree.x[:, 1:], tree)


def test_what_cannot_be_made():
    with pytest.raises(ShapeError, match="readout='max' is unknown"):
        make_readout("max", 8)
    for cls in (AttentionReadout, QueryReadout):
        with pytest.raises(ShapeError, match="channels=6 is not a multiple of heads=4"):
            cls(6, heads=4)
    with pytest.raises(ShapeError, match="num_queries=0"):
        QueryReadout(8, num_queries=0)


def test_several_queries():
    tree = tree_with(4)
    readout = QueryReadout(CHANNELS, heads=3, num_queries=4).double()
    nodes = torch.arange(tree.num_tree_nodes)
    expected = naive(readout, tree.x, tree)
    assert torch.allclose(readout(tree.x, tree, nodes), expected, atol=1e-10)


@readouts
def test_reset_and_repr(name):
    readout = make(name)
    for parameter in readout.parameters():
        nn.init.constant_(parameter, 0.123)
    if name in ("attention", "query"):
        readout.reset_parameters()
        assert f"{CHANNELS}, heads=2" in repr(readout)
    assert not any((p == 0.123).all() for p in readout.parameters())
