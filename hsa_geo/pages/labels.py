"""Names of labels: what a classifier can be asked to tell apart."""

from __future__ import annotations

from collections.abc import Sequence

from hsa_geo.errors import LabelError
from hsa_geo.pages.forms import NONE

__all__ = ["MAX_LABELS", "check_labels"]

#: Most labels, and longest name of one.
MAX_LABELS, MAX_NAME = 10_000, 1000


def check_labels(labels: Sequence[str]) -> list[str]:
    """Names of labels: strings, all different.

    Args:
        labels: The names, 10,000 at most of 1,000 characters at most.

    Returns:
        The same.

    Raises:
        LabelError: If they are none, or one is what a form without a label is called.

    Example:
        >>> check_labels(["news", "shop"])
        ['news', 'shop']
    """
    out = list(labels)
    if NONE in out:
        raise LabelError(f"{NONE!r} is what a form without a label is called: give another name.")
    bad = [x for x in out if not isinstance(x, str) or not 0 < len(x) <= MAX_NAME]
    if bad or not 0 < len(out) <= MAX_LABELS or len(set(out)) != len(out):
        what = (
            f"{bad[0]!r:.80}" if bad else f"{len(out)} labels, {len(set(map(str, out)))} different"
        )
        raise LabelError(
            f"{what}: give from 1 to {MAX_LABELS} different names of at most {MAX_NAME} characters."
        )
    return out
