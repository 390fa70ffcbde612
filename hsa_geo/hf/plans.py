"""From a padded batch of an encoder to the tokens and the trees that its layers attend over."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch as Forest

from hsa_geo.data.plan import TreePlan
from hsa_geo.data.signal_tree import SignalTree
from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.hf.clusters import Clusters
from hsa_geo.hf.hierarchies import Flat, Hierarchy, Squares, Windows
from hsa_geo.hf.labels import Tokens, plan_from_labels
from hsa_geo.hf.relative import block_bias, distances, reach_bias

__all__ = ["Batch", "Pass", "Plans", "valid_tokens"]

#: Plans that are kept for batches of the same lengths.
_KEPT = 8
#: Hierarchies that do not look at the ids of tokens.
_BY_PLACE = (Flat, Squares, Windows)


@dataclass
class Batch:
    """A batch in the course of one forward pass.

    Attributes:
        valid: ``[B, L]`` bool, or None if there is no padding.
        plan: The plan over its tokens.
        place: ``[N]``, place of each token in its padded row.
        biases: What has been made of relative positions.
        tokens: The tokens, where layers make plans of their own.
    """

    valid: Tensor | None
    plan: TreePlan
    place: Tensor
    biases: dict[str, Tensor] = field(default_factory=dict)
    tokens: Tokens | None = None

    def bias(self, position_bias: Tensor | None, tie: str) -> dict[str, Tensor]:
        """What :func:`~hsa_geo.ops.hsa_attention` takes for relative positions.

        Args:
            position_bias: ``[B, H, L, L]``, the same for all layers of a pass, or None.
            tie: ``"block"`` or ``"key"``.

        Returns:
            ``bias`` or ``reach_bias``, or nothing.
        """
        if position_bias is None:
            return {}
        name, function = ("reach_bias", reach_bias) if tie == "key" else ("bias", block_bias)
        if name in self.biases:
            return {name: self.biases[name]}
        bias = function(distances(position_bias[0]), self.plan, self.place)
        if not bias.requires_grad:  # a graph belongs to one layer's backward pass
            self.biases[name] = bias
        return {name: bias}

    def rows(self, x: Tensor) -> Tensor:
        """``[B, H, L, D]`` to a row ``[N, H, D]`` for each token that is no padding."""
        x = x.transpose(1, 2)
        return x.flatten(0, 1) if self.valid is None else x[self.valid]

    def padded(self, x: Tensor, size: int, length: int) -> Tensor:
        """Rows ``[N, H, D]`` to ``[B, L, H, D]``, zeros at padding."""
        if self.valid is not None:
            full = x.new_zeros(size * length, *x.shape[1:])
            x = full.index_copy(0, self.valid.flatten().nonzero().squeeze(1), x)
        return x.view(size, length, *x.shape[1:])


@dataclass
class Plans:
    """Makes the plans of forward passes, and keeps some for batches of the same lengths.

    Attributes:
        hierarchy: Over the tokens.
        special_ids: Ids of special tokens.
        patch_size: Height and width of a patch, for models of pictures.
        given: Trees over the tokens, instead of the hierarchy; see
            :func:`~hsa_geo.hf.given_trees`.
        kept: Plans of batches that came before.
    """

    hierarchy: Hierarchy | Clusters
    special_ids: tuple[int, ...] = ()
    patch_size: tuple[int, int] | None = None
    given: list[SignalTree] | None = None
    kept: OrderedDict[Any, TreePlan] = field(default_factory=OrderedDict)
    lock: Any = field(default_factory=Lock)

    def begin(self, inputs: Any, pixels: Any) -> Pass:
        """A forward pass begins.

        Args:
            inputs: Its ``input_ids [B, L]``, or anything else.
            pixels: Its ``pixel_values [B, C, H, W]``, or anything else.

        Returns:
            What the layers of this pass share; other passes have their own, at the same time, too.
        """
        ids = inputs if isinstance(inputs, Tensor) and inputs.dim() == 2 else None
        picture = isinstance(pixels, Tensor) and pixels.dim() == 4
        size = (pixels.size(2), pixels.size(3)) if picture else None
        return Pass(self, ids, size, self.given)

    def plan(self, key: Any, make: Callable[[], TreePlan]) -> TreePlan:
        """A plan that is kept, or is made and kept from now on.

        Args:
            key: What decides it.
            make: Makes it.

        Returns:
            The plan.
        """
        with self.lock:
            if key in self.kept:
                self.kept.move_to_end(key)
                return self.kept[key]
        made = make()
        with self.lock:
            self.kept[key] = made
            while len(self.kept) > _KEPT:
                self.kept.popitem(last=False)
        return made

    def __getstate__(self) -> dict[str, Any]:
        """Copies and files have the settings, not the plans of batches that came before."""
        names = ("hierarchy", "special_ids", "patch_size")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]


class Pass:
    """What the layers of one forward pass share.

    Args:
        plans: The settings.
        inputs: ``input_ids [B, L]``, or None.
        pixels: Height and width of the pictures, or None.
        given: Trees over the tokens, or None.
    """

    def __init__(
        self,
        plans: Plans,
        inputs: Tensor | None,
        pixels: tuple[int, int] | None,
        given: list[SignalTree] | None,
    ) -> None:
        self.plans, self.inputs, self.pixels, self.given = plans, inputs, pixels, given
        self.now: Batch | None = None

    @torch.no_grad()
    def batch(self, mask: Tensor | None, key: Tensor) -> Batch:
        """The batch of the pass that runs, made by the first of its layers that asks; of
        hierarchies by content, each layer's own.

        Args:
            mask: The attention mask that the layer was given, or None.
            key: The layer's keys ``[B, H, L, D]``.

        Returns:
            The batch.

        Raises:
            UnsupportedError: If the mask hides more than padding.
            ShapeError: If a text has no tokens at all, or the ids do not fit.
        """
        size, _, length, _ = key.shape
        if self.now is None:
            self.now = self._batch(valid_tokens(mask), size, length, key.device)
        now = self.now
        if isinstance(self.plans.hierarchy, Clusters) and now.tokens is not None:
            labels = self.plans.hierarchy.labels(now.tokens, now.rows(key))
            plan = plan_from_labels(now.tokens.text, labels, size)
            return Batch(now.valid, plan, now.place)
        return now

    def _batch(self, valid: Tensor | None, size: int, length: int, device: torch.device) -> Batch:
        if valid is not None:
            if valid.shape != (size, length):
                raise ShapeError(
                    f"the attention mask is of {list(valid.shape)} tokens and the batch of "
                    f"{[size, length]}: give one entry for each token."
                )
            if not bool(valid.any(1).all()):
                row = int((~valid.any(1)).nonzero()[0])
                raise ShapeError(f"text {row} of the batch is all padding: leave it out.")
            valid = None if bool(valid.all()) else valid
        ids = self.inputs
        if ids is not None and ids.shape != (size, length):
            raise ShapeError(
                f"input_ids of {list(ids.shape)} went in, but the layers see {[size, length]} "
                "tokens: this model changes their number, which hierarchies do not follow."
            )
        place = torch.arange(length, device=device).expand(size, length)
        place = place.reshape(-1) if valid is None else place[valid]
        if self.given is not None:
            plan = self._given(self.given, valid, size, length, device)
            return Batch(valid, plan, place)
        special = self._special(ids, valid, size, length, device)
        key: tuple[Any, ...] = (size, length, device, _bytes(valid), _bytes(special), self.pixels)
        if type(self.plans.hierarchy) not in _BY_PLACE:
            key += (_bytes(ids),)
        if isinstance(self.plans.hierarchy, Clusters):  # whose plans are the layers' own
            tokens = self._tokens(ids, valid, special, size, length, device)
            nothing = plan_from_labels(tokens.text, [], size)
            return Batch(valid, nothing, place, tokens=tokens)

        def make() -> TreePlan:
            tokens = self._tokens(ids, valid, special, size, length, device)
            hierarchy: Any = self.plans.hierarchy
            return plan_from_labels(tokens.text, hierarchy.labels(tokens), size)

        plan = self.plans.plan(key, make)
        return Batch(valid, plan, place)

    @staticmethod
    def _given(
        trees: list[SignalTree],
        valid: Tensor | None,
        size: int,
        length: int,
        device: torch.device,
    ) -> TreePlan:
        """The plan of given trees."""
        counts = [length] * size if valid is None else valid.sum(1).tolist()
        leaves = [tree.num_leaves for tree in trees]
        if leaves != counts:
            raise ShapeError(
                f"the given trees have {leaves} leaves, but the texts {counts} tokens: give a tree "
                "for each text, with a leaf for each of its tokens that is no padding."
            )
        return Forest.from_data_list(trees).plan.to(device)

    def _special(
        self, ids: Tensor | None, valid: Tensor | None, size: int, length: int, device: torch.device
    ) -> Tensor:
        """``[B, L]``, which tokens are special."""
        special = torch.zeros(size, length, dtype=torch.bool, device=device)
        if self.plans.patch_size is not None:
            special[:, : length - self._patches(length)] = True
            return special
        place = torch.arange(length, device=device)
        real = special.logical_not() if valid is None else valid
        first = torch.where(real, place, length).amin(1)
        last = torch.where(real, place, -1).amax(1)
        special[torch.arange(size, device=device), first] = True
        special[torch.arange(size, device=device), last] = True
        if ids is not None and self.plans.special_ids:
            special |= torch.isin(ids, torch.tensor(self.plans.special_ids, device=device))
        return special & real

    def _patches(self, length: int) -> int:
        grid = self._grid()
        patches = 0 if grid is None else grid[0] * grid[1]
        if grid is None or not length - 16 <= patches <= length:
            raise ShapeError(
                f"the layers see {length} tokens, but the pictures have {patches} patches: give "
                "pixel_values of whole patches."
            )
        return patches

    def _grid(self) -> tuple[int, int] | None:
        if self.plans.patch_size is None or self.pixels is None:
            return None
        (height, width), (high, wide) = self.pixels, self.plans.patch_size
        return height // high, width // wide

    def _tokens(
        self,
        ids: Tensor | None,
        valid: Tensor | None,
        special: Tensor,
        size: int,
        length: int,
        device: torch.device,
    ) -> Tokens:
        text = torch.arange(size, device=device)[:, None].expand(size, length)
        place = torch.arange(length, device=device).expand(size, length)

        def some(x: Tensor) -> Tensor:  # [B, L] to [N]
            return x.reshape(-1) if valid is None else x[valid]

        return Tokens(
            some(text),
            some(place),
            some(special),
            None if ids is None else some(ids),
            self._grid(),
            size,
        )


def valid_tokens(mask: Tensor | None) -> Tensor | None:
    """Which tokens are no padding, from the mask that a layer is given.

    Args:
        mask: None; ``[B, L]`` of ones and zeros; or ``[B, 1, L or 1, L]``, bool or added to scores.

    Returns:
        ``[B, L]`` bool, or None.

    Raises:
        UnsupportedError: If the mask depends on the query, or weighs tokens.

    Example:
        >>> valid_tokens(torch.tensor([[[[0.0, -3e38]]]]))
        tensor([[ True, False]])
    """
    if mask is None:
        return None
    if mask.dim() == 2:
        return mask != 0
    if not (mask.is_floating_point() or mask.dtype == torch.bool):
        raise UnsupportedError(
            f"the attention mask has dtype {mask.dtype} and shape {list(mask.shape)}: give [B, L] "
            "of ones and zeros, or a mask of bool or floating point."
        )
    rows = mask[:, :, :1]
    if mask.dim() != 4 or mask.size(1) > 1 or not bool((mask == rows).all()):
        raise UnsupportedError(
            f"the attention mask of shape {list(mask.shape)} hides more than padding: hierarchies "
            "take masks of padding alone."
        )
    row = rows[:, 0, 0]
    if row.dtype == torch.bool:
        return row
    hidden = row <= torch.finfo(row.dtype).min / 2
    if not bool((hidden | (row == 0)).all()):
        raise UnsupportedError(
            "the attention mask weighs tokens: hierarchies take masks of padding alone."
        )
    return ~hidden


def _bytes(x: Tensor | None) -> bytes | None:
    return None if x is None else x.cpu().numpy().tobytes()
