"""The typed code of a user runs; that its types are right is for mypy, whose ``files`` it is in."""

from __future__ import annotations

import configparser
from pathlib import Path

import torch
import user_code

from hsa_geo.data import SignalTree
from hsa_geo.nn import SignalClassifier


def labelled(k: int) -> SignalTree:
    return SignalTree.from_parents([2, 2, -1], x=torch.rand(2, 8), y=torch.tensor([k % 2]))


def test_the_typed_code_runs() -> None:
    trees = user_code.trees_of_all_kinds()
    assert all(isinstance(tree, SignalTree) for tree in trees)
    for tree in trees:
        user_code.operations(tree)
    assert 0 <= user_code.training([labelled(k) for k in range(8)]) <= 1
    user_code.why(user_code.Classifier(4).eval(), labelled(0))
    assert "1" in user_code.errors(SignalClassifier)


def test_mypy_checks_it_strictly() -> None:
    config = configparser.ConfigParser()
    config.read(Path(__file__).parents[2] / "setup.cfg")
    assert config["mypy"]["strict"] == "true"
    assert "tests/typing" in config["mypy"]["files"]
