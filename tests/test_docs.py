"""The documentation is true: its code runs, prints what it says, and names what exists."""

import contextlib
import importlib
import io
import re
from pathlib import Path

import pytest
from doc_blocks import DOCS, EVERY_PAGE, PAGES, ROOT, blocks_in

from hsa_geo import errors

PACKAGES = [
    *("data", "ops", "nn", "builders", "transforms", "datasets", "training"),
    *("lightning", "graphgym", "hf", "explain", "pages", "cli", "testing", "errors"),
]

#: What a fenced block may be, and what becomes of it.  Directives ("{...}") are for Sphinx.
LANGUAGES = {
    "python": "is run here, in the order of its page",
    "text": "is no code: right behind a block of Python it is what that prints",
    "pycon": "is run by test_docs_archives.py, as it needs data that is fetched",
    "bash": "is run or parsed by test_docs_shell.py",
}


def run_page(page: Path) -> dict[str, object]:
    """Run a page's Python blocks in order; a text block right behind one is what it prints."""
    namespace: dict[str, object] = {"__name__": "__page__"}
    blocks = blocks_in(page)
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
    return namespace


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(page)


def not_run(page: Path) -> list[str]:
    """The code of a page that no test runs or parses."""
    found, blocks = [], blocks_in(page)
    for block in blocks:
        # README has two commands of one line in bash; its others are not marked.
        known = block.language in LANGUAGES or (block.language, page.name) == ("", "README.md")
        if not known and not re.fullmatch(r"\{\S+\}.*", block.language):
            found.append(f"line {block.line}: nothing runs a block of {block.language!r}")
        elif page not in PAGES and block.language in set(LANGUAGES) - {"text"}:
            found.append(f"line {block.line}: nothing runs the code of this page")
    for code in re.findall(r"\n\n {4}((?:python|pip|hsa-geo|>>>|import|from) .*)", outside(page)):
        found.append(f"nothing runs what is only indented: {code!r}")
    return found


@pytest.mark.parametrize("page", EVERY_PAGE, ids=lambda page: page.stem)
def test_all_code_is_of_a_kind_that_is_run(page):
    assert not_run(page) == [], f"{page.name}: put it into a block of {', '.join(LANGUAGES)}"


def test_code_that_is_not_run_is_found(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text("```py\na = 1\n```\n\n```python\n```\n\n    python a.py --b\n")
    assert len(not_run(page)) == 3
    monkeypatch.setitem(globals(), "PAGES", [page])
    assert not_run(page) == [
        "line 2: nothing runs a block of 'py'",
        "nothing runs what is only indented: 'python a.py --b'",
    ]


def outside(page: Path) -> str:
    """The text of a page without its fenced blocks."""
    return re.sub(r"^(`{3,}).*?^\1$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def test_there_is_code_to_run():
    counts = {page.stem: sum(b.language == "python" for b in blocks_in(page)) for page in PAGES}
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
    for page in EVERY_PAGE:
        for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", outside(page)):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_every_page_is_in_a_table_of_contents():
    listed = set()
    for page in [DOCS / "index.md", DOCS / "api" / "index.md"]:
        for block in blocks_in(page):
            if block.language == "{toctree}":
                names = re.findall(r"^[\w/]+$", block.text, re.M)
                listed |= {page.parent / f"{name}.md" for name in names}
    assert listed == set(DOCS.rglob("*.md")) - {DOCS / "index.md", *(DOCS / "measured").iterdir()}


@pytest.mark.parametrize("folder", ["measured", "pictures"])
def test_every_measurement_and_picture_is_shown_or_linked(folder):
    shown = " ".join(page.read_text(encoding="utf-8") for page in EVERY_PAGE)
    shown += (DOCS / "measured" / "attention.md").read_text(encoding="utf-8")
    for file in sorted((DOCS / folder).iterdir()):
        assert f"{folder}/{file.name}" in shown, f"no page shows or links {folder}/{file.name}"
