"""Transforms within PyG: datasets, loaders with workers, sampling, Sequential, Lightning."""

from __future__ import annotations

import pytest
import torch
import torch_geometric.transforms as T
import torch_geometric.typing
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.loader import (
    ClusterData,
    ClusterLoader,
    DataLoader,
    NeighborLoader,
    NodeLoader,
)
from torch_geometric.nn import GCNConv, Sequential, global_mean_pool
from torch_geometric.sampler import BaseSampler, SamplerOutput
from torch_geometric.utils import to_undirected
from transform_cases import assert_same_data, graph_of, two_triangles

from hsa_geo.data import SignalTree
from hsa_geo.errors import UnsupportedError
from hsa_geo.nn import HSAConv
from hsa_geo.transforms import (
    AddTreePE,
    CommunityHierarchy,
    ContractChains,
    DropLeaves,
    MaskLeaves,
    RestrictHierarchy,
)


def graph_list() -> list[Data]:
    return [two_triangles(), graph_of(1, []), graph_of(4, []), graph_of(9, [(0, 8), (8, 7)])]


class Graphs(InMemoryDataset):
    """Four graphs, processed once."""

    processed = 0

    @property
    def processed_file_names(self):
        return ["data.pt"]

    def process(self):
        type(self).processed += 1
        self.save([self.pre_transform(data) for data in graph_list()], self.processed_paths[0])

    def __init__(self, root, **kwargs):
        super().__init__(root, **kwargs)
        self.load(self.processed_paths[0], data_cls=SignalTree)


PRE = T.Compose([CommunityHierarchy(add_links=True), AddTreePE("random_walk", 3)])


def test_a_dataset_keeps_the_trees_on_disk(tmp_path):
    Graphs.processed = 0
    first = Graphs(tmp_path, pre_transform=PRE)
    again = Graphs(tmp_path, pre_transform=PRE, transform=T.Compose([ContractChains()]))
    assert Graphs.processed == 1
    for data, a, b in zip(graph_list(), first, again):
        expected = PRE(data)
        assert type(a) is SignalTree
        assert a.validate()
        assert_same_data(a, expected)
        assert_same_data(b, ContractChains()(expected))


def test_workers():
    trees = [PRE(data) for data in graph_list()]
    dataset = Listed(graph_list(), PRE)
    loader = DataLoader(dataset, batch_size=2, num_workers=2)
    back = [tree for batch in loader for tree in batch.to_data_list()]
    assert len(back) == 4
    for tree, other in zip(back, trees):
        assert_same_data(tree, other)


class Listed(torch.utils.data.Dataset):
    """Graphs transformed on access."""

    def __init__(self, graphs, transform):
        self.graphs, self.transform = graphs, transform

    def __len__(self):
        return len(self.graphs)

    def __getitem__(self, index):
        return self.transform(self.graphs[index])


def test_random_transforms_differ_between_epochs_and_repeat_by_seed():
    transform = T.Compose([CommunityHierarchy(), DropLeaves(0.3), MaskLeaves(0.3)])
    loader = DataLoader(Listed([two_triangles()] * 8, transform), batch_size=8, num_workers=2)
    sums = []
    for seed in (0, 1, 0):
        torch.manual_seed(seed)
        sums.append(float(next(iter(loader)).x.double().sum()))
    assert sums[0] == sums[2] != sums[1]


def model(channels: int = 3) -> Sequential:
    torch.manual_seed(0)
    return Sequential(
        "x, edge_index, tree, batch",
        [
            (GCNConv(channels, 8), "x, edge_index -> x"),
            torch.nn.ReLU(inplace=True),
            (HSAConv(8, 4, heads=2), "x, tree -> x"),
            (GCNConv(8, 8), "x, edge_index -> x"),
            (global_mean_pool, "x, batch -> x"),
            (torch.nn.Linear(8, 2), "x -> x"),
        ],
    )


def test_sequential_with_a_graph_layer_learns():
    trees = [PRE(data) for data in graph_list()]
    batch = next(iter(DataLoader(trees, batch_size=4)))
    net = model().double()
    batch.x = batch.x.double()
    single = torch.cat(
        [
            net(t.x.double(), t.edge_index, t, torch.zeros(t.num_nodes, dtype=torch.int64))
            for t in trees
        ]
    )
    torch.testing.assert_close(net(batch.x, batch.edge_index, batch, batch.batch), single)
    optimizer = torch.optim.Adam(net.parameters(), 0.02)
    label = torch.tensor([0, 1, 0, 1])
    for _ in range(60):
        optimizer.zero_grad()
        out = net(batch.x, batch.edge_index, batch, batch.batch)
        loss = torch.nn.functional.cross_entropy(out, label)
        loss.backward()
        optimizer.step()
    assert loss < 0.3
    assert all(p.grad is not None for p in net.parameters())


def large(n: int = 400) -> Data:
    generator = torch.Generator().manual_seed(0)
    ring = torch.stack([torch.arange(n), (torch.arange(n) + 1) % n])
    far = torch.randint(0, n, (2, n // 4), generator=generator)
    data = Data(
        x=torch.rand(n, 3, generator=generator),
        y=torch.arange(n) % 3,
        edge_index=to_undirected(torch.cat([ring, far], dim=1)),
    )
    return T.RandomNodeSplit(num_val=40, num_test=40)(data)


def test_a_split_goes_on_the_tree_itself():
    torch.manual_seed(0)
    tree = T.RandomNodeSplit(num_val=1, num_test=2)(CommunityHierarchy()(two_triangles()))
    assert tree.validate()
    assert int(tree.test_mask.sum()) == 2


class StripesData(ClusterData):
    """ClusterData, with the nodes in stripes where neither pyg_lib nor torch_sparse has METIS."""

    def _metis(self, edge_index, num_nodes):
        return torch.arange(num_nodes) % 20 // 5


def assert_is_part(batch: SignalTree, tree: SignalTree) -> None:
    """The hierarchy of a sample is what restrict makes of the whole one."""
    part = tree.restrict(batch.n_id, keep_order=True)
    for key in part.to_dict():
        if key.startswith("tree_"):
            assert torch.equal(part[key], batch[key]), key


def test_cluster_loader():
    data = large()
    data.n_id = torch.arange(data.num_nodes)
    tree = CommunityHierarchy([8.0, 1.0], add_links=True)(data)
    transform = RestrictHierarchy(tree)
    seen = []
    for part in ClusterLoader(StripesData(data, 4, log=False), batch_size=2, shuffle=True):
        batch = transform(part)
        assert batch.validate()
        assert torch.equal(batch.x, data.x[batch.n_id])
        assert batch.train_mask.shape == (batch.num_leaves,)
        assert part.edge_index is batch.edge_index
        assert_is_part(batch, tree)
        seen += batch.n_id.tolist()
    assert sorted(seen) == list(range(400))


class HopSampler(BaseSampler):
    """Neighbours of all hops, in Python: what NodeLoader needs, without pyg_lib or torch_sparse."""

    def __init__(self, data: Data, hops: int, disjoint: bool = False):
        self.edge_index, self.hops, self.disjoint = data.edge_index, hops, disjoint

    def sample_from_nodes(self, index, **kwargs):
        nodes, batch, sizes, ends = [], [], [len(index.node)], []
        seeds = index.node.tolist()
        for number, group in enumerate([[seed] for seed in seeds] if self.disjoint else [seeds]):
            found, front = list(group), list(group)
            for _ in range(self.hops):
                inside = torch.isin(self.edge_index[1], torch.tensor(front))
                front = sorted({*self.edge_index[0, inside].tolist()} - {*found})
                sizes.append(len(front))
                found += front
            nodes += found
            batch += [number] * len(found)
        node = torch.tensor(nodes)
        local = torch.full((int(self.edge_index.max()) + 1,), -1)
        local[node] = torch.arange(len(node))
        ends = local[self.edge_index]
        edge = (ends >= 0).all(0).nonzero().flatten()
        row, col = ends[:, edge]
        batch = torch.tensor(batch) if self.disjoint else None
        metadata = (index.input_id, index.time)
        return SamplerOutput(node, row, col, edge, batch, sizes, metadata=metadata)

    def sample_from_edges(self, index, **kwargs):
        raise NotImplementedError


def node_loader(data: Data, **kwargs) -> NodeLoader:
    return NodeLoader(data, HopSampler(data, 2), **kwargs)


def neighbor_loader(data: Data, **kwargs) -> NodeLoader:
    return NeighborLoader(data, [5, 5], **kwargs)


can_sample = pytest.mark.skipif(
    not (torch_geometric.typing.WITH_PYG_LIB or torch_geometric.typing.WITH_TORCH_SPARSE),
    reason="NeighborLoader needs pyg_lib or torch_sparse, and neither is installed",
)


@pytest.mark.parametrize("make", [node_loader, pytest.param(neighbor_loader, marks=can_sample)])
@pytest.mark.parametrize("workers", [0, 2])
def test_neighbor_loader(make, workers):
    data = large()
    tree = CommunityHierarchy([8.0, 1.0], add_links=True)(data)
    loader = make(
        data,
        batch_size=32,
        input_nodes=data.train_mask,
        transform=RestrictHierarchy(tree),
        num_workers=workers,
    )
    net, seeds = model().double(), []
    for batch in loader:
        assert type(batch) is SignalTree
        assert batch.validate()
        assert torch.equal(batch.x, data.x[batch.n_id])
        assert torch.equal(batch.n_id[: batch.batch_size], batch.input_id)
        assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
        assert_is_part(batch, tree)
        zeros = torch.zeros(batch.num_leaves, dtype=torch.int64)
        assert net(batch.x.double(), batch.edge_index, batch, zeros).isfinite().all()
        seeds += batch.input_id.tolist()
    assert sorted(seeds) == data.train_mask.nonzero().flatten().tolist()


def test_disjoint_samples_are_refused():
    data = large()
    transform = RestrictHierarchy(CommunityHierarchy()(data))
    loader = NodeLoader(data, HopSampler(data, 1, disjoint=True), batch_size=8, transform=transform)
    with pytest.raises(UnsupportedError, match="disjoint=False"):
        next(iter(loader))


@can_sample
def test_link_neighbor_loader():
    from torch_geometric.loader import LinkNeighborLoader

    data = large()
    transform = RestrictHierarchy(CommunityHierarchy(4.0)(data))
    loader = LinkNeighborLoader(
        data, [3], batch_size=64, edge_label_index=data.edge_index[:, :90], transform=transform
    )
    for batch in loader:
        assert batch.validate()
        ends = batch.n_id[batch.edge_label_index]
        assert torch.equal(ends, data.edge_index[:, batch.input_id])


def test_graph_saint():
    if not torch_geometric.typing.WITH_TORCH_SPARSE:
        pytest.skip("GraphSAINT needs torch_sparse, which is not installed")
    from torch_geometric.loader import GraphSAINTNodeSampler

    data = large()
    data.n_id = torch.arange(data.num_nodes)
    transform = RestrictHierarchy(CommunityHierarchy()(data))
    for part in GraphSAINTNodeSampler(data, batch_size=60, num_steps=2):
        batch = transform(part)
        assert batch.validate()
        assert torch.equal(batch.x, data.x[batch.n_id])


def test_lightning_dataset():
    lightning = pytest.importorskip(
        "pytorch_lightning", reason="LightningDataset needs pytorch_lightning"
    )
    from torch_geometric.data.lightning import LightningDataset

    trees = [PRE(data) for data in graph_list()]
    for tree, label in zip(trees, (0, 1, 0, 1)):
        tree.label = torch.tensor([label])

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = model()

        def training_step(self, batch, _):
            out = self.net(batch.x, batch.edge_index, batch, batch.batch)
            return torch.nn.functional.cross_entropy(out, batch.label)

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), 0.02)

    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    data = LightningDataset(trees, batch_size=2, num_workers=0)
    trainer.fit(Module(), data)
    assert trainer.global_step == 4
