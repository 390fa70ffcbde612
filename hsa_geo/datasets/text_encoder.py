"""Vectors of words and of texts from a frozen pretrained encoder.

A word's vector is the mean of those of the tokenizer's pieces that it holds; pieces of long texts
are read in windows (:mod:`hsa_geo.datasets.text_windows`).  Texts of like length are computed
together, which changes nothing but the time.

Example:
    >>> encoder = TextEncoder("models/minilm")  # doctest: +SKIP
    >>> vectors, rows = encoder.words(["to be"], [[[0, 2], [3, 5]]])[0]  # doctest: +SKIP
    >>> vectors.shape, rows  # doctest: +SKIP
    (torch.Size([2, 384]), tensor([0, 1]))
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hsa_geo.datasets.pretrained import load_encoder
from hsa_geo.datasets.progress import track
from hsa_geo.datasets.text_windows import batches_by_length, pieces_of_words, windows
from hsa_geo.errors import ShapeError

__all__ = ["TextEncoder"]

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class _Window:
    text: int
    start: int  # of its pieces in the text
    first: int  # of those that it is for
    last: int
    ids: list[int]


class TextEncoder:
    r"""A frozen encoder of texts.

    Args:
        model: Folder of a model or its name on the hub; see
            :func:`hsa_geo.datasets.pretrained.load_encoder`.
        layer: Which vectors: ``-1`` after the last layer, ``-2`` after the one before, and so on;
            ``1`` after the first, and so on; ``0`` those that go into the model, the same for a
            piece in every context (without positions). (default: ``-1``)
        window: Most pieces of a window, special tokens not counted.
            (default: what the model takes, at most 510)
        stride: Pieces from one window to the next. (default: three quarters of the window)
        batch_pieces: Most pieces of a batch, padding included. (default: ``4096``)
        dtype: Type to compute in; :obj:`torch.bfloat16` takes half the time on processors that
            have it, and changes vectors by about a hundredth. (default: :obj:`torch.float32`)
        device: Where to compute. (default: ``"cpu"``)
        revision: Branch, tag or commit on the hub. (default: its newest)

    Raises:
        ShapeError: If ``layer``, ``window``, ``stride`` or ``batch_pieces`` is out of range.
        FileFormatError, DownloadError, UnsupportedError, MissingPackageError: As
            :func:`~hsa_geo.datasets.pretrained.load_encoder`.

    Example:
        See the example of :mod:`hsa_geo.datasets.text_encoder`.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        layer: int = -1,
        window: int | None = None,
        stride: int | None = None,
        batch_pieces: int = 4096,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
        revision: str | None = None,
    ) -> None:
        self.encoder = load_encoder(model, revision=revision, dtype=dtype, device=device)
        most, layers = self.encoder.max_pieces, self.encoder.num_layers
        if not -layers <= layer <= layers:
            raise ShapeError(
                f"layer={layer} is none of the {layers} layers: give -{layers} to {layers}, where "
                "0 is what goes into the first."
            )
        if window is not None and most is not None and window > most:
            raise ShapeError(f"window={window} is more than the {most} pieces the model takes.")
        if batch_pieces < 1:
            raise ShapeError(f"batch_pieces={batch_pieces} is no number of pieces: give 1 or more.")
        self.layer = layer + layers + 1 if layer < 0 else layer
        self.window = window if window is not None else min(most or 510, 510)
        self.stride = stride if stride is not None else max(1, self.window * 3 // 4)
        windows(0, self.window, self.stride)  # checks them
        self.batch_pieces, self.dtype, self.device = batch_pieces, dtype, torch.device(device)

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return self.encoder.dim

    @property
    def settings(self) -> dict[str, Any]:
        """What decides the vectors, as JSON can hold it."""
        return {
            "model": os.path.basename(os.path.normpath(self.encoder.name)),
            "digest": self.encoder.digest,
            "layer": self.layer,
            "window": self.window,
            "stride": self.stride,
            "dtype": str(self.dtype).removeprefix("torch."),
            "dim": self.dim,
        }

    def __repr__(self) -> str:
        names = ("dim", "layer", "window", "stride", "dtype")
        shown = ", ".join(f"{name}={self.settings[name]}" for name in names)
        return f"{type(self).__name__}({self.settings['model']}, {shown})"

    def words(
        self,
        texts: Sequence[str],
        spans: Sequence[Any],
        *,
        done: Callable[[int], Any] | None = None,
    ) -> list[tuple[Tensor, Tensor]]:
        """Vectors of the words of texts.

        Args:
            texts: The texts.
            spans: For each, start and end ``[N, 2]`` of its words, in characters, in order;
                empty ones are no words.
            done: Called with a number of texts whenever so many more are ready.
                (default: :obj:`None`)

        Returns:
            For each text, vectors ``[n, dim]`` float32 and the words they belong to ``[n]`` int64,
            ascending.  Words that the tokenizer makes nothing of (control characters, say) have
            no vector.

        Raises:
            ShapeError: If there is not one list of spans for each text, or words overlap.

        Example:
            See the example of :mod:`hsa_geo.datasets.text_encoder`.
        """
        if len(texts) != len(spans):
            raise ShapeError(f"{len(texts)} texts and spans of {len(spans)}: give one for each.")
        ids, pairs, rows = [], [], []
        for text, words in zip(texts, spans):
            made = self._tokens(text)
            ids.append(made.ids)
            offsets = np.array(made.offsets, dtype=np.int64).reshape(-1, 2)
            piece, place, held = map(torch.from_numpy, pieces_of_words(offsets, words))
            pairs.append((piece, place))
            rows.append(held)
        sums = [torch.zeros(len(held), self.dim) for held in rows]
        wanted = [piece.numpy() for piece, _ in pairs]
        for part, hidden in self._hidden(ids, done, wanted):
            piece, place = pairs[part.text]
            lo, hi = torch.searchsorted(piece, torch.tensor([part.first, part.last])).tolist()
            values = hidden[len(self._before) + piece[lo:hi] - part.start]
            sums[part.text].index_add_(0, place[lo:hi], values)
        for total, (_, place) in zip(sums, pairs):
            total.div_(torch.bincount(place, minlength=len(total)).clamp(min=1).unsqueeze(1))
        return list(zip(sums, rows))

    def sentences(
        self, texts: Sequence[str], *, normalise: bool = True, log: bool = False
    ) -> Tensor:
        """One vector for each text: the mean over its pieces and special tokens.

        Of texts of one window that is what ``sentence-transformers`` computes for models with
        mean pooling.

        Args:
            texts: The texts.
            normalise: Scale the vectors to length 1. (default: :obj:`True`)
            log: Show progress. (default: :obj:`False`)

        Returns:
            ``[len(texts), dim]`` float32; zeros for a text without pieces.

        Example:
            >>> encoder.sentences(["to be", "or not"]).shape  # doctest: +SKIP
            torch.Size([2, 384])
        """
        ids = [self._tokens(text).ids for text in texts]
        out, counts = torch.zeros(len(texts), self.dim), torch.zeros(len(texts), 1)
        bar = iter(track(range(len(texts)), "Encoding texts", enabled=log))
        for part, hidden in self._hidden(ids, lambda n: [next(bar, None) for _ in range(n)]):
            before, size = len(self._before), len(part.ids)
            held = torch.zeros(len(hidden), dtype=torch.bool)
            held[:before] = held[before + size :] = True
            held[before + part.first - part.start : before + part.last - part.start] = True
            out[part.text] += hidden[held].sum(0)
            counts[part.text] += held.sum()
        for _ in bar:
            pass
        out /= counts.clamp(min=1)
        return torch.nn.functional.normalize(out, dim=1) if normalise else out

    # Computing ##############################################################

    @property
    def _before(self) -> tuple[int, ...]:
        return self.encoder.before if self.layer else ()

    @property
    def _after(self) -> tuple[int, ...]:
        return self.encoder.after if self.layer else ()

    def _tokens(self, text: str) -> Any:
        if not isinstance(text, str):
            raise ShapeError(f"a text is a {type(text).__name__}: give a list of str.")
        # Lone surrogates are no text for the tokenizer.
        return self.encoder.tokenizer.encode(
            _SURROGATE.sub("\ufffd", text), add_special_tokens=False
        )

    def _windows(self, texts: Sequence[list[int]], wanted: Sequence[Any] | None) -> list[_Window]:
        found = []
        for k, ids in enumerate(texts):
            starts, first = windows(len(ids), self.window, self.stride)
            use = np.ones(len(starts), dtype=bool)
            if wanted is not None:  # a window without words is not read
                use = np.diff(np.searchsorted(wanted[k], first)) > 0
            for start, low, high in zip(starts[use], first[:-1][use], first[1:][use]):
                part = ids[start : start + self.window]
                found.append(_Window(k, int(start), int(low), int(high), part))
        return found

    @torch.inference_mode()
    def _hidden(
        self,
        texts: Sequence[list[int]],
        done: Callable[[int], Any] | None,
        wanted: Sequence[Any] | None = None,
    ) -> Iterator[tuple[_Window, Tensor]]:
        """Windows with the vectors of their tokens, special ones included, in any order."""
        parts = self._windows(texts, wanted)
        left = np.bincount([part.text for part in parts], minlength=len(texts))
        if done is not None and (left == 0).any():
            done(int((left == 0).sum()))
        extra = len(self._before) + len(self._after)
        lengths = np.array([len(part.ids) + extra for part in parts], dtype=np.int64)
        for batch in batches_by_length(lengths, self.batch_pieces):
            chosen = [parts[i] for i in batch]
            hidden = self._forward([[*self._before, *p.ids, *self._after] for p in chosen])
            for part, vectors in zip(chosen, hidden):
                yield part, vectors[: len(part.ids) + extra]
            texts_of = [part.text for part in chosen]
            np.subtract.at(left, texts_of, 1)
            if done is not None:
                done(int((left[np.unique(texts_of)] == 0).sum()))

    def _forward(self, batch: Sequence[list[int]]) -> Tensor:
        longest = max(map(len, batch))
        ids = torch.full((len(batch), longest), self.encoder.pad)
        mask = torch.zeros(len(batch), longest, dtype=torch.long)
        for row, item in enumerate(batch):
            ids[row, : len(item)] = torch.tensor(item)
            mask[row, : len(item)] = 1
        ids, mask = ids.to(self.device), mask.to(self.device)
        module: Any = self.encoder.module
        if self.layer == 0:
            return module.get_input_embeddings()(ids).float().cpu()  # [B, L, dim]
        inner = self.layer < self.encoder.num_layers
        made = module(input_ids=ids, attention_mask=mask, output_hidden_states=inner)
        hidden = made.hidden_states[self.layer] if inner else made.last_hidden_state
        return hidden.float().cpu()
