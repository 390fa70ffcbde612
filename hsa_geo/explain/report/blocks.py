"""What a report says of blocks: where their attention goes, and which of them matter most."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from hsa_geo.data.signal_tree import SignalTree
from hsa_geo.explain.report.outline import Outline
from hsa_geo.ops.weights import AttentionWeights

__all__ = ["MAX_MEMBERS", "block_shares", "group_matrices", "top_blocks"]

#: Members of a group whose matrix is shown; of larger groups those that matter most.
MAX_MEMBERS = 16


def block_shares(weights: AttentionWeights) -> tuple[Tensor, Tensor]:
    """Where the attention of the leaves under each node goes.

    Args:
        weights: The weights of a layer, of one tree.

    Returns:
        ``[P, H]``, in the public order of sibling pairs (B, C): which share of the attention of
        the leaves under B goes to those under C, in the mean over the leaves under B; and
        ``[M, H]``, which share stays under each node.

    Example:
        >>> from hsa_geo.ops import attention_weights
        >>> q = torch.zeros(4, 1, 8)
        >>> tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1])
        >>> shares, stays = block_shares(attention_weights(q, q, tree))
        >>> shares[0].tolist(), stays[4].tolist()  # of leaf 0 to leaf 1; within 4
        ([0.25], [0.5])
    """
    plan = weights.plan
    mass = plan.mass.to(weights.pair.dtype)
    pairs = plan.pairs
    target = torch.empty_like(pairs.target).index_copy(0, pairs.public, pairs.target)
    source = torch.empty_like(pairs.source).index_copy(0, pairs.public, pairs.source)
    heads = weights.leaf.size(1)
    weight = torch.ones_like(weights.leaf[:, 0])
    if plan.leaf_weight is not None:
        weight = plan.leaf_weight.to(weight.dtype)
    if weights.tie == "key":
        reach = plan.reach
        given = weights.pair * mass[reach.slot][:, None] * weight[reach.row][:, None]
        shares = weights.pair.new_zeros(plan.num_pairs, heads).index_add(0, reach.public, given)
        shares = shares / mass[target][:, None]
    else:
        shares = weights.pair * mass[source][:, None]
    # What leaves B for its siblings, of all its leaves; what does so below B stays under B.
    sent = weights.pair.new_zeros(plan.num_slots, heads)
    sent.index_add_(0, target, shares * mass[target][:, None])
    inside = sent.clone()
    inside.index_add_(0, plan.row_slot, weights.leaf * weight[:, None])
    for level in range(plan.num_levels - 1, 0, -1):
        low, high = plan.level_slots[level : level + 2]
        above = plan.group_parent[plan.slot_group[low:high]]
        inside.index_add_(0, above, inside[low:high].clone())
    stays = (inside - sent) / mass[:, None]
    return shares, stays[plan.node_slot]


def group_matrices(
    tree: SignalTree,
    outline: Outline,
    layers: list[tuple[np.ndarray, np.ndarray]],
    importance: np.ndarray,
    budget: int,
) -> tuple[list[tuple[int, list[int]]], bytes]:
    """The matrices of sibling groups, from the root downward, as many as fit.

    Args:
        tree: One tree.
        outline: Its outline.
        layers: Of each layer what :func:`block_shares` gives, as arrays.
        importance: ``[M]`` by id; of a large group the most important members are shown.
        budget: Number of bytes.

    Returns:
        For each group the place of the node above it and the places of the members shown; and the
        matrices, one after the other: for each layer and head rows of members, in each row what
        goes to each member (to itself: what stays) and to all members that are not shown,
        as shares of what stays under the node above, a byte u for (u / 255)\\ :sup:`2`.

    Example:
        >>> from hsa_geo.ops import attention_weights
        >>> q = torch.zeros(4, 1, 8)
        >>> tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1])
        >>> layer = [part.numpy() for part in block_shares(attention_weights(q, q, tree))]
        >>> groups, data = group_matrices(tree, Outline.of(tree), [layer], np.ones(7), 10**4)
        >>> groups[0], [round((u / 255) ** 2, 2) for u in data[:6]]
        ((0, [1, 4]), [0.5, 0.5, 0.0, 0.5, 0.5, 0.0])
    """
    plan, out, parts, used = tree.plan, list[tuple[int, list[int]]](), list[bytes](), 0
    if not layers or plan.num_groups == 0:
        return out, b""
    ptr = plan.group_ptr.cpu().numpy()
    start = plan.pair_start.cpu().numpy()
    above = plan.slot_bottom[plan.group_parent].cpu().numpy()
    top = plan.slot_top.cpu().numpy()
    has_inner = np.zeros(len(above), dtype=bool)
    members = np.arange(ptr[0], ptr[-1])
    group = np.repeat(np.arange(len(above)), np.diff(ptr))
    has_inner[group[top[members] >= tree.num_leaves]] = True
    level = tree.tree_level.cpu().numpy()[above]
    order = np.lexsort((-np.abs(importance[above]), level, ~has_inner))
    for g in order.tolist():
        nodes, size = top[ptr[g] : ptr[g + 1]], int(ptr[g + 1] - ptr[g])
        ranks = np.arange(size)
        if size > MAX_MEMBERS:
            ranks = np.sort(np.argsort(-np.abs(importance[nodes]), kind="stable")[:MAX_MEMBERS])
        length = len(layers) * layers[0][0].shape[1] * len(ranks) * (len(ranks) + 1)
        if used + length > budget:
            continue
        used += length
        block = slice(int(start[g]), int(start[g]) + size * (size - 1))
        parts += [_matrix(share[block], stay[nodes], ranks) for share, stay in layers]
        out.append((int(outline.place[above[g]]), outline.place[nodes[ranks]].tolist()))
    return out, b"".join(parts)


def _matrix(share: np.ndarray, stay: np.ndarray, ranks: np.ndarray) -> bytes:
    """One group's matrices of a layer: pairs ``[b (b - 1), H]`` and what stays ``[b, H]``."""
    b, heads = stay.shape
    full = np.zeros((b, b, heads))
    full[~np.eye(b, dtype=bool)] = share
    full[np.arange(b), np.arange(b)] = stay
    full = full[ranks]  # [R, b, H]
    full = full / np.maximum(full.sum(1, keepdims=True), 1e-30)
    rest = 1 - full[:, ranks].sum(1, keepdims=True)
    kept = np.concatenate([full[:, ranks], rest], 1)  # [R, R + 1, H]
    levels = np.round(255 * np.sqrt(np.clip(kept, 0, 1))).astype(np.uint8)
    return levels.transpose(2, 0, 1).tobytes()


def top_blocks(
    tree: SignalTree, node: np.ndarray, count: int, whole: int | None = None
) -> list[int]:
    """The parts of a tree with the largest sums, none within another.

    A part is a node of whose leaves at least half are its own children, such as a sentence, a form
    or a picture, but not what is answered for, which would be all of it.  Other leaves, such as a
    word beside boxes, are parts by themselves.

    Args:
        tree: One tree.
        node: Scores ``[M]``.
        count: How many at most.
        whole: Id of the node that is answered for. (default: the root)

    Returns:
        Their ids, largest first; only positive ones.

    Example:
        >>> tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1])
        >>> top_blocks(tree, np.array([1.0, 1, 2, -3, 2, -1, 1]), 3)
        [4]
        >>> title = SignalTree.from_parents([4, 3, 3, 4, -1])  # a leaf beside a sentence
        >>> top_blocks(title, np.array([1.0, 1, 1, 2, 3]), 3)
        [3, 0]
    """
    if tree.num_tree_nodes == 1:
        return [0] if node[0] > 0 else []
    parent, child = tree.tree_index.cpu().numpy()
    above = np.full(tree.num_tree_nodes, -1)
    above[child] = parent
    own = np.bincount(parent[child < tree.num_leaves], minlength=tree.num_tree_nodes)
    below = tree.plan.count[tree.plan.node_slot].cpu().numpy()
    is_part = (own > 0) & (2 * own >= below)
    up = int(np.flatnonzero(above < 0)[0]) if whole is None else whole
    while up >= 0:  # all of what is answered for, and what lies above it
        is_part[up] = False
        up = int(above[up])
    alone = child[(child < tree.num_leaves) & ~is_part[parent]]
    parts = np.concatenate([np.flatnonzero(is_part), alone])
    taken, out = set[int](), list[int]()
    for part in parts[np.argsort(-node[parts], kind="stable")].tolist():
        if len(out) == count or node[part] <= 0:
            break
        up, path = part, []
        while up >= 0:
            path.append(up)
            up = int(above[up])
        if part in taken or any(one in out for one in path):
            continue
        out.append(part)
        taken.update(path)  # what lies above this one
    return out
