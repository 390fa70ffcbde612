"""Which builder reads a file: by its ending, or as the caller says."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from hsa_geo.cli.arrays import is_npy, read_array, sequence_tree
from hsa_geo.cli.graphs import graph_tree, links_of, node_link_tree
from hsa_geo.cli.json_trees import nested_tree, read_json
from hsa_geo.errors import BuilderError, DecodingWarning, HSAWarning, TruncationWarning

__all__ = ["Kind", "Reading", "kind_of", "read_site", "read_tree"]


class Kind(StrEnum):
    """What a file is."""

    html = "html"
    text = "text"
    image = "image"
    json = "json"
    graph = "graph"
    sequence = "sequence"
    video = "video"
    site = "site"


_ENDINGS = {
    Kind.html: "html htm xhtml",
    Kind.text: "txt text md rst",
    Kind.image: "png jpg jpeg gif webp bmp tif tiff ppm pgm",
    Kind.json: "json",
    Kind.graph: "graphml gexf gml net edgelist adjlist",
    Kind.sequence: "csv tsv npy",
}
_KINDS = {f".{ending}": kind for kind, endings in _ENDINGS.items() for ending in endings.split()}
#: What people try, and what helps.
_OTHERS = {
    "mp4 mov avi mkv webm mpg mpeg m4v": "is a film, which needs a decoder: write its frames into "
    "an animated picture or a .npy array [T, H, W, 3], and give --as video",
    "wav mp3 flac ogg m4a aac": "is sound, which needs a decoder: write its samples or spectra "
    "into a .npy array [N, F] or a table",
    "pdf doc docx odt epub": "is a document that only its own programs read: save it as HTML or "
    "text",
    "zip gz bz2 xz tar 7z rar": "is an archive: unpack it",
    "pt pth npz pkl pickle h5 hdf5 parquet xlsx": "holds data that this command does not open: "
    "write one array [N, F] as .npy, or a table as .csv",
}
_REMEDIES = {f".{ending}": told for endings, told in _OTHERS.items() for ending in endings.split()}


@dataclass(frozen=True)
class Reading:
    """How files of a kind are read.

    Args:
        include_hidden: Of pages and sites: also what is hidden. (default: :obj:`False`)
        punctuation: Of texts: punctuation is leaves, too. (default: :obj:`False`)
        window: Of sequences: steps in a window, windows in a larger one. (default: 16)

    Example:
        >>> Reading(window=4).window
        4
    """

    include_hidden: bool = False
    punctuation: bool = False
    window: int = 16


def kind_of(path: Path) -> Kind | None:
    """The kind of a file by its ending.

    Example:
        >>> kind_of(Path("a.HTM")), kind_of(Path("a.exe"))
        (<Kind.html: 'html'>, None)
    """
    return _KINDS.get(path.suffix.lower())


def read_tree(
    data: bytes, path: Path, kind: Kind | None = None, reading: Reading | None = None
) -> Any:
    """The tree of a file.

    Args:
        data: What it holds.
        path: Its name; only the ending is looked at.
        kind: What it is. (default: by its ending)
        reading: How to read it. (default: as :class:`Reading` says)

    Returns:
        The :class:`~hsa_geo.data.SignalTree`.

    Raises:
        BuilderError: If it is nothing of this kind, or of no known one.
        MissingPackageError: If the kind needs a package that is not there.

    Warns:
        HSAWarning: If something was left out or could not be decoded.

    Example:
        >>> read_tree(b"[[1, 2], [3]]", Path("a.json")).num_leaves
        3
    """
    kind = kind_of(path) if kind is None else kind
    reading = Reading() if reading is None else reading
    if kind is None:
        raise BuilderError(_unknown(path))
    if kind is Kind.site:
        raise BuilderError(f"'{path.name}' is a file, but a site is a folder of pages: give that.")
    if not data:
        raise BuilderError(f"'{path.name}' is empty: there is nothing to make a tree of.")
    if kind is Kind.html:
        from hsa_geo.builders import from_html

        return from_html(data, on_limit="truncate", include_hidden=reading.include_hidden)
    if kind is Kind.text:
        from hsa_geo.builders import from_text

        text = _decoded(data)
        with warnings.catch_warnings():  # it is what the file holds, whatever it looks like
            warnings.filterwarnings("ignore", ".* looks like the name of a file", HSAWarning)
            return from_text(text, on_limit="truncate", punctuation=reading.punctuation)
    if kind is Kind.image:
        return _image(data, path)
    if kind is Kind.video:
        from hsa_geo.builders import from_video

        frames = read_array(data, path.name) if is_npy(data) else data
        return from_video(frames, names=True, on_limit="truncate")
    if kind is Kind.sequence:
        return sequence_tree(read_array(data, path.name), reading.window)
    if kind is Kind.json:
        content = read_json(data, path.name)
        edges = links_of(content)
        return nested_tree(content) if edges is None else node_link_tree(content, edges, path)
    return graph_tree(data, path)


def read_site(folder: Path, reading: Reading | None = None) -> Any:
    """The tree of a folder of pages.

    Args:
        folder: The folder.
        reading: How to read the pages. (default: as :class:`Reading` says)

    Returns:
        The :class:`~hsa_geo.data.SignalTree` of :func:`~hsa_geo.builders.from_site`.

    Raises:
        BuilderError: If it is no folder, or no page in it shows anything.

    Warns:
        HSAWarning: If pages were left out, or something in them.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "index.html").write_text("<p>See <a href=news.html>the news</a>.")
        ...     _ = Path(folder, "news.html").write_text("<p>We moved.")
        ...     read_site(Path(folder)).tree_link.tolist()
        [[6], [7]]
    """
    from hsa_geo.builders import from_site

    reading = Reading() if reading is None else reading
    return from_site(folder, on_limit="truncate", include_hidden=reading.include_hidden)


def _unknown(path: Path) -> str:
    remedy = _REMEDIES.get(path.suffix.lower())
    if remedy is not None:
        return f"'{path.name}' {remedy}."
    kinds = ", ".join(kind for kind in Kind if kind is not Kind.site)
    return f"'{path.name}' has no ending that says what it is: give --as {kinds}, whichever it is."


def _decoded(data: bytes) -> str:
    """A text as a person would have written it: UTF-8, UTF-16 with its mark, or windows-1252."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        text, codec = data.decode("utf-16", "replace"), "UTF-16"
        lost = text.count("\ufffd") - data.decode("utf-16", "ignore").count("\ufffd")
    else:
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError:
            text, codec = data.decode("cp1252", "replace"), "windows-1252"
        lost = text.count("\ufffd")
    if codec != "UTF-16" or lost:
        warnings.warn(
            f"the text was read as {codec}, in which {lost} of {len(text)} characters are lost: "
            "convert it to UTF-8 if that is not its encoding.",
            DecodingWarning,
            stacklevel=3,
        )
    return text


def _image(data: bytes, path: Path) -> Any:
    from hsa_geo.builders import from_image

    if is_npy(data):
        return from_image(read_array(data, path.name), names=True)
    tree = from_image(data, names=True)
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        if getattr(image, "is_animated", False):
            warnings.warn(
                "the first frame alone was read: give --as video for all of them.",
                TruncationWarning,
                stacklevel=3,
            )
    return tree
