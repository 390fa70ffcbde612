"""The code of the documentation that needs real data: fetched, run, and compared with the page.

The archives lie in ``$HSA_GEO_DATA`` (``FOLDER/NAME/raw``) or are fetched, some 400 MB in all.
"""

import doctest
import importlib
import re
from pathlib import Path

import pytest
from doc_blocks import PAGES, blocks_in, link_archives

from hsa_geo import datasets
from hsa_geo.errors import DownloadError

FETCHING = [page for page in PAGES if any(b.language == "pycon" for b in blocks_in(page))]


class Checker(doctest.OutputChecker):
    """Leaves out the line in which a dataset says, when it is built, that it has been."""

    def check_output(self, want, got, optionflags):
        got = re.sub(r"^[\w-]+: \d+ of \d+ \w+ stored$\n", "", got, flags=re.M)
        return super().check_output(want, got, optionflags)


class Runner(doctest.DocTestRunner):
    """Lets through that data cannot be had, which is no fault of the page."""

    def report_unexpected_exception(self, out, test, example, exc_info):
        if isinstance(exc_info[1], DownloadError):
            raise exc_info[1]
        super().report_unexpected_exception(out, test, example, exc_info)


def run_sessions(page: Path) -> str:
    """Run the interpreter sessions of a page; what went wrong, or an empty text."""
    runner, namespace, log = Runner(Checker(), optionflags=doctest.NORMALIZE_WHITESPACE), {}, []
    for block in blocks_in(page):
        if block.language == "pycon":
            parser = doctest.DocTestParser()
            test = parser.get_doctest(block.text, namespace, page.name, str(page), block.line - 1)
            assert test.examples, f"{page.name}, line {block.line}: no line begins with >>>"
            runner.run(test, out=log.append, clear_globs=False)
            namespace = test.globs
    return "".join(log)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the pages' ``data/`` is, so that no page fetches what another one had."""
    return tmp_path_factory.mktemp("sessions")


@pytest.mark.download
@pytest.mark.parametrize("page", FETCHING, ids=lambda page: page.stem)
def test_the_sessions_of_a_page_print_what_it_says(page, folder, monkeypatch):
    monkeypatch.chdir(folder)
    code = "".join(block.text for block in blocks_in(page) if block.language == "pycon")
    for name, place in re.findall(r'\b(\w+)\("(data/\w+)"', code):
        assert hasattr(datasets, name), f"hsa_geo.datasets has no {name}"
        link_archives(Path(place))
    try:
        wrong = run_sessions(page)
    except DownloadError as error:
        pytest.skip(f"the real data cannot be had: {error}")
    assert not wrong, wrong


@pytest.mark.download
@pytest.mark.parametrize("name", ["cross_encoder", "glove", "minilm"])
def test_the_examples_of_modules_with_real_data(name, folder, monkeypatch):
    """Those that test_doctests.py skips, of modules whose archives the pages fetch anyway."""
    monkeypatch.chdir(folder)
    link_archives(Path("data", name))
    module = importlib.import_module(f"hsa_geo.datasets.{name}")
    text = (module.__doc__ or "").replace("  # doctest: +SKIP", "")
    runner = Runner(Checker(), optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    test = doctest.DocTestParser().get_doctest(text, vars(module).copy(), name, name, 0)
    assert test.examples
    log: list[str] = []
    try:
        runner.run(test, out=log.append)
    except DownloadError as error:
        pytest.skip(f"the real data cannot be had: {error}")
    assert not log, "".join(log)


def test_a_session_that_is_wrong_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```pycon\n>>> one = 1\n```\n\n```pycon\n>>> one\n2\n```\n")
    assert "Expected:\n    2\nGot:\n    1\n" in run_sessions(page)
    page.write_text("```pycon\n>>> one = nothing\n```\n")
    assert "NameError" in run_sessions(page)
