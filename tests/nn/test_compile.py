"""torch.compile: whole graphs, and no compiling again for trees of other shapes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch._dynamo
from torch import Tensor, nn
from torch_geometric.data import Batch

from hsa_geo.data import Domain, SignalTree
from hsa_geo.errors import DomainError, ShapeError, UnsupportedError
from hsa_geo.nn import HSAConv, HSAEncoder, OffsetBias, PositionEmbedding, subtree_mean
from hsa_geo.ops import tree_energy
from hsa_geo.testing import random_tree

pytest.importorskip("numba")

CHANNELS = 8


@pytest.fixture(autouse=True)
def strict():
    """A graph that is compiled again is an error."""
    torch._dynamo.reset()
    with torch._dynamo.config.patch(error_on_recompile=True):
        yield
    torch._dynamo.reset()


def batches() -> list[Batch]:
    """Ten, of different numbers of trees, sizes, depths and buckets."""
    out = []
    for seed in range(10):
        trees = [random_tree(seed * 10 + i, max_leaves=30) for i in range(1 + seed % 4)]
        out.append(Batch.from_data_list(trees))
    plans = [batch.plan for batch in out]
    assert min(plan.num_leaves for plan in plans) >= 2
    for what in ("num_leaves", "num_trees", "num_levels", "num_pairs"):
        assert len({getattr(plan, what) for plan in plans}) > 2, what
    assert len({len(plan.buckets) for plan in plans}) > 2
    return out


class Model(nn.Module):
    """Two layers of different kinds."""

    def __init__(self, **options) -> None:
        super().__init__()
        self.first = HSAConv(CHANNELS, 4, heads=2, **options)
        self.second = HSAConv(CHANNELS, 4, heads=2, qk_norm=True, energy="l2")

    def forward(self, x: Tensor, *tree) -> Tensor:
        return self.second(torch.relu(self.first(x, *tree)), *tree)


def given(batch: Batch, how: str) -> tuple:
    if how == "plan":
        return (batch.plan,)
    return (batch,) if how == "batch" else (batch.tree_index, batch.tree_level)


def assert_compiles(model: nn.Module, how: str, backend: str) -> None:
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=backend)
    for batch in batches():
        x = torch.randn(batch.num_nodes, CHANNELS, requires_grad=True)
        inputs = [x, *model.parameters()]
        results = []
        for module in (compiled, model):
            out = module(x, *given(batch, how))
            grads = torch.autograd.grad(out.square().sum(), inputs, allow_unused=True)
            zeros = [torch.zeros_like(t) if g is None else g for t, g in zip(inputs, grads)]
            results.append([out, *zeros])
        for actual, expected in zip(*results):
            assert torch.allclose(actual, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("how", ["plan", "index", "batch"])
def test_one_graph_for_ten_batches(how):
    assert_compiles(Model(), how, "aot_eager")


def test_one_graph_with_positions():
    position = PositionEmbedding(4, heads=2, domains={Domain.GRAPH: None})
    assert_compiles(Model(position=position), "batch", "aot_eager")


def by_the_default_compiler() -> None:
    """What the test below runs."""
    position = PositionEmbedding(4, heads=2, domains={Domain.GRAPH: None})
    with torch._dynamo.config.patch(error_on_recompile=True):
        assert_compiles(Model(position=position), "batch", "inductor")
        model = Classifier(dropout=0.1)
        compiled = torch.compile(model, fullgraph=True, dynamic=True)
        many = Batch.from_data_list([random_tree(seed) for seed in range(40)])
        for batch in [*batches()[:3], many]:  # of more nodes than one block of a reduction
            x = torch.randn(batch.num_nodes, CHANNELS)
            out = compiled(x, batch)
            assert out.shape == (batch.num_graphs, 3)
            out.sum().backward()


def test_one_graph_by_the_default_compiler():
    """In a process of its own: the compiler insists on the distutils of setuptools."""
    if shutil.which("g++") is None and shutil.which("c++") is None:
        pytest.skip("the default compiler needs a C++ compiler")
    code = "import test_compile; test_compile.by_the_default_compiler()"
    here = Path(__file__).parent
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]


class Classifier(nn.Module):
    """What is trained most: an encoder with positions and dropout, and a readout."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.encoder = HSAEncoder(
            CHANNELS,
            2,
            heads=2,
            dropout=dropout,
            position=lambda: PositionEmbedding(4, heads=2, domains={Domain.GRAPH: None}),
        )
        self.lin = nn.Linear(CHANNELS, 3)

    def forward(self, x: Tensor, tree: Batch, nodes: Tensor | None = None) -> Tensor:
        return self.lin(subtree_mean(self.encoder(x, tree), tree, nodes))


@pytest.mark.parametrize("weighted", [False, True])
def test_one_graph_with_a_readout(weighted):
    torch.manual_seed(0)
    for dropout in (0.3, 0.0):
        model = Classifier(dropout)
        torch._dynamo.reset()
        compiled = torch.compile(model, fullgraph=True, dynamic=True, backend="aot_eager")
        for batch in batches():
            if weighted:
                batch.leaf_weight = torch.randint(1, 4, (batch.num_nodes,))
            x = torch.randn(batch.num_nodes, CHANNELS)
            out = compiled(x, batch)
            assert out.shape == (batch.num_graphs, 3)
            out.sum().backward()
            assert dropout or torch.allclose(out, model(x, batch), atol=1e-5)


def test_one_graph_for_subtrees():
    compiled = torch.compile(subtree_mean, fullgraph=True, dynamic=True, backend="aot_eager")
    for batch in batches():
        x = torch.randn(batch.num_nodes, CHANNELS, requires_grad=True)
        nodes = torch.randperm(batch.plan.num_nodes)[: 2 + batch.plan.num_nodes // 2].clone()
        results = []
        for fn in (compiled, subtree_mean):
            out = fn(x, batch, nodes)
            results.append((out, *torch.autograd.grad(out.square().sum(), x)))
        for actual, expected in zip(*results):
            assert torch.allclose(actual, expected, atol=1e-6)
    with pytest.raises(ShapeError, match="nodes holds 9999"):
        compiled(x, batch, torch.tensor([9999] * (2 + batch.plan.num_nodes // 2)))
    torch._dynamo.reset()
    with pytest.raises(UnsupportedError, match="not its plan"):
        torch.compile(subtree_mean, backend="eager")(x, batch.plan)


@pytest.mark.parametrize("energy", ["dot", "l2"])
@pytest.mark.parametrize("how", ["plan", "batch"])
def test_energies(how, energy):
    def phi(q, tree):
        return tree_energy(q, q + 1, tree, energy=energy)

    compiled = torch.compile(phi, fullgraph=True, dynamic=True, backend="aot_eager")
    for batch in batches():
        q = torch.randn(batch.num_nodes, 2, 4, requires_grad=True)
        tree = given(batch, how)[0]
        results = []
        for fn in (compiled, phi):
            out = fn(q, tree)
            results.append((out, *torch.autograd.grad(out.square().sum(), q)))
        for actual, expected in zip(*results):
            assert torch.allclose(actual, expected, atol=1e-5)


def test_a_bias_by_offset():
    conv = HSAConv(CHANNELS, 4, heads=2, pair_bias=OffsetBias(3, heads=2))
    nn.init.normal_(conv.pair_bias.table["SEQUENCE"])
    assert_compiles(conv, "batch", "aot_eager")


def test_an_encoder():
    assert_compiles(HSAEncoder(CHANNELS, 2, heads=2, position_channels=0), "plan", "aot_eager")


@pytest.mark.parametrize("how", ["plan", "index", "batch"])
def test_dropout(how):
    conv = HSAConv(CHANNELS, 4, heads=2, dropout=0.5).train()
    compiled = torch.compile(conv, fullgraph=True, dynamic=True, backend="aot_eager")
    for batch in batches()[:4]:
        x = torch.randn(batch.num_nodes, CHANNELS)
        tree = given(batch, how)
        first, second = compiled(x, *tree), compiled(x, *tree)
        assert not torch.equal(first, second)
        assert first.isfinite().all()


def test_dropout_of_everything():
    conv = HSAConv(CHANNELS, 4, heads=2, dropout=1.0).train()
    compiled = torch.compile(conv, fullgraph=True, dynamic=True, backend="aot_eager")
    batch = batches()[3]
    assert (compiled(torch.randn(batch.num_nodes, CHANNELS), batch.plan) == 0).all()


def test_autocast():
    conv = HSAConv(CHANNELS, 4, heads=2)
    compiled = torch.compile(conv, fullgraph=True, dynamic=True, backend="aot_eager")
    for batch in batches()[:3]:
        x = torch.randn(batch.num_nodes, CHANNELS, requires_grad=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out, expected = compiled(x, batch.plan), conv(x, batch.plan)
        assert torch.allclose(out.float(), expected.float(), atol=0.05)
        assert torch.autograd.grad(out.float().sum(), x)[0].isfinite().all()


@pytest.mark.parametrize("more", [3, -3])
@pytest.mark.parametrize("energy", ["dot", "l2"])
@pytest.mark.parametrize("how", ["plan", "index", "batch"])
def test_features_that_do_not_fit_are_refused(how, energy, more):
    """Before or inside the kernels; never by reading or writing what is not there."""
    conv = HSAConv(CHANNELS, 4, heads=2, energy=energy)
    compiled = torch.compile(conv, dynamic=True, backend="aot_eager")
    batch = batches()[3]
    compiled(torch.randn(batch.num_nodes, CHANNELS), *given(batch, how))
    with (
        torch._dynamo.config.patch(error_on_recompile=False),
        pytest.raises(ShapeError, match=f"{batch.num_nodes}"),
    ):
        compiled(torch.randn(batch.num_nodes + more, CHANNELS), *given(batch, how))


def test_a_domain_without_embedding_is_refused():
    tree = SignalTree.from_parents([2, 2, -1], domain=Domain.GRAPH)
    conv = HSAConv(CHANNELS, 4, heads=2, position=PositionEmbedding(4, heads=2))
    compiled = torch.compile(conv, fullgraph=True, dynamic=True, backend="aot_eager")
    with pytest.raises(DomainError, match="no embedding for positions in domain GRAPH"):
        compiled(torch.randn(2, CHANNELS), tree)


def test_no_second_derivative():
    """Refused where the operator has none; without torch.compile there is one."""
    batch = batches()[2]
    conv = HSAConv(CHANNELS, 4, heads=2)
    x = torch.randn(batch.num_nodes, CHANNELS, requires_grad=True)
    compiled = torch.compile(conv, fullgraph=True, dynamic=True, backend="eager")
    (grad,) = torch.autograd.grad(compiled(x, batch.plan).square().sum(), x, create_graph=True)
    with pytest.raises(UnsupportedError, match="backend='block'"):
        grad.square().sum().backward()
    (grad,) = torch.autograd.grad(conv(x, batch.plan).square().sum(), x, create_graph=True)
    grad.square().sum().backward()
    assert x.grad.isfinite().all()


class Logarithm(nn.Module):
    """Infinite at zero, where other domains' positions lie; ``heads`` are wrong on demand."""

    def __init__(self, heads: int = 1) -> None:
        super().__init__()
        self.heads, self.weight = heads, nn.Parameter(torch.ones(()))

    def forward(self, position: Tensor) -> Tensor:
        e = (position[:, 0].log() * self.weight)[:, None, None]
        return e.expand(-1, self.heads, 4)


def test_modules_of_positions_see_no_other_domains():
    tree = SignalTree.from_parents(
        [3, 3, 4, 4, -1], domain=[-1, -1, -1, Domain.GRAPH, Domain.SET], pos=[1, 2, 0, 0, 0]
    )
    x = torch.randn(3, CHANNELS)
    grads = []
    for compiling in (False, True):
        torch._dynamo.reset()
        position = PositionEmbedding(4, domains={Domain.GRAPH: Logarithm()})
        torch.manual_seed(0)
        conv = HSAConv(CHANNELS, 4, position=position)
        module = torch.compile(conv, dynamic=True, backend="aot_eager") if compiling else conv
        module(x, tree).square().sum().backward()
        grads.append(position.embed["GRAPH"].weight.grad)
    assert grads[0].isfinite()
    assert torch.allclose(*grads, rtol=1e-4)


def test_modules_of_positions_of_the_wrong_shape_are_refused():
    tree = SignalTree.from_parents([2, 2, -1], domain=Domain.GRAPH, pos=[1, 2, 0])
    position = PositionEmbedding(4, heads=2, domains={Domain.GRAPH: Logarithm(heads=3)})
    compiled = torch.compile(HSAConv(CHANNELS, 4, heads=2, position=position), backend="aot_eager")
    with pytest.raises(Exception, match="the module for GRAPH gives"):
        compiled(torch.randn(2, CHANNELS), tree)
