"""SignalClassifier: modalities on leaves, an encoder over the hierarchy, a readout, classes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch_geometric.nn.inits import reset

from hsa_geo.data.signal_tree import SignalTree
from hsa_geo.errors import FileFormatError, ShapeError
from hsa_geo.nn.attentions import encoder_options
from hsa_geo.nn.checks import check_positive, check_share, is_size
from hsa_geo.nn.encoder import HSAEncoder
from hsa_geo.nn.leaf_features import LeafFeatures
from hsa_geo.nn.modalities import encoder_from, encoder_spec
from hsa_geo.nn.pooling import make_readout
from hsa_geo.nn.saving import MAX_BYTES, PretrainedModel, load_model, save_model
from hsa_geo.nn.structure import StructureFeatures

__all__ = ["SignalClassifier"]


class SignalClassifier(PretrainedModel, nn.Module):
    r"""Classify trees, subtrees or leaves, whatever modalities the leaves are of.

    .. math::
        \mathbf{x} = \mathrm{LeafFeatures}(\text{tree}), \quad
        \mathbf{h} = \mathrm{HSAEncoder}(\mathbf{x}, \text{tree}), \quad
        \mathbf{y}_A = \mathbf{W} \, \mathrm{LN}\big(\mathrm{readout}_{i \in A} \, \mathbf{h}_i\big)
        + \mathbf{b}

    Baselines of the same size stand behind the same interface: other layers in the blocks
    (``attention``), other readouts, and features that tell any of them the hierarchy
    (``structure``).

    ``torch.compile`` makes one graph of a model with HSA on the CPU, for trees of any shape, unless
    an encoder reads the tree itself or ``structure`` is told; all others compile in parts.

    Args:
        encoders (dict): By the name of a modality a module that maps its rows to
            ``[n, channels]``; see :class:`~hsa_geo.nn.LeafFeatures`.
        num_classes (int): Number of outputs.
        channels (int): Width, a multiple of ``heads``. (default: :obj:`64`)
        num_layers (int): Number of blocks. (default: :obj:`2`)
        heads (int): Number of heads, of attention and of the readout. (default: :obj:`4`)
        hidden_channels (int, optional): Width of the feed-forward networks.
            (default: ``4 * channels``)
        dropout (float): Dropout of the leaves, of the residual branches and before the last
            layer. (default: :obj:`0.0`)
        attention (str): What mixes the leaves of a tree: ``"hsa"``; ``"flat"``, softmax
            attention among all of them; ``"deep_set"``, their mean and maximum; ``"none"``, nothing
            does.  All have as many parameters but for a few of the positions.
            (default: ``"hsa"``)
        readout (str): ``"mean"``, ``"root"``, ``"attention"`` or ``"query"``; see
            :mod:`hsa_geo.nn.pooling`. (default: ``"mean"``)
        position_channels (int, optional): Features of the position embeddings, 0 for none: places
            among siblings for HSA, reading order (or paths) for flat attention; the others have
            none. (default: 16, or 32 for paths)
        structure (bool): Tell the leaves their depth and the path of places from the root, as
            features (:class:`~hsa_geo.nn.StructureFeatures`), and flat attention also the way from
            each leaf to each other (:class:`~hsa_geo.nn.PathPosition`,
            :class:`~hsa_geo.nn.AncestorBias`). (default: :obj:`False`)
        zero_init (bool): Blocks start as the identity; see :class:`~hsa_geo.nn.EncoderBlock`.
            (default: :obj:`True`)
        **options: Of HSA and flat attention: ``energy`` (``"dot"``, ``"l2"``), ``qk_norm``,
            ``values`` (``"own"``, ``"keys"``) and ``attention_dropout`` (default: ``0.0``); of HSA:
            ``backend`` and ``tie`` (``"block"``, ``"key"``).

    Shapes:
        - **input:** a :class:`~hsa_geo.data.SignalTree` or a batch of them, and ids of nodes
          :math:`(K)`
        - **output:** :math:`(K, \text{classes})`, by default a row per tree

    Raises:
        ShapeError: If an argument is unknown or out of range.
        UnsupportedError: If an option is none of the attention's.

    Example:
        >>> import torch
        >>> from hsa_geo.nn import LinearFeatures, Symbols
        >>> tree = SignalTree.from_parents(
        ...     [3, 3, 4, 4, -1], word_x=torch.tensor([5, 7]), word_index=torch.tensor([0, 1]),
        ...     image_x=torch.randn(1, 12), image_index=torch.tensor([2]))
        >>> encoders = {"word": Symbols(9, 32), "image": LinearFeatures(12, 32)}
        >>> model = SignalClassifier(encoders, num_classes=2, channels=32)
        >>> model(tree).shape, model(tree, torch.tensor([3, 4, 0])).shape
        (torch.Size([1, 2]), torch.Size([3, 2]))
        >>> model.leaf_logits(tree).shape
        torch.Size([3, 2])
    """

    def __init__(
        self,
        encoders: Mapping[str, nn.Module],
        num_classes: int,
        channels: int = 64,
        num_layers: int = 2,
        heads: int = 4,
        hidden_channels: int | None = None,
        dropout: float = 0.0,
        attention: str = "hsa",
        readout: str = "mean",
        position_channels: int | None = None,
        structure: bool = False,
        zero_init: bool = True,
        **options: Any,
    ) -> None:
        super().__init__()
        check_positive(num_classes=num_classes)
        if position_channels is not None and not (
            is_size(position_channels, 0) and position_channels <= 1024
        ):
            raise ShapeError(
                f"position_channels={position_channels!r}: give a number from 0 to 1024."
            )
        check_share(dropout=dropout)
        arguments = encoder_options(
            attention, channels, heads, position_channels, structure, **options
        )
        self.config: dict[str, Any] = {
            "num_classes": num_classes,
            "channels": channels,
            "num_layers": num_layers,
            "heads": heads,
            "hidden_channels": hidden_channels,
            "dropout": dropout,
            "attention": attention,
            "readout": readout,
            "position_channels": position_channels,
            "structure": structure,
            "zero_init": zero_init,
            **options,
        }
        self.features = LeafFeatures(encoders, channels)
        self.structure = StructureFeatures(channels) if structure else None
        self.encoder = HSAEncoder(
            channels, num_layers, heads, hidden_channels, dropout, zero_init=zero_init, **arguments
        )
        self.readout = make_readout(readout, channels, heads)
        self.norm = nn.LayerNorm(channels)
        self.dropout = nn.Dropout(dropout)
        self.lin = nn.Linear(channels, num_classes)

    def reset_parameters(self) -> None:
        """Draw the parameters anew, but for given tables and frozen modules."""
        for module in self.children():
            reset(module)

    def leaves(self, tree: SignalTree) -> Tensor:
        """What the encoder says of every leaf, ``[N, channels]``."""
        x = self.features(tree).to(self.norm.weight.dtype)
        if self.structure is not None:
            x = x + self.structure(tree)
        return self.encoder(self.dropout(x), tree)

    def forward(self, tree: SignalTree, nodes: Tensor | None = None) -> Tensor:
        """Logits of trees or subtrees.

        Args:
            tree: A tree or a batch with all modalities.
            nodes: Ids of tree nodes ``[K]``, inner nodes or leaves. (default: the root of every
                tree)

        Returns:
            ``[K, num_classes]``, or ``[B, num_classes]`` by default.

        Raises:
            MixedKeysError: If the tree does not have a modality.
            ShapeError: If ``nodes`` holds no node ids.
        """
        return self._classify(self.readout(self.leaves(tree), tree, nodes))

    def leaf_logits(self, tree: SignalTree) -> Tensor:
        """Logits of the leaves, by the same last layer without a readout.

        Args:
            tree: A tree or a batch with all modalities.

        Returns:
            ``[N, num_classes]``.
        """
        return self._classify(self.leaves(tree))

    def _classify(self, x: Tensor) -> Tensor:
        return self.lin(self.dropout(self.norm(x)))

    def save(self, folder: str | os.PathLike[str], extra: dict[str, Any] | None = None) -> None:
        """Write ``model.safetensors`` and ``config.json`` into a folder, never a pickle.

        Of encoders that are modules of one's own only the parameters are written.  One that has
        two modalities has them again when it is loaded.

        Args:
            folder: Where to write; made if it does not exist.
            extra: What else belongs to the model (labels, vocabulary, builder options), as JSON.
                (default: :obj:`None`)
        """
        specs: dict[str, Any] = {}
        first: dict[nn.Module, str] = {}
        for name, module in self.features.encoders.items():
            same = first.setdefault(module, name)
            specs[name] = encoder_spec(module) if same == name else {"same": same}
        save_model(self, self.config | {"encoders": specs}, folder, extra)

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        encoders: Mapping[str, nn.Module] | None = None,
        max_bytes: int | None = MAX_BYTES,
    ) -> tuple[SignalClassifier, dict[str, Any]]:
        """Read what :meth:`save` wrote.

        Args:
            folder: The folder.
            encoders: Encoders that are modules of one's own, by the names of their modalities;
                they are given the saved parameters. (default: :obj:`None`)
            max_bytes: Largest file of tensors that is read; None for any. (default: 4 GiB)

        Returns:
            The model in evaluation mode, and ``extra``.

        Raises:
            FileFormatError: If the folder does not hold a saved model of a schema that this version
                reads, or an encoder has to be given.
        """
        given = dict(encoders or {})

        def build(config: dict[str, Any]) -> SignalClassifier:
            specs = dict(config["encoders"])
            missing = [name for name, spec in specs.items() if spec is None and name not in given]
            if missing or given.keys() - specs.keys():
                raise FileFormatError(
                    f"{folder} holds a model with the encoders {list(specs)}, of which {missing} "
                    f"are modules of one's own, and {list(given)} were given: give "
                    "load(folder, encoders={name: module}) for those."
                )
            made: dict[str, nn.Module] = {}
            for name, spec in specs.items():
                if name in given:
                    made[name] = given[name]
                elif "same" in spec:
                    made[name] = made[spec["same"]]
                else:
                    made[name] = encoder_from(spec)
            rest = {name: value for name, value in config.items() if name != "encoders"}
            return cls(made, **rest)

        return load_model(folder, cls.__name__, build, _of_one_dtype, max_bytes)

    def __repr__(self) -> str:
        return (
            f"{self.__class__.__name__}({list(self.features.encoders)}, "
            f"{self.config['num_classes']}, {self.config['channels']}, "
            f"attention={self.config['attention']!r}, readout={self.config['readout']!r})"
        )


def _of_one_dtype(parameter: str) -> str | None:
    """Parameters that have one dtype in any model that runs: an encoder may have its own."""
    parts = parameter.split(".")
    if parts[0] != "features":
        return ""
    return ".".join(parts[:3]) if parts[1] == "encoders" and parts[3:] != ["table"] else None
