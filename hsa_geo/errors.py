"""Typed errors and warnings of hsa_geo.

Every error derives from :class:`HSAError`, so ``except HSAError`` catches all of them, and
from the built-in error a caller would expect (``ValueError``, ``ImportError``, ...).  The
message is one sentence that quotes the offending value and names the remedy.

Example:
    >>> from hsa_geo.data import SignalTree
    >>> from hsa_geo.errors import TreeError
    >>> try:
    ...     SignalTree.from_parents([1, 0])
    ... except TreeError as error:
    ...     print(type(error).__name__)
    TreeError
"""

from __future__ import annotations

__all__ = [
    "ArchiveError",
    "BuilderError",
    "CheckpointError",
    "DecodingWarning",
    "DiskFullError",
    "DomainError",
    "DownloadError",
    "FileFormatError",
    "HSAError",
    "HSAWarning",
    "LabelError",
    "LimitError",
    "MissingPackageError",
    "MixedKeysError",
    "NonFiniteError",
    "NotATreeError",
    "PathError",
    "ResumeError",
    "ShapeError",
    "TrainingError",
    "TreeError",
    "TruncationWarning",
    "UnsupportedError",
]


class HSAError(Exception):
    """Base class of every error that hsa_geo raises on purpose."""


class TreeError(HSAError, ValueError):
    """The hierarchy is not a rooted tree in the form that is needed."""


class MixedKeysError(HSAError, KeyError):
    """Trees to be batched do not hold the same attributes, or an attribute is missing."""

    def __str__(self) -> str:  # KeyError would show the message in quotes
        return str(self.args[0]) if self.args else ""


class ShapeError(HSAError, ValueError):
    """A tensor's shape, dtype or device does not fit the tree or the other tensors."""


class DomainError(HSAError, ValueError):
    """A domain label is unknown, or nothing is registered to embed its positions."""


class BuilderError(HSAError, ValueError):
    """The source (page, image, graph, ...) cannot be turned into a signal tree."""


class LimitError(BuilderError):
    """The source exceeds a limit on bytes, depth or leaves that the caller gave."""


class FileFormatError(HSAError, ValueError):
    """A file is not what it should be: wrong format, schema version or contents."""


class ArchiveError(HSAError, RuntimeError):
    """A downloaded archive is missing, altered (hash) or unsafe to unpack."""


class DownloadError(ArchiveError):
    """Nothing could be fetched: the package client or the network is missing."""


class DiskFullError(HSAError, OSError):
    """There is no room for a file; nothing half-written is left."""


class PathError(HSAError, OSError):
    """A path is a folder where a file is needed, or a file where a folder is."""


class LabelError(HSAError, ValueError):
    """A label is not one of the classes."""


class TrainingError(HSAError, RuntimeError):
    """A training cannot start or go on; the message says what to change."""


class NonFiniteError(TrainingError, ArithmeticError):
    """A loss, gradient or metric is infinite or no number; the message says in which step."""


class ResumeError(TrainingError, ValueError):
    """A checkpoint is of other options, other data or another model; the message says which."""


class CheckpointError(TrainingError, OSError):
    """A checkpoint cannot be written, or none that is there can be read."""


class UnsupportedError(HSAError, NotImplementedError):
    """The combination of arguments is not available; the message says what works instead."""


class NotATreeError(BuilderError, TreeError, UnsupportedError):
    """A graph is no rooted tree, the only kind of graph that a builder takes."""


class MissingPackageError(HSAError, ImportError):
    """An optional package is needed; the message says what to install."""


class HSAWarning(UserWarning):
    """Base class of the warnings of hsa_geo."""


class DecodingWarning(HSAWarning):
    """Bytes of a page are no text in its charset; the message says how many characters."""


class TruncationWarning(HSAWarning):
    """Content was left out because of a limit; the message says how much."""
