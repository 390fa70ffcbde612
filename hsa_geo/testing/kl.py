r"""How far attention is from flat attention, and the closest that block tying can come.

The flat attention of scores :math:`s` is :math:`\theta^f_{ij} = e^{s_{ij}} / \sum_t e^{s_{it}}`.
By Theorem 3.2 the matrix of HSA minimises :math:`\sum_i KL(\theta_i \| \theta^f_i)` among the
row-stochastic block-tied matrices; :func:`closest_block_tied` finds that minimum with nothing
but the definition of these words, so that it can judge any implementation.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data

from hsa_geo.ops.plain_tree import PlainTree
from hsa_geo.testing.checks import (
    assert_block_tied,
    assert_key_tied,
    assert_row_stochastic,
    tolerance,
)

__all__ = ["assert_kl_optimal", "closest_block_tied", "closest_key_tied", "kl_to_flat"]


def kl_to_flat(theta: Tensor, scores: Tensor) -> Tensor:
    r"""Sum over rows of the divergence from flat attention, :math:`\sum_i KL(\theta_i \|
    \theta^f_i)`.

    Args:
        theta: Attention [..., N, N], rows summing to 1.
        scores: Flat scores [..., N, N], e.g. of :func:`hsa_geo.ops.reference.flat_scores`;
            ``-inf`` where flat attention is zero.

    Returns:
        [...]; infinite where ``theta`` is not zero and flat attention is.

    Example:
        >>> scores = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
        >>> kl_to_flat(scores.softmax(1), scores).abs() < 1e-6
        tensor(True)
    """
    expected = torch.where(theta == 0, 0.0, theta * scores)  # 0 * -inf counts as nothing
    terms = torch.special.xlogy(theta, theta) - expected
    return (terms.sum(dim=-1) + scores.logsumexp(dim=-1)).sum(dim=-1)


def closest_block_tied(scores: Tensor, tree: Data, *, max_iter: int = 200) -> Tensor:
    r"""The row-stochastic block-tied matrix closest to flat attention, by brute force.

    The unknowns are the values of the blocks, one per ordered pair of siblings; each row's
    diagonal is what is missing to 1.  Theta is affine in the unknowns and the divergence
    convex in Theta, so Newton's method with a line search ends at the global minimum.

    Args:
        scores: Flat scores [H, N, N]; ``-inf`` forces a zero.
        tree: A tree or a batch, small: cost and memory grow as N^2 times the number of pairs.
        max_iter: Most Newton steps. (default: ``200``)

    Returns:
        The minimiser, [H, N, N], computed in float64.

    Raises:
        RuntimeError: If ``max_iter`` steps are not enough.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> tree = SignalTree.from_parents([-1, 0, 0])
        >>> scores = torch.tensor([[[0.0, 1.0], [2.0, 0.0]]])
        >>> torch.allclose(closest_block_tied(scores, tree).float(), scores.softmax(2))
        True
    """
    plain = PlainTree.of(tree)
    under = plain.under.double()
    return _closest(scores, [(under[b], under[c]) for b, c in plain.pairs()], max_iter)


def closest_key_tied(scores: Tensor, tree: Data, *, max_iter: int = 200) -> Tensor:
    r"""The row-stochastic key-tied matrix closest to flat attention, by brute force.

    As :func:`closest_block_tied`, with one unknown per leaf i and sibling C of it or of one of its
    ancestors.

    Args:
        scores, tree, max_iter: As there.

    Returns:
        The minimiser, [H, N, N], computed in float64.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> tree = SignalTree.from_parents([-1, 0, 0])
        >>> scores = torch.tensor([[[0.0, 1.0], [2.0, 0.0]]])
        >>> torch.allclose(closest_key_tied(scores, tree).float(), scores.softmax(2))
        True
    """
    plain = PlainTree.of(tree)
    under, leaves = plain.under.double(), torch.eye(len(plain.leaves), dtype=torch.float64)
    regions = [
        (leaves[row], under[c])
        for b, c in plain.pairs()
        for row in plain.under[b].nonzero().flatten().tolist()
    ]
    return _closest(scores, regions, max_iter)


def _closest(scores: Tensor, regions: list[tuple[Tensor, Tensor]], max_iter: int) -> Tensor:
    heads = [_minimise(score.double(), regions, max_iter) for score in scores.detach()]
    return torch.stack(heads) if heads else scores.double()


def assert_kl_optimal(
    theta: Tensor, scores: Tensor, tree: Data, *, atol: float | None = None, tie: str = "block"
) -> None:
    r"""Check Theorem 3.2: theta is row-stochastic and block-tied, and no such matrix is closer to
    flat attention.  Or the same of key-tied matrices.

    Args:
        theta: Attention [H, N, N].
        scores: Flat scores [H, N, N]; ``-inf`` forces a zero.
        tree: A small tree or batch, see :func:`closest_block_tied`.
        atol: Largest error of an entry or sum of theta, and how much larger than the least its
            divergence per leaf may be. (default: what rounding in the dtype explains, relative to
            the largest finite score)
        tie: ``"block"`` or ``"key"``. (default: ``"block"``)

    Raises:
        AssertionError: If theta is no such matrix, or one is closer; the message names the head.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> from hsa_geo.ops import attention_matrix
        >>> from hsa_geo.ops.reference import flat_scores
        >>> from hsa_geo.testing import random_qkv
        >>> tree = SignalTree.from_parents([-1, 0, 0, 2, 2])
        >>> q, k, _ = random_qkv(tree)
        >>> assert_kl_optimal(attention_matrix(q, k, tree), flat_scores(q, k, tree), tree)
    """
    theta, scores = theta.detach(), scores.detach()
    if theta.dim() != 3 or theta.shape != scores.shape:
        raise AssertionError(
            f"theta has shape {list(theta.shape)} and scores {list(scores.shape)}, not [H, N, N]."
        )
    assert_row_stochastic(theta, atol=atol)
    check, closest = {
        "block": (assert_block_tied, closest_block_tied),
        "key": (assert_key_tied, closest_key_tied),
    }[tie]
    check(theta, tree, atol=atol)
    limit = tolerance(theta, atol) * max(1, theta.size(-1))
    if atol is None:
        finite = scores[scores.isfinite()].abs()
        limit *= max(1.0, finite.max().item()) if finite.numel() else 1.0
    found = kl_to_flat(theta.double().clamp(min=0), scores.double())
    least = kl_to_flat(closest(scores, tree), scores.double())
    for head, (divergence, smallest) in enumerate(zip(found.tolist(), least.tolist())):
        if not divergence <= smallest + limit:  # NaN too
            raise AssertionError(
                f"head {head} of theta has the divergence {divergence} from flat attention, but "
                f"another {tie}-tied matrix has {smallest}."
            )


def _minimise(score: Tensor, regions: list[tuple[Tensor, Tensor]], max_iter: int) -> Tensor:
    """The best matrix with one value in each region: the rows [N] and the columns [N] in it."""
    n = len(score)
    start = torch.eye(n, dtype=torch.float64)
    columns = []
    for in_b, in_c in regions:
        block = torch.outer(in_b, in_c)
        if not torch.isneginf(score[block.bool()]).any():
            columns.append((block - in_c.sum() * in_b.diag()).flatten())
    if not columns:
        return start
    # theta = start + basis x on the entries that can be other than zero
    basis = torch.stack(columns, dim=1)
    free = start.flatten().bool() | basis.bool().any(dim=1)
    basis, fixed, s = basis[free], start.flatten()[free], score.flatten()[free]

    def divergence(theta: Tensor) -> Tensor:
        return (theta * (theta.log() - s)).sum()

    x = torch.full((basis.size(1),), 1.0 / n, dtype=torch.float64)  # all entries at least 1/N
    for _ in range(max_iter):
        theta = fixed + basis @ x
        gradient = basis.t() @ (theta.log() + 1 - s)
        hessian = basis.t() @ (basis / theta.unsqueeze(1))
        step = -torch.linalg.solve(hessian, gradient)
        decrement = -(gradient @ step)
        if decrement < 1e-20:
            out = torch.zeros(n * n, dtype=torch.float64)
            out[free] = theta
            return out.view(n, n)
        rate, now = 1.0, divergence(theta)
        while rate > 1e-12:  # first inside the simplex, then downhill
            trial = fixed + basis @ (x + rate * step)
            if trial.min() > 0 and divergence(trial) <= now - 1e-4 * rate * decrement + 1e-13:
                break
            rate /= 2
        x = x + rate * step
    raise RuntimeError(f"no minimum after max_iter={max_iter} Newton steps: raise it.")
