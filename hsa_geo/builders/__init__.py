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
        LeafKind,
        form_elements,
        form_fields,
        from_html,
        parse_html,
    )
    from hsa_geo.builders.image import from_image, from_video, image_of
    from hsa_geo.builders.nested import from_nested, same_signal, to_nested
    from hsa_geo.builders.networkx import from_networkx
    from hsa_geo.builders.sequence import from_sequence
    from hsa_geo.builders.signals import Graph, Grid, Leaf, Sequence, Set
    from hsa_geo.builders.site import from_site
    from hsa_geo.builders.text import from_text
    from hsa_geo.builders.tokens import Field

__all__ = [
    "Field",
    "Graph",
    "Grid",
    "Leaf",
    "LeafKind",
    "Sequence",
    "Set",
    "form_elements",
    "form_fields",
    "from_html",
    "from_image",
    "from_nested",
    "from_networkx",
    "from_sequence",
    "from_site",
    "from_text",
    "from_video",
    "image_of",
    "parse_html",
    "same_signal",
    "to_nested",
]

_HOME = {
    "Field": "tokens",
    "Graph": "signals",
    "Grid": "signals",
    "Leaf": "signals",
    "Sequence": "signals",
    "Set": "signals",
    "from_image": "image",
    "from_nested": "nested",
    "from_networkx": "networkx",
    "from_sequence": "sequence",
    "from_site": "site",
    "from_text": "text",
    "from_video": "image",
    "image_of": "image",
    "same_signal": "nested",
    "to_nested": "nested",
}  # the others: html


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME.get(name, 'html')}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
