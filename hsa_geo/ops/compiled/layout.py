"""What the compiled kernels are given: rows of heads, sibling groups, scores, gradients.

All heads and rows lie where the caller has them: a tensor ``[n, H, D]`` is a flat array with a
stride for rows and one for heads, so nothing is gathered or copied.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Adjoints", "Array", "Groups", "Kept", "Rows", "Scores"]

Array = Any  # a numpy array; numba compiles for its dtype


class Rows(NamedTuple):
    """A tensor ``[n, H, dim]`` as a flat array: element (i, h, d) is ``data[i*row + h*head + d]``.

    Attributes:
        data: Flat array.
        row: Stride of rows.
        head: Stride of heads.
        dim: Size of the last dimension.
    """

    data: Array
    row: int
    head: int
    dim: int


class Groups(NamedTuple):
    """Sibling groups: group g has the members ``ptr[g]:ptr[g+1]``.

    Attributes:
        ptr: ``[G + 1]``.
        row: Row of each member in the tensors it attends with.
        top: Tree node whose position counts among the siblings, of each member.
        own: Tree node whose position counts in a leaf's own score, of each member.
        pair: ``[G]``, public place of each group's first ordered pair.
        parent: ``[G]``, kept slot of each group's parent.
    """

    ptr: Array
    row: Array
    top: Array
    own: Array
    pair: Array
    parent: Array


class Kept(NamedTuple):
    """The kept slots: R of them, the roots first, then group by group.

    Attributes:
        ptr: ``[G + 1]``, kept slots of each group.
        parent: ``[G]``, kept slot of each group's parent.
        leaf: ``[R]``, row of the leaf that the slot is, or -1.
        size: ``[R]``, number of leaves under the slot.
        own: ``[R]``, tree node whose position counts in a leaf's own score, or -1.
        trees: Number of roots.
    """

    ptr: Array
    parent: Array
    leaf: Array
    size: Array
    own: Array
    trees: int


class Scores(NamedTuple):
    """What the scores have beside q . k; empty arrays where there is nothing.

    Attributes:
        scale: Factor of q . k, a scalar of the dtype of the computation.
        term: ``[n, H]`` by row, added to every score of a key.
        pos: Position embeddings by tree node.
        bias: ``[P, H or 1]`` by public pair.
        bias_heads: 1 or H.
        mask: ``[P, H]`` by public pair, factor of the weights.
        own_mask: ``[N, H]`` by row, factor of the weight of a leaf on itself.
        heads: Number of heads H.
        diagonal: Whether members attend to themselves: groups of leaves.
        wide: Groups of more members than this are left to others.
    """

    scale: Any
    term: Array
    pos: Rows
    bias: Array
    bias_heads: int
    mask: Array
    own_mask: Array
    heads: int
    diagonal: bool
    wide: int


class Adjoints(NamedTuple):
    """What the backward pass of a group starts from and writes.

    Attributes:
        out: Gradient G of the weighted outputs, by row.
        weight: ``[*, H]``, factor w of each output: by parent in groups of leaves, else by row.
        lse: ``[*, H]``, gradient of the log-sum-exps: of their mean by parent, else by row.
        q: Gradient of the queries, by row; written.
        k: Gradient of the keys; written.
        v: Gradient of the values; written.
        mean_q: ``[R, H, D]`` flat, gradient of the mean query of each parent (groups of leaves).
        mean_k: Likewise of the keys.
        mean_v: Likewise of the values.
        mean_term: ``[R, H]`` flat, likewise of the terms.
        term: ``[n, H]``, gradient of the terms by row, or empty; written.
        pos: ``[M, H, P]``, gradient of the positions, or empty; added to.
        bias: ``[P, H]``, gradient of the bias, or empty; written.
    """

    out: Rows
    weight: Array
    lse: Array
    q: Rows
    k: Rows
    v: Rows
    mean_q: Array
    mean_k: Array
    mean_v: Array
    mean_term: Array
    term: Array
    pos: Array
    bias: Array
