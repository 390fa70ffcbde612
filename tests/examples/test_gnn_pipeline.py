"""The GNN pipeline: its block, its tasks, fair contenders, the loaders of PyG, and the program."""

from __future__ import annotations

import copy
import json
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.loader import ClusterData, ClusterLoader, DataLoader, NeighborLoader
from torch_geometric.nn import GCNConv, Sequential
from torch_geometric.utils import k_hop_subgraph, to_networkx

pytest.importorskip("scipy")
import gnn_pipeline
import gnn_report
import gnn_scaling
import gnn_tasks
import gnn_training
from gnn_layers import GNN, MIXERS, Block, GPSBlock, HSAMixer, matched
from gnn_tasks import TASKS, Task, districts, relay, ring, shuffled, villages, with_hierarchies

from hsa_geo.data import SignalTree
from hsa_geo.errors import DownloadError
from hsa_geo.nn import HSAConv
from hsa_geo.transforms import CommunityHierarchy, DropHierarchy, RestrictHierarchy

SAMPLER = bool(find_spec("pyg_lib") or find_spec("torch_sparse"))
SMALL = {
    "ring": lambda rng: Task([ring(8, 3, rng) for _ in range(30)], [ring(8, 3, rng)], 3),
    "relay": lambda rng: Task([relay(7, 3, rng) for _ in range(2)], [relay(7, 3, rng)] * 2, 3),
}


@pytest.fixture(params=[0, 1])
def rng(request):
    return np.random.default_rng(request.param)


@pytest.fixture
def trees(rng):
    return [CommunityHierarchy((4.0, 1.0))(relay(7, 3, rng)) for _ in range(3)]


class Dense(nn.Module):
    """PyG's attention as a mixer."""

    def __init__(self, attention):
        super().__init__()
        self.attention = attention

    def forward(self, x, tree):
        mask = (tree.batch[:, None] != tree.batch)[None]
        mask = mask.expand(self.attention.num_heads, -1, -1)
        return self.attention(x[None], x[None], x[None], attn_mask=mask)[0][0]


@pytest.mark.parametrize("training", [True, False])
def test_the_block_is_that_of_gpsconv_but_for_the_attention(trees, training):
    batch = next(iter(DataLoader(trees, 3)))
    torch.manual_seed(0)
    theirs = GPSBlock(8, GCNConv(8, 8), 2)
    gps = copy.deepcopy(theirs.gps)
    ours = Block(8, gps.conv, Dense(gps.attn))
    for i, norm in enumerate((gps.norm1, gps.norm2, gps.norm3)):
        ours.norms[i].load_state_dict(norm.module.state_dict())
    ours.mlp[0], ours.mlp[3] = gps.mlp[0], gps.mlp[3]
    x, y = (torch.randn(batch.num_nodes, 8).requires_grad_() for _ in range(2))
    y.data.copy_(x)
    a, b = theirs.train(training)(x, batch), ours.train(training)(y, batch)
    torch.testing.assert_close(a, b)
    weight = torch.randn_like(a)
    (a * weight).sum().backward()
    (b * weight).sum().backward()
    torch.testing.assert_close(x.grad, y.grad, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("mixer", MIXERS)
@pytest.mark.parametrize("level", ["node", "graph"])
def test_a_batch_is_as_its_graphs_one_by_one(trees, mixer, level):
    torch.manual_seed(0)
    model = matched(mixer, trees[0].num_features, 3, level=level, channels=16, heads=2).eval()
    together = model(next(iter(DataLoader(trees, 3))))
    alone = torch.cat([model(batch) for batch in DataLoader(trees, 1)])
    torch.testing.assert_close(together, alone, atol=1e-4, rtol=1e-4)


def test_contenders_have_equally_many_parameters():
    for task in TASKS:
        data = SMALL["ring"](np.random.default_rng(0))
        settings = gnn_training.settings_of(task)
        counts = {
            name: gnn_training.make_model(name, task, data, settings).num_parameters
            for name in gnn_training.contenders_of(task)
        }
        assert ("deep" in counts) == (task == "ring")
        assert max(counts.values()) < 1.01 * min(counts.values()), counts
    deep = gnn_training.make_model("deep", "ring", data, gnn_training.SETTINGS["ring"])
    assert len(deep.blocks) == 16


def test_an_unknown_mixer_is_refused():
    with pytest.raises(ValueError, match="mixer='all'"):
        GNN(2, 2, "all")


def test_in_a_ring_the_label_lies_opposite(rng):
    data = ring(12, 5, rng)
    graph = to_networkx(data, to_undirected=True)
    assert sorted(d for _, d in graph.degree) == [2] * 12
    assert nx.is_connected(graph)
    source = int((data.x.sum(1) == 1).nonzero())
    target = int(data.mask.nonzero())
    assert data.x[target].sum() == 0
    assert nx.shortest_path_length(graph, source, target) == 6
    assert data.x[source].argmax() == data.y[target]


def test_villages_are_communities_in_a_ring(rng):
    sizes = np.array([5, 9, 6, 4])
    community, edge = villages(sizes, rng)
    assert np.bincount(community).tolist() == sizes.tolist()
    graph = to_networkx(Data(edge_index=edge, num_nodes=24), to_undirected=True)
    between = {frozenset(community[list(e)]) for e in graph.edges if len({*community[list(e)]}) > 1}
    assert between == {frozenset({i, (i + 1) % 4}) for i in range(4)}


@pytest.mark.parametrize("each", [False, True])
def test_a_relay_asks_for_what_most_nodes_far_away_have(rng, each):
    k, colours = 9, 3
    data = relay(k, colours, rng, each=each)
    colour, name, asked = (part.argmax(1) for part in data.x.split([colours, k, k], 1))
    for community in range(k):
        requests = asked[name == community].unique()
        assert community not in requests
        assert (len(requests) > 1) == each
        counts = torch.bincount(colour[name == community], minlength=colours)
        labels = data.y[asked == community].unique()
        assert len(labels) <= 1
        assert all(counts[label] == counts.max() for label in labels)


def test_districts_do_not_count_nodes():
    rng = np.random.default_rng(0)
    graphs = [districts(9, rng) for _ in range(100)]
    most = torch.stack([(2 * g.x[:, 1].sum() > g.num_nodes) for g in graphs])
    labels = torch.cat([g.y for g in graphs]).bool()
    assert 30 < labels.sum() < 70
    assert 5 < (most != labels).sum() < 50


def test_karate_trains_on_half_of_each_class(rng):
    task = gnn_tasks.karate(rng)
    train, test = task.train[0], task.test[0]
    assert bool((train.mask ^ test.mask).all())
    both = [torch.bincount(train.y[mask], minlength=4) for mask in (train.mask, test.mask)]
    assert bool(((both[1] - both[0] == 0) | (both[1] - both[0] == 1)).all())
    tree = with_hierarchies(task, 0)["communities"]
    assert tree.train[0].tree_index is tree.test[0].tree_index
    assert torch.equal(tree.test[0].mask, test.mask)


def test_hierarchies_see_edges_alone(rng):
    data = relay(7, 3, rng)
    blind = Data(edge_index=data.edge_index, num_nodes=data.num_nodes)
    found = CommunityHierarchy(gnn_tasks.RESOLUTIONS)
    assert torch.equal(found(data).tree_index, found(blind).tree_index)


def test_a_random_hierarchy_has_the_same_shape(trees, rng):
    tree = trees[0]
    other = shuffled(tree, rng)
    other.validate()
    for name in ("x", "y", "edge_index", "mask"):
        assert torch.equal(other[name], tree[name])
    assert torch.equal(*(t.tree_index[0].bincount().sort()[0] for t in (other, tree)))
    assert torch.equal(other.tree_level.bincount(), tree.tree_level.bincount())
    assert not torch.equal(other.tree_index, tree.tree_index)


def no_network(*args, **kwargs):
    raise OSError("no route to host")


@pytest.mark.parametrize("name", ["Cora", "MUTAG"])
def test_a_dataset_that_cannot_be_fetched_is_said(name, rng, tmp_path, monkeypatch, capsys):
    kind = "Planetoid" if name == "Cora" else "TUDataset"
    monkeypatch.setattr(gnn_tasks, kind, no_network)
    with pytest.raises(DownloadError, match=f"'{name}' is not in .*no route to host.*ring"):
        gnn_tasks.named(name, tmp_path, rng)
    assert gnn_pipeline.main(["--dataset", name, "--root", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith(f"error: the dataset '{name}'")


def test_datasets_of_pyg_become_tasks(rng, tmp_path, monkeypatch):
    class Graphs(list):
        num_classes = 2

    edge = torch.tensor([[0, 1], [1, 0]])
    graphs = Graphs(Data(edge_index=edge, num_nodes=3, y=torch.tensor([i % 2])) for i in range(10))
    monkeypatch.setattr(gnn_tasks, "TUDataset", lambda root, name: graphs)
    task = gnn_tasks.named("ANY", tmp_path, rng)
    assert (len(task.train), len(task.test), task.level) == (8, 2, "graph")
    assert task.train[0].x.argmax(1).tolist() == [1, 1, 0]
    assert gnn_training.settings_of("ANY", "graph").batch_size == 32

    one = relay(7, 3, rng)
    one.train_mask = torch.arange(one.num_nodes) < 9
    one.test_mask = ~one.train_mask
    graphs = Graphs([one])
    monkeypatch.setattr(gnn_tasks, "Planetoid", lambda root, name: graphs)
    task = gnn_tasks.named("cora", tmp_path, rng)
    assert task.train[0].mask.sum() == 9
    assert task.level == "node"


def test_it_learns_what_messages_alone_cannot(monkeypatch, tmp_path):
    monkeypatch.setitem(TASKS, "ring", SMALL["ring"])
    quick = gnn_training.Settings(channels=16, layers=1, epochs=20, batch_size=10)
    monkeypatch.setitem(gnn_training.SETTINGS, "ring", quick)
    monkeypatch.setitem(gnn_training.STEPS_TO_GO, "ring", 2)
    losses = gnn_training.run("ring", 0, root=tmp_path)["results"]
    assert losses["hsa"]["loss"] < 0.2 < 0.6 < losses["none"]["loss"]


def test_it_works_in_pygs_sequential(trees):
    batch = next(iter(DataLoader(trees, 3)))
    layers = [
        (GCNConv(batch.num_features, 16), "x, edge_index -> x"),
        nn.ReLU(),
        (HSAConv(16, 8, heads=2), "x, tree -> x"),
        (nn.Linear(16, 3), "x -> x"),
    ]
    model = Sequential("x, edge_index, tree", layers)
    out = model(batch.x, batch.edge_index, batch)
    one = torch.cat([model(tree.x, tree.edge_index, tree) for tree in trees])
    torch.testing.assert_close(out, one)
    out.sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def check_sample(batch, tree, model):
    """The part of the hierarchy is that of ``restrict``, and a model trains on it."""
    assert isinstance(batch, SignalTree)
    batch.validate()
    part = tree.restrict(batch.n_id, keep_order=True)
    assert torch.equal(batch.x, tree.x[batch.n_id])
    mixer = model.blocks[0].mixer
    h = model.encode(batch.x)
    torch.testing.assert_close(mixer(h, batch), mixer(h, part))
    loss = nn.functional.cross_entropy(model(batch), batch.y)
    loss.backward()
    assert bool(torch.isfinite(loss))


@pytest.fixture
def large():
    data = gnn_scaling.large_graph(400)
    data.n_id = torch.arange(400)
    torch.manual_seed(0)
    return data, CommunityHierarchy([8.0, 1.0])(data), matched("hsa", 32, 10, channels=16, heads=2)


def test_samples_of_a_large_graph_carry_their_hierarchy(large):
    data, tree, model = large
    restrict = RestrictHierarchy(tree)
    for seeds in torch.arange(400).split(100):
        nodes, edges, _, _ = k_hop_subgraph(seeds, 1, data.edge_index, relabel_nodes=True)
        part = Data(x=data.x[nodes], y=data.y[nodes], edge_index=edges, n_id=nodes)
        check_sample(restrict(part), tree, model)


def test_all_nodes_as_one_sample_are_the_whole(large):
    data, tree, model = large
    order = torch.randperm(400)
    place = torch.empty(400, dtype=torch.int64)
    place[order] = torch.arange(400)
    part = Data(x=data.x[order], edge_index=place[data.edge_index], n_id=order)
    model.eval()
    found = model(RestrictHierarchy(tree)(part))
    torch.testing.assert_close(found, model(tree)[order], atol=1e-5, rtol=1e-4)


@pytest.mark.skipif(not SAMPLER, reason="neither pyg_lib nor torch_sparse is installed")
def test_neighbor_loader(large):
    data, tree, model = large
    data = DropHierarchy()(tree)
    loader = NeighborLoader(data, [4, 4], batch_size=64, transform=RestrictHierarchy(tree))
    sizes = []
    for batch in loader:
        assert torch.equal(batch.n_id[: batch.batch_size], batch.input_id)
        check_sample(batch, tree, model)
        sizes.append(batch.batch_size)
    assert sum(sizes) == 400


@pytest.mark.skipif(not SAMPLER, reason="neither pyg_lib nor torch_sparse is installed")
def test_cluster_loader(large):
    data, tree, model = large
    try:
        parts = ClusterData(data, num_parts=8, log=False)
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"no METIS: {error}")
    seen = []
    for batch in ClusterLoader(parts, batch_size=2):
        batch = RestrictHierarchy(tree)(batch)
        check_sample(batch, tree, model)
        seen.append(batch.n_id)
    assert torch.cat(seen).sort()[0].tolist() == list(range(400))


def test_lightning_dataset(trees):
    lightning = pytest.importorskip("pytorch_lightning")
    from torch_geometric.data.lightning import LightningDataset

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = matched("hsa", trees[0].num_features, 3, channels=16, heads=2)
            self.seen = []

        def training_step(self, batch, index):
            self.seen.append(batch.num_graphs)
            return nn.functional.cross_entropy(self.model(batch), batch.y)

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), 1e-2)

    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", enable_model_summary=False, **quiet
    )
    module = Module()
    before = copy.deepcopy(module.model.state_dict())
    trainer.fit(module, LightningDataset(trees, batch_size=2))
    assert sorted(module.seen) == [1, 2]
    after = module.model.state_dict()
    assert any(not torch.equal(before[key], after[key]) for key in before)


def test_attention_dropout_of_the_mixer_is_for_training_only(trees):
    mixer = HSAMixer(8, 2, dropout=1.0)
    x = torch.randn(trees[0].num_nodes, 8)
    assert bool((mixer(x, trees[0]) == mixer.lin.bias).all())
    assert not bool((mixer.eval()(x, trees[0]) == mixer.lin.bias).all())


def test_a_step_that_needs_too_much_is_said(tmp_path):
    row = gnn_scaling.prepare(3000, tmp_path)
    assert row["levels"] >= 2
    request = {"file": str(tmp_path / "3000.safetensors"), "threads": 1}
    request |= {"gigabytes": 0.5, "seconds": 60}
    fits = gnn_scaling.in_fresh_process(request | {"model": "hsa_dropout"})
    assert 0 < fits["bytes"] < 0.5e9
    assert fits["seconds"] > 0
    flat = gnn_scaling.in_fresh_process(request | {"model": "gps_dropout"})
    assert flat == {"failed": "memory"}


@pytest.mark.parametrize(("code", "said"), [(-24, ""), (1, "KeyError: 'file'")])
def test_what_became_of_a_process(code, said, monkeypatch):
    done = SimpleNamespace(returncode=code, stdout="", stderr=said)
    monkeypatch.setattr(gnn_scaling.subprocess, "run", lambda *args, **options: done)
    if code == -24:  # the signal of too much processor time
        assert gnn_scaling.in_fresh_process({}) == {"failed": "time"}
    else:
        with pytest.raises(RuntimeError, match="ended with 1: KeyError: 'file'"):
            gnn_scaling.in_fresh_process({})


def test_too_much_time_ends_a_process():
    source = "import gnn_scaling; gnn_scaling.limit(1, 1)\nwhile True: pass"
    folder = str(Path(gnn_scaling.__file__).parent)
    done = subprocess.run([sys.executable, "-c", source], cwd=folder, check=False)
    assert done.returncode == -signal.SIGXCPU


def test_intervals_are_those_of_the_t_test():
    from scipy.stats import ttest_1samp

    values = [0.1, 0.4, 0.2, 0.7]
    half, p = gnn_report.interval(values)
    test = ttest_1samp(values, 0)
    low, high = test.confidence_interval()
    assert p == pytest.approx(test.pvalue)
    assert half == pytest.approx((high - low) / 2)
    assert gnn_report.interval([0.0, 0.0]) == (0.0, 1.0)
    assert gnn_report.interval([0.5, 0.5]) == (0.0, 0.0)
    assert all(np.isnan(gnn_report.interval([0.5])))


def test_the_program(tmp_path, monkeypatch, capsys):
    def answer(request):
        if request["model"] == "gps_dropout":
            return {"failed": "memory"}
        return {"seconds": 0.25, "bytes": 3e6, "steps": 3}

    class Here:  # tasks of this process, not of a new one
        def __init__(self, workers, **options): ...
        def __enter__(self):
            return self

        def __exit__(self, *error): ...
        def submit(self, call, *args, **options):
            from concurrent.futures import Future

            future = Future()
            future.set_result(call(*args, **options))
            return future

    monkeypatch.setattr(gnn_pipeline, "ProcessPoolExecutor", Here)
    monkeypatch.setattr(gnn_scaling, "in_fresh_process", answer)
    monkeypatch.setitem(TASKS, "relay", SMALL["relay"])
    options = ["--epochs", "1", "--sizes", "300", "200", "--memory", "2", "--out", str(tmp_path)]
    options += ["--keep", str(tmp_path / "kept")]
    assert gnn_pipeline.main(["--tasks", "karate", "relay", "--seeds", "2", *options]) == 0
    report = json.loads((tmp_path / "gnn_pipeline.json").read_text())
    assert [(run["task"], run["seed"]) for run in report["runs"]] == [
        *(("karate", seed) for seed in range(8)),
        *(("relay", seed) for seed in range(2)),
    ]
    rows = report["tasks"]["relay"]
    gaps = [
        r["results"]["hsa"]["accuracy"] - r["results"]["gps"]["accuracy"]
        for r in report["runs"]
        if r["task"] == "relay"
    ]
    assert rows["gps"]["hsa_minus"] == pytest.approx(np.mean(gaps))
    kept = sorted(file.name.rpartition("_")[0] for file in (tmp_path / "kept").iterdir())
    assert kept == [*(f"karate_{seed}" for seed in range(8)), "relay_0", "relay_1"]
    found = {"monkeypatched": True}
    monkeypatch.setattr(gnn_training, "run", lambda *args, **options: found)
    job = {"root": Path("data/pyg"), "local": None, "epochs": 1}
    assert gnn_training.kept(tmp_path / "kept", "relay", 1, **job) == report["runs"][-1]
    assert gnn_training.kept(tmp_path / "kept", "relay", 2, **job) == found
    text = (tmp_path / "gnn_pipeline.md").read_text()
    assert "| GPSConv, multihead, attention dropout | > 2 GB | - |" in text
    assert "| GNN | 0.250 | 0.250 |" in text
    assert "KarateClub: node classification, half of the nodes to train on; 8 seeds" in text
    assert "HSA minus it" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--seeds", "0"], "above 0"),
        (["--dataset", "Cora", "--tasks", "ring"], "give one of them"),
        (["--tasks", "rings"], "invalid choice: 'rings'"),
    ],
)
def test_wrong_arguments_are_said(argv, said, capsys):
    with pytest.raises(SystemExit) as error:
        gnn_pipeline.main(argv)
    assert error.value.code == 2
    assert said in capsys.readouterr().err
