"""``dataset.format: HSA``: graphs of PyG or of one's own, with a hierarchy and three sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.graphgym import register
from torch_geometric.graphgym.config import cfg
from torch_geometric.graphgym.loader import load_pyg

from hsa_geo.data import SignalTree
from hsa_geo.datasets.in_memory import TreesInMemory
from hsa_geo.errors import BuilderError, ShapeError, UnsupportedError
from hsa_geo.transforms import AttributeHierarchy, CommunityHierarchy

__all__ = ["load_trees"]

SETS = ("train", "val", "test")


def load_trees(format: str, name: str, dataset_dir: str) -> TreesInMemory | None:
    """Load a dataset for GraphGym, and give every graph the hierarchy that ``cfg.hsa`` names.

    ``dataset.name`` is a name given to GraphGym's ``register_dataset`` together with a function of
    a folder, or one that GraphGym knows (``Cora``, ``TU_PROTEINS``, ...).

    GraphGym wants three sets.  They are drawn, of graphs or of the nodes of each graph
    (``dataset.task``), by ``dataset.split`` (three shares) and ``cfg.seed``, or in order without
    ``dataset.shuffle_split``.  Graphs that have ``train_mask``, ``val_mask`` and ``test_mask`` keep
    them.

    Args:
        format: ``dataset.format``.
        name: ``dataset.name``.
        dataset_dir: ``dataset.dir``.

    Returns:
        The trees; :obj:`None` for another format, which GraphGym then loads itself.

    Raises:
        UnsupportedError: If ``hsa.hierarchy`` or ``dataset.task`` is unknown, or it is ``"none"``
            and the dataset holds plain graphs.
        BuilderError: If an attribute that ``hsa.attributes`` names is missing in a graph.
        MixedKeysError: If graphs do not have the same attributes.
        ShapeError: If an attribute has another width in some graph; if ``dataset.split`` does not
            hold three positive shares of at most 1 together, or leaves a set without a graph or
            node.

    Example:
        >>> from torch_geometric.datasets import KarateClub
        >>> from torch_geometric.graphgym import set_cfg
        >>> set_cfg(cfg)  # the defaults
        >>> register.dataset_dict["club"] = lambda folder: KarateClub()
        >>> club = load_trees("HSA", "club", ".")
        >>> club[0].depth, [int(club[0][f"{part}_mask"].sum()) for part in SETS]
        (3, [27, 4, 3])
        >>> load_trees("PyG", "Karate", ".") is None
        True
    """
    if format != "HSA":
        return None
    make = register.dataset_dict.get(name)
    graphs = make(dataset_dir) if make is not None else load_pyg(name, dataset_dir)
    attach = _hierarchy()
    trees = []
    for number, graph in enumerate(graphs):
        try:
            trees.append(attach(graph))
        except BuilderError as error:
            raise BuilderError(f"graph {number} of the dataset {name!r}: {error}") from error
    _check_sizes(trees, name)
    if cfg.dataset.task == "node":
        for tree in trees:
            _add_masks(tree)
    elif cfg.dataset.task != "graph":
        raise UnsupportedError(
            f"dataset.task={cfg.dataset.task!r} is none of 'graph' and 'node', which the format "
            "HSA loads: use one of them."
        )
    dataset = TreesInMemory()
    dataset.data, dataset.slices = TreesInMemory.collate(trees)
    if cfg.dataset.task == "graph":
        # GraphGym finds them among the attributes of the collated trees, and takes them away.
        for part, rows in zip(SETS, _drawn(len(trees), "graphs")):
            dataset._data[f"{part}_graph_index"] = rows
    return dataset


def _check_sizes(trees: list[SignalTree], name: str) -> None:
    """Refuse attributes that differ in more than their number of rows, which PyG cannot stack."""
    for key, value in trees[0].to_dict().items() if trees else ():
        if not isinstance(value, Tensor) or value.dim() < 2:
            continue
        rows = trees[0].__cat_dim__(key, value) % value.dim()
        shape = (*value.shape[:rows], *value.shape[rows + 1 :])
        for number, tree in enumerate(trees):
            other = tree.to_dict().get(key)
            if isinstance(other, Tensor) and (
                other.dim() != value.dim()
                or (*other.shape[:rows], *other.shape[rows + 1 :]) != shape
            ):
                raise ShapeError(
                    f"'{key}' has the shape {list(other.shape)} in graph {number} of the dataset "
                    f"{name!r}, but {list(value.shape)} in graph 0: give all graphs the same "
                    "features."
                )


def _hierarchy() -> Callable[[Any], SignalTree]:
    """What gives a graph its hierarchy, by ``cfg.hsa``."""
    options = cfg.hsa
    if options.hierarchy == "communities":
        return CommunityHierarchy(list(options.resolutions))
    if options.hierarchy == "attributes":
        return AttributeHierarchy(list(options.attributes))
    if options.hierarchy == "none":
        return _is_tree
    raise UnsupportedError(
        f"hsa.hierarchy={options.hierarchy!r} is unknown: use 'communities', 'attributes', or "
        "'none' for a dataset of signal trees."
    )


def _is_tree(graph: Any) -> SignalTree:
    if isinstance(graph, SignalTree):
        return graph
    raise UnsupportedError(
        f"hsa.hierarchy='none' takes signal trees, not a {type(graph).__name__}: use "
        "'communities' or 'attributes', or give the graphs a hierarchy in a pre_transform."
    )


def _add_masks(tree: SignalTree) -> None:
    masks = [f"{part}_mask" for part in SETS]
    if all(mask in tree for mask in masks):
        return
    for mask, rows in zip(masks, _drawn(tree.num_leaves, "nodes")):
        tree[mask] = torch.zeros(tree.num_leaves, dtype=torch.bool)
        tree[mask][rows] = True


def _drawn(count: int, what: str) -> list[Tensor]:
    """Three sets of rows by ``dataset.split``."""
    shares = list(cfg.dataset.split)
    if len(shares) != 3 or min(shares) <= 0 or sum(shares) > 1 + 1e-6:
        raise ShapeError(
            f"dataset.split={shares} must be three positive shares of at most 1 together, of "
            "training, validation and test, such as [0.8, 0.1, 0.1]."
        )
    order = torch.arange(count)
    if cfg.dataset.shuffle_split:
        order = torch.randperm(count, generator=torch.Generator().manual_seed(cfg.seed))
    first, second = round(shares[0] * count), round((shares[0] + shares[1]) * count)
    last = round(sum(shares) * count)
    sets = [order[:first], order[first:second], order[second:last]]
    if not all(len(rows) for rows in sets):
        sizes = [len(rows) for rows in sets]
        raise ShapeError(
            f"dataset.split={shares} of {count} {what} makes sets of {sizes}: give larger shares, "
            "or more data."
        )
    return [rows.sort().values for rows in sets]


register.register_loader("hsa", load_trees)
