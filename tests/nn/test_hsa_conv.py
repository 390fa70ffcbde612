"""HSAConv against a dense reference of its own weights, and as a citizen of PyG."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, MessagePassing, Sequential

from hsa_geo.data import Domain, SignalTree, TreePlan
from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.nn import HSAConv, PositionEmbedding
from hsa_geo.ops import AttentionWeights, tree_energy
from hsa_geo.ops.inputs import dropout_mask
from hsa_geo.ops.reference import reference_attention, reference_matrix
from hsa_geo.testing import SHAPES, assert_forest_equals_trees, random_pos, random_tree

BACKENDS = ("edge", "block")
backends = pytest.mark.parametrize("backend", BACKENDS)
shapes = pytest.mark.parametrize("shape", SHAPES)


def mixed(seed: int = 0, channels: int = 6, dtype: torch.dtype = torch.float32) -> SignalTree:
    tree = random_tree(seed, shape="mixed")
    generator = torch.Generator().manual_seed(seed)
    tree.x = torch.randn(tree.num_leaves, channels, generator=generator, dtype=dtype)
    tree.tree_domain[tree.tree_domain == Domain.GRAPH] = int(Domain.SET)
    return tree


def dense(
    conv: HSAConv, x: Tensor, tree: SignalTree, mask=None, **options
) -> tuple[Tensor, Tensor]:
    """The layer by the oracle: projections, norms, attention, heads, bias."""
    weight = conv.lin_qkv.weight.view(-1, conv.heads, conv.out_channels, x.size(1))
    q, k, *own = torch.einsum("ni,khoi->knho", x, weight)
    if conv.norm_q is not None:
        q = nn.functional.layer_norm(q, q.shape[-1:], conv.norm_q.weight, conv.norm_q.bias)
        k = nn.functional.layer_norm(k, k.shape[-1:], conv.norm_k.weight, conv.norm_k.bias)
    v = own[0] if own else k
    options |= {"energy": conv.energy, "scale": conv.scale}
    out = reference_attention(q, k, v, tree, mask=mask, **options)
    theta = reference_matrix(q, k, tree, mask=mask, **options)
    out = out.flatten(1) if conv.concat else out.mean(1)
    return (out if conv.bias is None else out + conv.bias), theta


CONFIGS = [
    {},
    {"heads": 3},
    {"heads": 3, "concat": False},
    {"heads": 2, "bias": False},
    {"heads": 2, "qk_norm": True},
    {"heads": 2, "energy": "l2"},
    {"heads": 2, "energy": "l2", "qk_norm": True, "concat": False},
    {"heads": 2, "scale": 0.2},
    {"heads": 2, "values": "keys"},
    {"heads": 2, "values": "keys", "energy": "l2", "qk_norm": True, "concat": False},
]


@backends
@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize("extra", ["none", "pos", "pos and bias"])
def test_against_a_dense_reference(backend, config, extra):
    """Output, weights, and gradients of input and parameters, in float64."""
    torch.manual_seed(0)
    conv = HSAConv(6, 4, backend=backend, **config).double()
    for parameter in conv.parameters():
        nn.init.normal_(parameter, std=0.5)
    tree = mixed(1, dtype=torch.float64)
    options, calls = {}, {}
    if "pos" in extra:
        options["pos"] = calls["pos"] = random_pos(tree, conv.heads)
    if "bias" in extra:
        bias = torch.randn(tree.plan.num_pairs, 1, dtype=torch.float64)
        options["bias"], calls["pair_bias"] = bias, bias
    x = tree.x.requires_grad_()
    out, weights = conv(x, tree, return_attention_weights=True, **calls)
    expected, theta = dense(conv, x, tree, **options)
    assert out.shape == (tree.num_leaves, 4 * (conv.heads if conv.concat else 1))
    assert torch.allclose(out, expected, atol=1e-11)
    assert torch.allclose(weights.to_dense(), theta, atol=1e-11)
    wanted = [x, *conv.parameters()]
    cotangent = torch.randn_like(out)
    actual = torch.autograd.grad((out * cotangent).sum(), wanted)
    for a, b in zip(actual, torch.autograd.grad((expected * cotangent).sum(), wanted)):
        assert torch.allclose(a, b, atol=1e-10)


@backends
def test_float32_and_float64_agree(backend):
    tree = mixed(2)
    conv = HSAConv(6, 4, heads=2, backend=backend)
    wide = copy.deepcopy(conv).double()
    assert conv(tree.x, tree).dtype == torch.float32
    out = wide(tree.x.double(), tree)
    assert out.dtype == torch.float64
    assert torch.allclose(conv(tree.x, tree).double(), out, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_layers(dtype):
    tree = mixed(2)
    conv = HSAConv(6, 4, heads=2).to(dtype)
    out = conv(tree.x.to(dtype), tree)
    assert out.dtype == dtype
    expected = copy.deepcopy(conv).float()(tree.x.to(dtype).float(), tree)
    assert torch.allclose(out.float(), expected, atol=0.05)
    out.float().sum().backward()
    assert conv.lin_qkv.weight.grad.isfinite().all()


def test_under_autocast():
    tree = mixed(2)
    conv = HSAConv(6, 4, heads=2, position=PositionEmbedding(8, 2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, weights = conv(tree.x, tree, return_attention_weights=True)
    assert weights.pair.dtype == torch.float32
    assert (weights.to_dense().sum(-1) - 1).abs().max() < 1e-5  # not the 1e-2 of bfloat16
    assert torch.allclose(out.float(), conv(tree.x, tree), atol=0.05)
    out.float().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in conv.parameters())


# Values tied to keys #############################################################################


@pytest.mark.parametrize("backend", ["edge", "block", "numba"])
@pytest.mark.parametrize("qk_norm", [False, True])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_tied_values_step_down_the_gradient_of_the_energy(backend, qk_norm, scale):
    """q_i - N d phi(R) / d q_i / scale, for every tree of a batch."""
    if backend == "numba":
        pytest.importorskip("numba")
    options = {"energy": "l2", "scale": scale, "backend": backend}
    conv = HSAConv(6, 4, heads=2, values="keys", bias=False, qk_norm=qk_norm, **options).double()
    batch = Batch.from_data_list([mixed(seed, dtype=torch.float64) for seed in range(4)])
    q, k = conv.lin_qkv(batch.x).view(-1, 2, 2, 4).unbind(1)
    if qk_norm:
        q, k = conv.norm_q(q), conv.norm_k(k)
    q = q.detach().requires_grad_()
    phi = tree_energy(q, k, batch, **options)
    count = batch.plan.count[: batch.num_graphs, None]
    (step,) = torch.autograd.grad((phi * count).sum(), q)
    expected = q - step / (4**-0.5 if scale is None else scale)
    assert torch.allclose(conv(batch.x, batch), expected.flatten(1), atol=1e-10)


def test_tied_values_have_two_thirds_of_the_parameters():
    own, keys = HSAConv(6, 4, heads=2), HSAConv(6, 4, heads=2, values="keys")
    assert own.lin_qkv.weight.numel() == 3 * 2 * 4 * 6
    assert keys.lin_qkv.weight.shape == (2 * 2 * 4, 6)
    assert repr(keys).endswith("backend='auto', values='keys')")
    assert "values" not in repr(own)
    with pytest.raises(ShapeError, match="values='queries' is unknown"):
        HSAConv(6, 4, values="queries")


@pytest.mark.parametrize("energy", ["dot", "l2"])
def test_tied_values_are_those_of_a_layer_whose_value_weights_are_its_keys(energy):
    """Forward and backward, dropout too, by the compiled kernels where there are some."""
    tree = mixed(4)
    own = HSAConv(6, 4, heads=2, energy=energy, dropout=0.4)
    keys = HSAConv(6, 4, heads=2, energy=energy, dropout=0.4, values="keys")
    with torch.no_grad():
        own.lin_qkv.weight[16:] = own.lin_qkv.weight[8:16]
        keys.lin_qkv.weight.copy_(own.lin_qkv.weight[:16])
    out = []
    for conv in (own, keys):
        torch.manual_seed(0)
        out.append(conv(tree.x, tree))
        out[-1].square().sum().backward()
    assert torch.allclose(*out, atol=1e-6)
    grad = own.lin_qkv.weight.grad
    expected = torch.cat([grad[:8], grad[8:16] + grad[16:]])
    assert torch.allclose(keys.lin_qkv.weight.grad, expected, atol=1e-4)


# Ways to call it #################################################################################


def test_every_way_to_give_the_tree():
    tree = mixed(3)
    conv = HSAConv(6, 4, heads=2)
    out = conv(tree.x, tree)
    assert torch.equal(conv(tree.x, tree.plan), out)
    assert torch.equal(conv(tree.x, tree.tree_index, tree.tree_level), out)
    assert torch.equal(conv(tree.x, Batch.from_data_list([tree])), out)


def test_what_is_refused():
    tree = mixed(3)
    conv = HSAConv(6, 4, heads=2)
    with pytest.raises(ShapeError, match="without tree_level"):
        conv(tree.x, tree.tree_index)
    with pytest.raises(ShapeError, match="tree_level goes with"):
        conv(tree.x, tree, tree.tree_level)
    with pytest.raises(ShapeError, match=rf"\[{tree.num_leaves + 1}, 6\]"):
        conv(torch.randn(tree.num_leaves + 1, 6), tree)
    with pytest.raises(ShapeError, match=r"give .*, 6"):
        conv(torch.randn(tree.num_leaves, 7), tree)
    with pytest.raises(ShapeError, match=r"torch\.int64"):
        conv(torch.ones(tree.num_leaves, 6).long(), tree)
    with pytest.raises(ShapeError, match="NoneType"):
        conv(tree.x, None)
    with pytest.raises(ShapeError, match="pos has shape"):
        conv(tree.x, tree, pos=torch.randn(tree.num_leaves, 2, 3))
    with pytest.raises(ShapeError, match="bias has shape"):
        conv(tree.x, tree, pair_bias=torch.randn(3, 2))
    with pytest.raises(ShapeError, match="TreePlan, which holds no positions"):
        HSAConv(6, 4, position=PositionEmbedding(8))(tree.x, tree.plan)


@pytest.mark.parametrize(
    ("option", "quote"),
    [
        ({"heads": 0}, "heads=0"),
        ({"out_channels": 0}, "out_channels=0"),
        ({"energy": "l1"}, "energy='l1'"),
        ({"backend": "fast"}, "backend='fast'"),
        ({"dropout": 1.5}, "dropout=1.5"),
        ({"dropout": "0.1"}, "dropout='0.1'"),
        ({"scale": float("inf")}, "scale=inf"),
        ({"scale": float("nan")}, "scale=nan"),
        ({"scale": "big"}, "scale='big'"),
    ],
)
def test_options_that_are_refused(option, quote):
    with pytest.raises(ShapeError, match=quote):
        HSAConv(**({"in_channels": 6, "out_channels": 4} | option))


def test_options_of_message_passing_that_mean_nothing_here_are_refused():
    """They would be accepted and ignored: the passes are what they are."""
    for option in ({"aggr": "max"}, {"flow": "target_to_source"}, {"node_dim": 1}):
        with pytest.raises(TypeError, match=next(iter(option))):
            HSAConv(6, 4, **option)


def test_lazy_input_size():
    tree = mixed(3)
    conv = HSAConv(-1, 4, heads=2)
    assert conv(tree.x, tree).shape == (tree.num_leaves, 8)
    assert conv.lin_qkv.weight.shape == (24, 6)
    with pytest.raises(ShapeError, match=r"give .*, 6"):
        conv(torch.randn(tree.num_leaves, 7), tree)


def test_position_module_and_pos():
    tree = mixed(3)
    position = PositionEmbedding(8, 2)
    conv = HSAConv(6, 4, heads=2, position=position)
    out = conv(tree.x, tree)
    assert torch.equal(conv(tree.x, tree, pos=position(tree)), out)
    nowhere = torch.zeros(tree.num_tree_nodes, 1, 8)
    assert not torch.allclose(conv(tree.x, tree, pos=nowhere), out)
    # tree_index alone has no positions, but pos= has.
    bare = conv(tree.x, tree.tree_index, tree.tree_level, pos=position(tree))
    assert torch.equal(bare, out)
    out.square().sum().backward()
    assert all(p.grad is not None for p in position.parameters() if p.numel())


def test_no_trees_in_the_batch():
    plan = TreePlan.from_index(torch.empty(2, 0, dtype=torch.int64), torch.empty(0).long())
    for backend in BACKENDS:
        conv = HSAConv(6, 4, heads=2, backend=backend, dropout=0.5)
        out, weights = conv(torch.randn(0, 6), plan, return_attention_weights=True)
        assert out.shape == (0, 8)
        assert weights.to_dense().shape == (2, 0, 0)
        out.sum().backward()
        assert conv.lin_qkv.weight.grad.abs().max() == 0


# Dropout and weights #############################################################################


@backends
def test_dropout_in_training_only(backend):
    tree = mixed(4)
    conv = HSAConv(6, 4, heads=2, dropout=0.5, backend=backend)
    torch.manual_seed(0)
    a = conv(tree.x, tree)
    assert not torch.equal(conv(tree.x, tree), a)
    torch.manual_seed(0)
    assert torch.equal(conv(tree.x, tree), a)
    torch.manual_seed(0)
    mask = dropout_mask(tree.plan, 2, 0.5, tree.x)
    expected, theta = dense(conv, tree.x, tree, mask=mask)
    assert torch.allclose(a, expected, atol=1e-5)
    torch.manual_seed(0)
    _, weights = conv(tree.x, tree, return_attention_weights=True)
    assert torch.allclose(weights.to_dense(), theta, atol=1e-6)
    conv.eval()
    assert torch.allclose(conv(tree.x, tree), dense(conv, tree.x, tree)[0], atol=1e-5)


@backends
def test_dropout_of_everything_leaves_the_bias(backend):
    tree = mixed(4)
    conv = HSAConv(6, 4, heads=2, dropout=1.0, backend=backend)
    nn.init.normal_(conv.bias)
    assert torch.equal(conv(tree.x, tree), conv.bias.expand(tree.num_leaves, -1))


@backends
@shapes
def test_attention_weights(backend, shape):
    tree = random_tree(5, shape=shape)
    x = torch.randn(tree.num_leaves, 6)
    conv = HSAConv(6, 4, heads=2, bias=False, backend=backend)
    out, weights = conv(x, tree, return_attention_weights=True)
    assert isinstance(weights, AttentionWeights)
    assert weights.pair_nodes.shape == (2, tree.plan.num_pairs)
    assert weights.pair.shape == (tree.plan.num_pairs, 2)
    assert weights.leaf.shape == (tree.num_leaves, 2)
    theta = weights.to_dense()
    assert torch.allclose(theta.sum(-1), torch.ones(2, tree.num_leaves), atol=1e-5)
    v = conv.lin_qkv(x).view(-1, 3, 2, 4)[:, 2]
    product = torch.einsum("hij,jhd->ihd", theta, v).flatten(1)
    assert torch.allclose(product, out, atol=1e-5)
    assert torch.equal(conv(x, tree, return_attention_weights=False), out)


@backends
def test_weights_after_dropout_give_the_output(backend):
    tree = mixed(5)
    conv = HSAConv(6, 4, heads=2, bias=False, dropout=0.5, backend=backend)
    out, weights = conv(tree.x, tree, return_attention_weights=True)
    assert (weights.pair == 0).any()
    v = conv.lin_qkv(tree.x).view(-1, 3, 2, 4)[:, 2]
    product = torch.einsum("hij,jhd->ihd", weights.to_dense(), v).flatten(1)
    assert torch.allclose(product, out, atol=1e-5)


@backends
def test_weights_are_differentiable(backend):
    tree = mixed(5)
    conv = HSAConv(6, 4, heads=2, backend=backend)
    _, weights = conv(tree.x, tree, return_attention_weights=True)
    entropy = -(weights.to_dense().clamp(min=1e-9).log() * weights.to_dense()).sum()
    entropy.backward()
    assert conv.lin_qkv.weight.grad.abs().max() > 0


# Batches #########################################################################################


@backends
def test_batches_and_their_order(backend):
    trees = [mixed(seed) for seed in range(6)] + [SignalTree.from_parents([-1], x=torch.ones(1, 6))]
    conv = HSAConv(6, 4, heads=2, backend=backend)
    assert_forest_equals_trees(lambda tree: conv(tree.x, tree), trees)
    order = [3, 6, 0, 5, 1, 4, 2]
    batch, moved = (Batch.from_data_list(ts) for ts in (trees, [trees[i] for i in order]))
    sizes = [tree.num_leaves for tree in trees]
    parts = conv(batch.x, batch).split(sizes)
    moved_parts = conv(moved.x, moved).split([sizes[i] for i in order])
    for i, part in zip(order, moved_parts):
        assert torch.allclose(part, parts[i], atol=1e-6)


def test_in_a_data_loader_and_a_sequential_model():
    torch.manual_seed(0)
    trees = [mixed(seed) for seed in range(10)]
    for tree in trees:
        tree.y = tree.x.mean().view(1)
    model = Sequential(
        "x, tree",
        [
            (HSAConv(6, 4, heads=2), "x, tree -> x"),
            nn.ReLU(),
            (HSAConv(8, 3, backend="edge"), "x, tree -> x"),
        ],
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    losses = []
    for _ in range(10):
        for batch in DataLoader(trees, batch_size=5):
            out = model(batch.x, batch)
            assert out.shape == (batch.num_nodes, 3)
            loss = (out.mean(1) - batch.y[batch.batch]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert sum(losses[-2:]) < 0.5 * sum(losses[:2])


# A PyG module ####################################################################################


def test_it_is_message_passing():
    conv = HSAConv(6, 4, heads=2)
    assert isinstance(conv, MessagePassing)
    assert conv.explain is False
    assert {type(m).__name__ for m in conv.passes.children()} == {
        "UpwardPass",
        "SiblingPass",
        "DownwardPass",
        "ReachPass",
    }


def test_repr():
    assert str(HSAConv(6, 4, heads=2, energy="l2", backend="edge")) == (
        "HSAConv(6, 4, heads=2, energy='l2', backend='edge')"
    )


def test_key_tied_layers():
    """Every backend, with positions, biases and dropout; and the weights add up to the output."""
    tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1])
    x, bias = torch.randn(4, 6), torch.randn(6, 1)
    outs = []
    for backend in ("numba", "block", "edge"):
        torch.manual_seed(0)
        position = PositionEmbedding(8, 2)
        conv = HSAConv(6, 4, heads=2, tie="key", position=position, backend=backend).eval()
        out, weights = conv(x, tree, pair_bias=bias, return_attention_weights=True)
        torch.testing.assert_close(conv(x, tree, pair_bias=bias), out, rtol=1e-5, atol=1e-6)
        v = conv.lin_qkv(x).view(4, 3, 2, 4)[:, 2]
        theta = weights.to_dense()
        again = torch.einsum("hij,jhd->ihd", theta, v).flatten(1) + conv.bias
        torch.testing.assert_close(again, out, rtol=1e-5, atol=1e-6)
        outs.append(out)
        conv.dropout = 0.5
        conv.train()
        assert not torch.allclose(conv(x, tree), out)
    torch.testing.assert_close(outs[0], outs[1], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(outs[0], outs[2], rtol=1e-5, atol=1e-6)
    assert "tie='key'" in repr(conv)
    with pytest.raises(UnsupportedError, match="tie='query' is unknown"):
        HSAConv(6, 4, tie="query")


def test_reset_parameters():
    torch.manual_seed(0)
    conv = HSAConv(6, 4, heads=2, qk_norm=True, position=PositionEmbedding(8, 2))
    for parameter in conv.parameters():
        nn.init.constant_(parameter, 0.123)
    conv.reset_parameters()
    for name, parameter in conv.named_parameters():
        assert not (parameter == 0.123).all(), name
    assert torch.equal(conv.bias, torch.zeros(8))
    before = conv.lin_qkv.weight.clone()
    conv.reset_parameters()
    assert not torch.equal(conv.lin_qkv.weight, before)


def test_state_dict_round_trip(tmp_path):
    tree = mixed(6)
    conv, other = (
        HSAConv(6, 4, heads=2, qk_norm=True, position=PositionEmbedding(8, 2)) for _ in range(2)
    )
    out = conv(tree.x, tree)
    assert not torch.allclose(other(tree.x, tree), out)
    torch.save(conv.state_dict(), tmp_path / "conv.pt")
    other.load_state_dict(torch.load(tmp_path / "conv.pt", weights_only=True))
    assert torch.equal(other(tree.x, tree), out)
    lazy = HSAConv(-1, 4, heads=2, qk_norm=True, position=PositionEmbedding(8, 2))
    lazy.load_state_dict(conv.state_dict())
    assert torch.equal(lazy(tree.x, tree), out)


@backends
def test_copies_and_pickles(backend):
    tree = mixed(6)
    conv = HSAConv(6, 4, heads=2, backend=backend, position=PositionEmbedding(8, 2))
    out = conv(tree.x, tree)
    for other in (copy.deepcopy(conv), pickle.loads(pickle.dumps(conv))):
        assert torch.equal(other(tree.x, tree), out)
        nn.init.zeros_(other.lin_qkv.weight)
    assert torch.equal(conv(tree.x, tree), out)


def test_explainers_of_pyg_leave_it_alone():
    """Their edge masks belong to a graph's edges, not to messages in a tree."""
    tree = mixed(7)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.graph = GCNConv(6, 6)
            self.conv = HSAConv(6, 4, heads=2, backend="edge")

        def forward(self, x: Tensor, edge_index: Tensor, tree: SignalTree) -> Tensor:
            return self.conv(self.graph(x, edge_index), tree).mean(0, keepdim=True)

    model = Model()
    edge_index = torch.tensor([[0, 1, 2], [1, 0, 1]])
    before = model(tree.x, edge_index, tree)
    explainer = Explainer(
        model,
        algorithm=GNNExplainer(epochs=3),
        explanation_type="model",
        node_mask_type="attributes",
        edge_mask_type="object",
        model_config={"mode": "regression", "task_level": "graph", "return_type": "raw"},
    )
    explanation = explainer(tree.x, edge_index, tree=tree)
    assert explanation.node_mask.shape == tree.x.shape
    assert explanation.edge_mask.shape == (3,)
    assert torch.equal(model(tree.x, edge_index, tree), before)


@pytest.mark.parametrize(("backend", "seeds"), [("block", (8, 9)), ("edge", (8,))])
def test_compiled_it_gives_the_same(backend, seeds):
    """The compiler breaks the graph where levels are walked; what comes out is the same."""
    conv = HSAConv(6, 4, heads=2, backend=backend)
    compiled = torch.compile(conv, backend="eager")
    for seed in seeds:
        tree = mixed(seed)
        x = tree.x.requires_grad_()
        inside = tree if backend == "block" else tree.plan  # whether the plan is made in there
        actual, expected = compiled(x, inside), conv(x, tree)
        assert torch.allclose(actual, expected, atol=1e-6)
        (grad,) = torch.autograd.grad(actual.square().sum(), x)
        assert torch.allclose(grad, torch.autograd.grad(expected.square().sum(), x)[0], atol=1e-5)


@pytest.mark.parametrize("tie", ["block", "key"])
@pytest.mark.parametrize("backend", ["auto", "block", "edge"])
def test_mixing_multiplies_by_theta_and_its_gradient_by_the_transpose(tie, backend):
    torch.manual_seed(0)
    tree = SignalTree.from_parents(
        [4, 4, 5, 5, 6, 6, -1], x=torch.randn(4, 16, dtype=torch.float64)
    )
    conv = HSAConv(16, 8, heads=2, tie=tie, backend=backend, dropout=0.5).double()  # in training
    theta = conv.eval()(tree.x, tree, return_attention_weights=True)[1].to_dense()
    value = torch.randn(4, 2, 3, dtype=torch.float64, requires_grad=True)
    out = conv.train().mixing(tree.x, tree)(value)
    torch.testing.assert_close(out, torch.einsum("hij,jhd->ihd", theta, value))
    side = torch.randn_like(out)
    (back,) = torch.autograd.grad(out, value, side)
    torch.testing.assert_close(back, torch.einsum("hij,ihd->jhd", theta, side))
