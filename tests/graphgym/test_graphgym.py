"""GraphGym builds, loads and trains what hsa_geo.graphgym registers."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.utils import to_undirected

pytest.importorskip("yacs")
pytest.importorskip("pytorch_lightning")

from torch_geometric.graphgym import (
    cfg,
    create_model,
    load_cfg,
    register,
    set_cfg,
    set_run_dir,
    train,
)
from torch_geometric.graphgym.train import GraphGymDataModule

import hsa_geo.graphgym as gym
from hsa_geo.data import SignalTree
from hsa_geo.errors import BuilderError, MixedKeysError, ShapeError, UnsupportedError
from hsa_geo.nn import HSAConv, HSAEncoder

QUIET = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}


@pytest.fixture(autouse=True)
def fresh_configuration():
    """GraphGym's configuration and registers are global."""
    datasets = dict(register.dataset_dict)
    set_cfg(cfg)
    yield
    set_cfg(cfg)
    register.dataset_dict.clear()
    register.dataset_dict.update(datasets)


def graph(k: int, label: int | None = None) -> Data:
    """Two triangles with a bridge; the three marked nodes are one of them where the label is 1."""
    edges = torch.tensor([[0, 1, 2, 3, 4, 5, 2], [1, 2, 0, 4, 5, 3, 3]])
    label = k % 2 if label is None else label
    x = torch.zeros(6, 2)
    x[:, 0] = 1
    side = 3 * (k // 2 % 2)
    marked = [0, 1, 2] if label else [k % 3, (k + 1) % 3, 3 + k % 3]
    x[[(node + side) % 6 for node in marked]] = torch.tensor([0.0, 1.0])
    return Data(x=x, edge_index=to_undirected(edges), y=torch.tensor([label]))


def use(graphs: list[Data], folder: Path, **options: object) -> None:
    """A configuration that names the graphs."""
    register.dataset_dict["here"] = lambda root: graphs
    cfg.out_dir = str(folder)
    settings = {
        "accelerator": "cpu",
        "num_threads": 1,
        "dataset.format": "HSA",
        "dataset.name": "here",
        "dataset.task": "graph",
        "dataset.split": [0.6, 0.2, 0.2],
        "hsa.resolutions": [1.0],
        "train.enable_ckpt": False,
        "train.batch_size": 16,
        "gnn.layers_pre_mp": 1,
        "gnn.dim_inner": 8,
        **options,
    }
    (folder / "here.yaml").write_text("{}")
    flat = [item for pair in settings.items() for item in pair]
    load_cfg(cfg, SimpleNamespace(cfg_file=str(folder / "here.yaml"), opts=flat))
    set_run_dir(cfg.out_dir)


def run(epochs: int) -> list[dict[str, float]]:
    """Train; the lines of the validation set's log."""
    cfg.optim.max_epoch = epochs
    torch.manual_seed(0)
    data, model = GraphGymDataModule(), create_model()
    cfg.params = sum(p.numel() for p in model.parameters())
    train(model, data, trainer_config=QUIET)
    log = Path(cfg.run_dir, "val", "stats.json").read_text()
    assert Path(cfg.run_dir, "test", "stats.json").is_file()
    return [json.loads(line) for line in log.splitlines()]


def test_everything_is_registered():
    assert register.layer_dict["hsaconv"] is gym.HSALayer
    assert register.stage_dict["hsa"] is gym.HSAStage
    assert register.head_dict["hsa_graph"] is gym.HSAGraphHead
    assert register.loader_dict["hsa"] is gym.load_trees
    assert register.config_dict["hsa"] is gym.add_settings
    assert cfg.hsa.heads == 4


def test_an_experiment_learns_and_is_logged(tmp_path):
    use(
        [graph(k) for k in range(120)],
        tmp_path,
        **{"gnn.stage_type": "hsa", "gnn.head": "hsa_graph", "gnn.dim_inner": 16},
        **{"train.batch_size": 8},
    )
    lines = run(16)
    assert max(line["accuracy"] for line in lines) > 0.9
    assert lines[-1]["loss"] < lines[0]["loss"]


def test_the_layer_in_the_stages_of_graphgym_on_nodes(tmp_path):
    one = graph(0)
    one.y = torch.tensor([0, 0, 0, 1, 1, 1])
    one.train_mask = torch.tensor([True, True, False, True, False, False])
    one.val_mask = torch.tensor([False, False, True, False, True, False])
    one.test_mask = torch.tensor([False, False, True, False, False, True])
    use(
        [one],
        tmp_path,
        **{"dataset.task": "node", "gnn.layer_type": "hsaconv", "gnn.stage_type": "skipsum"},
    )
    assert len(run(2)) >= 2
    model = create_model()
    assert sum(isinstance(module, HSAConv) for module in model.modules()) == cfg.gnn.layers_mp


@pytest.mark.parametrize("stage", ["hsa", "stack"])
def test_settings_reach_the_layers(stage):
    cfg.gnn.stage_type, cfg.gnn.layer_type, cfg.gnn.dim_inner = stage, "hsaconv", 12
    cfg.gnn.head, cfg.hsa.readout, cfg.gnn.layers_mp = "hsa_graph", "root", 3
    cfg.hsa.heads, cfg.hsa.energy, cfg.hsa.tie, cfg.hsa.qk_norm = 3, "l2", "key", True
    cfg.hsa.position_channels, cfg.hsa.attention_dropout, cfg.hsa.backend = 0, 0.25, "block"
    model = create_model(to_device=False, dim_in=2, dim_out=3)
    convs = [module for module in model.modules() if isinstance(module, HSAConv)]
    assert len(convs) == 3
    for conv in convs:
        assert (conv.heads, conv.energy, conv.tie, conv.dropout) == (3, "l2", "key", 0.25)
        assert (conv.backend, conv.position, conv.norm_q is None) == ("block", None, False)
    assert any(isinstance(module, HSAEncoder) for module in model.modules()) == (stage == "hsa")
    tree = Batch.from_data_list([gym_tree(k) for k in range(4)])
    answer, label = model(tree)
    assert answer.shape == (4, 3)
    assert label.tolist() == [0, 1, 0, 1]


def gym_tree(k: int) -> SignalTree:
    cfg.dataset.task, cfg.dataset.split = "graph", [0.4, 0.3, 0.3]
    register.dataset_dict["one"] = lambda root: [graph(k + 2 * i) for i in range(3)]
    return gym.load_trees("HSA", "one", ".")[0]


def test_sets_are_drawn_by_seed_and_share():
    register.dataset_dict["many"] = lambda root: [graph(k) for k in range(20)]
    cfg.dataset.task, cfg.dataset.split = "graph", [0.5, 0.25, 0.25]

    def sets() -> list[list[int]]:
        data = gym.load_trees("HSA", "many", ".")._data
        return [data[f"{part}_graph_index"].tolist() for part in ("train", "val", "test")]

    first = sets()
    assert list(map(len, first)) == [10, 5, 5]
    assert sorted(k for rows in first for k in rows) == list(range(20))
    assert sets() == first
    cfg.seed = 1
    assert sets() != first
    cfg.dataset.shuffle_split = False
    assert sets()[0] == list(range(10))


def test_masks_of_nodes_are_drawn_where_one_is_missing():
    register.dataset_dict["one"] = lambda root: [graph(0)]
    cfg.dataset.split = [0.5, 0.25, 0.25]
    tree = gym.load_trees("HSA", "one", ".")[0]
    masks = torch.stack([tree[f"{part}_mask"] for part in ("train", "val", "test")])
    assert masks.sum(0).tolist() == [1] * 6
    assert masks.sum(1).min() >= 1


def test_hierarchies_of_attributes_and_ready_ones():
    one = graph(0)
    one.side = torch.tensor([0, 0, 0, 1, 1, 1])
    register.dataset_dict["one"] = lambda root: [one]
    cfg.hsa.hierarchy, cfg.hsa.attributes = "attributes", ["side"]
    cfg.dataset.split = [0.5, 0.25, 0.25]
    tree = gym.load_trees("HSA", "one", ".")[0]
    assert tree.tree_index[0].bincount().tolist()[6:] == [3, 3, 2]
    register.dataset_dict["ready"] = lambda root: [tree]
    cfg.hsa.hierarchy = "none"
    assert torch.equal(gym.load_trees("HSA", "ready", ".")[0].tree_index, tree.tree_index)
    with pytest.raises(UnsupportedError, match="takes signal trees, not a Data"):
        gym.load_trees("HSA", "one", ".")


def test_other_formats_are_left_to_graphgym():
    assert gym.load_trees("PyG", "Karate", ".") is None


@pytest.mark.parametrize(
    ("setting", "value", "error", "message"),
    [
        ("hsa.hierarchy", "trees", UnsupportedError, "hsa.hierarchy='trees' is unknown"),
        ("dataset.task", "edge", UnsupportedError, "dataset.task='edge'"),
        ("dataset.split", [0.8, 0.2], ShapeError, "three positive shares"),
        ("dataset.split", [0.9, 0.2, 0.2], ShapeError, "three positive shares"),
        ("dataset.split", [0.98, 0.01, 0.01], ShapeError, "makes sets of"),
    ],
)
def test_what_does_not_fit_is_refused(setting, value, error, message):
    register.dataset_dict["many"] = lambda root: [graph(k) for k in range(4)]
    cfg.dataset.task = "graph"
    cfg.merge_from_list([setting, value])
    with pytest.raises(error, match=message):
        gym.load_trees("HSA", "many", ".")


def test_widths_readouts_and_graphs_that_do_not_fit():
    cfg.gnn.stage_type, cfg.gnn.layer_type, cfg.gnn.head = "stack", "hsaconv", "hsa_graph"
    cfg.gnn.dim_inner = 10
    with pytest.raises(ShapeError, match=r"dim_inner=10 is not a multiple of hsa\.heads=4"):
        create_model(to_device=False, dim_in=2, dim_out=2)
    cfg.gnn.dim_inner, cfg.hsa.readout = 8, "top"
    with pytest.raises(ShapeError, match="'top'"):
        create_model(to_device=False, dim_in=2, dim_out=2)
    cfg.hsa.readout = "mean"
    model = create_model(to_device=False, dim_in=2, dim_out=2)
    with pytest.raises(UnsupportedError, match=r"set dataset\.format: HSA"):
        model(Batch.from_data_list([graph(0)]))


def other(**more: object) -> Data:
    """A graph with a loop, a double edge, a label that is not 0, and what is added."""
    one = graph(0, 1)
    one.edge_index = torch.cat([one.edge_index, torch.tensor([[0, 0, 2], [1, 0, 2]])], dim=1)
    one.y = torch.tensor([7])
    for key, value in more.items():
        one[key] = value
    return one


def test_graphs_as_they_come(tmp_path):
    """Loops and parallel edges stay, an attribute of nodes may be called as one of edges, values
    that group nodes need not count from 0."""
    edges = other().edge_index.size(1)
    floor = torch.tensor([7, -3, 7, 7, -3, 9])
    graphs = [other(floor=floor, edge_floor=torch.arange(edges)) for _ in range(10)]
    use(graphs, tmp_path, **{"hsa.hierarchy": "attributes", "hsa.attributes": ["floor"]})
    trees = gym.load_trees("HSA", "here", str(tmp_path))
    assert len(trees) == 10
    for tree in trees:
        assert torch.equal(tree.edge_index, other().edge_index)
        assert torch.equal(tree.floor, floor)
        assert torch.equal(tree.edge_floor, torch.arange(edges))
        assert tree.y.tolist() == [7]
        parent = dict(zip(tree.tree_index[1].tolist(), tree.tree_index[0].tolist()))
        assert parent[0] == parent[2] == parent[3] != parent[1] == parent[4]


@pytest.mark.parametrize(
    ("more", "options", "error", "says"),
    [
        ({"floor": torch.zeros(6)}, {}, MixedKeysError, "'floor'"),
        (
            {"x": torch.zeros(6, 5)},
            {},
            ShapeError,
            r"'x' has the shape \[6, 5\] in graph 4 of the dataset 'here', but \[6, 2\] in graph 0",
        ),
        (
            {},
            {"hsa.hierarchy": "attributes", "hsa.attributes": ["floor"]},
            BuilderError,
            "graph 0 of the dataset 'here': 'floor' is missing",
        ),
    ],
    ids=["mixed", "wide", "missing"],
)
def test_graphs_that_do_not_fit_together(tmp_path, more, options, error, says):
    use([*(other() for _ in range(4)), other(**more), other()], tmp_path, **options)
    with pytest.raises(error, match=says):
        gym.load_trees("HSA", "here", str(tmp_path))
