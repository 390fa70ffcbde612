from __future__ import annotations

import inspect
import pickle

import pytest

from hsa_geo import errors

CLASSES = [getattr(errors, name) for name in errors.__all__]
ERRORS = [cls for cls in CLASSES if issubclass(cls, Exception) and not issubclass(cls, Warning)]


def test_every_public_class_is_exported():
    defined = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and value.__module__ == errors.__name__
    }
    assert defined == set(errors.__all__)
    assert list(errors.__all__) == sorted(errors.__all__)


@pytest.mark.parametrize("cls", ERRORS)
def test_one_base_and_a_built_in_one(cls):
    assert issubclass(cls, errors.HSAError)
    built_in = (ValueError, KeyError, ImportError, OSError, RuntimeError, NotImplementedError)
    assert cls is errors.HSAError or issubclass(cls, built_in)
    assert cls.__doc__


@pytest.mark.parametrize("cls", ERRORS)
def test_messages_survive(cls):
    error = cls("node 3 is 'odd'.")
    assert str(error) == "node 3 is 'odd'."  # KeyError would quote it
    again = pickle.loads(pickle.dumps(error))  # as from a worker process
    assert type(again) is cls
    assert str(again) == str(error)


def test_no_message():
    assert str(errors.MixedKeysError()) == ""


def test_warnings():
    assert issubclass(errors.HSAWarning, UserWarning)
    assert issubclass(errors.TruncationWarning, errors.HSAWarning)
    assert not issubclass(errors.HSAWarning, errors.HSAError)


def test_a_graph_that_is_no_tree_is_caught_as_any_of_its_kinds():
    for base in (errors.BuilderError, errors.TreeError, errors.UnsupportedError, ValueError):
        with pytest.raises(base):
            raise errors.NotATreeError("no tree.")
