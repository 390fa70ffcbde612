import io
import pathlib
import time
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch_geometric.data import Batch
from torch_geometric.loader import DataLoader

from hsa_geo.builders import from_image, from_video
from hsa_geo.builders.image import image_of
from hsa_geo.builders.patches import MAX_PIXELS
from hsa_geo.data import LEAF, Domain, SignalTree
from hsa_geo.errors import BuilderError, HSAError, LimitError, TruncationWarning
from hsa_geo.nn import HSAConv, PositionEmbedding

SIZES = st.tuples(st.integers(1, 40), st.integers(1, 40))
SIDES = st.one_of(st.integers(2, 4), st.sampled_from([(1, 2), (3, 1), (2, 5)]))
HIERARCHIES = st.one_of(
    st.just({}),
    st.just({"split_above": 0}),
    st.just({"hierarchy": "windows"}),
    st.builds(
        lambda w: {"hierarchy": "windows", "window": w},
        st.one_of(SIDES, st.lists(SIDES, max_size=3)),
    ),
)


def noise(size: tuple[int, ...], seed: int = 0, levels: int = 256) -> np.ndarray:
    values = np.random.default_rng(seed).integers(0, levels, size)
    return (values * (255 // (levels - 1))).astype(np.uint8)


def cells_by_position(tree: SignalTree) -> dict[tuple[int, int], set[int]]:
    """Leaves below every inner node, checked: one interval of leaves each, in window order."""
    below = {leaf: [leaf] for leaf in range(tree.num_leaves)}
    for parent, child in tree.tree_index.T.tolist():
        below.setdefault(parent, []).extend(below[child])
    assert all(ids == list(range(ids[0], ids[-1] + 1)) for ids in below.values())
    return below


def check(tree: SignalTree, pixels: np.ndarray, p: int) -> None:
    """What holds for the tree of every picture."""
    assert tree.validate()
    assert set(tree.keys()) == {
        *("num_nodes", "tree_index", "tree_level", "tree_domain", "tree_pos"),
        *("image_x", "image_index", "image_box", "image_size"),
    }
    n, (height, width) = tree.num_leaves, pixels.shape[:2]
    assert tree.image_x.dtype == torch.uint8
    assert tree.image_x.shape == (n, 3 * p * p)
    assert tree.image_index.tolist() == list(range(n))
    assert tree.image_size.tolist() == [[height, width]]
    assert (tree.tree_domain[n:] == Domain.GRID2D).all()
    assert (tree.tree_domain[:n] == LEAF).all()
    assert tree.tree_pos[-1].tolist() == [0, 0]
    # Positions are distinct within a window and siblings in order of (row, column).
    parent, child = tree.tree_index
    row, col = tree.tree_pos[child].T
    key = parent * 10**6 + row.long() * 1000 + col.long()
    assert (key.diff() > 0).all()
    # Positions say where a node lies: boxes of siblings of a row and of a column line up.
    box = torch.zeros(tree.num_tree_nodes, 4, dtype=torch.int64)
    box[:n] = tree.image_box
    for node in range(n, tree.num_tree_nodes):
        kids = child[parent == node]
        for axis in (0, 1):
            for place in tree.tree_pos[kids, axis].unique():
                same = kids[tree.tree_pos[kids, axis] == place]
                assert box[same, axis].unique().numel() == 1
            by_place = kids[tree.tree_pos[kids, axis].argsort(stable=True)]
            assert (box[by_place, axis].diff() >= 0).all()
        box[node, :2] = box[kids, :2].min(dim=0).values
        box[node, 2:] = box[kids, 2:].max(dim=0).values
    assert box[-1, :2].tolist() == [0, 0]
    cells_by_position(tree)
    # The boxes cover every pixel of the picture once.
    covered = np.zeros((height, width), dtype=int)
    for top, left, bottom, right in tree.image_box.tolist():
        covered[top:bottom, left:right] += 1
    assert (covered == 1).all()


# Properties ############################################################################


@settings(max_examples=50, deadline=None)
@given(SIZES, st.integers(1, 9), HIERARCHIES, st.integers(0, 9), st.sampled_from([2, 256]))
def test_any_picture(
    size: tuple[int, int], p: int, options: dict[str, object], seed: int, levels: int
) -> None:
    pixels = noise((*size, 3), seed, levels)
    if levels == 2:
        pixels[: size[0] // 2] = 255  # something to merge
    tree = from_image(pixels, patch_size=p, **options)
    check(tree, pixels, p)
    np.testing.assert_array_equal(image_of(tree), pixels)


MODES = ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "I;16", "I", "F", "array", "tensor"]


def of_mode(pixels: np.ndarray, mode: str) -> object:
    grey = pixels[..., 0]
    if mode == "array":
        return pixels / 255
    if mode == "tensor":
        return torch.from_numpy(grey)
    if mode == "I;16":
        return Image.fromarray(grey.astype(np.uint16) * 257)
    if mode in ("I", "F"):
        return Image.fromarray(grey.astype(np.int32 if mode == "I" else np.float32))
    return Image.fromarray(pixels).convert(mode)


@settings(max_examples=30, deadline=None)
@given(SIZES, st.integers(1, 9), st.sampled_from(MODES), HIERARCHIES)
def test_any_mode(size: tuple[int, int], p: int, mode: str, options: dict[str, object]) -> None:
    pixels = noise((*size, 3))
    source = of_mode(pixels, mode)
    tree = from_image(source, patch_size=p, **options)
    if mode == "array" or mode == "RGB":
        shown = pixels
    elif mode in ("tensor", "I;16", "I"):
        shown = np.repeat(pixels[..., :1], 3, axis=-1)
    elif mode == "F":
        top = pixels[..., :1].max()
        shown = np.repeat(pixels[..., :1] * np.uint8(255 if top <= 1 else 1), 3, axis=-1)
    else:  # opaque
        shown = np.asarray(source.convert("RGB"))  # type: ignore[attr-defined]
    check(tree, shown, p)
    np.testing.assert_array_equal(image_of(tree), shown)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(SIZES, min_size=1, max_size=4),
    st.integers(3, 9),
    HIERARCHIES,
    st.sampled_from(["attention", "layer"]),
)
def test_a_batch_equals_its_pictures(
    sizes: list[tuple[int, int]], p: int, options: dict[str, object], what: str
) -> None:
    trees = [
        from_image(noise((*size, 3), seed), patch_size=p, **options)
        for seed, size in enumerate(sizes)
    ]
    batch = Batch.from_data_list(trees)
    for tree, back in zip(trees, batch.to_data_list(), strict=True):
        assert set(tree.keys()) == set(back.keys())
        assert all(
            torch.equal(tree[key], back[key]) for key in list(tree.keys()) if key != "num_nodes"
        )
    torch.manual_seed(0)
    position = PositionEmbedding(4, heads=2) if what == "layer" else None
    conv = HSAConv(3 * p * p, 8, heads=2, position=position).double()
    together = conv(batch.image_x.double() / 255, batch)
    alone = torch.cat([conv(tree.image_x.double() / 255, tree) for tree in trees])
    torch.testing.assert_close(together, alone)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 7),
    st.tuples(st.integers(1, 12), st.integers(1, 12)),
    st.integers(1, 6),
    HIERARCHIES.filter(lambda options: "split_above" not in options),
    st.one_of(st.none(), st.integers(2, 4), st.lists(st.integers(2, 3), max_size=2)),
)
def test_any_video(
    count: int, size: tuple[int, int], p: int, options: dict[str, object], per_window: object
) -> None:
    pixels = noise((count, *size, 3))
    tree = from_video(pixels, patch_size=p, frames_per_window=per_window, **options)
    assert tree.validate()
    np.testing.assert_array_equal(image_of(tree), pixels)
    single = from_image(pixels[0], patch_size=p, **options)
    n = single.num_leaves
    assert tree.num_leaves == count * n
    assert set(tree.keys()) == {*single.keys(), "tree_span"}
    # Every frame is the tree of its picture.
    for t in range(count):
        part = tree.restrict(torch.arange(t * n, (t + 1) * n))
        alone = from_image(pixels[t], patch_size=p, **options)
        assert torch.equal(part.image_x, alone.image_x)
        assert torch.equal(part.image_box, alone.image_box)
        frame = part.tree_level >= part.tree_level.max() - alone.depth
        shift = part.tree_level[frame] - alone.tree_level
        assert shift.unique().numel() == 1
        inside = alone.tree_level > 0
        assert torch.equal(part.tree_pos[: len(inside)][inside], alone.tree_pos[inside])
        assert torch.equal(part.tree_domain[frame], alone.tree_domain)
    # Spans: a frame's nodes have its number, a window its first frame and the one behind its last.
    span = tree.tree_span
    assert span[: n * count, 0].tolist() == [t for t in range(count) for _ in range(n)]
    assert span[-1].tolist() == [0, count]
    parent, child = tree.tree_index
    for node in range(tree.num_leaves, tree.num_tree_nodes):
        kids = span[child[parent == node]]
        assert span[node].tolist() == [int(kids[:, 0].min()), int(kids[:, 1].max())]
        time_node = tree.tree_domain[node] == Domain.SEQUENCE
        assert time_node == (int(tree.tree_level[node]) < tree.depth - single.depth)
        if time_node:
            pos = tree.tree_pos[child[parent == node]]
            assert pos.tolist() == [[i, 0] for i in range(len(pos))]
            assert torch.equal(kids[1:, 0], kids[:-1, 1])


# The quadtree ##########################################################################


def test_a_quadtree_by_hand() -> None:
    pixels = np.repeat(np.arange(9, dtype=np.uint8).reshape(3, 3, 1), 3, axis=-1)
    tree = from_image(pixels, patch_size=1, names=True)
    assert tree.image_x[:, 0].tolist() == [0, 1, 3, 4, 2, 5, 6, 7, 8]
    assert tree.tree_name[:6] == [f"patch {c}" for c in ("0,0", "0,1", "1,0", "1,1", "0,2", "1,2")]
    assert tree.tree_name[9:] == ["window"] * 4 + ["image"]
    assert tree.tree_index.tolist() == [
        [9, 9, 9, 9, 10, 10, 11, 11, 12, 13, 13, 13, 13],
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12],
    ]
    assert tree.tree_pos[:9].long().tolist() == [
        *([0, 0], [0, 1], [1, 0], [1, 1]),
        *([0, 0], [1, 0], [0, 0], [0, 1], [0, 0]),
    ]


def test_channels_come_first_in_a_patch() -> None:
    pixels = noise((4, 4, 3))
    tree = from_image(pixels, patch_size=4)
    np.testing.assert_array_equal(tree.image_x.view(3, 4, 4).numpy(), pixels.transpose(2, 0, 1))


@pytest.mark.parametrize("size", [(1, 1), (7, 13), (1, 4000), (4000, 1), (16, 16), (17, 15)])
@pytest.mark.parametrize("patch", [1, 4, 16, 64])
def test_sizes_need_not_divide(size: tuple[int, int], patch: int) -> None:
    pixels = noise((*size, 3))
    tree = from_image(pixels, patch_size=patch)
    assert tree.num_leaves == -(-size[0] // patch) * -(-size[1] // patch)
    assert tree.depth == int(np.ceil(np.log2(max(-(-s // patch) for s in size))))
    assert tree.validate()
    np.testing.assert_array_equal(image_of(tree), pixels)


def test_borders_are_filled_up_with_their_last_pixels() -> None:
    pixels = noise((3, 5, 3))
    tree = from_image(pixels, patch_size=4)
    filled = np.pad(pixels, [(0, 1), (0, 3), (0, 0)], mode="edge")
    got = tree.image_x.view(2, 3, 4, 4).permute(2, 0, 3, 1).reshape(4, 8, 3)
    np.testing.assert_array_equal(got.numpy(), filled)
    assert tree.image_box.tolist() == [[0, 0, 4, 4], [0, 4, 4, 8]]


@pytest.mark.parametrize(
    ("window", "sizes"),
    [
        (None, [1, 4, 16]),
        (4, [1, 16]),
        ((4, 2), [1, 8, 16]),  # 1 x 2 windows are left, then one
        ([(2, 4)], [1, 8, 16]),
        ([2], [1, 4, 16]),
        ([], [1, 16]),
        (100, [1, 16]),
    ],
)
def test_windows(window: object, sizes: list[int]) -> None:
    tree = from_image(noise((8, 8, 3)), patch_size=2, hierarchy="windows", window=window)
    assert tree.depth == len(sizes) - 1
    counts = dict.fromkeys(range(16), 1)
    for parent, child in tree.tree_index.T.tolist():
        counts[parent] = counts.get(parent, 0) + counts[child]
    for level in range(tree.depth + 1):
        nodes = (tree.tree_level == level).nonzero().view(-1).tolist()
        assert [counts[node] for node in nodes] == [sizes[-1 - level]] * len(nodes)


# The adaptive quadtree #################################################################


def test_one_colour_is_one_leaf() -> None:
    tree = from_image(np.full((33, 70, 3), 9, dtype=np.uint8), patch_size=4, split_above=0)
    assert tree.num_tree_nodes == 1
    assert tree.image_x.unique().tolist() == [9]
    assert tree.image_box.tolist() == [[0, 0, 128, 128]]


def test_detail_is_kept_where_it_is() -> None:
    pixels = np.zeros((64, 64, 3), dtype=np.uint8)
    pixels[40, 20] = 255
    tree = from_image(pixels, patch_size=4, split_above=0, names=True)
    side = tree.image_box[:, 2] - tree.image_box[:, 0]
    assert side.tolist().count(32) == 3
    assert sorted(side.tolist()) == [4] * 4 + [8] * 3 + [16] * 3 + [32] * 3
    assert "patch 0,8 x8" in tree.tree_name
    assert "patch 10,5" in tree.tree_name
    np.testing.assert_array_equal(image_of(tree), pixels)


@settings(max_examples=40, deadline=None)
@given(SIZES, st.integers(1, 6), st.floats(0, 4000), st.integers(0, 9))
def test_blocks_split_where_their_variance_is_larger(
    size: tuple[int, int], p: int, threshold: float, seed: int
) -> None:
    rough = noise((*size, 3), seed)
    smooth = np.indices(size).sum(0)[..., None] * 3 % 256
    pixels = np.where(np.indices(size)[1][..., None] > size[1] // 2, rough, smooth).astype(np.uint8)
    tree = from_image(pixels, patch_size=p, split_above=threshold)
    check(tree, pixels, p)
    for top, left, bottom, right in tree.image_box.tolist():
        if bottom - top > p:
            block = pixels[top:bottom, left:right].astype(float)
            assert block.var(axis=(0, 1)).mean() <= threshold + 1e-6
    n = tree.num_leaves
    below = cells_by_position(tree)
    for node in range(n, tree.num_tree_nodes):
        top, left = tree.image_box[below[node], :2].min(dim=0).values.tolist()
        # The block of an inner node: a power of two larger than its largest child.
        level = tree.depth - int(tree.tree_level[node])
        side = p << (_top_level(size, p) - int(tree.tree_level[node]))
        assert level >= 1
        block = pixels[top : top + side, left : left + side].astype(float)
        assert block.var(axis=(0, 1)).mean() > threshold - 1e-6


def _top_level(size: tuple[int, int], p: int) -> int:
    return int(np.ceil(np.log2(max(-(-side // p) for side in size))))


def test_large_leaves_are_averages() -> None:
    pixels = noise((16, 16, 3))
    tree = from_image(pixels, patch_size=4, split_above=1e9)
    mean = pixels.reshape(4, 4, 4, 4, 3).mean(axis=(1, 3))
    got = tree.image_x.view(3, 4, 4).permute(1, 2, 0).numpy()
    assert np.abs(got - mean).max() <= 0.5 + 1e-3
    assert image_of(tree).shape == (16, 16, 3)
    np.testing.assert_array_equal(image_of(tree)[::4, ::4], got)
    inf = from_image(pixels, patch_size=4, split_above=float("inf"))
    assert torch.equal(inf.image_x, tree.image_x)


# Sources, files, frames ################################################################


def encode(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def test_rotated_transparent_palette_and_cmyk(tmp_path: pathlib.Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = from_image(encode(Image.new("RGB", (48, 16), "red"), "JPEG", exif=exif))
    assert turned.image_size.tolist() == [[48, 16]]
    clear = Image.new("P", (16, 16), 0)
    clear.putpalette([255, 0, 0])
    (tmp_path / "clear.gif").write_bytes(encode(clear, "GIF", transparency=0))
    assert from_image(tmp_path / "clear.gif").image_x.unique().tolist() == [255]
    cmyk = encode(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG")
    assert image_of(from_image(cmyk))[8, 8].astype(int) == pytest.approx([255, 0, 0], abs=9)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "L"])
def test_channels_of_every_mode_fit(mode: str) -> None:
    assert from_image(Image.new(mode, (20, 20))).image_x.shape == (4, 768)


def test_frames_and_pages() -> None:
    frames = [Image.new("RGB", (8, 8), (60 * i, 0, 0)) for i in range(4)]
    data = encode(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert image_of(from_image(data))[0, 0].tolist() == [0, 0, 0]
    assert image_of(from_image(data, frame=2))[0, 0].tolist() == [120, 0, 0]
    with pytest.raises(BuilderError, match="frame=4"):
        from_image(data, frame=4)
    video = from_video(data, frames_per_window=2, patch_size=4, names=True)
    assert image_of(video)[:, 0, 0, 0].tolist() == [0, 60, 120, 180]
    assert video.tree_name[-7:] == [
        *(f"frame {t}" for t in range(4)),
        *("frames 0-1", "frames 2-3", "video"),
    ]
    with pytest.warns(TruncationWarning, match="max_frames=3") as record:
        cut = from_video(data, max_frames=3, on_limit="truncate")
    assert record[0].filename == __file__
    assert int(cut.tree_span[-1, 1]) == 3


def test_videos_of_one_frame_and_of_one_patch() -> None:
    one = from_video([noise((20, 20, 3))], names=True)
    assert (one.tree_name[-1], one.num_leaves) == ("frame 0", 4)
    dots = from_video(np.zeros((5, 1, 1), dtype=bool), frames_per_window=[2], names=True)
    assert (dots.num_leaves, dots.depth) == (5, 2)
    assert dots.tree_name[:5] == [f"frame {t}" for t in range(5)]
    assert dots.tree_pos[:5, 0].tolist() == [0, 1, 0, 1, 0]
    assert from_video(np.zeros((1, 1, 1), dtype=bool)).num_tree_nodes == 1


def test_max_side() -> None:
    tree = from_image(Image.new("RGB", (4000, 1000), "red"), max_side=64)
    assert tree.image_size.tolist() == [[16, 64]]
    assert tree.num_leaves == 4
    assert from_video(noise((3, 50, 100, 3)), max_side=32).image_size.tolist() == [[16, 32]]


def test_nothing_shares_memory_with_the_source_or_other_trees() -> None:
    pixels = noise((16, 16, 3))
    first, second = from_image(pixels, patch_size=8), from_image(pixels, patch_size=8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_image(np.broadcast_to(pixels[:1, :1], (32, 32, 3)))
    for key, value in first.items():
        if isinstance(value, torch.Tensor):
            value.add_(1)
            assert not torch.equal(value, second[key])
    np.testing.assert_array_equal(pixels, noise((16, 16, 3)))
    assert torch.equal(from_image(pixels, patch_size=8).tree_pos, second.tree_pos)


def test_restricted_trees_and_loaders() -> None:
    pixels = noise((8, 8, 3))
    tree = from_image(pixels, patch_size=4)
    shown = image_of(tree.restrict(torch.tensor([1, 2])))
    np.testing.assert_array_equal(shown[:4, 4:], pixels[:4, 4:])
    assert (shown[:4, :4] == 255).all()
    videos = from_video(noise((3, 8, 8, 3)), patch_size=4)
    assert image_of(videos.restrict(torch.arange(4, 8))).shape == (3, 8, 8, 3)
    batch = next(iter(DataLoader([tree, from_image(noise((5, 9, 3)), patch_size=4)], batch_size=2)))
    assert batch.image_size.tolist() == [[8, 8], [5, 9]]
    assert batch.image_index.tolist() == list(range(10))
    with pytest.raises(BuilderError, match="holds 2 pictures"):
        image_of(batch)
    with pytest.raises(BuilderError, match="has no image_x"):
        image_of(SignalTree.from_parents([-1]))


# Errors ################################################################################


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"patch_size": 0}, "patch_size=0 is out of range: give 1 to 4096"),
        ({"patch_size": 5000}, "patch_size=5000"),
        ({"patch_size": 4.0}, r"patch_size=4\.0 is no integer"),
        ({"patch_size": True}, "patch_size=True is no integer"),
        ({"hierarchy": "octree"}, "hierarchy='octree' is neither"),
        ({"window": 4}, 'window=4 has no meaning for a quadtree: pass hierarchy="windows"'),
        ({"hierarchy": "windows", "window": 1}, "one cell"),
        ({"split_above": -1}, "split_above=-1 is no variance"),
        ({"split_above": float("nan")}, "split_above=nan"),
        ({"split_above": "0"}, "split_above='0'"),
        ({"split_above": True}, "split_above=True"),
        ({"hierarchy": "windows", "split_above": 1}, "no meaning for hierarchy='windows'"),
        ({"max_side": 0}, "max_side=0"),
        ({"frame": -1}, "frame=-1"),
        ({"frame": "0"}, "frame='0'"),
        ({"channel_first": 1}, "channel_first=1"),
        ({"max_pixels": 0}, "max_pixels=0"),
        ({"max_leaves": "x"}, "max_leaves='x'"),
    ],
)
def test_wrong_arguments(options: dict[str, object], match: str) -> None:
    with pytest.raises(BuilderError, match=match):
        from_image(Image.new("RGB", (8, 8)), **options)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"frames_per_window": 1}, "one cell"),
        ({"frames_per_window": (2, 2)}, "frames_per_window=.* is no integer"),
        ({"on_limit": "skip"}, "on_limit='skip'"),
        ({"max_frames": 0}, "max_frames=0"),
        ({"max_leaves": 3}, "video of 2 frames has 8 patches"),
        ({"max_pixels": 100}, "2 frames of 8 x 8 pixels, more than max_pixels=100"),
    ],
)
def test_wrong_arguments_of_videos(options: dict[str, object], match: str) -> None:
    with pytest.raises(BuilderError, match=match):
        from_video(noise((2, 8, 8, 3)), patch_size=4, **options)


def test_limits() -> None:
    with pytest.raises(LimitError, match="16 patches of 2 x 2 pixels, more than max_leaves=15"):
        from_image(noise((8, 8, 3)), patch_size=2, max_leaves=15)
    with pytest.raises(LimitError, match="max_leaves=15"):
        from_image(noise((8, 8, 3)), patch_size=2, max_leaves=15, split_above=0)
    flat = np.zeros((8, 8), dtype=bool)
    assert from_image(flat, patch_size=2, max_leaves=1, split_above=0).num_leaves == 1
    line = np.broadcast_to(np.uint8(0), (1, 2**20))
    for options in ({}, {"split_above": 0}):
        with pytest.raises(LimitError, match="fill up 1048576 x 1"):
            from_image(line, patch_size=4096, **options)
    huge = np.broadcast_to(np.uint8(0), (2**13, 2**13))
    with pytest.raises(LimitError, match=f"max_pixels={MAX_PIXELS}"):
        from_image(huge)


@settings(max_examples=100, deadline=None)
@given(
    st.one_of(st.binary(max_size=40), st.none(), st.integers(), st.text(max_size=5), st.floats()),
    st.booleans(),
)
def test_anything_else_is_a_typed_error(source: object, video: bool) -> None:
    build = from_video if video else from_image
    with pytest.raises((HSAError, OSError)):
        build(source)


def test_speed() -> None:
    pixels = noise((1024, 1024, 3))
    from_image(pixels)
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        from_image(pixels)
        best = min(best, time.perf_counter() - start)
    assert best < 0.1  # 5 ms on an idle core; the bar is 50 ms
