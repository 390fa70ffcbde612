"""Replace the attention of layers of a pretrained encoder by hierarchical attention."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from hsa_geo.errors import HSAWarning, ShapeError, UnsupportedError
from hsa_geo.hf.choose import Choice
from hsa_geo.hf.hierarchies import Squares, Windows, hierarchy_from
from hsa_geo.hf.intercept import Layers, default_special_ids, register, tokenizer_special_ids
from hsa_geo.hf.plans import Pass, Plans
from hsa_geo.hf.setting import (
    Setting,
    check_special_ids,
    check_tie,
    kept_special_ids,
    layer_numbers,
    setting_from,
)
from hsa_geo.ops.attention import hsa_attention

__all__ = ["Hierarchical", "load_replaced", "replace_attention", "restore_attention"]


class Hierarchical:
    """The handler of replaced layers.

    Args:
        plans: Makes the trees.
        tie: ``"block"`` or ``"key"``.
    """

    def __init__(self, plans: Plans, tie: str) -> None:
        self.plans, self.tie = plans, tie

    def begin(self, ids: Any, pixels: Any) -> Pass:
        """The model is about to run."""
        return self.plans.begin(ids, pixels)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """In a new process transformers does not know our names yet."""
        register()
        self.__dict__.update(state)

    @torch.compiler.disable
    def __call__(
        self,
        state: Pass,
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        dropout: float = 0.0,
        scaling: float | None = None,
        weights: bool = False,
        position_bias: Tensor | None = None,
        **_: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend; ``[B, H, L, D]`` to ``[B, L, H, D]``."""
        size, _heads, length, _dim = query.shape
        batch = state.batch(attention_mask, key)
        q, k, v = batch.rows(query), batch.rows(key), batch.rows(value)
        options: dict[str, Any] = {"tie": self.tie, "scale": scaling}
        options |= batch.bias(position_bias, self.tie)
        out = hsa_attention(q, k, v, batch.plan, dropout=dropout, **options)
        theta = None
        if weights:  # the outputs for unit vectors as values, one for each place in a text
            unit = torch.eye(length, dtype=q.dtype, device=q.device)[batch.place]
            theta = hsa_attention(
                q, k, unit[:, None].expand(-1, q.size(1), -1), batch.plan, **options
            )
            theta = batch.padded(theta, size, length).transpose(1, 2)
        return batch.padded(out, size, length), theta


def replace_attention(
    model: Any,
    layers: Any = None,
    hierarchy: Any = None,
    tie: str | None = None,
    *,
    tokenizer: Any = None,
    special_ids: Sequence[int] | None = None,
) -> Any:
    """Replace softmax attention in layers of a pretrained encoder.

    Queries, keys and values stay as they are; each replaced layer attends over trees of its tokens
    instead of over all pairs.  Works in place, for BERT, RoBERTa, XLM-RoBERTa, DistilBERT, MPNet
    (whose biases of distances enter as their means over blocks), ViT and DINOv2, with padding on
    either side, in training and in evaluation.

    The setting is kept in ``model.config.hsa_attention``, so that ``save_pretrained`` writes it;
    after ``from_pretrained``, call ``replace_attention(model)``, or :func:`load_replaced`.

    Args:
        model: Of transformers; with its head, if there is one, whose ``save_pretrained`` else
            writes no setting.
        layers: Numbers of layers from 0; ``"all"``; a dict with a hierarchy and a tie for each,
            ``{1: (Windows(8), "key")}``; or what :func:`~hsa_geo.hf.choose_layers` gives.
            (default: those of the config)
        hierarchy: Over the tokens: :class:`~hsa_geo.hf.Windows`, :class:`~hsa_geo.hf.Sentences`,
            :class:`~hsa_geo.hf.Squares`, :class:`~hsa_geo.hf.Clusters`,
            :class:`~hsa_geo.hf.Flat`, or a number of tokens to a window. (default: what
            ``layers`` or the config say, or windows, for pictures squares, of 4)
        tie: ``"block"`` or ``"key"``, see :func:`~hsa_geo.ops.hsa_attention`. (default: what
            ``layers`` or the config say, or ``"key"``)
        tokenizer: Its class, separator and begin and end tokens are special, beside the first and
            the last token of a text. (default: the ids that the model's config names, first of
            all in ``hsa_attention``)
        special_ids: Ids of the special tokens, instead of a tokenizer.

    Returns:
        The model.

    Raises:
        UnsupportedError: If the model is a decoder, of a type that is not known, or runs another
            implementation of attention than ``"sdpa"`` or ``"eager"``; if the hierarchy does not
            suit it; if neither ``layers`` nor the config says which layers, or the config holds no
            setting.
        ShapeError: If a layer does not exist or is named twice, or ids are none.

    Warns:
        HSAWarning: If layers that were replaced before are not named again: a call sets all layers.

    Example:
        >>> from transformers import ViTConfig, ViTModel
        >>> config = ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        ...     intermediate_size=64, image_size=32, patch_size=4)
        >>> model = replace_attention(ViTModel(config).eval(), layers="all")
        >>> model(torch.randn(1, 3, 32, 32)).last_hidden_state.shape
        torch.Size([1, 65, 32])
    """
    found = Layers.of(model)
    kept = getattr(model.config, "hsa_attention", None)
    count, pictures = len(found.modules), found.patch_size is not None
    given = setting_from(kept, count) if layers is None else {}
    if layers is None and "layers" not in given:
        raise UnsupportedError(
            "layers=None: the model's config names none either, so say which, layers=[...] or "
            "layers='all'."
        )
    layers = given["layers"] if layers is None else layers
    if isinstance(layers, Choice):
        layers = {option.layer: (option.hierarchy, option.tie) for option in layers.options}
    numbers = layer_numbers(layers, count)
    options: dict[int, tuple[Any, str]] = {}
    for number in numbers:
        usual = (Squares(4) if pictures else Windows(4), "key")
        own = layers[number] if isinstance(layers, Mapping) else usual
        if not isinstance(own, tuple) or len(own) != 2:
            raise ShapeError(f"layers={layers!r}: give (hierarchy, tie) for every layer.")
        options[number] = (
            hierarchy_from(own[0] if hierarchy is None else hierarchy),
            check_tie(own[1] if tie is None else tie),
        )
    if special_ids is None and tokenizer is not None:
        special_ids = tokenizer_special_ids(tokenizer)
    if special_ids is None:
        named = given.get("special_ids", kept_special_ids(kept))
        special_ids = default_special_ids(model.config) if named is None else named
    setting = Setting(options, check_special_ids(special_ids))
    setting.check(pictures)
    config = setting.config() if options else None

    before = [n for n, module in enumerate(found.modules) if "_hsa_handler" in vars(module)]
    dropped = [number for number in before if number not in options]
    if dropped and options:
        warnings.warn(
            f"layers {dropped}, replaced before, have the model's own attention again, since a "
            "call sets all layers: name them all in one, {layer: (hierarchy, tie)}, or call "
            "restore_attention(model) before to say that this is meant.",
            HSAWarning,
            stacklevel=2,
        )
    restore_attention(model)
    plans: dict[Any, Hierarchical] = {}
    for key in options.values():  # layers of one hierarchy share their plans
        if key not in plans:
            shared = Plans(key[0], setting.special_ids, found.patch_size)
            plans[key] = Hierarchical(shared, key[1])
    found.intercept({number: plans[key] for number, key in options.items()})
    if config is not None:
        model.config.hsa_attention = config
    elif hasattr(model.config, "hsa_attention"):  # which would be that of another model
        del model.config.hsa_attention
    return model


def restore_attention(model: Any) -> Any:
    """Undo :func:`replace_attention`, in place.

    Args:
        model: Of transformers; one whose attention was not replaced stays as it is.

    Returns:
        The model.

    Example:
        >>> from transformers import BertConfig, BertModel
        >>> config = BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
        >>> "hsa_attention" in restore_attention(BertModel(config)).config.to_dict()
        False
    """
    layers = Layers.of(model)
    if layers.handled:
        layers.release()
        if hasattr(model.config, "hsa_attention"):
            del model.config.hsa_attention
    return model


def load_replaced(auto_class: Any, path: Any, **options: Any) -> Any:
    """Load a model that was saved with replaced layers, and replace them.

    Args:
        auto_class: Class of transformers with ``from_pretrained``, such as ``AutoModel``.
        path: Folder or name on the hub.
        **options: Of ``from_pretrained``.

    Returns:
        The model, in evaluation mode as ``from_pretrained`` leaves it.

    Raises:
        UnsupportedError: If its config knows nothing of replaced layers.

    Example:
        >>> import tempfile
        >>> from transformers import AutoModel, BertConfig, BertModel
        >>> config = BertConfig(hidden_size=8, num_hidden_layers=2, num_attention_heads=2)
        >>> model = replace_attention(BertModel(config), layers=[1], hierarchy=8)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save_pretrained(folder)
        ...     load_replaced(AutoModel, folder).config.hsa_attention["hierarchy"]["window"]
        8
    """
    return replace_attention(auto_class.from_pretrained(path, **options))
