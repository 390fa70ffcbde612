"""What the attention benchmark leaves out, and why: every contender has work that is too large.

The functions return the reason, which is printed, or None.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from attention_shapes import Work

from hsa_geo._optional import HAS_NUMBA


@dataclass(frozen=True)
class Limits:
    """Above these a contender is left out.

    Attributes:
        flat: Most leaves of a tree for attention among all of them. (default: ``16384``)
        projected: The same for flat attention with projections around it. (default: ``8192``)
        pairs: Most sibling pairs for one message per pair. (default: ``150_000``)
        padded: Most leaves for padded copies of everything. (default: ``65536``)
        leaves: Most leaves for layers that compute much for each. (default: ``32768``)
        again: Most leaves where layers that ignore the tree are measured once more for a tree
            that is no document. (default: ``4096``)
        levels: Most levels where each costs several operations. (default: ``1500``)
        scores: Most scores of one group for a backend that keeps them. (default: ``1 << 22``)
    """

    flat: int = 16384
    projected: int = 8192
    pairs: int = 150_000
    padded: int = 65536
    leaves: int = 32768
    again: int = 4096
    levels: int = 1500
    scores: int = 1 << 22


def skip_numba(work: Work, limits: Limits) -> str | None:
    """The compiled kernels need numba and a CPU."""
    if work.q.device.type != "cpu":
        return f"computes on the CPU and not on {work.q.device}"
    return None if HAS_NUMBA else "numba is not installed: pip install 'hsa_geo[fast]'"


def skip_block(work: Work, limits: Limits) -> str | None:
    """Wide groups are computed some rows at a time, which takes long; leaves are copied."""
    widest = max(work.plan.group_sizes, default=0)
    if widest**2 > limits.scores:
        return f"{widest**2:,} scores of a group of {widest:,}, more than {limits.scores:,}"
    if work.leaves > limits.padded:
        return f"{work.leaves:,} leaves, more than {limits.padded:,}"
    return _levels(work, limits)


def skip_edge(work: Work, limits: Limits) -> str | None:
    """One message per sibling pair, level by level."""
    return skip_pairs(work, limits) or _levels(work, limits)


def skip_pairs(work: Work, limits: Limits) -> str | None:
    """One message per sibling pair."""
    if work.plan.num_pairs > limits.pairs:
        return f"{work.plan.num_pairs:,} sibling pairs, more than {limits.pairs:,}"
    return None


def skip_flat(work: Work, limits: Limits) -> str | None:
    """Time grows with the square of the length."""
    if work.length > limits.flat:
        return f"{work.length:,} leaves in a tree, more than {limits.flat:,}"
    return _again(work, limits)


def skip_projected(work: Work, limits: Limits) -> str | None:
    """Flat attention again, which dwarfs what is around it where trees are large."""
    if work.length > limits.projected:
        return f"{work.length:,} leaves in a tree, more than {limits.projected:,} (see flat SDPA)"
    return skip_flat(work, limits)


def skip_many(work: Work, limits: Limits) -> str | None:
    """Linear, but with much time and memory for each leaf."""
    if work.leaves > limits.leaves:
        return f"{work.leaves:,} leaves, more than {limits.leaves:,}"
    return _again(work, limits)


def skip_h_transformer(work: Work, limits: Limits) -> str | None:
    """It wants four blocks at least, and pads to a power of two."""
    if not find_spec("h_transformer_1d"):
        return "not installed: pip install h-transformer-1d"
    if work.length <= 32:
        return f"trees of {work.length} leaves, fewer than the 33 that it needs"
    return skip_many(work, limits)


def _levels(work: Work, limits: Limits) -> str | None:
    if work.plan.num_levels > limits.levels:
        return f"{work.plan.num_levels:,} levels, more than {limits.levels:,}"
    return None


def _again(work: Work, limits: Limits) -> str | None:
    """What ignores the tree takes as long on a document, where it is measured."""
    if work.shape != "document" and work.plan.num_trees == 1 and work.length > limits.again:
        return (
            f"ignores the tree, so see document; {work.leaves:,} leaves, more than {limits.again:,}"
        )
    return None
