r"""The oracle of key-tied attention, leaf by leaf; see :mod:`hsa_geo.ops.reference`.

Only the side of the keys is tied: theta_ij is the same for all j under C, but free for every leaf
i.  Among such matrices the closest to flat attention has, for every leaf, one softmax over itself
and the siblings C of itself and of its ancestors A:

.. math::
    t_{iC} = \operatorname{mean}_{j \in C} s_{ij} + \log |C|, \qquad
    Z_i = e^{s_{ii}} + \sum_C e^{t_{iC}}, \qquad
    \theta_{ij} = e^{t_{iC}} / (|C| \, Z_i), \quad \theta_{ii} = e^{s_{ii}} / Z_i

and its energy is :math:`\phi(R) = -\tfrac{1}{N} \sum_i \log Z_i`, so that :math:`N \phi(R)` plus
the flat log-sum-exps is its KL divergence to flat attention, as for block-tied attention.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.ops.plain_tree import PlainTree

__all__ = ["check_values", "key_attention", "key_energy", "key_matrix", "prepare"]

Mask = tuple[Tensor, Tensor]


def prepare(
    q: Tensor,
    k: Tensor,
    tree: Data,
    pos: Tensor | None,
    bias: Tensor | None,
    energy: str,
    scale: float | None,
) -> tuple[PlainTree, Tensor, Tensor, float]:
    """Check the arguments; positions [M, H, P] with zero at roots, biases [pairs, H], scale."""
    plain = PlainTree.of(tree)
    nodes, n, heads = len(plain.children), len(plain.leaves), q.size(1)
    if energy not in ("dot", "l2"):
        raise UnsupportedError(f"energy={energy!r} is unknown: use 'dot' or 'l2'.")
    if q.shape != k.shape or q.dim() != 3 or q.size(0) != n:
        raise ShapeError(
            f"q {list(q.shape)} and k {list(k.shape)} must both be [{n}, H, D], one row per leaf."
        )
    if pos is None:
        pos = q.new_zeros(nodes, 1, 1)
    if bias is None:
        bias = q.new_zeros(plain.num_pairs, 1)
    if pos.dim() != 3 or pos.size(0) != nodes or pos.size(1) not in (1, heads):
        raise ShapeError(f"pos {list(pos.shape)} must be [{nodes}, {heads} or 1, P].")
    if bias.dim() != 2 or bias.size(0) != plain.num_pairs or bias.size(1) not in (1, heads):
        raise ShapeError(f"bias {list(bias.shape)} must be [{plain.num_pairs}, {heads} or 1].")
    root = torch.zeros(nodes, 1, 1, dtype=torch.bool, device=q.device)
    root[plain.roots] = True
    e = pos.masked_fill(root, 0.0).expand(-1, heads, -1)
    return plain, e, bias.expand(-1, heads), q.size(2) ** -0.5 if scale is None else scale


def check_values(q: Tensor, v: Tensor) -> None:
    """Values have a row per leaf and as many heads as queries."""
    if v.dim() != 3 or v.shape[:2] != q.shape[:2]:
        raise ShapeError(f"v {list(v.shape)} must be [{q.size(0)}, {q.size(1)}, Dv].")


@dataclass(frozen=True)
class _Leaf:
    """What one leaf does: its log-sum-exp [H], and per C its weight on all of C, [R, H]."""

    log_z: Tensor
    nodes: list[int]  # R nodes C, from the leaf upward
    weight: Tensor
    own: Tensor  # [H]


def _leaves(
    q: Tensor,
    k: Tensor,
    tree: Data,
    pos: Tensor | None,
    bias: Tensor | None,
    energy: str,
    scale: float | None,
    reach_bias: Tensor | None,
) -> tuple[PlainTree, Tensor, list[_Leaf]]:
    """The tree, the means [M, N] over the leaves under each node, and every leaf's softmax."""
    plain, e, bias, scale = prepare(q, k, tree, pos, bias, energy, scale)
    size = plain.under.sum(dim=1).to(q)
    mean = plain.under.to(q) / size.unsqueeze(1)
    k_mean = torch.einsum("an,nhd->ahd", mean, k)  # [M, H, D]
    k_norm = mean @ k.square().sum(dim=2)  # [M, H], mean |k|^2
    parent = {child: node for node, group in enumerate(plain.children) for child in group}
    number = {pair: place for place, pair in enumerate(plain.pairs())}

    def score(row: int, node: int) -> Tensor:  # mean_{j under node} s_ij without e and bias, [H]
        dot = scale * (q[row] * k_mean[node]).sum(dim=1)
        if energy == "l2":
            dot = dot - scale / 2 * (q[row].square().sum(dim=1) + k_norm[node])
        return dot

    leaves, start = [], 0
    for row, leaf in enumerate(plain.leaves):
        nodes, logits = [], [score(row, leaf) + e[leaf].square().sum(dim=1)]
        branch = leaf
        while branch in parent:
            for node in plain.children[parent[branch]]:
                if node != branch:
                    between = (e[branch] * e[node]).sum(dim=1) + bias[number[branch, node]]
                    logits.append(score(row, node) + between + size[node].log())
                    nodes.append(node)
            branch = parent[branch]
        logit = torch.stack(logits)  # [1 + R, H]
        if reach_bias is not None:
            extra = reach_bias[start : start + len(nodes)].expand(-1, q.size(1))
            logit = logit + torch.cat([torch.zeros_like(logit[:1]), extra])
        start += len(nodes)
        log_z = logit.logsumexp(dim=0)
        weight = (logit - log_z).exp()
        leaves.append(_Leaf(log_z, nodes, weight[1:], weight[0]))
    return plain, mean, leaves


def key_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tree: Data,
    pos: Tensor | None,
    bias: Tensor | None,
    energy: str,
    scale: float | None,
    mask: Mask | None,
    reach_bias: Tensor | None = None,
) -> Tensor:
    """Output [N, H, Dv]; arguments as in :func:`hsa_geo.ops.reference.reference_attention`."""
    _, mean, leaves = _leaves(q, k, tree, pos, bias, energy, scale, reach_bias)
    check_values(q, v)
    v_mean = torch.einsum("an,nhd->ahd", mean, v)  # [M, H, Dv]
    out, start = [], 0
    for row, leaf in enumerate(leaves):
        weight, own = leaf.weight, leaf.own
        if mask is not None:
            weight, own = weight * mask[0][start : start + len(leaf.nodes)], own * mask[1][row]
        start += len(leaf.nodes)
        out.append(
            own.unsqueeze(1) * v[row] + torch.einsum("rh,rhd->hd", weight, v_mean[leaf.nodes])
        )
    return torch.stack(out) if out else torch.zeros_like(v)


def key_matrix(
    q: Tensor,
    k: Tensor,
    tree: Data,
    pos: Tensor | None,
    bias: Tensor | None,
    energy: str,
    scale: float | None,
    mask: Mask | None,
    reach_bias: Tensor | None = None,
) -> Tensor:
    """Theta [H, N, N]: the output for the unit vectors as values."""
    unit = torch.eye(q.size(0), dtype=q.dtype, device=q.device)
    values = unit.unsqueeze(1).expand(-1, q.size(1), -1)  # [N, H, N]
    args = (tree, pos, bias, energy, scale, mask, reach_bias)
    return key_attention(q, k, values, *args).permute(1, 0, 2)


def key_energy(
    q: Tensor,
    k: Tensor,
    tree: Data,
    pos: Tensor | None,
    bias: Tensor | None,
    energy: str,
    scale: float | None,
    reach_bias: Tensor | None = None,
) -> Tensor:
    """phi(R) of each tree, [B, H]."""
    plain, mean, leaves = _leaves(q, k, tree, pos, bias, energy, scale, reach_bias)
    if not leaves:
        return q.new_zeros(0, q.size(1))
    return -mean[plain.roots] @ torch.stack([leaf.log_z for leaf in leaves])
