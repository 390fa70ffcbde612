"""Most tokens of a text that a model has positions for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hsa_geo.errors import ShapeError

__all__ = ["check_length", "most_tokens"]

#: Types whose positions begin behind the id of the padding.
_SHIFTED = ("roberta", "xlm-roberta", "mpnet")


def most_tokens(config: Any) -> int | None:
    """Tokens of a text at most, special ones included.

    Args:
        config: Of a model of transformers.

    Returns:
        Their number; None if the config names none.

    Example:
        >>> from types import SimpleNamespace
        >>> bert = SimpleNamespace(model_type="bert", max_position_embeddings=512)
        >>> roberta = {"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1}
        >>> most_tokens(bert), most_tokens(SimpleNamespace(**roberta))
        (512, 512)
    """
    positions = getattr(config, "max_position_embeddings", None)
    if not isinstance(positions, int):
        return None
    shifted = config.model_type in _SHIFTED
    return positions - (int(config.pad_token_id or 0) + 1 if shifted else 0)


def check_length(base: Any, ids: Any) -> None:
    """Whether an encoder has a position for every token.

    Args:
        base: The encoder.
        ids: Its ``input_ids [B, L]``, or anything else.

    Raises:
        ShapeError: If a text is too long.

    Example:
        >>> from transformers import BertConfig, BertModel
        >>> config = BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        ...     max_position_embeddings=16)
        >>> check_length(BertModel(config), torch.zeros(1, 16, dtype=torch.int64))
    """
    table = getattr(getattr(base, "embeddings", None), "position_embeddings", None)
    ids_given = isinstance(ids, Tensor) and ids.dim() == 2
    if not ids_given or not isinstance(table, torch.nn.Embedding):
        return
    padding = table.padding_idx  # of models whose positions begin behind it and leave it out
    most, longest = table.num_embeddings, ids.size(1)
    if padding is not None:
        most -= padding + 1
        longest = int((ids != padding).sum(1).max()) if longest > most else longest
    if longest > most:
        raise ShapeError(
            f"a text has {longest} tokens, and the model takes {most} at most: let the tokenizer "
            f"cut it, by truncation=True and max_length={most}."
        )
