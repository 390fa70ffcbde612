"""The command ``hsa-geo``: look into files, train a classifier of pages, ask it, measure.

``hsa-geo --help`` lists the commands.  They end with 0, or with 1 if something was wrong with the
data, 2 with the command line, 130 after Ctrl-C, and 141 if nobody reads the output any more.  Needs
the extra ``cli``; torch is imported by the commands that compute, when they do.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main", "run"]


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code.

    Args:
        arguments: What stands behind ``hsa-geo``. (default: those of this process)

    Returns:
        0, 1 (data), 2 (usage), 130 (Ctrl-C) or 141 (closed output).

    Example:
        >>> run(["--version"])
        hsa-geo 0.1.0
        0
    """
    try:
        from hsa_geo.cli.app import run_app
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("typer", "rich"):
            raise
        print(
            f"error: the command hsa-geo needs the package '{error.name}': run `pip install "
            "'hsa_geo[cli]'`.",
            file=sys.stderr,
        )
        return 1
    return run_app(sys.argv[1:] if arguments is None else list(arguments))


def main() -> None:
    """The entry point of ``hsa-geo``: :func:`run`, and leave with its exit code.

    Example:
        >>> try:
        ...     main()  # doctest: +SKIP
        ... except SystemExit as end:
        ...     print(end.code)
    """
    try:
        code = run()
    except KeyboardInterrupt:  # while modules were imported
        code = 130
    sys.exit(code)
