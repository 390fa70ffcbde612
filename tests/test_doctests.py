"""The examples in the docstrings of every module run as written."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest
import torch

import hsa_geo
from hsa_geo.errors import MissingPackageError

FOUND = list(pkgutil.walk_packages(hsa_geo.__path__, prefix="hsa_geo."))
MODULES = sorted(module.name for module in FOUND)
PACKAGES = sorted(module.name for module in FOUND if module.ispkg)


class Runner(doctest.DocTestRunner):
    """Lets a missing package through, which is no failure of the example."""

    def report_unexpected_exception(self, out, test, example, exc_info):
        if isinstance(exc_info[1], MissingPackageError):
            raise exc_info[1]
        super().report_unexpected_exception(out, test, example, exc_info)


def load(name: str):
    """The module, or a visible skip where a package of an extra is missing."""
    try:
        return importlib.import_module(name)
    except MissingPackageError as error:
        pytest.skip(str(error))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "hsa_geo":
            raise
        pytest.skip(f"{name} needs {error.name}")


@pytest.mark.parametrize("name", ["hsa_geo", *MODULES])
def test_examples(name, tmp_path, monkeypatch):
    module = load(name)
    monkeypatch.chdir(tmp_path)  # examples may write files
    torch.manual_seed(0)
    runner = Runner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    log: list[str] = []
    missing: list[str] = []
    for test in doctest.DocTestFinder(exclude_empty=True).find(module):
        test.globs = vars(module) | {"torch": torch}
        try:
            runner.run(test, out=log.append)
        except MissingPackageError as error:
            missing.append(str(error))
    assert runner.summarize(verbose=False).failed == 0, "".join(log)
    if missing:
        pytest.skip(missing[0])


@pytest.mark.parametrize("name", PACKAGES)
def test_every_public_name_shows_an_example(name):
    """What a package exports: classes (themselves or one of their methods) and functions."""
    package, without = load(name), []
    for public in package.__all__:
        thing = getattr(package, public)
        if not callable(thing):
            continue
        methods = vars(thing).values() if isinstance(thing, type) else []
        docs = [thing.__doc__, *(getattr(method, "__doc__", None) for method in methods)]
        if not any(">>>" in (doc or "") for doc in docs):
            without.append(public)
    assert without == []
