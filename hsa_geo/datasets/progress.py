"""A progress bar: rich's where it is installed, else a line now and then.

Example:
    >>> list(track([1, 2], "pages", enabled=False))
    [1, 2]
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

__all__ = ["track", "watching"]

T = TypeVar("T")

#: Seconds before the first of two plain lines; each later one takes twice as long, up to a minute.
INTERVAL, LONGEST = 5.0, 60.0


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
    wait = INTERVAL
    for done, item in enumerate(items):
        yield item
        now = time.monotonic()
        if now - last >= wait or done + 1 == len(items):
            last, wait = now, min(2 * wait, LONGEST)
            print(
                f"{description}: {done + 1}/{len(items)} ({now - start:.0f} s)",
                file=sys.stderr,
                flush=True,
            )


@contextlib.contextmanager
def watching(
    folder: str | os.PathLike[str], description: str, total: int = 0, *, enabled: bool = True
) -> Iterator[None]:
    """Show on stderr how the files in a folder grow while something else fills it.

    Args:
        folder: The folder, looked at with all folders in it.
        description: What is being done.
        total: Bytes that will come, 0 if that is not known. (default: :obj:`0`)
        enabled: Show anything at all. (default: :obj:`True`)

    Example:
        >>> with watching(".", "copying", enabled=False):
        ...     pass
    """
    if not enabled:
        yield
        return
    ended = threading.Event()
    show, close = _bar(description, total)

    def look() -> None:
        while not ended.wait(0.5):
            show(_bytes_in(Path(folder)))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
        show(_bytes_in(Path(folder)))
    finally:
        ended.set()
        thread.join()
        close()


def _bytes_in(folder: Path) -> int:
    size = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # gone in between
                size += os.stat(os.path.join(where, name)).st_size
    return size


def _bar(description: str, total: int) -> tuple[Callable[[int], None], Callable[[], None]]:
    """What shows a number of bytes, and what ends the show."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn
    except ImportError:
        return _byte_lines(description, total)
    console = Console(stderr=True)
    if not console.is_terminal:
        return _byte_lines(description, total)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    progress = Progress(*columns, console=console)
    task = progress.add_task(description, total=total or None)
    progress.start()

    def show(size: int) -> None:
        progress.update(task, completed=min(size, total) if total else size)

    return show, progress.stop


def _byte_lines(description: str, total: int) -> tuple[Callable[[int], None], Callable[[], None]]:
    start = time.monotonic()
    last, said, size, wait = start, -1, 0, INTERVAL

    def say() -> None:
        nonlocal last, said, wait
        last, said, wait = time.monotonic(), size, min(2 * wait, LONGEST)
        of = f" of {total / 1e6:.1f}" if total else ""
        text = f"{description}: {size / 1e6:.1f}{of} MB ({last - start:.0f} s)"
        print(text, file=sys.stderr, flush=True)

    def show(now: int) -> None:
        nonlocal size
        size = min(now, total) if total else now
        if time.monotonic() - last >= wait and size != said:  # a client may go on after all came
            say()

    def close() -> None:
        if size != said:
            say()

    return show, close
