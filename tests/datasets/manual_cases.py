"""Tiny packages in the formats of the real ones, for the tests of datasets with pictures."""

import io
import tarfile
from pathlib import Path

from PIL import Image


def png(color, size=(16, 16), format="PNG", **more):
    """An image file of one colour."""
    file = io.BytesIO()
    Image.new("RGB", size, color).save(file, format, **more)
    return file.getvalue()


def animated(colors):
    """An animated GIF."""
    frames = [Image.new("RGB", (16, 16), color) for color in colors]
    file = io.BytesIO()
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:], duration=100)
    return file.getvalue()


def make_tar(files, start=""):
    """A compressed tar of files by name."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            info = tarfile.TarInfo(start + name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def make_deb(path, files):
    """A Debian package with these files."""
    members = {
        "debian-binary": b"2.0\n",
        "control.tar.gz": make_tar({"control": "Package: tiny\n"}, "./"),
        "data.tar.gz": make_tar(files, "./"),
    }
    out = b"!<arch>\n"
    for name, data in members.items():
        out += f"{name:<16}{'0':<12}{'0':<6}{'0':<6}{'100644':<8}{len(data):<10}`\n".encode()
        out += data + b"\n" * (len(data) % 2)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_bytes(out)
