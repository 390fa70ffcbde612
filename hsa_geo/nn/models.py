"""SubtreeClassifier: token leaves, an encoder over the hierarchy, one answer per subtree."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor, nn

from hsa_geo.data.signal_tree import SignalTree
from hsa_geo.errors import ShapeError
from hsa_geo.nn.attentions import encoder_options
from hsa_geo.nn.checks import check_multiple, check_positive, check_share
from hsa_geo.nn.encoder import HSAEncoder
from hsa_geo.nn.leaf_features import LeafFeatures
from hsa_geo.nn.modalities import PatchConv
from hsa_geo.nn.readout import subtree_mean
from hsa_geo.nn.saving import MAX_BYTES, PretrainedModel, load_model, save_model
from hsa_geo.nn.tokens import TokenEncoder

__all__ = ["ATTENTIONS", "SubtreeClassifier"]

#: Layers that a :class:`SubtreeClassifier` can be built of.
ATTENTIONS = ("hsa", "flat", "deep_set")


class SubtreeClassifier(PretrainedModel, nn.Module):
    r"""Classify any subtrees of trees whose leaves hold tokens, such as the forms of a page.

    :class:`~hsa_geo.nn.TokenEncoder`, then :class:`~hsa_geo.nn.HSAEncoder` over the whole tree,
    then the mean over the leaves of each subtree (:func:`~hsa_geo.nn.subtree_mean`), a norm and a
    linear layer.  The leaves of a subtree have attended to the rest of the tree, so a subtree is
    read in its context.  Beside it runs a linear model of the subtree's tokens ("wide and deep"):
    from a thousand examples a token's plain weight is learned sooner than its embedding, and the
    blocks of the encoder start as the identity and add what the context says.

    Args:
        num_ids (int): Number of hash buckets of the tokens.
        num_classes (int): Number of outputs.
        channels (int): Width. (default: :obj:`64`)
        num_layers (int): Number of encoder blocks. (default: :obj:`1`)
        heads (int): Number of heads. (default: :obj:`4`)
        hidden_channels (int, optional): Width of the feed-forward networks.
            (default: ``2 * channels``)
        dropout (float): Dropout of the leaves, of the encoder's residual branches and before the
            last layer. (default: :obj:`0.0`)
        token_dropout (float): Probability to drop a whole token. (default: :obj:`0.0`)
        position_channels (int, optional): Features of the position embeddings, 0 for none:
            positions among siblings for HSA, reading order for flat attention; DeepSet has none.
            (default: 8 for HSA and flat attention)
        attention (str): ``"hsa"``, or a baseline with as many parameters in each layer but for a
            few of the position embeddings: ``"flat"`` (softmax attention among all leaves of a
            tree) or ``"deep_set"``.
            (default: ``"hsa"``)
        patch (int, optional): Side in pixels of the patches of pictures (``image_x``, as
            :func:`~hsa_geo.builders.from_html` makes them) that are read beside the tokens, by
            :class:`~hsa_geo.nn.PatchConv`; None reads none. (default: :obj:`None`)

    Raises:
        ShapeError: If ``attention`` is unknown, ``channels`` not a multiple of ``heads``, or
            another size none.
        MixedKeysError: If a tree has no pictures, not even none (``image_x [0, 3 p p]``), where
            ``patch`` is given.

    Example:
        >>> import torch
        >>> tree = SignalTree.from_parents(
        ...     [3, 3, 4, 4, -1], text_x=torch.tensor([[5, 0], [7, 1], [7, 0]]),
        ...     text_index=torch.tensor([0, 1, 2]))
        >>> model = SubtreeClassifier(num_ids=16, num_classes=2)
        >>> model(tree).shape, model(tree, torch.tensor([3, 4])).shape
        (torch.Size([1, 2]), torch.Size([2, 2]))
    """

    def __init__(
        self,
        num_ids: int,
        num_classes: int,
        channels: int = 64,
        num_layers: int = 1,
        heads: int = 4,
        hidden_channels: int | None = None,
        dropout: float = 0.0,
        token_dropout: float = 0.0,
        position_channels: int | None = None,
        attention: str = "hsa",
        patch: int | None = None,
    ) -> None:
        super().__init__()
        if attention not in ATTENTIONS:
            raise ShapeError(f"attention={attention!r} is unknown: use one of {ATTENTIONS}.")
        check_positive(num_ids=num_ids, num_classes=num_classes)
        check_multiple(channels, heads)
        check_share(dropout=dropout, token_dropout=token_dropout)
        hidden = 2 * channels if hidden_channels is None else hidden_channels
        if position_channels is None and attention != "deep_set":
            position_channels = 8
        self.config: dict[str, Any] = {
            "num_ids": num_ids,
            "num_classes": num_classes,
            "channels": channels,
            "num_layers": num_layers,
            "heads": heads,
            "hidden_channels": hidden,
            "dropout": dropout,
            "token_dropout": token_dropout,
            "position_channels": position_channels,
            "attention": attention,
            "patch": patch,
        }
        self.tokens = TokenEncoder(num_ids, channels, token_dropout)
        self.encoder = HSAEncoder(
            channels,
            num_layers,
            heads,
            hidden,
            dropout,
            final_norm=False,
            zero_init=True,
            **encoder_options(attention, channels, heads, position_channels),
        )
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(channels)
        self.lin = nn.Linear(channels, num_classes)
        self.direct = nn.EmbeddingBag(
            2 * num_ids, num_classes, mode="sum", include_last_offset=True
        )
        nn.init.zeros_(self.direct.weight)
        self.pictures = None
        if patch is not None:
            self.pictures = LeafFeatures({"image": PatchConv(patch, channels)}, channels)

    def forward(self, tree: SignalTree, nodes: Tensor | None = None) -> Tensor:
        """Logits of subtrees.

        Args:
            tree: A tree or a batch with a text modality.
            nodes: Ids of tree nodes ``[K]``. (default: the root of every tree)

        Returns:
            ``[K, num_classes]``, or ``[B, num_classes]`` by default.
        """
        bags = self.tokens.bags(tree)
        x = self.tokens(bags)  # [N, C]
        if self.pictures is not None:
            x = x + self.pictures(tree)
        x = self.encoder(self.dropout(x), tree)
        deep = self.lin(self.dropout(self.norm(subtree_mean(x, tree, nodes))))
        # The linear model: sum of token weights under each node over the root of their number.
        leaf = torch.cat(
            [self.direct(bags.ids, bags.offsets), bags.lengths[:, None].to(x.dtype)], 1
        )
        plan = tree.plan
        slot = plan.node_slot[nodes] if nodes is not None else slice(plan.num_trees)
        total = subtree_mean(leaf, tree, nodes) * plan.mass[slot][:, None]
        return deep + total[:, :-1] / (total[:, -1:] + 1).sqrt()

    def embedding_parameters(self) -> list[Tensor]:
        """Tables of token embeddings and weights: they want a larger learning rate."""
        return [self.tokens.embed.weight, self.direct.weight]

    def save(self, folder: str | os.PathLike[str], extra: dict[str, Any] | None = None) -> None:
        """Write ``model.safetensors`` and ``config.json`` into a folder, never a pickle.

        Args:
            folder: Where to write; made if it does not exist.
            extra: What else belongs to the model (labels, builder options), as JSON.
                (default: :obj:`None`)
        """
        save_model(self, self.config, folder, extra)

    @classmethod
    def load(
        cls, folder: str | os.PathLike[str], max_bytes: int | None = MAX_BYTES
    ) -> tuple[SubtreeClassifier, dict[str, Any]]:
        """Read what :meth:`save` wrote.

        Args:
            folder: The folder.
            max_bytes: Largest file of tensors that is read; None for any. (default: 4 GiB)

        Returns:
            The model in evaluation mode, and ``extra``.

        Raises:
            FileFormatError: If the folder does not hold a saved model of a schema that this version
                reads.
        """
        return load_model(
            folder, "SubtreeClassifier", lambda config: cls(**config), max_bytes=max_bytes
        )
