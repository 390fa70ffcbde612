"""The deletion test: take leaves away and look at what the model says of the rest.

The leaves are not blanked out but taken out of the tree (:meth:`SignalTree.restrict
<hsa_geo.data.SignalTree.restrict>`), so the model is asked about a smaller tree of the kind that it
knows.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from hsa_geo.data.signal_tree import SignalTree
from hsa_geo.data.store import Kind, kind_of
from hsa_geo.errors import ShapeError
from hsa_geo.explain.scores import one_tree
from hsa_geo.explain.watch import Run, answer, evaluating

__all__ = ["deletion_curve"]


def deletion_curve(
    model: nn.Module,
    tree: SignalTree,
    leaf: Tensor,
    target: int,
    *,
    counts: Sequence[int] | None = None,
    run: Run | None = None,
) -> Tensor:
    """An output of a model for a tree without its leaves of largest score.

    An explanation is good for something if the output falls faster than without leaves drawn at
    random (``leaf=torch.rand(N)``).

    Args:
        model: As in :func:`attribute_leaves`.
        tree: One tree.
        leaf: Scores ``[N]`` of the leaves; the largest go first, of equal ones the first.
        target: Number of the output.
        counts: How many leaves to take away, fewer than N each time.
            (default: 0, 1, 2, 4, 8, ...)
        run: How to call a model of one's own. (default: ``model(tree)``)

    Returns:
        The output for each of ``counts``.

    Raises:
        ShapeError: If an argument does not fit.
        UnsupportedError: For a batch.

    Example:
        >>> from hsa_geo.explain import attribute_leaves
        >>> from hsa_geo.nn import LinearFeatures, SignalClassifier
        >>> tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1], x=torch.randn(4, 8))
        >>> model = SignalClassifier({"x": LinearFeatures(8, 16)}, 3, channels=16)
        >>> scores = attribute_leaves(model, tree, target=1)
        >>> deletion_curve(model, tree, scores.leaf, 1, counts=[0, 1, 2, 3]).shape
        torch.Size([4])
    """
    n = one_tree(tree).num_leaves
    if not isinstance(leaf, Tensor) or leaf.shape != (n,):
        shape = list(leaf.shape) if isinstance(leaf, Tensor) else type(leaf).__name__
        raise ShapeError(f"leaf is {shape}: give a score for each of the N={n} leaves.")
    if counts is None:
        counts = [0, *(2**k for k in range(n.bit_length()) if 2**k < n)]
    bad = [count for count in counts if not isinstance(count, int) or not 0 <= count < n]
    if not len(counts):
        raise ShapeError("counts=[]: give numbers of leaves to take away, such as [0, 1, 2].")
    if bad:
        raise ShapeError(f"counts holds {bad[0]!r}: give whole numbers 0..{n - 1}, of {n} leaves.")
    tree = _without_nodes(tree)
    order = torch.argsort(leaf, descending=True, stable=True)
    values = []
    with torch.no_grad(), evaluating(model):
        for count in counts:
            rest = tree if count == 0 else tree.restrict(order[count:])
            out = answer(model, rest, None, run).reshape(-1)
            if type(target) is not int or not 0 <= target < len(out):
                last = len(out) - 1
                raise ShapeError(f"target={target!r}: give the number of an output, 0..{last}.")
            values.append(out[target])
    return torch.stack(values)


def _without_nodes(tree: SignalTree) -> SignalTree:
    """The tree without ids of nodes and what is beside them: some would be of nodes taken away."""
    out = copy.copy(tree)
    for key, value in tree.to_dict().items():
        if kind_of(key, tree._store._mapping, value) in (Kind.NODE_IDS, Kind.NODE_ROWS):
            del out[key]
    return out
