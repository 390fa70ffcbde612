"""Pictures as arrays of tree nodes with a patch at every leaf.

Either all leaves are patches of p x p pixels, under windows of windows, or the picture is a
quadtree that splits only where it varies: blocks of p * 2**k pixels are leaves of level k where
the variance of their pixels is small, reduced to p x p pixels by averaging, and are split into
four otherwise, down to patches of p pixels.  Nothing loops over blocks, only over levels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hsa_geo.builders._grids import Windows, grid_nodes
from hsa_geo.builders.patches import MAX_PIXELS, cut_patches
from hsa_geo.errors import LimitError

__all__ = ["QUADTREE", "Limits", "PatchNodes", "adaptive_nodes", "put_together", "regular_nodes"]

#: Windows of a quadtree, for :func:`~hsa_geo.builders._grids.grid_nodes`.
QUADTREE: Windows = (((2, 2),), True)


@dataclass(frozen=True)
class PatchNodes:
    """The nodes of a picture, leaves first and in reading order, the root last.

    Attributes:
        parent: ``[M]`` int64, parent of every node, -1 for the root.
        pos: ``[M, 2]`` float32, row and column of every node in its parent's window.
        box: ``[N, 4]`` int64, top, left, bottom and right of every leaf in pixels.
        patches: ``[N, 3 * p * p]`` uint8, channel first; of several frames one after the other.
    """

    parent: np.ndarray
    pos: np.ndarray
    box: np.ndarray
    patches: np.ndarray

    def names(self, root: str) -> list[str]:
        """Names of the nodes: leaves by row and column, in patches, and by size if larger."""
        if len(self.parent) == 1:
            return [root]
        patch = int((self.patches.shape[1] // 3) ** 0.5)
        names = [
            f"patch {top // patch},{left // patch}"
            + (f" x{(bottom - top) // patch}" if bottom - top > patch else "")
            for top, left, bottom, _ in self.box.tolist()
        ]
        return [*names, *["window"] * (len(self.parent) - len(names) - 1), root]


@dataclass(frozen=True)
class Limits:
    """What a picture may become: at most so many pixels (before it is cut) and leaves, or None."""

    max_pixels: int | None = None
    max_leaves: int | None = None

    def check_leaves(self, leaves: int, patch: int, frames: int = 1) -> None:
        """LimitError if there are too many leaves."""
        if self.max_leaves is not None and leaves > self.max_leaves:
            what = "the image" if frames == 1 else f"the video of {frames} frames"
            raise LimitError(
                f"{what} has {leaves} patches of {patch} x {patch} pixels, more than "
                f"max_leaves={self.max_leaves}: pass max_side or a larger patch_size, or raise "
                "max_leaves."
            )

    def check_filled(self, height: int, width: int, patch: int, frames: int = 1) -> None:
        """LimitError if incomplete patches would be filled up with far too many pixels."""
        filled = -(-height // patch) * -(-width // patch) * patch**2 * frames
        if self.max_pixels is not None and filled > 2 * max(self.max_pixels, MAX_PIXELS):
            raise LimitError(
                f"patches of {patch} x {patch} pixels fill up {width} x {height} to {filled} "
                "pixels: pass a smaller patch_size."
            )


def regular_nodes(pixels: np.ndarray, patch: int, windows: Windows, limits: Limits) -> PatchNodes:
    """The tree of one frame over patches of p x p pixels, and the patches of all frames.

    Args:
        pixels: ``[T, H, W, 3]`` uint8.
        patch: Side p of a patch in pixels.
        windows: From :func:`~hsa_geo.builders._grids.window_levels`.
        limits: Limits.

    Returns:
        The nodes; ``patches`` is ``[T * N, 3 * p * p]``.

    Raises:
        LimitError: If a limit is exceeded.

    Example:
        >>> nodes = regular_nodes(np.zeros((5, 4, 3, 3), np.uint8), 2, QUADTREE, Limits())
        >>> nodes.box.tolist(), nodes.patches.shape
        ([[0, 0, 2, 2], [0, 2, 2, 4], [2, 0, 4, 2], [2, 2, 4, 4]], (20, 12))
    """
    frames, height, width, _ = pixels.shape
    rows, cols = -(-height // patch), -(-width // patch)
    limits.check_leaves(frames * rows * cols, patch, frames)
    limits.check_filled(height, width, patch, frames)
    nodes = grid_nodes(rows, cols, windows)
    row, col = np.divmod(nodes.cell, cols)
    patches = cut_patches(pixels, patch)[:, row, col]
    return PatchNodes(
        nodes.parent,
        nodes.pos,
        _boxes(row, col, patch),
        patches.reshape(frames * len(row), 3 * patch**2),
    )


def _boxes(row: np.ndarray, col: np.ndarray, side: int) -> np.ndarray:
    return np.stack([row, col, row + 1, col + 1], axis=1) * side


def adaptive_nodes(
    pixels: np.ndarray, patch: int, split_above: float, limits: Limits
) -> PatchNodes:
    """The adaptive quadtree of a picture.

    Args:
        pixels: ``[H, W, 3]`` uint8.
        patch: Side p of a patch in pixels.
        split_above: Blocks whose variance (mean over the channels, of values 0..255) is larger
            are split.
        limits: Limits.

    Returns:
        The nodes.

    Raises:
        LimitError: If a limit is exceeded.

    Example:
        >>> pixels = np.zeros((8, 8, 3), dtype=np.uint8)
        >>> pixels[0, 0] = 255
        >>> nodes = adaptive_nodes(pixels, 2, 0.0, Limits())
        >>> nodes.parent.tolist(), nodes.box[-1].tolist()
        ([7, 7, 7, 7, 8, 8, 8, 8, -1], [4, 4, 8, 8])
    """
    limits.check_filled(pixels.shape[0], pixels.shape[1], patch)
    levels = _levels(pixels, patch)
    rows, cols = levels[0][0].shape[:2]
    cell = grid_nodes(rows, cols, QUADTREE).cell
    rank = np.empty(len(cell), dtype=np.int64)
    rank[cell] = np.arange(len(cell))

    row, col = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    above = np.full(1, -1)  # place of the parent among all nodes, in order of discovery
    found, parents, positions, leaf, first, boxes, patches = 0, [], [], [], [], [], []
    for k in range(len(levels) - 1, -1, -1):  # top-down, the blocks that are there
        cells, variance = levels[k]
        split = variance[row, col] > split_above if k else np.zeros(len(row), dtype=bool)
        parents.append(above)
        positions.append(np.stack([row % 2, col % 2], axis=1) * (above >= 0)[:, None])
        leaf.append(~split)
        top, left = row[~split], col[~split]
        first.append(rank[(top << k) * cols + (left << k)])
        boxes.append(_boxes(top, left, patch << k))
        patches.append(np.rint(cells[top, left]).astype(np.uint8))
        place = found + np.flatnonzero(split)
        found += len(row)
        if k:
            size = levels[k - 1][0].shape[:2]
            row, col, above = _quarters(row[split], col[split], place, size)

    is_leaf = np.concatenate(leaf)
    limits.check_leaves(int(is_leaf.sum()), patch)
    order = np.argsort(np.concatenate(first))
    new_id = np.empty(found, dtype=np.int64)
    leaves, inner = np.flatnonzero(is_leaf)[order], np.flatnonzero(~is_leaf)[::-1]
    nodes = np.concatenate([leaves, inner])
    new_id[nodes] = np.arange(found)
    parent = np.concatenate(parents)[nodes]
    return PatchNodes(
        np.where(parent < 0, -1, new_id[parent]),
        np.concatenate(positions)[nodes].astype(np.float32),
        np.concatenate(boxes)[order],
        np.concatenate(patches)[order].reshape(len(order), -1),
    )


def _quarters(
    row: np.ndarray, col: np.ndarray, place: np.ndarray, size: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The blocks below those at (row, col) that lie within the picture."""
    below_row = (row[:, None] * 2 + [0, 0, 1, 1]).reshape(-1)
    below_col = (col[:, None] * 2 + [0, 1, 0, 1]).reshape(-1)
    inside = (below_row < size[0]) & (below_col < size[1])
    return below_row[inside], below_col[inside], place.repeat(4)[inside]


def _levels(pixels: np.ndarray, patch: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """For every level, bottom-up: patches ``[rows, cols, 3, p, p]`` of the picture reduced by
    2**level, and the variance ``[rows, cols]`` of the picture's pixels in each block."""
    height, width, _ = pixels.shape
    rows, cols = -(-height // patch), -(-width // patch)
    picture = cut_patches(pixels.astype(np.float32), patch)
    border = [(0, rows * patch - height), (0, cols * patch - width), (0, 0)]
    values = np.pad(pixels, border).reshape(rows, patch, cols, patch, 3).astype(np.float64)
    total, square = values.sum(axis=(1, 3)), (values**2).sum(axis=(1, 3))  # filled up with zeros
    down = np.minimum(np.arange(1, rows + 1) * patch, height) - np.arange(rows) * patch
    across = np.minimum(np.arange(1, cols + 1) * patch, width) - np.arange(cols) * patch
    count = (down[:, None] * across)[..., None].astype(np.float64)
    levels = []
    while True:
        variance = (square / count - (total / count) ** 2).mean(axis=-1)
        levels.append((picture, variance))
        if picture.shape[:2] == (1, 1):
            return levels
        total, square, count = (_sum_of_four(sums) for sums in (total, square, count))
        picture = cut_patches(_halved(picture, patch), patch)


def _sum_of_four(sums: np.ndarray) -> np.ndarray:
    rows, cols, channels = sums.shape
    even = np.pad(sums, [(0, rows % 2), (0, cols % 2), (0, 0)])
    return even.reshape(-(-rows // 2), 2, -(-cols // 2), 2, channels).sum(axis=(1, 3))


def _halved(cells: np.ndarray, patch: int) -> np.ndarray:
    """The picture of some patches at half its size, filled up to an even number of patches."""
    rows, cols = cells.shape[:2]
    picture = cells.transpose(0, 3, 1, 4, 2).reshape(rows * patch, cols * patch, 3)
    picture = np.pad(picture, [(0, rows % 2 * patch), (0, cols % 2 * patch), (0, 0)], mode="edge")
    height, width, _ = picture.shape
    return picture.reshape(height // 2, 2, width // 2, 2, 3).mean(axis=(1, 3))


def put_together(
    cells: np.ndarray, box: np.ndarray, when: np.ndarray, size: tuple[int, int, int]
) -> np.ndarray:
    """Frames from patches.

    Args:
        cells: ``[n, 3, p, p]`` uint8.
        box: ``[n, 4]``, where each lies in its frame; larger ones are enlarged by repeating pixels.
        when: ``[n]``, frame of each.
        size: Number of frames T, height H and width W in pixels.

    Returns:
        ``[T, H, W, 3]`` uint8; white where there is no patch.

    Example:
        >>> cells = np.full((1, 3, 1, 1), 7, dtype=np.uint8)
        >>> put_together(cells, np.array([[0, 0, 2, 2]]), np.array([0]), (1, 2, 3))[0, ..., 0]
        array([[  7,   7, 255],
               [  7,   7, 255]], dtype=uint8)
    """
    count, height, width = size
    p = cells.shape[-1]
    grid_rows, grid_cols = -(-height // p), -(-width // p)
    out = np.full((count, grid_rows, grid_cols, 3, p, p), 255, dtype=np.uint8)
    scale = (box[:, 2] - box[:, 0]) // p
    for s in np.unique(scale):  # leaves of s x s patches
        at = scale == s
        n_rows, n_cols = min(s, grid_rows), min(s, grid_cols)
        large = cells[at][:, :, np.arange(n_rows * p) // s][..., np.arange(n_cols * p) // s]
        large = large.reshape(-1, 3, n_rows, p, n_cols, p).transpose(0, 2, 4, 1, 3, 5)
        row = (box[at, 0] // p)[:, None, None] + np.arange(n_rows)[:, None]
        col = (box[at, 1] // p)[:, None, None] + np.arange(n_cols)
        leaf, i, j = ((row < grid_rows) & (col < grid_cols)).nonzero()
        out[when[at][leaf], row[leaf, i, 0], col[leaf, 0, j]] = large[leaf, i, j]
    pixels = out.transpose(0, 1, 4, 2, 5, 3).reshape(count, grid_rows * p, grid_cols * p, 3)
    return pixels[:, :height, :width]
