"""Replace the attention of layers of a pretrained encoder by hierarchical attention."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from hsa_geo._optional import require
from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.hf.hierarchies import Squares, Windows, hierarchy_from, to_config
from hsa_geo.hf.plans import Plans
from hsa_geo.ops.attention import attention_matrix, hsa_attention
from hsa_geo.ops.inputs import TIES

__all__ = ["attention_layers", "load_replaced", "replace_attention", "restore_attention"]

#: By type of model: the class of its attention.
_KINDS = {
    "bert": "BertSelfAttention",
    "roberta": "RobertaSelfAttention",
    "xlm-roberta": "XLMRobertaSelfAttention",
    "distilbert": "DistilBertSelfAttention",
    "vit": "ViTAttention",
    "dinov2": "Dinov2Attention",
}
_PICTURES = ("vit", "dinov2")
#: Implementations that layers which are not replaced go on with.
_ORIGINALS = ("sdpa", "eager")


class _Replaced:
    """What a model knows of its replacement."""

    def __init__(self, plans: Plans, tie: str, original: str) -> None:
        self.plans, self.tie, self.original = plans, tie, original
        self.hook: Any = None


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
    instead of over all pairs.  Works in place, for BERT, RoBERTa, XLM-RoBERTa, DistilBERT, ViT and
    DINOv2, with padding on either side, in training and in evaluation.

    The setting is kept in ``model.config.hsa_attention``, so that ``save_pretrained`` writes it;
    after ``from_pretrained``, call ``replace_attention(model)``, or :func:`load_replaced`.

    Args:
        model: Of transformers.
        layers: Numbers of layers from 0, or ``"all"``. (default: those of the config)
        hierarchy: Over the tokens: :class:`~hsa_geo.hf.Windows`, :class:`~hsa_geo.hf.Sentences`,
            :class:`~hsa_geo.hf.Squares`, :class:`~hsa_geo.hf.Flat`, or a number of tokens to a
            window. (default: that of the config, or windows, for pictures squares, of 4)
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
    transformers = require("transformers", extra="hf", purpose="hsa_geo.hf")
    base = _base(model)
    modules: list[Any] = list(attention_layers(model))
    kept = getattr(model.config, "hsa_attention", None) or {}
    if layers is None:
        if "layers" not in kept:
            raise UnsupportedError(
                "layers=None: the model's config names none either, so say which, layers=[...] or "
                "layers='all'."
            )
        layers = kept["layers"]
    numbers = _numbers(layers, len(modules))
    pictures = model.config.model_type in _PICTURES
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
        special_ids = kept.get("special_ids", _config_ids(model.config))

    restore_attention(model)
    original = model.config._attn_implementation or "eager"
    if original not in _ORIGINALS:
        raise UnsupportedError(
            f"the model runs attn_implementation={original!r}: load it with one of {_ORIGINALS}."
        )
    _register(transformers)
    patch = getattr(model.config, "patch_size", None) if pictures else None
    patch_size = (patch, patch) if isinstance(patch, int) else patch and (patch[0], patch[1])
    plans = Plans(hierarchy, tuple(int(i) for i in special_ids), patch_size)
    state = _Replaced(plans, tie, original)
    base._hsa_replaced = state
    for number in numbers:
        modules[number]._hsa_replaced = state
    state.hook = base.register_forward_pre_hook(_begin, with_kwargs=True)
    model.set_attn_implementation(f"hsa_geo_{original}")
    model.config.hsa_attention = {
        "layers": numbers,
        "hierarchy": to_config(hierarchy),
        "tie": tie,
        "special_ids": list(plans.special_ids),
    }
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
    base = _base(model)
    state = base.__dict__.pop("_hsa_replaced", None)
    if state is None:
        return model
    for module in base.modules():
        module.__dict__.pop("_hsa_replaced", None)
    # A copied model has copies of the hooks, whose handles belong to the model it was copied from.
    for number, hook in list(base._forward_pre_hooks.items()):
        if hook is _begin:
            del base._forward_pre_hooks[number]
            base._forward_pre_hooks_with_kwargs.pop(number, None)
    model.set_attn_implementation(state.original)
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


def attention_layers(model: Any) -> list[nn.Module]:
    """The attention modules of an encoder, in order of its layers.

    Raises:
        UnsupportedError: If the model is a decoder, or of a type that is not known.
    """
    config: Any = getattr(model, "config", None)
    kind = getattr(config, "model_type", None)
    if kind not in _KINDS:
        raise UnsupportedError(
            f"models of type {kind!r} are not known: only encoders of the types {sorted(_KINDS)} "
            "are."
        )
    if getattr(config, "is_decoder", False) or getattr(config, "add_cross_attention", False):
        raise UnsupportedError(
            "the model is a decoder, whose attention is causal: hierarchies are for encoders, so "
            "load it with is_decoder=False."
        )
    name = _KINDS[kind]
    found = [module for module in model.modules() if type(module).__name__ == name]
    if len(found) != config.num_hidden_layers:
        raise UnsupportedError(
            f"the model has {len(found)} modules {name} and {config.num_hidden_layers} layers: it "
            "is built in a way that is not known."
        )
    return found


def _base(model: Any) -> Any:
    base = getattr(model, "base_model", None)
    if not isinstance(base, nn.Module):
        raise UnsupportedError(
            f"model is a {type(model).__name__}: give a model of transformers with a base_model."
        )
    return base


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


def _config_ids(config: Any) -> list[int]:
    """Ids of special tokens as far as the config knows them."""
    names = ("bos_token_id", "eos_token_id", "sep_token_id", "cls_token_id")
    found = [getattr(config, name, None) for name in names]
    return sorted({i for i in found if isinstance(i, int)})


def _begin(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Before the base model runs: what its layers need to know of its inputs."""
    given = args[0] if args else None
    main = getattr(module, "main_input_name", "input_ids")
    ids = kwargs.get("input_ids", given if main == "input_ids" else None)
    pixels = kwargs.get("pixel_values", given if main == "pixel_values" else None)
    module._hsa_replaced.plans.begin(ids, pixels)


def _register(transformers: Any) -> None:
    """Make the implementations known to transformers, once."""
    functions = sys.modules["transformers.modeling_utils"].ALL_ATTENTION_FUNCTIONS
    masks = importlib_masks()
    for original in _ORIGINALS:
        name = f"hsa_geo_{original}"
        if name not in functions:
            functions.register(name, _forward)
            masks.register(name, masks[original])


def importlib_masks() -> Any:
    """The interface that makes masks."""
    masks = require("transformers.masking_utils", extra="hf", purpose="hsa_geo.hf")
    return masks.ALL_MASK_ATTENTION_FUNCTIONS


def _forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attention of a layer, ``[B, H, L, D]`` to ``[B, L, H, D]``: replaced, or as it was."""
    state: _Replaced | None = getattr(module, "_hsa_replaced", None)
    if state is None:
        return _original(module)(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **options
        )
    return _hierarchical(state, query, key, value, attention_mask, dropout, scaling)


def _original(module: Any) -> Any:
    """The function that the layer would have called."""
    name = module.config._attn_implementation.removeprefix("hsa_geo_")
    if name == "eager":  # every model has its own
        return sys.modules[type(module).__module__].eager_attention_forward
    return sys.modules["transformers.modeling_utils"].ALL_ATTENTION_FUNCTIONS[name]


@torch.compiler.disable
def _hierarchical(
    state: _Replaced,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout: float,
    scaling: float | None,
) -> tuple[Tensor, Tensor | None]:
    size, heads, length, _ = query.shape
    batch = state.plans.batch(mask, size, length, query.device)
    valid, plan = batch.valid, batch.plan

    def rows(x: Tensor) -> Tensor:  # [B, H, L, D] to [N, H, D]
        x = x.transpose(1, 2)
        return x.reshape(size * length, heads, -1) if valid is None else x[valid]

    q, k, v = rows(query), rows(key), rows(value)
    options: dict[str, Any] = {"tie": state.tie, "scale": scaling}
    out = hsa_attention(q, k, v, plan, dropout=dropout, **options)
    if valid is None:
        out = out.view(size, length, heads, -1)
    else:  # padding gets zeros
        full = out.new_zeros(size * length, heads, out.size(-1))
        out = full.index_copy(0, valid.flatten().nonzero().squeeze(1), out)
        out = out.view(size, length, heads, -1)
    weights = None
    if state.original == "eager":  # which is the one that gives weights
        weights = _padded(attention_matrix(q, k, plan, **options), valid, size, length)
    return out, weights


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
