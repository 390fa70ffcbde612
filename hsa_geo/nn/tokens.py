"""Leaves that hold bags of hashed tokens become vectors."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from hsa_geo.data.signal_tree import SignalTree
from hsa_geo.errors import ShapeError
from hsa_geo.nn.checks import check_positive, check_share, check_tree

__all__ = ["TokenBags", "TokenEncoder", "token_bags"]


class TokenBags(NamedTuple):
    """The tokens of every leaf, as bags for :class:`torch.nn.EmbeddingBag`.

    Attributes:
        ids: ``[2 T]``, for each token the number of its id and that of its (id, field) pair.
        offsets: ``[N + 1]``, the ids of leaf i are ``ids[offsets[i]:offsets[i+1]]``.
        lengths: ``[N]``, number of tokens of every leaf.

    Example:
        >>> ids, offsets, lengths = torch.tensor([3, 20]), torch.tensor([0, 2]), torch.tensor([1])
        >>> TokenEncoder(16, 8)(TokenBags(ids, offsets, lengths)).shape
        torch.Size([1, 8])
    """

    ids: Tensor
    offsets: Tensor
    lengths: Tensor


def token_bags(tree: SignalTree, num_ids: int, dropout: float = 0.0) -> TokenBags:
    """Bags of a tree's text modality.

    A token is a pair (hashed id, field), such as the word "search" in the placeholder of a text
    field.  It has two numbers, ``0..num_ids-1`` of the id alone and ``num_ids..2*num_ids-1`` of
    the pair (hashed again), so that a model can share what "search" means in one field with the
    others and yet tell them apart.

    Args:
        tree: A tree or batch with ``text_x [T, 2]`` (id, field) and ``text_index [T]``.
        num_ids: Number of hash buckets of the ids.
        dropout: Probability to leave out a token. (default: ``0.0``)

    Returns:
        The bags.

    Raises:
        ShapeError: If the tree has no text modality, its tensors do not fit together, an id or a
            leaf row is out of range, or ``dropout`` is no probability.

    Example:
        >>> tree = SignalTree.from_parents(
        ...     [2, 2, -1], text_x=torch.tensor([[5, 0], [7, 1]]), text_index=torch.tensor([0, 0]))
        >>> bags = token_bags(tree, 16)
        >>> bags.ids[::2].tolist(), bags.offsets.tolist(), bags.lengths.tolist()
        ([5, 7], [0, 4, 4], [2, 0])
    """
    check_tree(tree)
    if "text_x" not in tree or "text_index" not in tree:
        raise ShapeError(
            f"the tree has no text_x and text_index (it has {sorted(tree.keys())}): build it with "
            "from_html, or add them."
        )
    check_share(dropout=dropout)
    token, leaf = tree.text_x, tree.text_index
    if token.dim() != 2 or token.size(1) != 2 or token.dtype != torch.int64:
        raise ShapeError(
            f"text_x has shape {list(token.shape)} and dtype {token.dtype}: give int64 [T, 2], id "
            "and field."
        )
    if leaf.shape != token.shape[:1] or leaf.dtype != torch.int64:
        raise ShapeError(
            f"text_index has shape {list(leaf.shape)} and dtype {leaf.dtype}: give int64 "
            f"[{len(token)}], the leaf row of each token."
        )
    if leaf.numel() and (int(leaf.min()) < 0 or int(leaf.max()) >= tree.num_leaves):
        raise ShapeError(
            f"text_index holds rows {int(leaf.min())} to {int(leaf.max())}, but the tree has "
            f"{tree.num_leaves} leaves: give rows from 0 to {tree.num_leaves - 1}."
        )
    if token.numel() and (int(token[:, 0].min()) < 0 or int(token[:, 0].max()) >= num_ids):
        raise ShapeError(
            f"text_x holds ids {int(token[:, 0].min())} to {int(token[:, 0].max())}, but the "
            f"encoder has {num_ids} of them: give hash_buckets= of the builder and num_ids the "
            "same number."
        )
    if bool((leaf.diff() < 0).any()):
        order = torch.argsort(leaf, stable=True)
        token, leaf = token[order], leaf[order]
    if dropout > 0:
        kept = torch.rand(len(leaf), device=leaf.device) >= dropout
        token, leaf = token[kept], leaf[kept]
    number, field = token.unbind(1)
    # Knuth's multiplicative hashing; both factors are odd, so pairs spread over all buckets.
    pair = num_ids + (number * 40503 + (field + 1) * 2654435761) % num_ids
    lengths = torch.bincount(leaf, minlength=tree.num_leaves)
    offsets = torch.nn.functional.pad(2 * lengths.cumsum(0), (1, 0))
    return TokenBags(torch.stack([number, pair], 1).flatten(), offsets, lengths)


class TokenEncoder(nn.Module):
    """Embed a tree's text modality, one vector per leaf.

    A leaf is the sum of the embeddings of its tokens (:func:`token_bags`) over the square root of
    their number; a leaf without tokens is zero.  Embeddings start small, so that tokens never
    seen in training say next to nothing.

    Args:
        num_ids (int): Number of hash buckets; ids are ``0..num_ids-1``.
        channels (int): Width of the output.
        dropout (float): Probability to drop a whole token in training. (default: :obj:`0.0`)

    Shapes:
        - **input:** a tree or batch with ``text_x`` :math:`(T, 2)`, id and field, and
          ``text_index`` :math:`(T)`, the leaf row of each token; or its bags
        - **output:** :math:`(N, C)`

    Raises:
        ShapeError: If ``num_ids`` or ``channels`` is not positive, or ``dropout`` no probability.

    Example:
        >>> tree = SignalTree.from_parents(
        ...     [2, 2, -1], text_x=torch.tensor([[5, 0], [7, 1], [7, 0]]),
        ...     text_index=torch.tensor([0, 0, 1]))
        >>> TokenEncoder(16, 8)(tree).shape
        torch.Size([2, 8])
    """

    #: What :class:`~hsa_geo.nn.LeafFeatures` gives to the module.
    reads = "tree"

    def __init__(self, num_ids: int, channels: int, dropout: float = 0.0) -> None:
        super().__init__()
        check_share(dropout=dropout)
        check_positive(num_ids=num_ids, channels=channels)
        self.num_ids, self.channels, self.dropout = num_ids, channels, dropout
        self.config = {"num_ids": num_ids, "channels": channels, "dropout": dropout}
        self.embed = nn.EmbeddingBag(2 * num_ids, channels, mode="sum", include_last_offset=True)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        nn.init.normal_(self.embed.weight, std=0.02)

    @torch.compiler.disable  # sizes that depend on the data; a graph goes on behind it
    def bags(self, tree: SignalTree) -> TokenBags:
        """The bags of a tree or batch, with token dropout in training."""
        return token_bags(tree, self.num_ids, self.dropout if self.training else 0.0)

    def forward(self, tree: SignalTree | TokenBags) -> Tensor:
        """Embed the leaves of a tree, a batch or ready bags, ``[N, channels]``."""
        bags = self.bags(tree) if isinstance(tree, SignalTree) else tree
        total = self.embed(bags.ids, bags.offsets)  # [N, C]
        return total / bags.lengths.clamp(min=1).to(total.dtype).sqrt()[:, None]
