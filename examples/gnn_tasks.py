"""Graphs and labels to compare on: generated ones, KarateClub, and PyG's datasets by name."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.datasets import KarateClub, Planetoid, TUDataset
from torch_geometric.transforms import BaseTransform
from torch_geometric.utils import degree, to_undirected

from hsa_geo.data import SignalTree
from hsa_geo.errors import DownloadError
from hsa_geo.transforms import CommunityHierarchy, GivenHierarchy

#: Resolutions of Louvain's method: communities, and larger ones of these.
RESOLUTIONS = (4.0, 1.0)
#: Hierarchies, by name: found from edges alone, no label or feature is looked at.
HIERARCHIES = ("communities", "random")
PLANETOID = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed"}


@dataclass
class Task:
    """Graphs to train and to test on.

    Attributes:
        train, test: Graphs; node labels ``y [N]`` count where ``mask [N]`` says so.
        classes: Number of classes.
        level: ``"node"``, or ``"graph"`` with ``y [1]``.
    """

    train: list[Data]
    test: list[Data]
    classes: int
    level: str = "node"

    def changed(self, transform: Callable[[Any], SignalTree]) -> Task:
        """The same with transformed graphs; where it is one graph, both parts share its tree."""
        if len(self.train) == len(self.test) == 1:
            tree = transform(self.train[0])
            other = copy.copy(tree)
            other.mask = self.test[0].mask
            return Task([tree], [other], self.classes, self.level)
        train, test = ([transform(data) for data in part] for part in (self.train, self.test))
        return Task(train, test, self.classes, self.level)


def with_hierarchies(task: Task, seed: int) -> dict[str, Task]:
    """The task under each of :data:`HIERARCHIES`.

    Args:
        task: Its graphs have no hierarchy yet.
        seed: Seed of the random one.
    """
    rng = np.random.default_rng([seed, 1])
    found = task.changed(CommunityHierarchy(RESOLUTIONS))
    return {"communities": found, "random": found.changed(lambda tree: shuffled(tree, rng))}


def shuffled(tree: SignalTree, rng: np.random.Generator) -> SignalTree:
    """The same graph under a hierarchy of the same shape, in which chance places the nodes.

    Example:
        >>> tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1])
        >>> shuffled(tree, np.random.default_rng(0)).tree_index.shape
        torch.Size([2, 6])
    """
    parent = np.full(tree.num_tree_nodes, -1)
    parent[tree.tree_index[1].numpy()] = tree.tree_index[0].numpy()
    parent[: tree.num_nodes] = rng.permutation(parent[: tree.num_nodes])
    graph = Data(**{key: tree[key] for key in tree.to_dict() if not key.startswith("tree_")})
    return GivenHierarchy(parent=parent)(graph)


def ring(length: int, classes: int, rng: np.random.Generator) -> Data:
    """A ring in which one node must say what the node opposite to it holds.

    Ring transfer (Bodnar et al., 2021, `"Weisfeiler and Lehman Go Cellular"
    <https://arxiv.org/abs/2106.12575>`_) with the features of Di Giovanni et al. (2023): the source
    has its label as a one-hot vector, the target zeros, all others ones.  Chance numbers the
    nodes, so that the hierarchy lies differently in every ring.

    Example:
        >>> ring(10, 5, np.random.default_rng(0))
        Data(x=[10, 5], edge_index=[2, 20], y=[10], mask=[10])
    """
    node = torch.from_numpy(rng.permutation(length))
    label = int(rng.integers(classes))
    source, target = node[length // 2], node[0]
    x = torch.ones(length, classes)
    x[source] = torch.eye(classes)[label]
    x[target] = 0.0
    mask = torch.arange(length) == target
    edge = to_undirected(torch.stack([node, node.roll(-1)]), num_nodes=length)
    return Data(x=x, edge_index=edge, y=torch.full((length,), label), mask=mask)


def villages(sizes: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, torch.Tensor]:
    """Communities in a ring, each joined to the next by an edge, with nodes in random order.

    Args:
        sizes: ``[K]``, numbers of nodes; a node chooses three others of its community.
        rng: Source of chance.

    Returns:
        Community of every node ``[N]``, and edges ``[2, E]`` in both directions.
    """
    community = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    members = np.argsort(community, kind="stable")
    start = np.cumsum(sizes) - sizes
    node = np.repeat(np.arange(len(community)), 3)
    own = community[node]
    friend = members[start[own] + rng.integers(0, sizes[own])]
    door = members[start]
    pairs = np.stack([np.append(node, door), np.append(friend, np.roll(door, -1))])
    edge = torch.from_numpy(pairs[:, pairs[0] != pairs[1]])
    return community, to_undirected(edge, num_nodes=len(community))


def paint(
    community: np.ndarray, colours: int, share: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Colours of nodes ``[N]``, and of most nodes of every community ``[K]``.

    Args:
        community: ``[N]``.
        colours: Number of colours.
        share: Probability that a node has its community's favourite, and not another colour.
        rng: Source of chance.
    """
    favourite = rng.integers(0, colours, community.max() + 1)[community]
    other = (favourite + rng.integers(1, colours, len(community))) % colours
    colour = np.where(rng.random(len(community)) < share, favourite, other)
    count = np.zeros((community.max() + 1, colours))
    np.add.at(count, (community, colour), 1)
    return colour, count.argmax(1)


def relay(k: int, colours: int, rng: np.random.Generator, *, each: bool = False) -> Data:
    """Every community asks what colour most nodes of a far community have.

    K communities of 8 to 16 nodes stand in a ring.  A node holds a colour (its community's
    favourite with probability 0.6), the name of its community, and the name of the one it asks for,
    from three steps away to the opposite; names are drawn for every graph.  Its label is the most
    frequent colour there.

    Args:
        k: Number of communities.
        colours: Number of colours.
        rng: Source of chance.
        each: Whether every node asks for a community of its own choice, rather than all nodes of a
            community for the same. (default: :obj:`False`)

    Example:
        >>> relay(12, 4, np.random.default_rng(0)).x.shape[1]
        28
    """
    community, edge = villages(rng.integers(8, 17, k), rng)
    colour, most = paint(community, colours, 0.6, rng)
    name, step = rng.permutation(k), rng.integers(3, k - 2, len(community) if each else k)
    asked = (community + (step if each else step[community])) % k
    x = [np.eye(colours)[colour], np.eye(k)[name[community]], np.eye(k)[name[asked]]]
    return Data(
        x=torch.from_numpy(np.concatenate(x, axis=1)).float(),
        edge_index=edge,
        y=torch.from_numpy(most[asked]),
        mask=torch.ones(len(community), dtype=torch.bool),
    )


def districts(k: int, rng: np.random.Generator) -> Data:
    """Which of two colours has the majority in more communities, whatever their sizes?

    K communities of 4 to 24 nodes; nodes hold their colour alone.

    Example:
        >>> districts(9, np.random.default_rng(0)).y.shape
        torch.Size([1])
    """
    community, edge = villages(rng.integers(4, 25, k), rng)
    colour, most = paint(community, 2, 0.7, rng)
    x = torch.eye(2)[torch.from_numpy(colour)]
    return Data(x=x, edge_index=edge, y=torch.tensor([int(2 * most.sum() > k)]))


def karate(rng: np.random.Generator) -> Task:
    """Zachary's karate club: 34 nodes, four classes, half of each to train on."""
    data = KarateClub()[0]
    data.train_mask = torch.zeros(data.num_nodes, dtype=torch.bool)
    for label in range(4):
        nodes = rng.permutation((data.y == label).nonzero()[:, 0].numpy())
        data.train_mask[nodes[: len(nodes) // 2]] = True
    data.test_mask = ~data.train_mask
    return _masked(data, 4)


def _masked(data: Data, classes: int) -> Task:
    """One graph whose masks tell nodes to train on from nodes to test on."""
    graph = Data(x=data.x, edge_index=data.edge_index, y=data.y, mask=data.train_mask)
    other = copy.copy(graph)
    other.mask = data.test_mask
    return Task([graph], [other], classes)


def _generated(
    make: Callable[[np.random.Generator], Data], sizes: tuple[int, int], **what: Any
) -> Callable[[np.random.Generator], Task]:
    def task(rng: np.random.Generator) -> Task:
        train, test = ([make(rng) for _ in range(size)] for size in sizes)
        return Task(train, test, **what)

    return task


#: Tasks by name, from a source of chance.
TASKS: dict[str, Callable[[np.random.Generator], Task]] = {
    "ring": _generated(lambda rng: ring(32, 10, rng), (400, 200), classes=10),
    "relay": _generated(lambda rng: relay(12, 4, rng), (300, 60), classes=4),
    "relay_each": _generated(lambda rng: relay(12, 4, rng, each=True), (300, 60), classes=4),
    "districts": _generated(lambda rng: districts(9, rng), (240, 200), classes=2, level="graph"),
    "karate": karate,
}


def named(name: str, root: Path, rng: np.random.Generator) -> Task:
    """A task by name: one of :data:`TASKS`, of Planetoid (``"Cora"``), or of the TU collection.

    Args:
        name: The name; ``"MUTAG"``, ``"PROTEINS"`` and so on are fetched by PyG.
        root: Folder for what is fetched.
        rng: Source of chance; of TU's graphs it draws a fifth to test on.

    Raises:
        DownloadError: If the dataset is not there and cannot be fetched.
    """
    if name in TASKS:
        return TASKS[name](rng)
    if name.lower() in PLANETOID:
        dataset = _fetched(Planetoid, root, PLANETOID[name.lower()])
        return _masked(dataset[0], dataset.num_classes)
    dataset = _fetched(TUDataset, root, name)
    graphs = [graph if "x" in graph else AddDegree()(graph) for graph in dataset]
    order = rng.permutation(len(graphs))
    cut = len(graphs) // 5
    test, train = ([graphs[i] for i in part] for part in (order[:cut], order[cut:]))
    return Task(train, test, dataset.num_classes, "graph")


def _fetched(kind: Any, root: Path, name: str) -> InMemoryDataset:
    try:
        return kind(str(root), name)
    except Exception as error:  # of the network, the archive or the name, in many types
        raise DownloadError(
            f"the dataset {name!r} is not in {str(root)!r} and could not be fetched "
            f"({type(error).__name__}: {error}): check the name and the network, or choose one of "
            f"{sorted(TASKS)}, which need none."
        ) from error


class AddDegree(BaseTransform):
    """Give nodes without features their degree, as one of 32 one-hot numbers.

    Example:
        >>> AddDegree()(Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2)).x.shape
        torch.Size([2, 32])
    """

    def forward(self, data: Data) -> Data:
        """The graph with ``x [N, 32]``."""
        count = degree(data.edge_index[1], data.num_nodes, dtype=torch.long)
        data.x = torch.eye(32)[count.clamp(max=31)]
        return data
