"""The documentation is true: its code runs, prints what it says, and names what exists."""

import contextlib
import importlib
import io
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from hsa_geo import errors

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
PACKAGES = [
    *("data", "ops", "nn", "builders", "transforms", "datasets", "training"),
    *("lightning", "graphgym", "hf", "explain", "pages", "cli", "testing", "errors"),
]

FENCE = re.compile(r"(`{3,})(.*)")


@dataclass
class Block:
    """A fenced block: its language, its first line's number, its text, what stands before it."""

    language: str
    line: int
    text: str
    between: str = ""


def blocks_of(markdown: str) -> list[Block]:
    """The fenced blocks of a page, outermost fences only."""
    blocks: list[Block] = []
    fence, between, lines = "", "", []
    for number, line in enumerate(markdown.splitlines(), start=1):
        match = FENCE.fullmatch(line.strip())
        if not fence and match:
            fence, lines = match[1], []
            blocks.append(Block(match[2].strip(), number + 1, "", between))
        elif fence and line.strip() == fence:
            blocks[-1].text = "\n".join(lines) + "\n"
            fence, between = "", ""
        elif fence:
            lines.append(line)
        else:
            between += line.strip()
    assert not fence, f"the block at line {blocks[-1].line} is never closed"
    return blocks


def run_page(page: Path) -> None:
    """Run a page's Python blocks in order; a text block right behind one is what it prints."""
    namespace = {"__name__": "__page__"}
    blocks = blocks_of(page.read_text(encoding="utf-8"))
    for block, after in zip(blocks, [*blocks[1:], None]):
        if block.language != "python":
            continue
        source = "\n" * (block.line - 1) + block.text  # so that errors show the page's lines
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(source, str(page), "exec"), namespace)
        if after is not None and after.language == "text" and not after.between:
            got, said = printed.getvalue().strip(), after.text.strip()
            if got != said:
                pytest.fail(f"{page.name}, line {block.line}, prints\n{got}\nand not\n{said}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(page)


def test_there_is_code_to_run():
    counts = {page.stem: 0 for page in PAGES}
    for page in PAGES:
        counts[page.stem] += sum(
            b.language == "python" for b in blocks_of(page.read_text(encoding="utf-8"))
        )
    assert counts["README"] >= 1
    assert counts["tutorial"] >= 5
    assert counts["tutorial_web_pages"] >= 5


def test_a_page_that_is_wrong_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1)\n```\n\n```text\n2\n```\n")
    with pytest.raises(pytest.fail.Exception, match="line 2, prints\n1\nand not\n2"):
        run_page(page)
    page.write_text("```python\na = 1\n```\nthen\n```python\na = b\n```\n")
    with pytest.raises(NameError, match="'b'"):
        run_page(page)


@pytest.mark.parametrize("name", PACKAGES)
def test_the_reference_lists_exactly_the_public_names(name):
    public = set(importlib.import_module(f"hsa_geo.{name}").__all__)
    text = (DOCS / "api" / f"{name}.md").read_text(encoding="utf-8")
    listed = re.findall(r"^(?:   |\.\. py:data:: )(\w+)$", text, re.M)
    assert len(listed) == len(set(listed))
    assert set(listed) == public


def test_the_errors_page_explains_every_error():
    text = (DOCS / "errors.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"^\| `(\w+)`", text, re.M))
    assert explained == set(errors.__all__) - {"HSAError"}
    for name, parent in re.findall(r"^\| `(\w+)` \| `(\w+)` \|", text, re.M):
        bases = {base.__name__ for base in getattr(errors, name).__mro__}
        assert parent in bases, f"{name} is no {parent}"


@pytest.mark.parametrize("name", ["example", "test"])
def test_readme_has_two_commands_of_one_line(name):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(re.findall(r"^```(?:bash|sh|shell|console)\b", text, re.M)) == 2
    found = re.findall(rf"^<!-- command: {name} -->\n+```bash\n(.*)\n```$", text, re.M)
    assert len(found) == 1
    assert "-m venv .venv" in found[0]
    assert "-c constraints.txt" in found[0]
    script = re.search(r"examples/\S+\.py", found[0])
    assert script is None or (ROOT / script[0]).is_file()


def test_local_links_lead_somewhere():
    for page in PAGES:
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"
