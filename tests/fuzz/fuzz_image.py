"""Pictures that went wrong: mutated files, odd arrays and Pillow images, for from_image."""

# ruff: noqa: SIM905
from __future__ import annotations

import functools
import io
import random
import struct
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fuzz_case import Case, mutated_bytes, options_of, truth
from PIL import Image

from hsa_geo.builders import from_image

MODES = "1 L LA P RGB RGBA RGBX RGBa La PA CMYK YCbCr LAB HSV I F I;16 I;16B I;16L".split()
FORMATS = "PNG JPEG GIF WEBP BMP ICO TIFF PPM TGA JPEG2000 AVIF".split()
SIZES = [(1, 1), (7, 5), (16, 16), (33, 2), (1, 40)]
DTYPES = (
    "uint8 uint8 uint8 uint16 float32 float32 float64 float16 bool int8 int16 int32 int64 uint32 "
    "uint64 complex64 object str datetime64[s] >u2 >f4 S3 longdouble V4"
).split()
TORCH = [
    *(torch.uint8, torch.uint8, torch.float32, torch.float32, torch.bool, torch.float16),
    *(torch.bfloat16, torch.int64, torch.int16, torch.complex64, torch.uint16, torch.float64),
    *(torch.float8_e4m3fn, torch.uint32),
]
CHUNKS = [
    *(b"tRNS", b"PLTE", b"gAMA", b"iCCP", b"tEXt", b"zTXt", b"iTXt", b"eXIf", b"acTL", b"fcTL"),
    *(b"fdAT", b"sRGB", b"cHRM", b"pHYs"),
]
OPTIONS = {
    "patch_size": [1, 2, 3, 4, 7, 8, 16, 64],
    "window": [1, 2, 3, (1, 2), (4, 1), [2, 3], [], [(1, 2), 5], (0, 1), "22"],
    "split_above": [0, 0.5, 100, 1e9, float("inf"), np.float64(3)],
    "max_side": [1, 3, 8, 16, 1000],
    "frame": [0, 1, 2, 99, 10**9],
    "channel_first": [True, False],
    "names": [True, False],
    "max_pixels": [1, 64, 10_000, 10_000, None],
    "max_leaves": [1, 100, 1000, 1000, None],
}
KEYS = frozenset(
    "tree_index tree_level tree_domain tree_pos num_nodes image_x image_index image_box "
    "image_size".split()
)


@functools.cache
def seed_files() -> list[bytes]:
    """Small valid files of many formats, modes and kinds."""
    rng = np.random.default_rng(0)
    files = []
    exif = Image.Exif()
    exif[0x0112] = 6
    exif[0x010E] = "description"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k, mode in enumerate(MODES):
            for size in (SIZES[k % 5], SIZES[(k + 2) % 5]):
                image = picture(mode, size, rng)
                for name in FORMATS:
                    options: dict[str, Any] = {}
                    if name in ("JPEG", "PNG", "WEBP", "TIFF", "AVIF"):
                        options["exif"] = exif
                    if name == "TIFF":
                        options["compression"] = ("raw", "tiff_lzw", "packbits")[k % 3]
                    if name == "JPEG":
                        options["progressive"] = k % 2 == 0
                    file = _saved(image, name, options)
                    if file:
                        files.append(file)
        many = [picture("P", (9, 9), rng) for _ in range(3)]
        rgb = [picture("RGBA", (9, 9), rng) for _ in range(3)]
        for name, frames in (("GIF", many), ("TIFF", rgb), ("WEBP", rgb), ("PNG", rgb)):
            options = {"save_all": True, "append_images": frames[1:], "duration": 10}
            files.append(_saved(frames[0], name, options))
        files.append(_saved(many[0], "GIF", {"transparency": 1, "interlace": 1}))
        files.append(_saved(picture("RGB", (9, 9), rng), "PNG", {"transparency": (1, 2, 3)}))
        files.append(_saved(many[0], "PNG", {"transparency": bytes(range(256)), "bits": 8}))
    return [file for file in files if file]


def picture(mode: str, size: tuple[int, int], rng: np.random.Generator) -> Image.Image:
    """A random picture of any mode."""
    noise = rng.integers(0, 256, (size[1], size[0], 4), dtype=np.uint8)
    if mode in ("1", "L", "P", "HSV", "YCbCr", "CMYK", "I", "F", "LA", "RGB"):
        return Image.fromarray(noise[..., :3]).convert(mode)
    if mode in ("RGBA", "RGBa"):
        return Image.fromarray(noise).convert(mode)
    if mode in ("La", "PA"):
        return Image.fromarray(noise[..., :2].copy()).convert(mode)
    if mode == "RGBX":
        return Image.frombytes("RGBX", size, noise.tobytes())
    return Image.new(mode, size, 1 if mode != "LAB" else (1, 2, 3))


def _saved(image: Image.Image, name: str, options: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    try:
        image.save(file, name, **options)
    except Exception:  # the format does not know the mode
        return b""
    return file.getvalue()


def case(rng: random.Random, folder: Path) -> Case:
    """A picture and options."""
    kind = rng.random()
    options = options_of(rng, OPTIONS, likely=0.1)
    if "window" in options and rng.random() < 0.9:
        options["hierarchy"] = "windows"
        if rng.random() < 0.9:
            options.pop("split_above", None)
    allowed: tuple[type[Exception], ...] = ()
    source: Any
    if kind < 0.7:
        if rng.random() < 0.95:
            options.pop("channel_first", None)
        source = _file(rng)
        if rng.random() < 0.1:
            source = rng.choice((bytearray, memoryview))(source)
        elif rng.random() < 0.03:
            path = folder / "picture"
            path.write_bytes(source)
            source = rng.choice((path, str(path), folder, folder / "none", "a\0", "\ud800"))
            allowed = (OSError,)
    elif kind < 0.85:
        source = _array(rng)
        if rng.random() < 0.9:
            options.pop("frame", None)
    elif kind < 0.98:
        source = _pillow(rng)
        if rng.random() < 0.9:
            options.pop("channel_first", None)
    else:
        source = rng.choice((None, 3, object(), [], [[1, 2]], "text", "", io.BytesIO(), {}, 1j))
        allowed = (OSError,)
    keys = KEYS | ({"tree_name"} if truth(options.get("names")) else set())
    return Case(from_image, source, options, allowed, keys)


def _file(rng: random.Random) -> bytes:
    files = seed_files()
    data = rng.choice(files)
    draw = rng.random()
    if draw < 0.03:
        return data
    if draw < 0.45 and data[:4] == b"\x89PNG":
        return png_mutated(rng, data)
    if draw < 0.6:
        return sizes_mutated(rng, data)
    if draw < 0.65:
        return data + rng.choice(files)
    if draw < 0.68:
        other = rng.choice(files)
        return other[: rng.choice((4, 8, 16, 30))] + data[rng.choice((4, 8, 16, 30)) :]
    if draw < 0.7:
        return rng.randbytes(rng.randrange(64))
    return mutated_bytes(rng, data, files)


def png_mutated(rng: random.Random, data: bytes) -> bytes:
    """A PNG file with chunks changed, dropped, repeated, moved and added; checksums fit mostly."""
    chunks, at = [], 8
    while at + 12 <= len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + size]))
        at += 12 + size
    for _ in range(1 + rng.randrange(3)):
        k = rng.randrange(len(chunks)) if chunks else 0
        kind = rng.randrange(8)
        if kind == 0 and chunks:
            del chunks[k]
        elif kind == 1 and chunks:
            chunks.insert(rng.randrange(len(chunks) + 1), chunks[k])
        elif kind == 2 and chunks:
            chunks.insert(rng.randrange(len(chunks)), chunks.pop(k))
        elif kind == 3 and chunks:
            name, body = chunks[k]
            chunks[k] = (name, mutated_bytes(rng, body))
        elif kind in (4, 5) and chunks:
            name, body = chunks[0]
            if name == b"IHDR" and len(body) == 13:
                fields = list(struct.unpack(">IIBBBBB", body))
                number = rng.choice(
                    (0, 1, 2, 3, 4, 6, 8, 16, 255, 2000, 70_000, 2**31 - 1, 2**32 - 1)
                )
                field = rng.randrange(7)
                fields[field] = number if field < 2 else number % 256
                chunks[0] = (name, struct.pack(">IIBBBBB", *fields))
        elif kind == 6:
            name = rng.choice(CHUNKS)
            body = rng.randbytes(rng.choice((0, 1, 2, 3, 6, 13, 26, 256, 768, 900)))
            if name in (b"zTXt", b"iCCP"):
                body = b"a\0\0" + zlib.compress(b"x" * rng.choice((1, 10**6, 10**8 // 2)))
            if name == b"eXIf":
                body = b"Exif\0\0MM\0*" + body if rng.random() < 0.5 else b"II*\0\x08\0\0\0" + body
            chunks.insert(rng.randrange(len(chunks) + 1), (name, body))
        elif chunks:
            idat = [i for i, (name, _) in enumerate(chunks) if name == b"IDAT"]
            if idat:
                raw = rng.randbytes(rng.randrange(200)) + b"\0" * rng.choice((0, 10, 10**5))
                chunks[idat[0]] = (b"IDAT", zlib.compress(raw))
    out = bytearray(data[:8])
    for name, body in chunks:
        check = zlib.crc32(name + body) ^ (rng.random() < 0.05)
        out += struct.pack(">I", len(body)) + name + body + struct.pack(">I", check)
    return bytes(out)


def sizes_mutated(rng: random.Random, data: bytes) -> bytes:
    """A file that says another size than it has, in the place where its format says it."""
    out = bytearray(data)
    big = rng.choice((0, 1, 2, 255, 4000, 30_000, 65_535, 2**31 - 1, 2**32 - 1, 2**31))
    if data[:3] == b"GIF":
        at = rng.choice((6, 8))
        out[at : at + 2] = struct.pack("<H", big % 65_536)
    elif data[:2] == b"BM":
        at = rng.choice((2, 10, 14, 18, 22, 26, 28, 30, 46))
        out[at : at + 4] = struct.pack("<I", big)
    elif data[:2] == b"\xff\xd8":
        for marker in (b"\xff\xc0", b"\xff\xc2"):
            at = data.find(marker)
            if at >= 0:
                field = rng.choice((2, 5, 7))
                out[at + field : at + field + 2] = struct.pack(">H", big % 65_536)
    elif data[:4] == b"RIFF":
        at = rng.choice((4, 16, 24, 26, 27))
        out[at : at + 4] = struct.pack("<I", big)
    elif data[:4] == b"\0\0\1\0":
        at = rng.choice((4, 6, 7, 14, 18))
        out[at : at + 4] = struct.pack("<I", big)
    elif data[:1] == b"P" and rng.random() < 0.7:
        head = f"P{rng.randrange(8)}\n{rng.choice((big, 3))} {rng.choice((big, 2))}\n{big}\n"
        out = bytearray(head.encode() + data[12:])
    else:
        return mutated_bytes(rng, data[: rng.randrange(8, 120)]) + data[120:]
    return bytes(out)


def _array(rng: random.Random) -> Any:
    shape = [
        rng.choice((0, 1, 2, 3, 4, 5, 17, 40)) for _ in range(rng.choice((2, 3, 3, 3, 1, 4, 0)))
    ]
    if len(shape) == 3 and rng.random() < 0.7:
        shape[rng.choice((0, 2))] = rng.choice((1, 2, 3, 4))
    generator = np.random.default_rng(rng.getrandbits(32))
    if rng.random() < 0.5:
        values = np.asarray(generator.random(shape)) * rng.choice((1, 1, 1, 255, -1, 1e30))
        if values.size and rng.random() < 0.1:
            values.flat[0] = rng.choice((np.nan, np.inf, -np.inf, 1.0005, -1e-4))
        tensor = torch.from_numpy(np.asarray(values)).to(rng.choice(TORCH))
        return rng.choice((_same, _same, _same, *_LAYOUTS))(tensor)
    dtype = rng.choice(DTYPES)
    values = np.asarray(generator.random(shape)) * (1 if "f" in dtype else 255)
    try:
        with np.errstate(all="ignore"):
            array = np.asarray(np.asarray(values).astype(dtype))
    except Exception:  # no such cast
        array = np.zeros(shape, dtype)
    kind = rng.randrange(6)
    if kind == 0 and array.ndim > 1:
        return array[::-1, ::2]
    if kind == 1:
        return np.ma.masked_array(array)
    if kind == 2:
        array.flags.writeable = False
    if kind == 3:
        return np.asfortranarray(array)
    return array


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _sparse(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float().to_sparse()


def _meta(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to("meta")


def _turned(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.permute(list(reversed(range(tensor.dim()))))


def _graded(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float().requires_grad_()


def _expanded(tensor: torch.Tensor) -> torch.Tensor:
    return torch.ones((), dtype=tensor.dtype).expand(3, 5, 5)


_LAYOUTS = (_sparse, _meta, _turned, _graded, _expanded)


def _pillow(rng: random.Random) -> Image.Image:
    """An image of any mode, whose metadata says anything."""
    generator = np.random.default_rng(rng.getrandbits(32))
    if rng.random() < 0.3:
        try:
            return Image.open(io.BytesIO(rng.choice(seed_files())))
        except Exception:  # a seed that Pillow writes and does not read
            pass
    image = picture(rng.choice(MODES), rng.choice([*SIZES, (0, 0), (0, 3)]), generator)
    if rng.random() < 0.4:
        image.info["transparency"] = rng.choice(
            (0, 1, 255, -1, 300, b"\0\1", b"", (1, 2, 3), (1,), "x", None, 1.5, bytes(256), [1])
        )
    if rng.random() < 0.2:
        image.info["exif"] = rng.choice(
            (b"", b"Exif\0\0", b"x", "x", 1, b"Exif\0\0II*\0\x08\0\0\0\xff")
        )
    if rng.random() < 0.3 and "exif" not in image.info:
        image.getexif()[0x0112] = rng.choice((1, 2, 3, 4, 5, 6, 7, 8, 9, 0, "6", (6,), 2.5, b"6"))
    return image
