"""Replace the attention of layers of a pretrained encoder by hierarchical attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.hf.hierarchies import Squares, Windows, hierarchy_from, to_config
from hsa_geo.hf.intercept import Layers, default_special_ids
from hsa_geo.hf.plans import Plans
from hsa_geo.ops.attention import hsa_attention
from hsa_geo.ops.inputs import TIES
from hsa_geo.ops.weights import attention_matrix

__all__ = ["Hierarchical", "load_replaced", "replace_attention", "restore_attention"]


class Hierarchical:
    """The handler of replaced layers.

    Args:
        plans: Makes the trees.
        tie: ``"block"`` or ``"key"``.
    """

    def __init__(self, plans: Plans, tie: str) -> None:
        self.plans, self.tie = plans, tie

    def begin(self, ids: Any, pixels: Any) -> None:
        """The model is about to run."""
        self.plans.begin(ids, pixels)

    @torch.compiler.disable
    def __call__(
        self,
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
        batch = self.plans.batch(attention_mask, key)
        q, k, v = batch.rows(query), batch.rows(key), batch.rows(value)
        options: dict[str, Any] = {"tie": self.tie, "scale": scaling}
        options |= batch.bias(position_bias, self.tie)
        out = hsa_attention(q, k, v, batch.plan, dropout=dropout, **options)
        theta = None
        if weights:
            theta = attention_matrix(q, k, batch.plan, **options)
            theta = _padded(theta, batch.valid, size, length)
        return batch.padded(out, size, length), theta


def replace_attention(
    model: Any,
    layers: Sequence[int] | str | None = None,
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
        model: Of transformers.
        layers: Numbers of layers from 0, or ``"all"``. (default: those of the config)
        hierarchy: Over the tokens: :class:`~hsa_geo.hf.Windows`, :class:`~hsa_geo.hf.Sentences`,
            :class:`~hsa_geo.hf.Squares`, :class:`~hsa_geo.hf.Clusters`,
            :class:`~hsa_geo.hf.Flat`, or a number of tokens to a window. (default: that of the
            config, or windows, for pictures squares, of 4)
        tie: ``"block"`` or ``"key"``, see :func:`~hsa_geo.ops.hsa_attention`. (default: that of
            the config, or ``"key"``)
        tokenizer: Says which tokens are special, beside the first and the last of a text.
            (default: the ids that the model's config names)
        special_ids: Ids of the special tokens, instead of a tokenizer.

    Returns:
        The model.

    Raises:
        UnsupportedError: If the model is a decoder, of a type that is not known, or runs another
            implementation of attention than ``"sdpa"`` or ``"eager"``; if the hierarchy does not
            suit it; if neither ``layers`` nor the config says which layers.
        ShapeError: If a layer does not exist or is named twice.

    Example:
        >>> from transformers import ViTConfig, ViTModel
        >>> config = ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        ...     intermediate_size=64, image_size=32, patch_size=4)
        >>> model = replace_attention(ViTModel(config).eval(), layers="all")
        >>> model(torch.randn(1, 3, 32, 32)).last_hidden_state.shape
        torch.Size([1, 65, 32])
    """
    layers_of = Layers.of(model)
    kept = getattr(model.config, "hsa_attention", None) or {}
    if layers is None:
        if "layers" not in kept:
            raise UnsupportedError(
                "layers=None: the model's config names none either, so say which, layers=[...] or "
                "layers='all'."
            )
        layers = kept["layers"]
    numbers = _numbers(layers, len(layers_of.modules))
    pictures = layers_of.patch_size is not None
    if hierarchy is None:
        hierarchy = kept.get("hierarchy", Squares(4) if pictures else Windows(4))
    hierarchy = hierarchy_from(hierarchy)
    if isinstance(hierarchy, Squares) and not pictures:
        raise UnsupportedError(
            f"{hierarchy} groups the patches of pictures, and this model reads texts: use "
            "Windows(...)."
        )
    tie = kept.get("tie", "key") if tie is None else tie
    if tie not in TIES:
        raise UnsupportedError(f"tie={tie!r} is unknown: use one of {TIES}.")
    if special_ids is None and tokenizer is not None:
        special_ids = tokenizer.all_special_ids
    if special_ids is None:
        special_ids = kept.get("special_ids", default_special_ids(model.config))
    setting: dict[str, Any] = {
        "layers": numbers,
        "hierarchy": to_config(hierarchy),
        "tie": tie,
        "special_ids": [int(i) for i in special_ids],
    }

    restore_attention(model)
    plans = Plans(hierarchy, tuple(setting["special_ids"]), layers_of.patch_size)
    layers_of.intercept(numbers, Hierarchical(plans, tie))
    model.config.hsa_attention = setting
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


def _numbers(layers: Sequence[int] | str, count: int) -> list[int]:
    if isinstance(layers, str):
        if layers != "all":
            raise ShapeError(f"layers={layers!r}: give a list of numbers, or 'all'.")
        return list(range(count))
    numbers = [int(number) for number in layers]
    for number in numbers:
        if not 0 <= number < count:
            raise ShapeError(f"layers={numbers} holds {number}, but layers are 0 to {count - 1}.")
    if len(set(numbers)) != len(numbers):
        raise ShapeError(f"layers={numbers} holds a layer twice: name every layer once.")
    return sorted(numbers)


def _padded(theta: Tensor, valid: Tensor | None, size: int, length: int) -> Tensor:
    """``[H, N, N]`` to ``[B, H, L, L]``, zero at padding."""
    heads = theta.size(0)
    if valid is None:
        parts = theta.view(heads, size, length, size, length)
        return parts.diagonal(dim1=1, dim2=3).permute(3, 0, 1, 2).contiguous()
    out = theta.new_zeros(size, heads, length, length)
    start = 0
    for number, count in enumerate(valid.sum(1).tolist()):
        at = valid[number].nonzero().squeeze(1)
        own = theta[:, start : start + count, start : start + count]
        out[number][:, at[:, None], at] = own
        start += count
    return out
