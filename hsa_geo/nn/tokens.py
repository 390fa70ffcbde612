"""TokenEncoder: leaves that hold bags of hashed tokens become vectors."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hsa_geo.data.signal_tree import SignalTree
from hsa_geo.errors import ShapeError

__all__ = ["TokenEncoder"]


class TokenEncoder(nn.Module):
    """Embed a tree's text modality, one vector per leaf.

    A token is a pair (hashed id, field), such as the word "search" in the placeholder of a text
    field.  It has two embeddings, one of the id alone and one of the pair, so that what "search"
    means in one field is shared with the others but not forced on them.  A leaf is the sum of
    its tokens over the square root of their number, normalised.

    Args:
        num_ids (int): Number of hash buckets; ids are ``0..num_ids-1``.
        channels (int): Width of the output.
        dropout (float): Probability to drop a whole token in training. (default: :obj:`0.0`)

    Shapes:
        - **input:** a tree or batch with ``text_x`` :math:`(T, 2)`, id and field, and
          ``text_index`` :math:`(T)`, the leaf row of each token
        - **output:** :math:`(N, C)`; a leaf without tokens gets the learned vector of "nothing"

    Raises:
        ShapeError: If the tree has no text modality, or an id is out of range.

    Example:
        >>> tree = SignalTree.from_parents(
        ...     [2, 2, -1], text_x=torch.tensor([[5, 0], [7, 1], [7, 0]]),
        ...     text_index=torch.tensor([0, 0, 1]))
        >>> TokenEncoder(16, 8)(tree).shape
        torch.Size([2, 8])
    """

    def __init__(self, num_ids: int, channels: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.num_ids, self.channels, self.dropout = num_ids, channels, dropout
        self.embed = nn.EmbeddingBag(2 * num_ids, channels, mode="sum", include_last_offset=True)
        self.empty = nn.Parameter(torch.empty(channels))
        self.norm = nn.LayerNorm(channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        nn.init.normal_(self.embed.weight, std=self.channels**-0.5)
        nn.init.zeros_(self.empty)
        self.norm.reset_parameters()

    def forward(self, tree: SignalTree) -> Tensor:
        """Embed the leaves of a tree or batch, ``[N, channels]``."""
        if "text_x" not in tree or "text_index" not in tree:
            raise ShapeError(
                f"the tree has no text_x and text_index (it has {sorted(tree.keys())}): build it "
                "with from_html, or add them."
            )
        token, leaf = tree.text_x, tree.text_index
        if token.dim() != 2 or token.size(1) != 2:
            raise ShapeError(f"text_x has shape {list(token.shape)}: give [T, 2], id and field.")
        if token.numel() and (int(token[:, 0].min()) < 0 or int(token[:, 0].max()) >= self.num_ids):
            raise ShapeError(
                f"text_x holds ids {int(token[:, 0].min())} to {int(token[:, 0].max())}, but the "
                f"encoder has {self.num_ids} of them: use the same number of hash buckets for both."
            )
        if bool((leaf.diff() < 0).any()):
            order = torch.argsort(leaf, stable=True)
            token, leaf = token[order], leaf[order]
        if self.training and self.dropout > 0:
            kept = torch.rand(len(leaf), device=leaf.device) >= self.dropout
            token, leaf = token[kept], leaf[kept]
        number, field = token.unbind(1)
        pair = self.num_ids + (number * 40503 + (field + 1) * 2654435761) % self.num_ids
        count = torch.bincount(leaf, minlength=tree.num_leaves)
        offsets = torch.nn.functional.pad(2 * count.cumsum(0), (1, 0))
        total = self.embed(torch.stack([number, pair], 1).flatten(), offsets)  # [N, C]
        mean = total / count.clamp(min=1).sqrt()[:, None]
        mean = torch.where((count == 0)[:, None], self.empty, mean)
        return self.norm(mean)
