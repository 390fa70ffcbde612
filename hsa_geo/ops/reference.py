r"""The oracle: Hierarchical Self-Attention node by node, as it is defined, slow and dense.

Every other implementation is judged by this one, so it is written to be read beside the
equations and shares no code with them: the tree becomes plain Python lists, two loops walk
its nodes (leaves to root for the energy, root to leaves for the attention), and no chain of
single children is contracted.  It computes in the dtype of its inputs (judge in float64) and
autograd goes through it any number of times.  Nothing here is recursive.

With :math:`s_{ij}` the score of leaves :math:`i, j`, :math:`|B|` the leaves under :math:`B`:

.. math::
    \psi(B \to C) &= -\operatorname{mean}_{i \in B, j \in C} s_{ij}, \qquad \phi(i) = -s_{ii} \\
    Z_B &= e^{-\phi(B)} + \sum_{C \in sib(B)} |C| \, e^{-\psi(B \to C)}, \qquad
    \phi(A) = -\sum_{B \in chd(A)} \tfrac{|B|}{|A|} \log Z_B \\
    w_B &= e^{-\phi(B)} / Z_B, \qquad a_{B \to C} = |C| \, e^{-\psi(B \to C)} / Z_B \\
    c_B &= c_A w_B, \qquad u_B = u_A + c_A \sum_C a_{B \to C} \bar v_C, \qquad o_i = u_i + c_i v_i

Arguments that the functions share:

- ``q``, ``k`` [N, H, D], ``v`` [N, H, Dv]: one row per leaf, in order of increasing node id.
- ``tree``: a :class:`~hsa_geo.data.SignalTree` or a ``Batch`` of them; only ``tree_index``
  and ``tree_level`` are read.
- ``pos`` [M, H or 1, P]: embeddings e(.) of the nodes' positions; a root's is taken as zero.
- ``bias`` [pairs, H or 1]: added to the score of each ordered pair of siblings; ``-inf`` masks
  the pair.  Pair order: groups by increasing parent id, then B, then C != B in sibling order.
- ``energy``: ``"dot"`` for :math:`s_{ij} = scale \, q_i \cdot k_j + e(A') \cdot e(B')`, ``"l2"``
  for :math:`-\tfrac{scale}{2} |q_i - k_j|^2 + e(A') \cdot e(B')`, where :math:`A', B'` are the
  siblings above i and j (the leaf itself, twice, if i = j).
- ``scale``: (default: :math:`1/\sqrt{D}`).
- ``tie``: ``"block"`` as above, or ``"key"``, where theta_ij is the same for all j under C but
  free for every leaf i (:mod:`hsa_geo.ops.reference_key`).
- ``reach_bias`` [Q, H or 1], for ``tie="key"`` alone: added to the score of every leaf and sibling
  that it reaches, by leaf, from the leaf upward.

Source: "Hierarchical Self-Attention", NeurIPS 2025, `arXiv 2509.15448
<https://arxiv.org/abs/2509.15448>`_.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

from hsa_geo.errors import UnsupportedError
from hsa_geo.ops.plain_tree import PlainTree
from hsa_geo.ops.reference_key import check_values, key_attention, key_energy, key_matrix, prepare

__all__ = [
    "flat_scores",
    "reference_attention",
    "reference_energy",
    "reference_matrix",
    "reference_phi",
]

Mask = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class _Walk:
    """The way up: phi [H] of every node and, per inner node, the weights of its children.

    ``weight[A]`` is [b, b, H]: w_B on the diagonal, a_{B->C} beside it; its rows sum to 1.
    """

    tree: PlainTree
    size: Tensor  # [M], |A|
    mean: Tensor  # [M, N], takes the plain mean over the leaves under each node
    phi: list[Tensor]
    weight: dict[int, Tensor]


def _walk_up(
    q: Tensor,
    k: Tensor,
    tree: Data,
    pos: Tensor | None,
    bias: Tensor | None,
    energy: str,
    scale: float | None,
) -> _Walk:
    """Energies from the leaves to the root, and the softmax of each group of siblings."""
    plain, e, bias, scale = prepare(q, k, tree, pos, bias, energy, scale)
    size = plain.under.sum(dim=1).to(q)
    mean = plain.under.to(q) / size.unsqueeze(1)
    q_mean, k_mean = (torch.einsum("an,nhd->ahd", mean, x) for x in (q, k))  # [M, H, D]
    q_norm, k_norm = (mean @ x.square().sum(dim=2) for x in (q, k))  # [M, H], mean |q|^2

    if energy == "dot":
        own = scale * (q * k).sum(dim=2)
    else:
        own = -scale / 2 * (q - k).square().sum(dim=2)
    own = own + e[plain.leaves].square().sum(dim=2)  # s_ii, [N, H]

    phi: dict[int, Tensor] = {leaf: -own[row] for row, leaf in enumerate(plain.leaves)}
    weight: dict[int, Tensor] = {}
    for node in reversed(plain.order):
        group = plain.children[node]
        if not group:
            continue
        score = scale * torch.einsum("bhd,chd->bch", q_mean[group], k_mean[group])
        if energy == "l2":
            norms = q_norm[group].unsqueeze(1) + k_norm[group].unsqueeze(0)
            score = score - scale / 2 * norms
        score = score + torch.einsum("bhp,chp->bch", e[group], e[group])
        score = score + plain.square(bias, node)  # -psi(B->C), [b, b, H]
        inside = -torch.stack([phi[child] for child in group])  # -phi(B), [b, H]
        diagonal = torch.eye(len(group), dtype=torch.bool, device=q.device).unsqueeze(2)
        outside = score + size[group].log().view(1, -1, 1)
        logit = torch.where(diagonal, inside.unsqueeze(1), outside)
        log_z = logit.logsumexp(dim=1)  # [b, H]
        weight[node] = (logit - log_z.unsqueeze(1)).exp()
        phi[node] = -(size[group].unsqueeze(1) / size[node] * log_z).sum(dim=0)
    return _Walk(plain, size, mean, [phi[node] for node in range(len(phi))], weight)


def _split(weight: Tensor) -> tuple[Tensor, Tensor]:
    """The two parts of a group's weights: w_B [b, H], and a_{B->C} [b, b, H] with zero diagonal."""
    diagonal = torch.eye(weight.size(0), dtype=torch.bool, device=weight.device).unsqueeze(2)
    return weight.diagonal(dim1=0, dim2=1).t(), weight.masked_fill(diagonal, 0.0)


def _is_key(tie: str) -> bool:
    if tie not in ("block", "key"):
        raise UnsupportedError(f"tie={tie!r} is unknown: use 'block' or 'key'.")
    return tie == "key"


def reference_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tree: Data,
    *,
    pos: Tensor | None = None,
    bias: Tensor | None = None,
    energy: str = "dot",
    scale: float | None = None,
    mask: Mask | None = None,
    tie: str = "block",
    reach_bias: Tensor | None = None,
) -> Tensor:
    """Output of HSA, by its definition.

    Args:
        q, k, v, tree, pos, bias, energy, scale, tie, reach_bias: See the module.
        mask: Dropout, as (per ordered sibling pair [pairs, H], per leaf [N, H]): factors on the
            blocks of Theta and on the leaves' own weights; a kept entry is 1 / (1 - p).  For
            ``tie="key"`` the first is [Q, H], one for each leaf and sibling that it reaches, by
            leaf, from the leaf upward.

    Returns:
        [N, H, Dv], in the dtype of the inputs.

    Raises:
        ShapeError: If a shape does not fit the tree.
        UnsupportedError: If ``energy`` is unknown.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> tree = SignalTree.from_parents([-1, 0, 0, 2, 2])
        >>> q = k = torch.zeros(3, 1, 2)
        >>> v = torch.tensor([0.0, 3.0, 6.0]).view(3, 1, 1)
        >>> out = reference_attention(q, k, v, tree)  # no preference: the mean, to all
        >>> out.flatten().round(decimals=3)
        tensor([3., 3., 3.])
    """
    if _is_key(tie):
        return key_attention(q, k, v, tree, pos, bias, energy, scale, mask, reach_bias)
    walk = _walk_up(q, k, tree, pos, bias, energy, scale)
    check_values(q, v)
    plain, heads = walk.tree, q.size(1)
    v_mean = torch.einsum("an,nhd->ahd", walk.mean, v)  # [M, H, Dv]
    c = {root: q.new_ones(heads) for root in plain.roots}
    u = {root: v.new_zeros(heads, v.size(2)) for root in plain.roots}
    for node in plain.order:
        group = plain.children[node]
        if group:
            stay, leave = _split(walk.weight[node])
            if mask is not None:
                leave = leave * plain.square(mask[0], node)
            fetched = torch.einsum("bch,chd->bhd", leave, v_mean[group])
            c.update(zip(group, c[node] * stay))
            u.update(zip(group, u[node] + c[node].unsqueeze(1) * fetched))
    leaf_mask = q.new_ones(q.shape[:2]) if mask is None else mask[1]
    out = [
        u[leaf] + (leaf_mask[row] * c[leaf]).unsqueeze(1) * v[row]
        for row, leaf in enumerate(plain.leaves)
    ]
    return torch.stack(out) if out else torch.zeros_like(v)


def reference_matrix(
    q: Tensor,
    k: Tensor,
    tree: Data,
    *,
    pos: Tensor | None = None,
    bias: Tensor | None = None,
    energy: str = "dot",
    scale: float | None = None,
    mask: Mask | None = None,
    tie: str = "block",
    reach_bias: Tensor | None = None,
) -> Tensor:
    """The matrix Theta that HSA implies: ``theta_ij = c_A a_{B->C} / |C|``, ``theta_ii = c_i``.

    Args:
        q, k, tree, pos, bias, energy, scale, mask, tie, reach_bias: As in
            :func:`reference_attention`.

    Returns:
        [H, N, N]; zero between leaves of different trees.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> tree = SignalTree.from_parents([-1, 0, 0])
        >>> reference_matrix(torch.zeros(2, 1, 4), torch.zeros(2, 1, 4), tree)
        tensor([[[0.5000, 0.5000],
                 [0.5000, 0.5000]]])
    """
    if _is_key(tie):
        return key_matrix(q, k, tree, pos, bias, energy, scale, mask, reach_bias)
    walk = _walk_up(q, k, tree, pos, bias, energy, scale)
    plain = walk.tree
    c = {root: q.new_ones(q.size(1)) for root in plain.roots}
    for node in plain.order:
        if plain.children[node]:
            c.update(zip(plain.children[node], c[node] * _split(walk.weight[node])[0]))
    blocks = [q.new_zeros(0, q.size(1))]
    for node in plain.first_pair:  # by increasing parent id, as the pairs are numbered
        group = plain.children[node]
        _, leave = _split(walk.weight[node])
        block = c[node] * leave / walk.size[group].view(1, -1, 1)
        blocks.append(block[~torch.eye(len(group), dtype=torch.bool, device=q.device)])
    tied = torch.cat(blocks)  # [pairs, H]
    own = torch.stack([c[leaf] for leaf in plain.leaves]) if plain.leaves else tied[:0]
    if mask is not None:
        tied, own = tied * mask[0], own * mask[1]
    table = torch.cat([tied, own, q.new_zeros(1, q.size(1))])
    return table[plain.entry().to(q.device)].permute(2, 0, 1)


def reference_phi(
    q: Tensor,
    k: Tensor,
    tree: Data,
    *,
    pos: Tensor | None = None,
    bias: Tensor | None = None,
    energy: str = "dot",
    scale: float | None = None,
) -> Tensor:
    """The energy phi(A) of every node, [M, H], of ``tie="block"``, from the arguments of
    :func:`reference_energy`.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> tree = SignalTree.from_parents([-1, 0, 0])
        >>> reference_phi(torch.zeros(2, 1, 4), torch.zeros(2, 1, 4), tree).flatten().abs()
        tensor([0.0000, 0.0000, 0.6931])
    """
    phi = _walk_up(q, k, tree, pos, bias, energy, scale).phi
    return torch.stack(phi) if phi else q.new_zeros(0, q.size(1))


def reference_energy(
    q: Tensor,
    k: Tensor,
    tree: Data,
    *,
    pos: Tensor | None = None,
    bias: Tensor | None = None,
    energy: str = "dot",
    scale: float | None = None,
    tie: str = "block",
    reach_bias: Tensor | None = None,
) -> Tensor:
    """The energy phi(R) of each tree's root.

    Args:
        q, k, tree, pos, bias, energy, scale, tie, reach_bias: See the module.

    Returns:
        [B, H], one row per tree of the batch.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> tree = SignalTree.from_parents([-1, 0, 0])
        >>> reference_energy(torch.zeros(2, 1, 4), torch.zeros(2, 1, 4), tree)
        tensor([[-0.6931]])
    """
    if _is_key(tie):
        return key_energy(q, k, tree, pos, bias, energy, scale, reach_bias)
    phi = reference_phi(q, k, tree, pos=pos, bias=bias, energy=energy, scale=scale)
    return phi[PlainTree.of(tree).roots]


def flat_scores(
    q: Tensor,
    k: Tensor,
    tree: Data,
    *,
    pos: Tensor | None = None,
    bias: Tensor | None = None,
    energy: str = "dot",
    scale: float | None = None,
) -> Tensor:
    """The scores s_ij of all pairs of leaves; their softmax is the flat attention that HSA is
    closest to (Theorem 3.2).

    Args:
        q, k, tree, pos, bias, energy, scale: See the module.

    Returns:
        [H, N, N]; ``-inf`` between leaves of different trees.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> tree = SignalTree.from_parents([-1, 0, 0])
        >>> q = torch.tensor([[[1.0]], [[2.0]]])
        >>> flat_scores(q, q, tree)
        tensor([[[1., 2.],
                 [2., 4.]]])
    """
    plain, e, bias, scale = prepare(q, k, tree, pos, bias, energy, scale)
    if energy == "dot":
        score = scale * torch.einsum("ihd,jhd->ijh", q, k)
    else:
        score = -scale / 2 * (q.unsqueeze(1) - k.unsqueeze(0)).square().sum(dim=3)
    pairs = torch.tensor(plain.pairs(), dtype=torch.long, device=q.device).view(-1, 2)
    between = (e[pairs[:, 0]] * e[pairs[:, 1]]).sum(dim=2) + bias  # [pairs, H]
    own = e[plain.leaves].square().sum(dim=2)  # [N, H]
    apart = q.new_full((1, q.size(1)), -torch.inf)
    extra = torch.cat([between, own, apart])[plain.entry().to(q.device)]
    return (score + extra).permute(2, 0, 1)
