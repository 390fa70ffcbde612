r"""Pictures and videos as signal trees over patches.

- A picture is decoded by the rules of :mod:`hsa_geo.builders.patches` and cut into square patches
  of p pixels, the leaves.  Where p does not divide a side, the last patches are filled up with
  copies of the last column and row, so any size from 1 x 1 works and no pixel is lost.
- Patches are grouped into windows, windows into windows, until one is left.  A window is a
  ``GRID2D``: its children's ``tree_pos`` are their row and column within it.  Leaves stand in
  reading order of this hierarchy: windows row by row, and all of a window before the next.
- An adaptive quadtree (``split_above``) splits only where the picture varies.
- A video is a ``SEQUENCE`` of frames (or of windows of frames), each a picture as above.

Example:
    >>> import numpy as np
    >>> tree = from_image(np.zeros((48, 40, 3), dtype=np.uint8), patch_size=16)
    >>> tree.num_leaves, tree.depth, tree.image_x.shape
    (9, 2, torch.Size([9, 768]))
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from hsa_geo.builders._arguments import check_choice, check_flags, shown
from hsa_geo.builders._grids import Windows, grid_nodes, integer, window_levels
from hsa_geo.builders._patch_nodes import (
    QUADTREE,
    Limits,
    PatchNodes,
    adaptive_nodes,
    put_together,
    regular_nodes,
)
from hsa_geo.builders._pixels import PixelSource
from hsa_geo.builders.patches import MAX_PIXELS
from hsa_geo.data import Domain, SignalTree
from hsa_geo.data.canonical import leaf_spans, levels_of
from hsa_geo.errors import BuilderError

__all__ = ["from_image", "from_video", "image_of"]

MAX_PATCH = 4096
_ONE_GRID: Windows = ((), False)


def from_image(
    image: Any,
    *,
    patch_size: int = 16,
    hierarchy: str = "quadtree",
    window: Any = None,
    split_above: float | None = None,
    max_side: int | None = None,
    frame: int | None = None,
    channel_first: bool | None = None,
    names: bool = False,
    max_pixels: int | None = MAX_PIXELS,
    max_leaves: int | None = 2**17,
) -> SignalTree:
    r"""Turn a picture into a signal tree (the rules stand in the module's docstring).

    Args:
        image: A PIL image; an array ``[H, W]`` or ``[H, W, C]``; a tensor ``[H, W]`` or ``[C, H,
            W]``; the bytes of an image file, or a path (``str`` or ``os.PathLike``) to one.  Arrays
            are uint8, uint16, floats of 0..1 or bool; C is 1 (grey), 2 (grey, alpha), 3 (RGB) or 4
            (RGBA).
        patch_size: Side p of a patch in pixels, up to 4096. (default: 16)
        hierarchy: ``"quadtree"``, windows of 2 x 2, or ``"windows"``, those of ``window``.
            (default: ``"quadtree"``)
        window: With ``hierarchy="windows"``: the side of a window or a pair (h, w) of rows and
            columns, repeated until one window is left; or a list of those, one for each level,
            bottom-up, with a root over what is left then (``[]``: all patches under the root).
            (default: 2)
        split_above: Make the quadtree adaptive: a block of patches whose variance (of values
            0..255, mean over the channels) is at most this is one leaf, reduced to p x p pixels
            by averaging; 0 merges what has one colour. (default: :obj:`None`, all leaves are
            patches of p x p pixels of the picture)
        max_side: Longest side in pixels that a larger picture is reduced to; it keeps its
            proportions, and is never enlarged. (default: :obj:`None`, as it is)
        frame: Frame or page of an animated or paged file, from 0. (default: the first; of a PIL
            image the one it is at)
        channel_first: Whether the channels of an array come first. (default: :obj:`None`, those
            of tensors do, those of numpy arrays do not)
        names: Give ``tree_name``: ``"patch 0,1"`` (row and column in the picture, counted in
            patches; ``"patch 0,8 x4"`` is a leaf of 4 x 4), ``"window"``, ``"image"``. (default:
            :obj:`False`)
        max_pixels: Limit on the picture's pixels, before ``max_side``. (default: ``2**25``)
        max_leaves: Limit on the number of patches. (default: 131,072)

    Returns:
        The tree, with

        - ``image_x [N, 3 * p * p]`` uint8, ``image_index [N]``: pixels of every leaf's patch,
          channel first.
        - ``image_box [N, 4]`` int64: top, left, bottom and right of every leaf in pixels of the
          (reduced) picture; what lies beyond its size was filled up.
        - ``image_size [1, 2]`` int64: height and width of the (reduced) picture.

    Raises:
        BuilderError: If the source is no picture, cannot be decoded, or has no pixel; if a float
            is NaN, infinite or beyond 0..1; if an argument is out of range.
        LimitError: If a limit is exceeded.
        MissingPackageError: If Pillow is needed and not installed.
        OSError: If the file cannot be read.

    Example:
        >>> tree = from_image(torch.rand(3, 64, 64), hierarchy="windows", window=(1, 4))
        >>> tree.num_leaves, tree.num_tree_nodes, tree.tree_pos[:5].tolist()
        (16, 21, [[0.0, 0.0], [0.0, 1.0], [0.0, 2.0], [0.0, 3.0], [0.0, 0.0]])
    """
    patch, levels = _patch(patch_size), _windows(hierarchy, window)
    check_flags(names=names)
    source = _source(channel_first, max_side, max_pixels)
    frame = None if frame is None else integer("frame", frame, 0)
    limits = _limits(max_pixels, max_leaves)
    if split_above is not None:
        _check_split(split_above, hierarchy)
    pixels = source.picture(image, frame)
    if split_above is None:
        nodes = regular_nodes(pixels[None], patch, levels, limits)
    else:
        above = float(min(split_above, 2**16))  # no variance of 0..255 is larger
        nodes = adaptive_nodes(pixels, patch, above, limits)
    tree: SignalTree = SignalTree.from_parents(
        nodes.parent,
        domain=Domain.GRID2D,
        pos=nodes.pos.copy(),  # torch warns of read-only arrays
        name=nodes.names("image") if names else None,
        **_features(nodes, pixels.shape[:2], 1),
    )
    return tree


def from_video(
    frames: Any,
    *,
    frames_per_window: Any = None,
    patch_size: int = 16,
    hierarchy: str = "quadtree",
    window: Any = None,
    max_side: int | None = None,
    channel_first: bool | None = None,
    names: bool = False,
    max_pixels: int | None = 2**27,
    max_leaves: int | None = 2**17,
    max_frames: int | None = 2**12,
    on_limit: str = "error",
) -> SignalTree:
    r"""Turn a video into a signal tree: a sequence of frames, each as :func:`from_image` makes it.

    Args:
        frames: An array ``[T, H, W]`` or ``[T, H, W, C]``; a tensor ``[T, H, W]`` or ``[T, C, H,
            W]``; an animated or paged file (bytes or path) or PIL image, all its frames; or an
            iterable of what :func:`from_image` takes.  All frames have one size.
        frames_per_window: Number of frames in a window, repeated (windows of so many windows)
            until one is left; or a list of numbers, one for each level, bottom-up, with a root
            over what is left then. (default: :obj:`None`, all frames under the root)
        patch_size: As in :func:`from_image`. (default: 16)
        hierarchy: As in :func:`from_image`, within a frame. (default: ``"quadtree"``)
        window: As in :func:`from_image`, within a frame. (default: 2)
        max_side: As in :func:`from_image`. (default: :obj:`None`)
        channel_first: As in :func:`from_image`; read videos are often tensors ``[T, H, W, C]``,
            which need ``channel_first=False``. (default: :obj:`None`)
        names: Give ``tree_name``, as in :func:`from_image`, with ``"frame 3"``, ``"frames 0-7"``
            and ``"video"``. (default: :obj:`False`)
        max_pixels: Limit on the pixels of all frames together. (default: ``2**27``)
        max_leaves: Limit on the number of patches of all frames. (default: 131,072)
        max_frames: Limit on the number of frames. (default: 4096)
        on_limit: What to do beyond ``max_frames``: ``"error"`` raises, ``"truncate"`` leaves out
            the later frames with a warning. (default: ``"error"``)

    Returns:
        The tree, with the attributes of :func:`from_image`, and ``tree_span [M, 2]``: the first
        frame of every node and the one behind its last.  A video of one frame has no node above
        that frame.

    Raises:
        BuilderError: As :func:`from_image`, or if there is no frame, or frames differ in size.
        LimitError: If a limit is exceeded.
        MissingPackageError: If Pillow is needed and not installed.
        OSError: If a file cannot be read.

    Warns:
        TruncationWarning: If ``on_limit="truncate"`` leaves out frames.

    Example:
        >>> tree = from_video(np.zeros((8, 32, 32), dtype=np.uint8), frames_per_window=4)
        >>> tree.num_leaves, tree.depth, tree.tree_span[-3:].tolist()
        (32, 3, [[0, 4], [4, 8], [0, 8]])
    """
    patch, levels = _patch(patch_size), _windows(hierarchy, window)
    check_flags(names=names)
    steps = _ONE_GRID
    if frames_per_window is not None:
        steps = window_levels("frames_per_window", frames_per_window, line=True)
    check_choice("on_limit", on_limit, ("error", "truncate"))
    most = None if max_frames is None else integer("max_frames", max_frames, 1)
    source = _source(channel_first, max_side, max_pixels)
    limits = _limits(max_pixels, max_leaves)
    pixels = source.frames(frames, most, on_limit)
    nodes = regular_nodes(pixels, patch, levels, limits)

    count, size = len(pixels), len(nodes.parent)
    time = grid_nodes(count, 1, steps)  # its leaves, the frames, are in order
    shift = count * (size - 1)  # frames' nodes come first, then what is above the frames
    first = np.arange(count)[:, None] * size
    parent = np.where(nodes.parent < 0, 0, nodes.parent + first)
    above = np.where(time.parent < 0, -1, time.parent + shift)
    parent[:, -1] = above[:count]
    pos = np.tile(nodes.pos, (count, 1, 1))
    pos[:, -1] = time.pos[:count]
    domain = np.full(count * size + len(above) - count, int(Domain.GRID2D))
    domain[count * size :] = int(Domain.SEQUENCE)
    begin, last, _ = leaf_spans(time.parent, levels_of(time.parent))
    span = np.stack([begin, last + 1], axis=1)
    name = None
    if names:
        name = [each for t in range(count) for each in nodes.names(f"frame {t}")]
        name += [f"frames {a}-{b - 1}" for a, b in span[count:].tolist()]
        name[-1] = "video" if count > 1 else name[-1]
    tree: SignalTree = SignalTree.from_parents(
        np.concatenate([parent.reshape(-1), above[count:]]),
        domain=domain,
        pos=np.concatenate([pos.reshape(-1, 2), time.pos[count:]]),
        name=name,
        tree_span=torch.from_numpy(
            np.concatenate([np.repeat(span[:count], size, axis=0), span[count:]])
        ),
        **_features(nodes, pixels.shape[1:3], count),
    )
    return tree


def image_of(tree: SignalTree) -> np.ndarray:
    """The picture or video of a tree, put together again from its patches.

    Args:
        tree: From :func:`from_image` or :func:`from_video`; it may have lost leaves since.

    Returns:
        uint8 ``[H, W, 3]``, or ``[T, H, W, 3]`` of a video: exactly what was decoded, but that the
        larger leaves of an adaptive quadtree are as coarse as they are, and pixels without a leaf
        are white.

    Raises:
        BuilderError: If the tree is of another kind, or several trees in a batch.

    Example:
        >>> pixels = np.arange(5 * 7 * 3, dtype=np.uint8).reshape(5, 7, 3)
        >>> bool((image_of(from_image(pixels, patch_size=4)) == pixels).all())
        True
    """
    keys = ("image_x", "image_index", "image_box", "image_size")
    missing = [key for key in keys if key not in tree]
    if missing or len(tree.image_size) != 1:
        what = f"has no {missing[0]}" if missing else f"holds {len(tree.image_size)} pictures"
        raise BuilderError(
            f"the tree {what}: give one tree of from_image or from_video (batch.to_data_list())."
        )
    height, width = tree.image_size[0].tolist()
    rows = tree.image_index.cpu()
    box = tree.image_box.cpu()[rows].numpy()
    is_video = "tree_span" in tree
    when = tree.tree_span.cpu()[rows, 0].numpy() if is_video else np.zeros(len(box), dtype=np.int64)
    count = int(tree.tree_span[:, 1].max()) if is_video else 1
    patch = int((tree.image_x.size(1) // 3) ** 0.5)
    cells = tree.image_x.cpu().numpy().reshape(-1, 3, patch, patch)
    pixels = put_together(cells, box, when, (count, height, width))
    return pixels if is_video else pixels[0]


def _patch(patch_size: Any) -> int:
    return integer("patch_size", patch_size, 1, MAX_PATCH)


def _windows(hierarchy: Any, window: Any) -> Windows:
    check_choice("hierarchy", hierarchy, ("quadtree", "windows"))
    if hierarchy == "quadtree":
        if window is not None:
            raise BuilderError(
                f'window={shown(window)} has no meaning for a quadtree: pass hierarchy="windows".'
            )
        return QUADTREE
    return window_levels("window", 2 if window is None else window)


def _source(channel_first: Any, max_side: Any, max_pixels: Any) -> PixelSource:
    if channel_first is not None and not isinstance(channel_first, bool):
        raise BuilderError(f"channel_first={shown(channel_first)} is neither True, False nor None.")
    return PixelSource(
        channel_first,
        None if max_side is None else integer("max_side", max_side, 1),
        None if max_pixels is None else integer("max_pixels", max_pixels, 1),
    )


def _limits(max_pixels: Any, max_leaves: Any) -> Limits:
    return Limits(
        None if max_pixels is None else integer("max_pixels", max_pixels, 1),
        None if max_leaves is None else integer("max_leaves", max_leaves, 1),
    )


def _check_split(split_above: Any, hierarchy: str) -> None:
    if hierarchy != "quadtree":
        raise BuilderError(
            f"split_above={shown(split_above)} has no meaning for hierarchy={hierarchy!r}: it "
            "makes a quadtree adaptive."
        )
    number = isinstance(split_above, int | float | np.integer | np.floating)
    if not number or isinstance(split_above, bool) or not split_above >= 0:
        raise BuilderError(
            f"split_above={shown(split_above)} is no variance: give a number of at least 0."
        )


def _features(nodes: PatchNodes, size: tuple[int, ...], frames: int) -> dict[str, Any]:
    """Leaf attributes of all frames."""
    return {
        "image_x": torch.from_numpy(nodes.patches),
        "image_index": torch.arange(len(nodes.patches)),
        "image_box": torch.from_numpy(np.tile(nodes.box, (frames, 1))),
        "image_size": torch.tensor([size]),
    }
