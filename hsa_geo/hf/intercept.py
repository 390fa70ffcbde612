"""Put a function of one's own in the place of attention, in models of transformers.

Models ask for their attention by name.  Under a name of ours every layer calls :func:`_attend`,
which goes on to the layer's *handler* if it has one, and to the model's own attention if not.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from torch import Tensor

from hsa_geo._optional import require
from hsa_geo.errors import UnsupportedError
from hsa_geo.hf.lengths import check_length
from hsa_geo.hf.mpnet import begin_pass, end_pass, mpnet_attention, mpnet_forward, state_of

__all__ = ["Handler", "Layers", "default_special_ids", "original_attention", "register"]

#: By type of model: the class of its attention.
KINDS = {
    "bert": "BertSelfAttention",
    "roberta": "RobertaSelfAttention",
    "xlm-roberta": "XLMRobertaSelfAttention",
    "distilbert": "DistilBertSelfAttention",
    "mpnet": "MPNetSelfAttention",
    "vit": "ViTAttention",
    "dinov2": "Dinov2Attention",
}
#: Types whose attention does not ask for it by name: the modules themselves are changed.
_BY_MODULE = ("mpnet",)
#: Types that read pictures.
PICTURES = ("vit", "dinov2")
#: Implementations of attention that layers without a handler go on with.
ORIGINALS = ("sdpa", "eager")
_PREFIX = "hsa_geo_"


class Handler(Protocol):
    """In the place of a layer's attention."""

    def begin(self, ids: Any, pixels: Any) -> Any:
        """The model is about to run, on these ids or pictures; what its layers are to know."""

    def __call__(
        self,
        state: Any,
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        **options: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """``[B, H, L, D]`` to ``[B, L, H, D]``, and the weights or None.

        ``state`` is what :meth:`begin` gave for this pass.  Options are ``dropout``, ``scaling``,
        ``weights`` (whether these are wanted) and, for encoders that have it, ``position_bias
        [B, H, L, L]``; others may come and mean nothing.
        """


@dataclass(frozen=True)
class Layers:
    """The attention of an encoder, layer by layer.

    Attributes:
        model: The model, with a head or without.
        base: The encoder in it.
        modules: Attention modules by layer.
        patch_size: Height and width of a patch, for models of pictures.
    """

    model: Any
    base: Any
    modules: list[Any]
    patch_size: tuple[int, int] | None

    @classmethod
    def of(cls, model: Any) -> Layers:
        """Find them.

        Raises:
            UnsupportedError: If the model is a decoder, of a type that is not known, or runs
                another implementation of attention than ``"sdpa"`` or ``"eager"``.
        """
        base = getattr(model, "base_model", None)
        config: Any = getattr(model, "config", None)
        if base is None or config is None:
            raise UnsupportedError(
                f"model is a {type(model).__name__}: give a model of transformers."
            )
        kind = getattr(config, "model_type", None)
        if kind not in KINDS:
            raise UnsupportedError(
                f"models of type {kind!r} are not known: only encoders of the types "
                f"{sorted(KINDS)} are."
            )
        if getattr(config, "is_decoder", False) or getattr(config, "add_cross_attention", False):
            raise UnsupportedError(
                "the model is a decoder, whose attention is causal: hierarchies are for encoders, "
                "so load it with is_decoder=False."
            )
        name = KINDS[kind]
        modules = [module for module in base.modules() if type(module).__name__ == name]
        if len(modules) != config.num_hidden_layers:
            raise UnsupportedError(
                f"the model has {len(modules)} modules {name} and {config.num_hidden_layers} "
                "layers: it is built in a way that is not known."
            )
        patch = config.patch_size if kind in PICTURES else None
        size = (patch, patch) if isinstance(patch, int) else patch and (patch[0], patch[1])
        return cls(model, base, modules, size)

    @property
    def handled(self) -> bool:
        """Whether some layer has a handler."""
        return "_hsa_handlers" in self.base.__dict__

    def intercept(self, handlers: Mapping[int, Handler]) -> None:
        """Give layers handlers.

        The model gets a copy of its config, which other models may share.

        Args:
            handlers: By number of a layer.

        Raises:
            UnsupportedError: If layers have handlers already, or the model runs another
                implementation of attention than ``"sdpa"`` or ``"eager"``.
        """
        if self.handled:
            raise UnsupportedError(
                "attention of the model is replaced already: restore_attention(model) first."
            )
        by_module = self.model.config.model_type in _BY_MODULE
        name = self.model.config._attn_implementation or "eager"
        original = "eager" if by_module else name.removeprefix(_PREFIX)
        if original not in ORIGINALS:
            raise UnsupportedError(
                f"the model runs attn_implementation={original!r}: load it with one of {ORIGINALS}."
            )
        register()
        self._own_config()
        for number, handler in handlers.items():
            self.modules[number]._hsa_handler = handler
            if by_module:
                self.modules[number].forward = partial(mpnet_forward, self.modules[number])
        self.base._hsa_handlers = list({id(h): h for h in handlers.values()}.values())
        self.base.register_forward_pre_hook(_begin, with_kwargs=True)
        if by_module:
            self.base.register_forward_hook(end_pass, always_call=True)
        else:
            self.model.set_attn_implementation(_PREFIX + original)

    def _own_config(self) -> None:
        shared = self.model.config
        own = copy.deepcopy(shared)
        for module in self.model.modules():
            if module.__dict__.get("config") is shared:
                module.config = own

    def release(self) -> None:
        """Take the handlers away; nothing happens where there are none."""
        if not self.handled:
            return
        del self.base._hsa_handlers
        for module in self.modules:
            module.__dict__.pop("_hsa_handler", None)
            module.__dict__.pop("forward", None)
        # By function: a copied model has copies of the hooks, but the handles are the original's.
        for number, hook in list(self.base._forward_pre_hooks.items()):
            if hook is _begin:
                del self.base._forward_pre_hooks[number]
                self.base._forward_pre_hooks_with_kwargs.pop(number, None)
        for number, hook in list(self.base._forward_hooks.items()):
            if hook is end_pass:
                del self.base._forward_hooks[number]
                self.base._forward_hooks_always_called.pop(number, None)
        name = self.model.config._attn_implementation
        if name is not None and name.startswith(_PREFIX):
            self.model.set_attn_implementation(name.removeprefix(_PREFIX))

    @contextmanager
    def intercepted(self, handlers: Handler | Mapping[int, Handler]) -> Iterator[None]:
        """Layers have handlers for a while: all of them one, or each its own."""
        if not isinstance(handlers, Mapping):
            handlers = dict.fromkeys(range(len(self.modules)), handlers)
        self.intercept(handlers)
        try:
            yield
        finally:
            self.release()


def default_special_ids(config: Any) -> list[int]:
    """Ids of special tokens as far as a model's config knows them.

    Args:
        config: Of transformers.

    Returns:
        The ids, ascending.

    Example:
        >>> from types import SimpleNamespace
        >>> default_special_ids(SimpleNamespace(sep_token_id=2, bos_token_id=0, eos_token_id=None))
        [0, 2]
    """
    names = ("bos_token_id", "eos_token_id", "sep_token_id", "cls_token_id")
    found = [getattr(config, name, None) for name in names]
    return sorted({i for i in found if isinstance(i, int)})


def tokenizer_special_ids(tokenizer: Any) -> list[int]:
    """Ids of the tokens that stand around and between texts; not of unknown or masked words.

    Args:
        tokenizer: Of transformers.

    Returns:
        The ids, ascending.

    Raises:
        UnsupportedError: If it names none.

    Example:
        >>> from types import SimpleNamespace
        >>> tokenizer_special_ids(SimpleNamespace(cls_token_id=5, sep_token_id=6, unk_token_id=4))
        [5, 6]
    """
    found = default_special_ids(tokenizer)
    if not found:
        raise UnsupportedError(
            f"tokenizer={tokenizer!r} names no class, separator, begin or end token: give "
            "special_ids."
        )
    return found


def original_attention(module: Any) -> Any:
    """The function that an attention module would have called.

    Args:
        module: A module of a model whose layers have handlers.

    Returns:
        The function.
    """
    config = getattr(module, "config", None)
    if config is None:
        return mpnet_attention
    name = config._attn_implementation.removeprefix(_PREFIX)
    if name == "eager":  # every model has its own
        return sys.modules[type(module).__module__].eager_attention_forward
    return sys.modules["transformers.modeling_utils"].ALL_ATTENTION_FUNCTIONS[name]


def _begin(
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Before the base model runs: what handlers need to know of this pass goes along with it."""
    given = args[0] if args else None
    main = getattr(module, "main_input_name", "input_ids")
    ids = kwargs.get("input_ids", given if main == "input_ids" else None)
    pixels = kwargs.get("pixel_values", given if main == "pixel_values" else None)
    if kwargs.get("position_ids") is None:
        check_length(module, ids)
    states = {id(handler): handler.begin(ids, pixels) for handler in module._hsa_handlers}
    if module.config.model_type in _BY_MODULE:
        begin_pass(states)
        return None
    if not str(module.config._attn_implementation).startswith(_PREFIX):
        raise UnsupportedError(
            f"attn_implementation was set to {module.config._attn_implementation!r} after layers "
            "were replaced, which switches them off: restore_attention(model), and replace them "
            "again."
        )
    return args, {**kwargs, "hsa_pass": states}


def register() -> None:
    """Make our names known to transformers, once."""
    models = require("transformers.modeling_utils", extra="hf", purpose="hsa_geo.hf")
    masks = require("transformers.masking_utils", extra="hf", purpose="hsa_geo.hf")
    for original in ORIGINALS:
        name = _PREFIX + original
        if name not in models.ALL_ATTENTION_FUNCTIONS:
            models.ALL_ATTENTION_FUNCTIONS.register(name, _attend)
            mask = masks.ALL_MASK_ATTENTION_FUNCTIONS[original]
            masks.ALL_MASK_ATTENTION_FUNCTIONS.register(name, mask)


def _attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attention of a layer: its handler's, or what it was."""
    states = options.pop("hsa_pass", None)
    handler: Handler | None = getattr(module, "_hsa_handler", None)
    tensors = (module, query, key, value, attention_mask)
    result: tuple[Tensor, Tensor | None]
    if handler is None:
        result = original_attention(module)(*tensors, **options)
    else:
        eager = module.config._attn_implementation.endswith("eager")  # the one that gives weights
        wanted = options.get("output_attentions") or getattr(
            module.config, "output_attentions", False
        )
        state = state_of(states, handler)
        result = handler(state, *tensors, weights=eager and bool(wanted), **options)
    return result
