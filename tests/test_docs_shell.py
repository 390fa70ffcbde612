"""The commands of the documentation: README's hsa-geo is run, other programs read theirs.

What takes minutes or hours (the examples, the installation) is not run here but parsed: by the
program's own parser, so that every option and value that a page gives must exist.  A command that
no rule knows fails.
"""

import argparse
import importlib.util
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from doc_blocks import PAGES, ROOT, blocks_in, commands_of, link_archives

from hsa_geo.errors import DownloadError

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PACKAGES = {
    re.match(r"[\w-]+", requirement)[0]
    for requirements in [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    for requirement in requirements
}
#: Commands that are run elsewhere for real, as their words stand there.
ELSEWHERE = {
    "ruff check .": ".ci/run",
    "ruff format --check .": ".ci/run",
    "mypy": ".ci/run",
    "sphinx -W": ".ci/run",
    "hsa-geo --install-completion": "tests/cli/test_cli_app.py",
}


class Parsed(Exception):
    """The program read its arguments, and would begin to work now."""


def parse_script(script: str, arguments: list[str], monkeypatch) -> argparse.Namespace:
    """What a script makes of its arguments; it is stopped before it does anything with them."""
    assert (ROOT / script).is_file(), f"there is no {script}"

    def stopped(self, args=None, namespace=None, parse=argparse.ArgumentParser.parse_args):
        raise Parsed(parse(self, args, namespace))

    with monkeypatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", stopped)
        patch.setattr(sys, "argv", [script, *arguments])
        patch.syspath_prepend(str((ROOT / script).parent))
        with pytest.raises(Parsed) as caught:
            runpy.run_path(str(ROOT / script), run_name="__main__")
    return caught.value.args[0]


def check_install(arguments: list[str]) -> None:
    """The extras, packages, files and options of ``pip install`` exist."""
    options = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--help"], capture_output=True, text=True
    ).stdout
    words = iter(arguments)
    for word in words:
        if word == "-c":
            assert (ROOT / next(words)).is_file()
        elif word.startswith("-"):
            assert re.search(rf"{word}\b", options), f"pip install has no option {word}"
        else:
            name, extras = re.fullmatch(r"([\w.-]+?)(?:\[([\w,]+)\])?", word).groups()
            assert name in {".", *PACKAGES}
            assert set((extras or "").split(",")) - {""} <= set(PROJECT["optional-dependencies"])


def check_pytest(arguments: list[str]) -> None:
    """The tests that are named exist."""
    for argument in arguments:
        assert (ROOT / argument).exists(), f"pytest takes no {argument}"


def check(words: list[str], monkeypatch) -> None:
    """See that a command of the documentation is one that works."""
    program, *arguments = words
    program = program.removeprefix(".venv/bin/")
    line = " ".join([program, *arguments])
    if line.startswith("python -m "):
        line, program = line.removeprefix("python -m "), arguments[1]
        arguments = arguments[2:]
    for known, place in ELSEWHERE.items():
        if line.startswith(known):
            assert known in (ROOT / place).read_text(encoding="utf-8"), f"{place} runs no {known}"
            return
    if line == "python3.11 -m venv .venv":
        assert PROJECT["requires-python"] == ">=3.11"
        assert importlib.util.find_spec("venv")
    elif program == "pip" and arguments[0] == "install":
        check_install(arguments[1:])
    elif program == "pytest":
        check_pytest(arguments)
    elif program == "torchrun":
        from torch.distributed.run import get_args_parser

        assert get_args_parser().parse_args(arguments).training_script.endswith(".py")
    elif program == "python" and arguments[0].endswith(".py"):
        parse_script(arguments[0], arguments[1:], monkeypatch)
    else:
        pytest.fail(f"no rule knows how to check {shlex.join(words)!r}")


def shell_commands(page: Path) -> list[list[str]]:
    """The commands of a page: its blocks in bash, and calls of examples within its sentences."""
    blocks = [b.text for b in blocks_in(page) if b.language == "bash"]
    calls = re.findall(r"`(python examples/[^`]+)`", page.read_text(encoding="utf-8"))
    return [command for text in [*blocks, *calls] for command in commands_of(text)]


@pytest.mark.parametrize(
    "page", [p for p in PAGES if shell_commands(p)], ids=lambda page: page.stem
)
def test_the_commands_of_a_page_are_understood(page, monkeypatch, tmp_path):
    pytest.importorskip("rich")
    monkeypatch.chdir(tmp_path)
    for words in shell_commands(page):
        check(words, monkeypatch)


@pytest.mark.parametrize(
    "line",
    [
        "python examples/nothing.py",
        "python examples/listops.py --task nothing",
        "python examples/listops.py --nothing 3",
        'pip install ".[nothing]"',
        "pip install -c nothing.txt .",
        "pip install --nothing .",
        "pip install nothing",
        "pytest tests/nothing",
        "torchrun --nothing train.py",
        "hsa-geo --nothing",
        "python -m nothing",
    ],
)
def test_commands_that_would_not_work_are_found(line, monkeypatch):
    wrong = (AssertionError, SystemExit, pytest.fail.Exception)
    with pytest.raises(wrong):
        check(*commands_of(line), monkeypatch)


def test_commands_are_cut_out_of_blocks():
    text = 'a b && c ".[d]"  # e\n\nf \\\n    --g\n'
    assert commands_of(text) == [["a", "b"], ["c", ".[d]"], ["f", "--g"]]


MINE = """<title>Sign in</title><h1>Welcome back</h1>
<form action=/login method=post>User <input name=user> Password <input name=password type=password>
<button>Log in</button> <a href=/forgotten>Forgotten?</a></form>"""


@pytest.mark.download
def test_readmes_three_commands_train_predict_and_explain(tmp_path, monkeypatch, capsys):
    """As they stand there, but that one epoch is trained instead of all."""
    pytest.importorskip("typer")
    from hsa_geo.cli import run
    from hsa_geo.pages import form_pages

    monkeypatch.chdir(tmp_path)
    block = [b for b in blocks_in(ROOT / "README.md") if "hsa-geo" in b.text]
    commands = [c for b in block for c in commands_of(b.text)]
    assert [c[0] for c in commands] == ["python3.11", ".venv/bin/pip", *3 * [".venv/bin/hsa-geo"]]
    for words in commands[:2]:
        check(words, monkeypatch)
    train, predict, explain = ([*words[1:]] for words in commands[2:])
    link_archives(Path("data/form_pages"))
    try:
        form_pages("data/form_pages", log=False)  # else `train` does it, and says why it cannot
    except DownloadError as error:
        pytest.skip(f"the real pages cannot be had: {error}")
    Path("PAGE.html").write_text(MINE)
    assert run([*train, "--epochs", "1"]) == 0
    assert run(predict) == 0
    assert re.search("^PAGE.html: login$", capsys.readouterr().out, re.M)
    assert run(explain) == 0
    assert "PAGE.html: login, by these parts:" in capsys.readouterr().out
    assert "Welcome back" in Path("report.html").read_text()
