"""The command itself: exit codes, errors in one line, streams that close, imports that wait."""

from __future__ import annotations

import io
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import hsa_geo
from hsa_geo.cli import app as application
from hsa_geo.cli import run
from hsa_geo.cli.app import app

ROOT = Path(hsa_geo.__file__).parents[1]
PAGE = "<title>Library</title><p>Find a book. We open at ten.</p>"


def command(*arguments: str | bytes | Path, **options) -> subprocess.Popen:
    """``hsa-geo`` in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment |= options.pop("environment", {})
    return subprocess.Popen(
        [sys.executable, "-m", "hsa_geo", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=options.pop("stdout", subprocess.PIPE),
        stderr=subprocess.PIPE,
        env=environment,
        **options,
    )


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "page.html"
    path.write_text(PAGE)
    return path


def test_help_names_the_commands_and_imports_no_torch():
    found = CliRunner().invoke(app, ["--help"])
    assert found.exit_code == 0
    for name in ("inspect", "--version", "--install-completion"):
        assert name in found.output
    code = (
        "import sys; from hsa_geo.cli import run; code = run(['inspect', '--help']);"
        "print([m for m in ('torch', 'numpy', 'networkx', 'numba') if m in sys.modules], code)"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}, **CAPTURED
    )
    assert told.stdout.splitlines()[-1] == "[] 0", told.stderr


CAPTURED = {"capture_output": True, "text": True, "timeout": 60}


def test_help_breaks_lines_where_the_terminal_ends():
    for width in (80, 120):
        told = CliRunner().invoke(app, ["inspect", "--help"], env={"COLUMNS": str(width)})
        lines = [line.strip() for line in told.output.splitlines()]
        start = next(k for k, line in enumerate(lines) if line.startswith("Reads web pages"))
        end = lines.index("", start)
        text = lines[start:end]
        assert len(text) > 2
        assert all(len(line) > width - 20 for line in text[:-1]), text


def test_version_and_no_command(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"hsa-geo {hsa_geo.__version__}\n"
    assert run([]) == 2
    assert "Usage: hsa-geo" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["inspec"], "No such command 'inspec'"),
        (["--inspect"], "(see `hsa-geo --help`)"),
        (["inspect"], "Missing argument 'PATH' (see `hsa-geo inspect --help`)"),
        (["inspect", "--nodes", "-1", "x"], "(see `hsa-geo inspect --help`)"),
        (["inspect", "--as", "pdf", "x"], "Invalid value for '--as': 'pdf' is not one of 'html',"),
        (["train", "x", "--attention", "x"], "Invalid value for '--attention': 'x' is not one of"),
        (["train", "x", "--heads", "3"], "--channels 64 is no multiple of --heads 3"),
        (["train", "x", "--seed", str(2**70)], "--seed"),
        (["train", "x", "--validation", "nan"], "--validation"),
        (["inspect", "x.json", "--punctuation"], "--punctuation is for text, not for json"),
        (["inspect", "x.html", "--window", "4"], "--window is for sequence, not for html"),
        (["inspect", "--as", "text", "--include-hidden", "x"], "is for html and site, not for"),
        (["inspect", "--jso", "x"], "--jso"),
        (["inspect", ".", "--window", "4"], "--window is for sequence, not for folders, in which"),
        (["inspect", ".", "a.html", "--window", "4"], "with --as alone and html: leave it out"),
        (["inspect", "a.html", "b.json", "--punctuation"], "is for text, not for html and json"),
        (["inspect", ".", "--nodes", "40"], "--nodes has no effect with folders or several files"),
        (["inspect", "a.html", "b.html", "--nodes", "1"], "--nodes has no effect with folders"),
        (["inspect", "a.html", "--nodes", "1", "--json"], "--nodes has no effect with --json"),
        (["train", ".", "--data", "x"], "--data is for form-pages, not for '.': leave it out"),
        (["train", ".", "--resume", "--overwrite"], "--overwrite begins anew: give one of them"),
        (["predict", "a.html", "--all"], "--all is for folders, but none is given"),
        (["predict", "a.html", "b.html", "--all"], "--all is for folders, but none is given"),
    ],
)
def test_usage_errors_are_one_line_and_2(capsys, arguments, says):
    assert run(arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("error: ")
    assert told.err.count("\n") == 1
    assert says in told.err


def test_data_errors_are_one_line_and_1(capsys, tmp_path):
    assert run(["inspect", str(tmp_path / "to\nbe.html")]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == f"error: '{tmp_path}/to be.html' does not exist: check the name.\n"
    assert told.err.count("\n") == 1
    assert run(["inspect", "--debug", str(tmp_path / "a.html")]) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_tracebacks_drive_no_terminal(capsys, tmp_path):
    """Names of files and texts of pages stand in errors."""
    path = tmp_path / "a\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"
    path.write_text("no ending says what it is")
    assert run(["inspect", "--debug", str(path)]) == 1
    told = capsys.readouterr().err
    assert "Traceback (most recent call last):\n  File " in told
    assert told.count("a\\x1b]0;owned\\x07\\x1b[2J\\x9b31m\\u202e") == 2
    assert all(c.isprintable() or c == "\n" for c in told)


def test_the_streams_are_given_back_as_they_were(monkeypatch):
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="ascii") for _ in range(2)]
    monkeypatch.setattr(sys, "stdout", streams[0])
    monkeypatch.setattr(sys, "stderr", streams[1])
    for arguments in (["--version"], ["inspec"], ["inspect", "missing.html"]):
        run(arguments)
        assert [stream.errors for stream in streams] == ["strict", "strict"]


def test_a_mistake_of_the_program_says_where_to_look(monkeypatch, capsys, page):
    def broken(*_):
        raise ZeroDivisionError("by design")

    monkeypatch.setattr("hsa_geo.cli.inspect.measure", broken)
    assert run(["inspect", str(page)]) == 1
    told = capsys.readouterr().err
    assert told == "error: ZeroDivisionError: by design (--debug shows where)\n"


def test_ctrl_c_is_130(monkeypatch, capsys, page):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("hsa_geo.cli.inspect.measure", interrupted)
    assert run(["inspect", str(page)]) == 130
    assert capsys.readouterr().err == "interrupted\n"

    def aborted(*_, **__):
        raise typer.Abort

    monkeypatch.setattr(application, "app", aborted)
    assert run(["inspect", str(page)]) == 130


def test_ctrl_c_stops_a_stream(tmp_path, page):
    """A process gets the signal in the middle of a folder that would last for minutes."""
    for number in range(300):
        (tmp_path / f"{number:03}.html").write_text(PAGE)
    # Also where the tests run in the background, whose processes ignore the signal from the start.
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = command("inspect", *[tmp_path] * 100, preexec_fn=heard)
    process.stdout.readline()
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert b"Traceback" not in err
    assert not out or out.endswith(b"\n")  # no half line


def test_a_closed_pipe_is_no_error():
    nobody, end = os.pipe()
    os.close(nobody)
    process = command("--version", stdout=end)
    os.close(end)
    assert process.communicate(timeout=60)[1] == b""
    assert process.returncode == 141


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk_under_stdout_is_an_error():
    with open("/dev/full", "wb") as full:
        process = command("--version", stdout=full)
        err = process.communicate(timeout=60)[1]
    assert process.returncode == 1
    assert b"No space left on device" in err
    assert b"Traceback" not in err


def test_without_the_extra_one_line_says_what_to_install(tmp_path):
    (tmp_path / "typer.py").write_text("raise ModuleNotFoundError('no', name='typer')\n")
    process = command("--help", environment={"PYTHONPATH": f"{tmp_path}:{ROOT}"})
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert out == b""
    assert err.decode() == (
        "error: the command hsa-geo needs the package 'typer': run `pip install 'hsa_geo[cli]'`.\n"
    )


def test_help_is_there_at_once():
    """Well under a second of the processor, whatever else is at work."""
    begin = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert command("--help").wait(timeout=60) == 0
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime < 0.7


def test_the_shell_completes_commands_and_options():
    for words, expected in (("hsa-geo ins", "inspect"), ("hsa-geo train --atte", "--attention")):
        told = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        told["_HSA_GEO_COMPLETE"] = "complete_bash"
        shown = command(environment=told).communicate(timeout=60)[0]
        assert shown.decode().split() == [expected]


BASH = """
hsa-geo --install-completion >&2
source ~/.bashrc
press_tab() {  # as readline does it
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
    "$(complete -p hsa-geo | sed 's/.*-F \\([^ ]*\\).*/\\1/')" hsa-geo
    echo "${COMPREPLY[@]}"
}
press_tab hsa-geo tr
press_tab hsa-geo train --attention d
press_tab hsa-geo inspect --as ""
hsa-geo --show-completion | head -n 1
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_completion_is_installed_into_bash(tmp_path):
    pytest.importorskip("shellingham")
    program = tmp_path / "bin" / "hsa-geo"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m hsa_geo "$@"\n')
    program.chmod(0o755)
    environment = {"HOME": str(tmp_path), "PATH": f"{program.parent}:{os.environ['PATH']}"}
    told = subprocess.run(
        ["bash", "-c", BASH],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        **CAPTURED,
    )
    assert told.stdout.splitlines() == [
        *(
            "train",
            "deep_set",
            "html text image json graph sequence video site",
            "_hsa_geo_completion() {",
        ),
    ], told.stderr
    assert (tmp_path / ".bash_completions" / "hsa-geo.sh").is_file()


@pytest.mark.parametrize("name", ["bench", "inspect --as site"])
def test_ctrl_c_while_something_is_computed(name, tmp_path, page):
    """Nothing on stdout but whole records, nothing left on disk, at once."""
    for number in range(600):
        (tmp_path / f"{number:03}.html").write_text(PAGE * 50)
    before = set(tmp_path.iterdir())
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    arguments = [*name.split(), "--json"]
    if name == "bench":
        arguments += ["--seconds", "60", "--leaves", "64"]
    else:
        arguments += [str(tmp_path)] * 30
    process = command(*arguments, cwd=tmp_path, preexec_fn=heard)
    if name == "bench":
        process.stderr.readline()  # what it says before it measures
    else:
        process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert err.decode().splitlines()[-1] == "interrupted"
    assert b"Traceback" not in err
    assert all(json.loads(line) for line in out.splitlines())
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize("arguments", [["predict", "p.html"], ["explain", "p.html"]])
def test_ctrl_c_while_modules_are_loaded(arguments, tmp_path, page):
    page.rename(tmp_path / "p.html")
    (tmp_path / "page-model").mkdir()
    # A module that is imported for long.
    (tmp_path / "torch.py").write_text("import time; open('here', 'w').close(); time.sleep(60)")
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    places = {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    process = command(*arguments, cwd=tmp_path, environment=places, preexec_fn=heard)
    while not (tmp_path / "here").exists() and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, b"", b"interrupted\n")
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("shell", "words", "shown"),
    [
        ("zsh", {"_TYPER_COMPLETE_ARGS": "hsa-geo pre"}, '"predict":"Say which labels web pages'),
        (
            "fish",
            {"_TYPER_COMPLETE_ARGS": "hsa-geo pre", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
            "predict\tSay which labels web pages",
        ),
    ],
)
def test_other_shells_complete(shell, words, shown):
    script = command(environment={"_HSA_GEO_COMPLETE": f"source_{shell}"}).communicate(timeout=60)
    assert f"_HSA_GEO_COMPLETE=complete_{shell}" in script[0].decode()
    told = command(environment={"_HSA_GEO_COMPLETE": f"complete_{shell}", **words})
    assert shown in told.communicate(timeout=60)[0].decode()
