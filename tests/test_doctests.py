"""The examples in the docstrings of hsa_geo run and give what they say."""

import doctest
import importlib
import pkgutil

import pytest
import torch

import hsa_geo

MODULES = sorted(
    module.name for module in pkgutil.walk_packages(hsa_geo.__path__, prefix="hsa_geo.")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_of(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    module = importlib.import_module(name)
    failed, _ = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.REPORT_NDIFF)
    assert failed == 0


def test_there_are_examples():
    tests = [
        test
        for name in MODULES
        for test in doctest.DocTestFinder().find(importlib.import_module(name))
        if test.examples
    ]
    assert len(tests) > 50
