"""A progress bar: rich's where it is installed, else a line now and then.

Example:
    >>> list(track([1, 2], "pages", enabled=False))
    [1, 2]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

__all__ = ["track"]

T = TypeVar("T")

#: Seconds between two plain lines.
INTERVAL = 5.0


def track(items: Sequence[T], description: str, *, enabled: bool = True) -> Iterator[T]:
    """Yield the items and show on stderr how far the loop is.

    Args:
        items: What to go through; its length is known.
        description: What is being done.
        enabled: Show anything at all. (default: :obj:`True`)

    Yields:
        The items.

    Example:
        >>> sum(track(range(4), "adding", enabled=False))
        6
    """
    if not enabled:
        yield from items
        return
    try:
        from rich.console import Console
        from rich.progress import track as rich_track
    except ImportError:
        yield from _plain(items, description)
        return
    console = Console(stderr=True)
    if console.is_terminal:
        yield from rich_track(items, description=description, console=console)
    else:
        yield from _plain(items, description)


def _plain(items: Sequence[T], description: str) -> Iterator[T]:
    start = last = time.monotonic()
    for done, item in enumerate(items):
        yield item
        now = time.monotonic()
        if now - last >= INTERVAL or done + 1 == len(items):
            last = now
            print(
                f"{description}: {done + 1}/{len(items)} ({now - start:.0f} s)",
                file=sys.stderr,
                flush=True,
            )
