"""Options and folders of all datasets: checked before anything is fetched or built.

Roots are checked in :mod:`hsa_geo.datasets.disk`.

Example:
    >>> options_dict({"max_words": 10})
    {'max_words': 10}
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hsa_geo._files import make_folder
from hsa_geo.errors import PathError, UnsupportedError

__all__ = ["options_dict", "writable_folder"]


def writable_folder(path: Path) -> None:
    """Make a folder of a dataset, unless it is there.

    Args:
        path: The folder.

    Raises:
        PathError: If it cannot be made or written to.

    Example:
        >>> import tempfile
        >>> writable_folder(Path(tempfile.mkdtemp(), "raw"))
    """
    try:
        make_folder(path)
    except PathError:
        raise
    except OSError as error:
        raise PathError(
            f"'{path}' cannot be made ({error.strerror}): give a root that you may write to."
        ) from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise PathError(f"'{path}' cannot be written to: give a root that you may write to.")


def options_dict(options: Any) -> dict[str, Any]:
    """The options of a dataset.

    Args:
        options: What was given; :obj:`None` is none.

    Returns:
        A dict of its own.

    Raises:
        UnsupportedError: If they are no dict of what JSON can hold.

    Example:
        >>> options_dict(None)
        {}
    """
    if options is None:
        return {}
    if not isinstance(options, Mapping) or not all(isinstance(name, str) for name in options):
        raise UnsupportedError(
            f"options={options!r:.60} are none: give a dict of options by their names."
        )
    for name, value in options.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError) as error:
            raise UnsupportedError(
                f"option {name!r} is {value!r:.60}, which JSON cannot hold: give numbers, strings, "
                "lists or dicts of them."
            ) from error
    return dict(options)
