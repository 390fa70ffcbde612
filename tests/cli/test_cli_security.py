"""What hostile pages and models make the commands do: nothing but what a harmless one does.

Python tells a hook of every file that it opens, every connection, process, library and pickle.
"""

from __future__ import annotations

import json
import os
import pickle
import struct
import subprocess
import sys
import zlib
from base64 import b64encode
from pathlib import Path

import pytest
import torch
from test_cli_app import ROOT

from hsa_geo.nn import SubtreeClassifier
from hsa_geo.pages import PageClassifier, PageReader

WATCH = """
import json, os, sys
from hsa_geo.cli import run

warm, commands, out = json.loads(sys.argv[1])
for command in warm:  # what is imported, compiled and looked up once
    run(command)
seen, on = [], True
KINDS = ("open", "socket.", "subprocess.", "os.system", "os.exec", "os.spawn", "os.posix_spawn",
         "os.fork", "urllib.", "ctypes.dlopen", "pickle.", "http.", "ftplib.", "webbrowser.")

def hook(event, args):
    if on and event.startswith(KINDS) and not (event == "open" and isinstance(args[0], int)):
        named = args and isinstance(args[0], (str, bytes, os.PathLike))
        seen.append([event, os.path.realpath(os.fsdecode(args[0])) if named else str(args)])

sys.addaudithook(hook)
codes = [run(command) for command in commands]
on = False
with open(out, "w") as file:
    json.dump([codes, seen, sorted(m for m in sys.modules if m.startswith("evil"))], file)
"""


def picture_of(side: int) -> str:
    """A PNG that claims ``side`` pixels a side, as the address of an image."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + check

    size = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(bytes(3 * 8 * 8 + 8)))
    data = b"\x89PNG\r\n\x1a\n" + size + pixels + chunk(b"IEND", b"")
    return f"data:image/png;base64,{b64encode(data).decode()}"


PLACES = (
    "../secret.png",
    "/etc/passwd",
    "file:///etc/passwd",
    "//127.0.0.1:9/x",
    "http://[::1]:9/",
)
HOSTILE = (
    "<base href='file:///'><meta http-equiv=refresh content='0;url=file:///etc/passwd'>"
    "<link rel=stylesheet href=../secret.png><style>@import '../secret.png'</style>"
    "<script>document.title = 'ran'</script><title>Shop <script>x</script></title>"
    + "".join(
        f"<img src='{p}' alt=a><iframe src='{p}'></iframe><object data='{p}'></object>"
        f"<embed src='{p}'><script src='{p}'></script><form action='{p}'><input name=q></form>"
        for p in PLACES
    )
    + f"<img src='{picture_of(8)}'><img src='{picture_of(60_000)}'><img src='data:,x'>"
    "<svg><image href='../secret.png'/></svg><p onclick=x()>Buy shoes &lt;script&gt;</p>"
)
#: The same without anything to reach for.
HARMLESS = f"<title>Shop</title><img src='{picture_of(8)}'><form><input name=q></form><p>Buy"


class Evil:
    def __reduce__(self):
        return os.system, ("touch code-was-run",)


def saved(folder: Path) -> Path:
    torch.manual_seed(0)
    model = SubtreeClassifier(num_ids=2**14, num_classes=2, channels=8, heads=2, patch=8)
    PageClassifier(model, PageReader("page", {"images": True}), ["news", "shop"]).save(folder)
    return folder


@pytest.fixture
def place(tmp_path):
    """A folder with hostile pages and models, beside a secret."""
    from PIL import Image

    Image.new("RGB", (8, 8)).save(tmp_path / "secret.png")
    place = tmp_path / "place"
    for label in ("news", "shop"):
        (place / "web" / label).mkdir(parents=True)
        for number in range(3):
            (place / "web" / label / f"{number}.html").write_text(f"{HOSTILE}{label}{number}")
    (place / "evil.html").write_text(HOSTILE)
    (place / "good.html").write_text(HARMLESS)
    saved(place / "m")
    for name in ("pytorch_model.bin", "model.pt", "evil.pkl"):
        torch.save(Evil(), place / "m" / name)
    (place / "m" / "evil.py").write_text("open('code-was-run', 'w')")
    for name in ("config.json", "model.safetensors"):
        pickled = saved(place / f"pickled-{name}") / name
        pickled.write_bytes(pickle.dumps(Evil()))
        linked = saved(place / f"linked-{name}") / name
        linked.rename(tmp_path / f"secret-{name}")
        linked.symlink_to(tmp_path / f"secret-{name}")
    return place


def test_hostile_files_reach_nothing(place):
    bad = sorted(path.name for path in place.iterdir() if path.name.startswith(("pick", "link")))
    train = ["--epochs", "1", "--channels", "8", "--heads", "2", "-o"]
    warm = [
        ["inspect", "good.html"],
        ["explain", "good.html", "-m", "m", "-o", "good-report.html"],
        ["predict", "good.html", "-m", bad[0]],
        ["train", "web", *train, "warm"],
    ]
    commands = [
        ["inspect", "evil.html"],
        ["inspect", "web", "--json"],
        ["predict", "evil.html", "-m", "m"],
        ["explain", "evil.html", "-m", "m", "-o", "report.html"],
        ["train", "web", *train, "trained"],
        *(["predict", "evil.html", "-m", name] for name in bad),
        *(["explain", "evil.html", "-m", name, "-o", "no.html"] for name in bad),
    ]
    told = subprocess.run(
        [sys.executable, "-c", WATCH, json.dumps([warm, commands, "seen.json"])],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert told.returncode == 0, told.stderr
    codes, seen, modules = json.loads((place / "seen.json").read_text())
    assert codes == [0] * 5 + [1] * 2 * len(bad), told.stderr
    assert "Traceback" not in told.stderr
    assert modules == []
    assert [one for one in seen if one[0] != "open"] == []
    ours = tuple(os.path.join(os.path.realpath(p), "") for p in (ROOT, sys.prefix, sys.base_prefix))
    opened = {Path(name) for _, name in seen if not name.startswith(ours)}
    home = Path(os.path.realpath(place))
    outside = {path for path in opened if home not in path.parents and path != home}
    about_itself = ("/dev/null", "/proc/")  # how much memory a training takes
    assert {path for path in outside if not str(path).startswith(about_itself)} == set()
    within = {str(path.relative_to(home)) for path in opened - outside}
    assert {"evil.html", "m/config.json"} <= within  # the hook sees
    assert any(name.startswith(".report.html.") for name in within)
    models = ("m/config", "pickled-config", "pickled-model", "linked-")
    written = ("trained", ".report", "report.html")
    assert {
        name for name in within if not name.startswith(("evil.html", "web", *models, *written))
    } <= {"."}
    assert not list(place.rglob("code-was-run"))
    assert not (place / "no.html").exists()
    report = (place / "report.html").read_text(encoding="utf-8")
    assert report.count("<script") == 2
    for reference in PLACES:
        assert f"'{reference}" not in report
        assert f'"{reference}' not in report
