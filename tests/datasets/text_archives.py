"""Small archives in the formats of the real ones, and the real ones where they can be had."""

import dataclasses
import io
import os
import tarfile
from pathlib import Path

import pytest

from hsa_geo.datasets.fetch import sha256_of
from hsa_geo.errors import DownloadError


def tar_bytes(files, mode="w:gz"):
    """A tar archive of names and contents."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as tar:
        for name, content in files.items():
            content = content.encode() if isinstance(content, str) else content
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def deb_bytes(files):
    """A Debian package of names and contents."""
    members = {
        "debian-binary": b"2.0\n",
        "control.tar.gz": tar_bytes({"./control": "Package: a\n"}),
        "data.tar.gz": tar_bytes({f"./{name}": content for name, content in files.items()}),
    }
    out = b"!<arch>\n"
    for name, content in members.items():
        head = f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n"
        out += head.encode() + content + b"\n" * (len(content) % 2)
    return out


def with_archive(monkeypatch, cls, root, content):
    """Put an archive of that content into ``root/raw``, and let the class take it for its own."""
    archive = cls.archives[0]
    path = Path(root, "raw", archive.filename)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    archive = dataclasses.replace(archive, sha256=sha256_of(path))
    monkeypatch.setattr(cls, "archives", (archive,))
    return path


def real_root(cls, folder):
    """A root with the real archive, from ``$HSA_GEO_DATA/<file_name>/raw`` or fetched, or skip."""
    archive = cls.archives[0]
    raw = Path(folder, "raw")
    raw.mkdir(parents=True, exist_ok=True)
    cached = Path(os.environ.get("HSA_GEO_DATA", "."), cls.file_name, "raw", archive.filename)
    if cached.is_file():
        (raw / archive.filename).symlink_to(cached.resolve())
    try:
        archive.fetch(raw)
    except DownloadError as error:
        pytest.skip(f"the real {cls.__name__} cannot be had: {error}")
    return folder


def check_trees(dataset, some=slice(None)):
    """What holds for every dataset of texts."""
    for i in range(len(dataset))[some]:
        tree = dataset[i]
        assert tree.validate()
        text, words = dataset.text(i), dataset.words(i)
        n = tree.num_leaves
        assert tree.word_index.tolist() == list(range(n))
        spans = tree.tree_span[:n].tolist()
        cut = [text[start:end].lower().replace("’", "'") for start, end in spans]
        assert cut == words
        start, end = tree.tree_span[-1].tolist()
        assert 0 <= start <= spans[0][0]
        assert spans[-1][1] <= end <= len(text)
        assert tree.y.shape == tree.doc_id.shape == (1,)
    assert len(set(dataset.vocabulary)) == len(dataset.vocabulary)
