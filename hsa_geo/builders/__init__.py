"""Builders: real things into signal trees, one file per source.

Names are imported when first used, so that a builder's optional packages are needed only by
those who use it.

Example:
    >>> from hsa_geo.builders import from_html
    >>> from_html("<p>to be or not to be</p>").num_leaves
    6
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hsa_geo.builders.html import (
        Field,
        LeafKind,
        form_elements,
        form_fields,
        from_html,
        parse_html,
    )
    from hsa_geo.builders.networkx import from_networkx

__all__ = [
    "Field",
    "LeafKind",
    "form_elements",
    "form_fields",
    "from_html",
    "from_networkx",
    "parse_html",
]

_HOME = {name: "networkx" if name == "from_networkx" else "html" for name in __all__}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
