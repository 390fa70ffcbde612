"""Labels of web forms: classes, pages, web domains, and which form of the DOM is which.

The annotation of a page lists its forms in page order, each with a type code and the names of
its visible fields.  An HTML5 parser does not always see the same forms (nested forms, forms
inside tables, broken markup), so :func:`align` pairs them by their field names, in order.

Example:
    >>> align([["q"], ["user", "pass"]], [[], ["q"], ["user", "pass"]])
    [(0, 1), (1, 2)]
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from hsa_geo.errors import ArchiveError

__all__ = [
    "CLASSES",
    "NOT_ANNOTATED",
    "SKIPPED",
    "align",
    "form_codes",
    "page_labels",
    "registered_domain",
    "site",
]

#: Names of the classes of forms; a class is its place here.
CLASSES = (
    "search",
    "login",
    "registration",
    "recovery",
    "contact",
    "mailing list",
    "order",
    "other",
)
#: Class of a form that nobody annotated, or that the annotation does not know.
NOT_ANNOTATED = -1
#: Class of a form that the annotators chose to skip.
SKIPPED = -2

_CODES = "slrpcmbo"  # the codes of CLASSES, in order

#: Second-level labels under which country registries sell names (``example.co.uk``).
_SECOND_LEVEL = frozenset(
    ("ac", "co", "com", "edu", "go", "gob", "gov", "id", "info", "mil", "ne", "net", "or", "org")
)


def form_codes(config: Mapping[str, Any]) -> dict[str, int]:
    """Class of every form code of the annotation's ``config.json``.

    Codes are simplified as its ``simplify_map`` says (poll, display options, navigation and
    captcha count as other).

    Args:
        config: The parsed ``config.json``.

    Returns:
        Class, :data:`NOT_ANNOTATED` or :data:`SKIPPED` of each code.

    Raises:
        ArchiveError: If a code is none of the known ones.

    Example:
        >>> types = {"types": [{"short": c} for c in "sPo-X"], "simplify_map": {"P": "o"}}
        >>> form_codes({"form_types": {**types, "NA_value": "X", "skip_value": "-"}})
        {'s': 0, 'P': 7, 'o': 7, '-': -2, 'X': -1}
    """
    try:
        types = config["form_types"]
        simplify = types["simplify_map"]
        special = {types["NA_value"]: NOT_ANNOTATED, types["skip_value"]: SKIPPED}
        codes = [entry["short"] for entry in types["types"]]
    except (KeyError, TypeError) as error:
        raise ArchiveError(
            f"config.json does not describe form types ({error!r}): use the pinned version."
        ) from error
    table = {}
    for code in codes:
        simple = simplify.get(code, code)
        if simple not in special and simple not in _CODES:
            raise ArchiveError(
                f"config.json has the form type '{simple}', which is none of '{_CODES}': use the "
                "pinned version of the archive."
            )
        table[code] = special[simple] if simple in special else _CODES.index(simple)
    return table


def page_labels(labels: Sequence[int]) -> tuple[list[float], list[bool], bool]:
    """Labels of a page from the classes of all its forms.

    Args:
        labels: Class of each form, :data:`NOT_ANNOTATED` and :data:`SKIPPED` included.

    Returns:
        Which classes the page holds (0.0 or 1.0 each); which of these entries are certain (all
        if every form was annotated or skipped, else only the ones); whether all are.

    Example:
        >>> y, certain, complete = page_labels([0, SKIPPED, NOT_ANNOTATED])
        >>> y[:2], certain[:2], complete
        ([1.0, 0.0], [True, False], False)
    """
    held = {label for label in labels if label >= 0}
    complete = NOT_ANNOTATED not in labels
    y = [float(c in held) for c in range(len(CLASSES))]
    return y, [complete or value > 0 for value in y], complete


def site(url: str) -> str:
    """The host of a URL in lower case, without a leading ``www.``.

    Args:
        url: The URL, with its scheme.

    Returns:
        The site.

    Raises:
        ArchiveError: If there is no host in it.

    Example:
        >>> site("http://www.Shop.example.co.uk:80/a?b")
        'shop.example.co.uk'
    """
    try:
        host = urlsplit(url).hostname
    except ValueError:
        host = None
    if not host:
        raise ArchiveError(f"the page's URL {url!r} has no host, so it belongs to no domain.")
    return host.rstrip(".").removeprefix("www.")


def registered_domain(url: str) -> str:
    """The registered domain of a URL: what one owner holds.

    The last two labels of the host; the last three if the last is a country code (two letters)
    and the one before it a general second-level label (``co``, ``com``, ``org``, ``gov``, ...);
    an IP address as it is.  A rule instead of the public suffix list, which would be one more
    package; names that private hosts give away (``name.free.fr``) thus fall under their host.

    Args:
        url: The URL, with its scheme.

    Returns:
        The domain.

    Raises:
        ArchiveError: If the URL has no host.

    Example:
        >>> [registered_domain(f"http://{h}/") for h in ("www.a.b.org", "x.co.uk", "1.2.3.4")]
        ['b.org', 'x.co.uk', '1.2.3.4']
    """
    host = site(url)
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    labels = host.split(".")
    country = len(labels) > 2 and len(labels[-1]) == 2 and labels[-2] in _SECOND_LEVEL
    return ".".join(labels[-3 if country else -2 :])


def align(found: Sequence[Sequence[str]], wanted: Sequence[Sequence[str]]) -> list[tuple[int, int]]:
    """Pair the forms that a parser found with the annotated ones, in order.

    Two lists of the same length pair up in order, unless two forms at the same place both have
    fields and share none.  Otherwise both lists keep their order, every form is used at most
    once, and forms pair up by the names of their fields: the more they share, the better; a form
    without fields pairs with any other only if nothing better is lost (a parser may take the
    fields of a form out of it); forms with fields of which none is shared never pair.  Among
    equally good pairings the one that uses the earliest forms wins.

    Args:
        found: Field names of each form of the DOM, in document order.
        wanted: Field names of each annotated form.

    Returns:
        Pairs (place in ``found``, place in ``wanted``), increasing in both.

    Example:
        >>> align([["q"], []], [["q"], ["q"], ["mail"]])
        [(0, 0), (1, 1)]
    """
    a, b = [frozenset(names) for names in found], [frozenset(names) for names in wanted]
    score = np.array([[_likeness(s, t) for t in b] for s in a]).reshape(len(a), len(b))
    if len(a) == len(b) and (score.diagonal() > 0).all():
        return [(i, i) for i in range(len(a))]
    best = np.zeros((len(a) + 1, len(b) + 1))  # best[i, j]: of the forms from i and j on
    for i in range(len(a) - 1, -1, -1):
        for j in range(len(b) - 1, -1, -1):
            both = score[i, j] + best[i + 1, j + 1] if score[i, j] > 0 else -1.0
            best[i, j] = max(both, best[i + 1, j], best[i, j + 1])
    pairs, i, j = [], 0, 0
    while i < len(a) and j < len(b):
        if score[i, j] > 0 and best[i, j] <= score[i, j] + best[i + 1, j + 1] + 1e-9:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif best[i + 1, j] >= best[i, j + 1]:
            i += 1
        else:
            j += 1
    return pairs


def _likeness(a: frozenset[str], b: frozenset[str]) -> float:
    """How well two sets of field names go together: 0 not at all, 1 the same."""
    if not a or not b:
        return 0.5 if a == b else 0.01
    return len(a & b) / len(a | b)
