"""What the commands say: results on stdout, all else on stderr, nothing that drives a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hsa_geo.cli.wording import in_words

__all__ = [
    "DATA_ERRORS",
    "OutputClosedError",
    "caught_warnings",
    "counted",
    "error_line",
    "note",
    "printable",
    "printable_lines",
    "progress",
    "record",
    "report",
    "say",
    "set_up",
    "table",
    "waiting",
]


#: What a file of a folder may raise without ending the rest.  HSAError is a mixture of these and of
#: Exception; MissingPackageError ends all, as it would be the same for every file.
DATA_ERRORS = (ValueError, OSError, RuntimeError, RecursionError, MemoryError)


class OutputClosedError(Exception):
    """Nobody reads stdout any more, as behind ``| head``."""


@contextlib.contextmanager
def set_up() -> Iterator[None]:
    """Characters that an output's encoding lacks are escaped; a warning is one line.

    Afterwards the streams are as they were: they may be those of a program that called ``run``.
    """
    with contextlib.ExitStack() as stack:
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stack.callback(_set_errors, stream, stream.errors)
                _set_errors(stream, "backslashreplace")
        stack.enter_context(warnings.catch_warnings())
        warnings.showwarning = lambda message, *_: note(f"warning: {one_line(message)}")
        yield


def _set_errors(stream: Any, errors: str | None) -> None:
    with contextlib.suppress(OSError, ValueError):  # closed, or nobody reads it any more
        stream.reconfigure(errors=errors)


def printable(text: Any) -> str:
    r"""A text that only shows: control characters and undecodable bytes are escaped.

    Args:
        text: Anything; a path with bytes that are no UTF-8, too.

    Returns:
        One line.

    Example:
        >>> printable("to\x1b[2J\n"), printable("caf\udce9.html")
        ('to\\x1b[2J\\n', 'caf\\xe9.html')
    """
    return "".join(c if c.isprintable() else _escape(c) for c in str(text))


def _escape(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # how Python keeps a byte that is no UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return repr(character)[1:-1]


def printable_lines(text: str) -> str:
    r"""A text of several lines that only shows, as :func:`printable`.

    Example:
        >>> printable_lines("to\n  be\x1b[2J")
        'to\n  be\\x1b[2J'
    """
    return "\n".join(map(printable, text.split("\n")))


def one_line(message: Any) -> str:
    """A message in the command's words, with single blanks, as far as it can be shown."""
    return printable(in_words(" ".join(str(message).split())))


def say(text: str = "") -> None:
    """A line of results, on stdout at once.

    Raises:
        OutputClosedError: If nobody reads it any more.
    """
    try:
        print(text, flush=True)
    except BrokenPipeError:
        with contextlib.suppress(OSError, ValueError):  # Python flushes once more at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OutputClosedError from None


def record(content: dict[str, Any]) -> None:
    """A result as one line of JSON; a byte of a path that is no UTF-8 is a lone surrogate there."""
    say(json.dumps(content, allow_nan=False))


def note(text: str) -> None:
    """A line on stderr; a lost stderr is no reason to stop."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


def error_line(error: BaseException) -> str:
    """What went wrong, in one line.

    Example:
        >>> error_line(FileNotFoundError(2, "No such file or directory", "page.html"))
        "'page.html' does not exist: check the name."
        >>> error_line(MemoryError())
        'MemoryError'
    """
    if isinstance(error, FileNotFoundError) and error.filename is not None:
        return one_line(f"'{os.fsdecode(error.filename)}' does not exist: check the name.")
    return one_line(error) or type(error).__name__


def report(path: Any, error: BaseException, as_json: bool) -> None:
    """A file that could not be read, between others that could: a record, or a line on stderr."""
    if as_json:
        record({"path": str(path), "error": type(error).__name__, "message": error_line(error)})
    else:
        note(f"error: {printable(path)}: {error_line(error)}")


def counted(what: str, read: int, failed: int) -> str:
    """How many could be read.

    Example:
        >>> counted("page", 1, 1200)
        '1 page read, 1,200 could not be'
    """
    return f"{read:,} {what}{'s' * (read != 1)} read, {failed:,} could not be"


@contextlib.contextmanager
def caught_warnings() -> Iterator[list[str]]:
    """Collect the library's warnings as lines, instead of printing them.

    Yields:
        A list, filled at the end.
    """
    from hsa_geo.errors import HSAWarning

    lines: list[str] = []
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", HSAWarning)
        yield lines
    lines += [one_line(item.message) for item in found]


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str = "") -> str:
    """A table as text; the first column is aligned left, the others right.

    Args:
        columns: Their heads.
        rows: Their cells.
        title: A line above. (default: none)

    Returns:
        Lines without colours, as wide as they need to be.

    Example:
        >>> print(table(["label", "p"], [["login", "0.9"]]))
         label     p
        ─────────────
         login   0.9
    """
    import io

    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(title=title or None, title_justify="left", title_style="", box=box.SIMPLE_HEAD)
    for number, name in enumerate(columns):
        grid.add_column(Text(name), justify="right" if number else "left", no_wrap=True)
    for row in rows:
        grid.add_row(*(Text(printable(cell)) for cell in row))
    out = io.StringIO()
    Console(file=out, width=10_000, color_system=None, legacy_windows=False).print(grid)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines() if line.strip())


@contextlib.contextmanager
def progress(
    what: str, total: int | None = None, *, lines: bool = False
) -> Iterator[Callable[[], None]]:
    """A bar on stderr, if that is a terminal.

    Args:
        what: What is being done.
        total: How often; None if nobody knows. (default: :obj:`None`)
        lines: Results are printed meanwhile; on a terminal they are progress enough.
            (default: :obj:`False`)

    Yields:
        To be called after each.
    """
    stream = sys.stderr
    shown = stream is not None and stream.isatty()
    if not shown or (lines and sys.stdout is not None and sys.stdout.isatty()):
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        *(BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)


@contextlib.contextmanager
def waiting(what: str) -> Iterator[None]:
    """Say what is going on as long as it goes on, if stderr is a terminal.

    Args:
        what: Such as ``"loading PyTorch"``.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(f"{what} ...")):
        yield
