"""Load a pretrained text encoder of Hugging Face, and nothing that could run.

Weights come from safetensors files only, never from pickles; code that lies beside a model is
not run.  A folder is read without any network; a name is looked up on the model hub, or in its
cache where ``HF_HUB_OFFLINE=1`` is set.

Example:
    >>> encoder = load_encoder("sentence-transformers/all-MiniLM-L6-v2")  # doctest: +SKIP
    >>> encoder.dim, encoder.num_layers, encoder.max_pieces  # doctest: +SKIP
    (384, 6, 510)
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hsa_geo._optional import require
from hsa_geo.errors import DownloadError, FileFormatError, UnsupportedError

__all__ = ["Encoder", "load_encoder"]

# Models whose positions begin behind the id of the padding.
_SHIFTED = {"roberta", "xlm-roberta", "camembert", "mpnet", "roberta-prelayernorm", "longformer"}
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.h5", "*.msgpack")


@dataclass(frozen=True)
class Encoder:
    """A pretrained text encoder.

    Attributes:
        name: Folder or name on the hub.
        module: The model, in eval mode, without gradients.
        tokenizer: The ``tokenizers.Tokenizer``, without truncation and padding; special tokens
            that are written in a text are text like others.
        before, after: Ids of the special tokens around a text.
        pad: Id that fills up short texts of a batch.
        dim: Length of a vector.
        num_layers: Number of layers.
        max_pieces: Most pieces of a text without special tokens, :obj:`None` if any number.
        digest: sha256 of weights and tokenizer.
    """

    name: str
    module: nn.Module
    tokenizer: Any
    before: tuple[int, ...]
    after: tuple[int, ...]
    pad: int
    dim: int
    num_layers: int
    max_pieces: int | None
    digest: str


def load_encoder(
    model: str | os.PathLike[str],
    *,
    revision: str | None = None,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
) -> Encoder:
    """Load a text encoder: BERT and its relatives, or the encoder of T5.

    Args:
        model: Folder with ``config.json``, ``*.safetensors`` and a fast tokenizer, or a name on
            the hub, e.g. ``"google-t5/t5-small"``.
        revision: Branch, tag or commit on the hub. (default: its newest)
        dtype: Type to compute in. (default: :obj:`torch.float32`)
        device: Where to compute. (default: ``"cpu"``)

    Returns:
        The encoder.

    Raises:
        FileFormatError: If a folder does not hold a model, or its weights as pickles only, or not
            all of them.
        DownloadError: If there is no such model on the hub or in its cache.
        UnsupportedError: If the model brings its own code, or its tokenizer is a slow one.
        MissingPackageError: If transformers is not installed.

    Example:
        See the example of :mod:`hsa_geo.datasets.pretrained`.
    """
    local = isinstance(model, os.PathLike) or os.path.isdir(model)
    name = os.fspath(model)
    if local or name.startswith((".", "/", "~")):
        _check_folder(Path(name))
        local = True
        if revision is not None:
            raise UnsupportedError(
                f"revision={revision!r} has no effect on the folder '{name}': leave it out."
            )
    transformers = require("transformers", extra="hf", purpose="a pretrained text encoder")
    options: dict[str, Any] = {"trust_remote_code": False}
    options |= {"local_files_only": True} if local else {"revision": revision or "main"}
    try:
        with quiet(transformers):
            config = transformers.AutoConfig.from_pretrained(name, **options)
            auto = transformers.AutoModel
            if getattr(config, "is_encoder_decoder", False):
                auto = transformers.AutoModelForTextEncoding
            module, info = auto.from_pretrained(
                name,
                config=config,
                dtype=dtype,
                use_safetensors=True,
                output_loading_info=True,
                **options,
            )
            tokenizer = transformers.AutoTokenizer.from_pretrained(name, **options)
    except Exception as error:  # whatever it is, the model cannot be used
        _raise_for(error, name, local)
    missing = [key for key in info["missing_keys"] if "pooler" not in key]
    if missing:
        raise FileFormatError(
            f"'{name}' lacks {len(missing)} weights of its {type(module).__name__}, such as "
            f"'{missing[0]}', which would be random: get the model again."
        )
    if not getattr(tokenizer, "is_fast", False):
        raise UnsupportedError(
            f"the tokenizer {type(tokenizer).__name__} of '{name}' is a slow one and knows no "
            "offsets: add a tokenizer.json to the model."
        )
    module = module.eval().requires_grad_(False).to(device)
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = True
    before, after = _around(backend)
    return Encoder(
        name=name,
        module=module,
        tokenizer=backend,
        before=before,
        after=after,
        pad=tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0,
        dim=int(config.hidden_size),
        num_layers=int(config.num_hidden_layers),
        max_pieces=_max_pieces(config, tokenizer, len(before) + len(after)),
        digest=_digest(module, backend, set(info["missing_keys"])),
    )


def _check_folder(folder: Path) -> None:
    if not (folder / "config.json").is_file():
        raise FileFormatError(
            f"'{folder}' is no folder with a model (config.json): give the folder that "
            "save_pretrained made."
        )
    if not any(folder.glob("*.safetensors")):
        pickles = sorted(path.name for kind in _PICKLES for path in folder.glob(kind))
        held = f"holds its weights as {pickles[0]} only" if pickles else "holds no weights"
        raise FileFormatError(
            f"'{folder}' {held}, but only safetensors are loaded, as pickles can run anything: "
            "convert them where they are trusted, with model.save_pretrained(folder)."
        )


def _raise_for(error: Exception, name: str, local: bool) -> None:
    said = " ".join(str(error).split())[:300]
    if "trust_remote_code" in str(error):
        raise UnsupportedError(
            f"the model '{name}' brings its own code, which is not run: take one of a class that "
            "transformers has."
        ) from error
    if isinstance(error, ImportError):
        raise UnsupportedError(f"'{name}' needs a package that is missing: {said}") from error
    if local:
        raise FileFormatError(
            f"'{name}' cannot be loaded ({type(error).__name__}: {said}): get the model again."
        ) from error
    raise DownloadError(
        f"the model '{name}' cannot be loaded from the hub or its cache ({said}): check the name, "
        "that it has safetensors, and the network; or give the path of a folder."
    ) from error


@contextlib.contextmanager
def quiet(transformers: Any) -> Iterator[None]:
    """Without the bar that shows the loading of weights."""
    logging = transformers.utils.logging
    shown, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()


def _around(backend: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Special tokens that the tokenizer puts before and after a text."""
    made = backend.encode("a", add_special_tokens=True)
    special = made.special_tokens_mask
    first = special.index(0) if 0 in special else len(special)
    last = len(special) - special[::-1].index(0) if 0 in special else len(special)
    return tuple(made.ids[:first]), tuple(made.ids[last:])


def _max_pieces(config: Any, tokenizer: Any, specials: int) -> int | None:
    limits = []
    positions = getattr(config, "max_position_embeddings", None)
    if isinstance(positions, int) and positions > 0:
        if config.model_type in _SHIFTED:
            positions -= int(config.pad_token_id or 0) + 1
        limits.append(positions)
    elif isinstance(tokenizer.model_max_length, int) and tokenizer.model_max_length < 10**6:
        limits.append(tokenizer.model_max_length)
    return min(limits) - specials if limits else None


def _digest(module: nn.Module, backend: Any, random: set[str]) -> str:
    digest = hashlib.sha256(backend.to_str().encode())
    for key, value in sorted(module.state_dict().items()):
        if key in random:  # a pooler that is not used
            continue
        digest.update(f"{key} {value.dtype} {list(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
