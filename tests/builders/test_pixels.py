import io
import itertools
import os
import pathlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from hsa_geo.builders._pixels import FORMATS, PixelSource
from hsa_geo.errors import BuilderError, HSAError, LimitError, TruncationWarning

RNG = np.random.default_rng(0)
RGB = RNG.integers(0, 256, (6, 9, 3), dtype=np.uint8)
GREY = RNG.integers(0, 256, (6, 9), dtype=np.uint8)


def encode(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def read(source: object, **options: object) -> np.ndarray:
    frame = options.pop("frame", None)
    return PixelSource(**options).picture(source, frame)  # type: ignore[arg-type]


def grey(values: np.ndarray) -> np.ndarray:
    return np.repeat(values[..., None], 3, axis=-1)


# Arrays and tensors ####################################################################


@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy, Image.fromarray, "file", "path"])
def test_every_kind_of_source(convert: object, tmp_path: pathlib.Path) -> None:
    if convert in ("file", "path"):
        data = encode(Image.fromarray(RGB))
        (tmp_path / "image.bin").write_bytes(data)
        path = tmp_path / "image.bin"
        sources = (
            [data, bytearray(data), memoryview(data)]
            if convert == "file"
            else [
                path,
                str(path),
            ]
        )
    elif convert is torch.from_numpy:
        tensor = torch.from_numpy(RGB).permute(2, 0, 1)
        sources = [tensor, tensor.contiguous(), torch.nn.Parameter(tensor / 255)]
    else:
        sources = [convert(RGB)]  # type: ignore[operator]
    for source in sources:
        np.testing.assert_array_equal(read(source), RGB)


@pytest.mark.parametrize(
    "values",
    [
        GREY,
        GREY[..., None],
        GREY.astype(np.uint16) * 257,
        (GREY.astype(np.uint16) * 257).astype(">u2"),
        GREY / 255,
        (GREY / 255).astype(np.float32),
        torch.from_numpy(GREY),
        torch.from_numpy(GREY)[None],
        torch.from_numpy(GREY.astype(np.uint16) * 257),
        torch.from_numpy(GREY) / 255,
        (torch.from_numpy(GREY) / 255).to_sparse(),
        np.asfortranarray(GREY),
        np.dstack([GREY, np.full_like(GREY, 255)]),
        np.dstack([GREY, GREY, GREY, np.full_like(GREY, 255)]),
    ],
)
def test_ranges_and_channels(values: object) -> None:
    np.testing.assert_array_equal(read(values), grey(GREY))


def test_half_precision_is_near() -> None:
    for dtype in (torch.float16, torch.bfloat16):
        got = read((torch.from_numpy(GREY) / 255).to(dtype))
        assert np.abs(got.astype(int) - grey(GREY)).max() <= 1


def test_rounding() -> None:
    assert read(np.array([[0, 128, 129, 65535]], dtype=np.uint16))[0, :, 0].tolist() == [
        0,
        0,
        1,
        255,
    ]
    assert read(np.array([[0.49 / 255, 0.51 / 255, 1.0005, -0.0005]]))[0, :, 0].tolist() == [
        0,
        1,
        255,
        0,
    ]
    assert read(np.array([[True, False]]))[0, :, 0].tolist() == [255, 0]


def test_alpha_is_over_white() -> None:
    values = np.zeros((1, 3, 4), dtype=np.uint8)
    values[0, :, 3] = [0, 128, 255]
    assert read(values)[0, :, 0].tolist() == [255, 127, 0]
    assert read(values[..., 2:])[0, :, 0].tolist() == [255, 127, 0]
    assert read(values / 255)[0, :, 0].tolist() == [255, 127, 0]


def test_channel_first() -> None:
    np.testing.assert_array_equal(read(RGB.transpose(2, 0, 1), channel_first=True), RGB)
    np.testing.assert_array_equal(read(torch.from_numpy(RGB), channel_first=False), RGB)
    with pytest.raises(BuilderError, match=r"shape \[3, 6, 9\].*pass channel_first=True"):
        read(RGB.transpose(2, 0, 1))
    with pytest.raises(BuilderError, match=r"shape \[6, 9, 3\].*pass channel_first=False"):
        read(torch.from_numpy(RGB))
    with pytest.raises(BuilderError, match="channel_first=True has no meaning for a Image"):
        read(Image.fromarray(RGB), channel_first=True)


@pytest.mark.parametrize(
    ("source", "match"),
    [
        (np.array([[0.5, np.nan]]), "value nan"),
        (np.array([[0.5, np.inf]]), "value inf"),
        (np.array([[-np.inf, 0]]), "value -inf"),
        (np.array([[0.5, 255.0]]), "value 255"),
        (np.array([[-0.2, 0.3]]), r"value -0\.2"),
        (torch.tensor([[0.5, float("nan")]]), "value nan"),
        (np.zeros((2, 2), dtype=np.int64), "type int64"),
        (np.zeros((2, 2), dtype=np.int8), "type int8"),
        (np.zeros((2, 2), dtype=np.uint32), "type uint32"),
        (np.zeros((2, 2), dtype=complex), "type complex128"),
        (np.zeros((2, 2), dtype="U3"), "type <U3"),
        (np.zeros((2, 2), dtype="M8[s]"), "type datetime64"),
        (np.empty((2, 2), dtype=object), "type object"),
        (torch.zeros(2, 2, dtype=torch.complex64), "type complex64"),
        (torch.zeros(2, 2, device="meta"), "on meta cannot be read"),
        (np.zeros((0, 4)), "4 x 0 pixels"),
        (np.zeros((4, 0, 3)), "0 x 4 pixels"),
        (torch.zeros(3, 0, 0), "0 x 0 pixels"),
        (np.zeros(4), r"shape \[4\]"),
        (np.float64(3), "is a float64"),
        (np.array(3.0), r"shape \[\]"),
        (np.zeros((1, 2, 3, 3)), r"shape \[1, 2, 3, 3\]"),
        (np.zeros((2, 2, 0)), "0 channels"),
        (np.zeros((2, 2, 5)), "5 channels"),
        ([[0, 1]], "is a list"),
        (None, "is a NoneType"),
        (io.BytesIO(b""), "is a BytesIO"),
        (b"", "no image of a known format"),
        (b"not an image", "no image of a known format"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "no image of a known format"),
        ("a\0b", "no path"),
    ],
)
def test_no_pictures(source: object, match: str) -> None:
    with pytest.raises(BuilderError, match=match):
        read(source)


def test_files_that_cannot_be_read(tmp_path: pathlib.Path) -> None:
    for path in (tmp_path, tmp_path / "none.png", "x" * 10_000):
        with pytest.raises(OSError, match=r"directory|too long|No such"):
            read(path)
    (tmp_path / "cut.png").write_bytes(encode(Image.fromarray(RGB))[:-30])
    with pytest.raises(BuilderError, match="cannot be decoded"):
        read(tmp_path / "cut.png")


# Modes of files and of PIL images ######################################################


@pytest.mark.parametrize("kind", FORMATS)
def test_formats(kind: str) -> None:
    Image.init()
    if kind not in Image.SAVE:
        pytest.skip(f"this Pillow does not write {kind}")
    flat = Image.new("RGB", (32, 32), (200, 40, 80))
    got = read(encode(flat, kind)).astype(int)
    assert got.shape == (32, 32, 3)
    assert np.abs(got - (200, 40, 80)).max() <= 6


@pytest.mark.parametrize(
    ("mode", "colour", "shown"),
    [
        ("1", 1, (255, 255, 255)),
        ("L", 77, (77, 77, 77)),
        ("LA", (77, 0), (255, 255, 255)),
        ("La", (0, 0), (255, 255, 255)),
        ("PA", (0, 0), (255, 255, 255)),
        ("RGB", (1, 2, 3), (1, 2, 3)),
        ("RGBX", (1, 2, 3, 0), (1, 2, 3)),
        ("RGBA", (9, 9, 9, 0), (255, 255, 255)),
        ("RGBa", (0, 0, 0, 0), (255, 255, 255)),
        ("CMYK", (0, 255, 255, 0), (255, 0, 0)),
        ("YCbCr", (128, 128, 128), (128, 128, 128)),
        ("HSV", (0, 255, 255), (255, 0, 0)),
        ("I;16", 257 * 50, (50, 50, 50)),
        ("I;16L", 257 * 50, (50, 50, 50)),
        ("I;16B", 257 * 50, (50, 50, 50)),
        ("I;16N", 257 * 50, (50, 50, 50)),
        ("I", 50, (50, 50, 50)),
        ("I", 257 * 50, (50, 50, 50)),
        ("F", 50.2, (50, 50, 50)),
        ("F", 257.0 * 50, (50, 50, 50)),
        ("F", 0.5, (128, 128, 128)),
        ("P", 0, (10, 20, 30)),
    ],
)
def test_modes(mode: str, colour: object, shown: tuple[int, int, int]) -> None:
    image = Image.new(mode, (3, 2), colour)  # type: ignore[arg-type]
    if mode == "P":
        image.putpalette([10, 20, 30])
    assert read(image).tolist() == [[list(shown)] * 3] * 2


@pytest.mark.parametrize("mode", ["I", "F"])
@pytest.mark.parametrize("value", [-1, 70_000])
def test_values_that_cannot_be_shown(mode: str, value: int) -> None:
    with pytest.raises(BuilderError, match=rf"mode {mode} has the value {value}|e\+04"):
        read(Image.new(mode, (2, 2), value))


def test_float_images_with_nan() -> None:
    for value in (np.nan, np.inf):
        image = Image.fromarray(np.full((2, 2), value, dtype=np.float32))
        with pytest.raises(BuilderError, match=f"value {value}"):
            read(image)
        with pytest.raises(BuilderError, match=f"value {value}"):
            read(encode(image, "TIFF"))


def test_sixteen_bits_with_a_transparent_value() -> None:
    values = np.array([[257 * 9, 257 * 80]], dtype=np.uint16)
    shown = read(encode(Image.fromarray(values), transparency=257 * 80))
    assert shown[0, :, 0].tolist() == [9, 255]


def test_exif_orientation_of_files_and_images() -> None:
    upright = Image.new("RGB", (32, 16), "white")
    ImageDraw.Draw(upright).rectangle((0, 0, 15, 7), fill="black")
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encode(upright.transpose(Image.Transpose.ROTATE_90), "PNG", exif=exif)
    np.testing.assert_array_equal(read(data), np.asarray(upright))
    np.testing.assert_array_equal(read(Image.open(io.BytesIO(data))), np.asarray(upright))


def test_closed_and_broken_images() -> None:
    image = Image.open(io.BytesIO(encode(Image.fromarray(RGB))))
    image.close()
    broken = Image.open(io.BytesIO(encode(Image.effect_noise((64, 64), 50))[:900]))
    for source in (image, broken):
        with pytest.raises(BuilderError, match="cannot be decoded"):
            read(source)


# Sizes #################################################################################


@pytest.mark.parametrize(
    ("size", "reduced"),
    [((100, 50), (20, 10)), ((50, 100), (10, 20)), ((1000, 1), (20, 1)), ((20, 5), (20, 5))],
)
def test_max_side(size: tuple[int, int], reduced: tuple[int, int]) -> None:
    width, height = reduced
    for source in (
        Image.new("RGB", size, "red"),
        np.asarray(Image.new("RGB", size, "red")),
        encode(Image.new("RGB", size, "red")),
        encode(Image.new("RGB", size, "red"), "JPEG"),
    ):
        got = read(source, max_side=20)
        assert got.shape == (height, width, 3)
        assert np.abs(got.astype(int) - (255, 0, 0)).max() < 4


def test_reducing_is_averaging() -> None:
    board = np.indices((40, 40)).sum(0) % 2 * np.uint8(255)
    assert np.abs(read(board.astype(np.uint8), max_side=20).astype(int) - 128).max() <= 1


def test_bombs() -> None:
    for source in (RGB, torch.from_numpy(GREY), Image.fromarray(RGB), encode(Image.fromarray(RGB))):
        assert read(source, max_pixels=54).shape == (6, 9, 3)
        with pytest.raises(LimitError, match="9 x 6 pixels, more than max_pixels=53"):
            read(source, max_pixels=53)


def test_images_that_pillow_does_not_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with pytest.raises(LimitError, match=r"PIL\.Image\.MAX_IMAGE_PIXELS"):
        read(encode(Image.fromarray(RGB)))


# Frames ################################################################################


def animation(kind: str, count: int = 3) -> tuple[bytes, np.ndarray]:
    frames = [Image.new("RGB", (8, 6), (80 * i, 0, 0)) for i in range(count)]
    options = {"lossless": True} if kind == "WEBP" else {}
    data = encode(frames[0], kind, save_all=True, append_images=frames[1:], **options)
    return data, np.stack([np.asarray(frame) for frame in frames])


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF"])
def test_frames_of_a_file(kind: str) -> None:
    data, frames = animation(kind)
    np.testing.assert_array_equal(read(data), frames[0])
    for number in range(3):
        np.testing.assert_array_equal(read(data, frame=number), frames[number])
    with pytest.raises(BuilderError, match="frame=3 is behind the image's last"):
        read(data, frame=3)
    np.testing.assert_array_equal(PixelSource().frames(data, None, "error"), frames)


def test_an_image_stays_at_its_frame() -> None:
    data, frames = animation("GIF")
    with Image.open(io.BytesIO(data)) as image:
        image.seek(1)
        np.testing.assert_array_equal(read(image), frames[1])
        np.testing.assert_array_equal(read(image, frame=2), frames[2])
        np.testing.assert_array_equal(PixelSource().frames(image, None, "error"), frames)
        assert image.tell() == 1


def test_frames_of_what_has_one() -> None:
    np.testing.assert_array_equal(read(Image.fromarray(RGB), frame=0), RGB)
    for source in (Image.fromarray(RGB), encode(Image.fromarray(RGB))):
        with pytest.raises(BuilderError, match="frame=1 is behind the image's last"):
            read(source, frame=1)
    with pytest.raises(BuilderError, match="frame=0 has no meaning for an array"):
        read(RGB, frame=0)


def test_kinds_of_videos(tmp_path: pathlib.Path) -> None:
    video = RNG.integers(0, 256, (3, 4, 5, 3), dtype=np.uint8)
    (tmp_path / "1.png").write_bytes(encode(Image.fromarray(video[1])))
    sources: list[object] = [
        video,
        video.astype(np.uint16) * 257,
        np.concatenate([video, np.full((3, 4, 5, 1), 255, np.uint8)], axis=-1),
        torch.from_numpy(video).permute(0, 3, 1, 2),
        list(video),
        iter(video),
        [Image.fromarray(frame) for frame in video],
        [video[0], tmp_path / "1.png", torch.from_numpy(video[2]).permute(2, 0, 1) / 255],
    ]
    for source in sources:
        np.testing.assert_array_equal(PixelSource().frames(source, 3, "error"), video)
    got = PixelSource(channel_first=False).frames(torch.from_numpy(video), None, "error")
    np.testing.assert_array_equal(got, video)
    got = PixelSource().frames(video[..., 0], None, "error")
    np.testing.assert_array_equal(got, grey(video[..., 0]))
    assert PixelSource(max_side=2).frames(video, None, "error").shape == (3, 2, 2, 3)
    assert PixelSource(max_side=2).frames(list(video), None, "error").shape == (3, 2, 2, 3)


@pytest.mark.parametrize(
    ("source", "match"),
    [
        ([], "no frame"),
        (np.zeros((0, 2, 2)), "no frame"),
        ([RGB, RGB[:3]], "frame 1 has 9 x 3 pixels and frame 0 9 x 6"),
        ([RGB, None], "frame 1: the image is a NoneType"),
        ([RGB, np.array([[np.nan]])], "frame 1: the image has the value nan"),
        (3, "is a int"),
        (RGB[0], r"shape \[9, 3\]"),
        (torch.zeros(4, 8, 8, 3), "pass channel_first=False"),
    ],
)
def test_no_videos(source: object, match: str) -> None:
    with pytest.raises(BuilderError, match=match):
        PixelSource().frames(source, None, "error")


@pytest.mark.parametrize("kind", ["array", "list", "file", "endless"])
def test_limits_of_videos(kind: str) -> None:
    data, frames = animation("GIF", count=4)

    def source() -> object:
        if kind == "endless":
            return itertools.repeat(frames[0])
        return {"array": frames, "list": list(frames), "file": data}[kind]

    with pytest.raises(LimitError, match="more than max_frames=2"):
        PixelSource().frames(source(), 2, "error")
    with pytest.warns(TruncationWarning, match="max_frames=2 frames: left out the later") as record:
        got = PixelSource().frames(source(), 2, "truncate")
    assert len(record) == 1
    np.testing.assert_array_equal(got, frames[:2] if kind != "endless" else frames[[0, 0]])
    with pytest.raises(LimitError, match="frames of 8 x 6 pixels, more than max_pixels=100"):
        PixelSource(max_pixels=100).frames(source(), None, "error")


# Hostile bytes #########################################################################

SEEDS = [
    encode(Image.fromarray(RGB), "PNG"),
    encode(Image.fromarray(RGB), "JPEG"),
    encode(Image.fromarray(RGB), "BMP"),
    encode(Image.fromarray(RGB), "TIFF"),
    encode(Image.fromarray(GREY.astype(np.float32)), "TIFF"),
    encode(Image.fromarray(RGB), "TIFF", compression="tiff_lzw"),
    encode(Image.fromarray(RGB), "PPM"),
    encode(Image.fromarray(RGB), "TGA"),
    encode(Image.fromarray(RGB), "ICO"),
    animation("GIF")[0],
    animation("PNG")[0],
    animation("WEBP")[0],
]


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(SEEDS),
    st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=5)), max_size=4),
    st.booleans(),
)
def test_damaged_files(seed: bytes, edits: list[tuple[float, bytes]], video: bool) -> None:
    data = bytearray(seed)
    for where, noise in edits:
        at = int(where * (len(data) - 1))
        data[at : at + len(noise)] = noise
    source = PixelSource(max_side=8, max_pixels=10**5)
    try:
        if video:
            shape = source.frames(bytes(data), 5, "error").shape[1:]
        else:
            shape = source.picture(bytes(data)).shape
    except HSAError:
        return
    assert shape[2] == 3
    assert 1 <= max(shape[:2]) <= 8


def test_no_file_is_left_open(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.gif").write_bytes(animation("GIF")[0])
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    PixelSource().frames(tmp_path / "a.gif", None, "error")
    read(tmp_path / "a.gif")
    after = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    assert after == before
