"""The application: its commands, and how they end."""

from __future__ import annotations

import traceback
from typing import Annotated

import typer

import hsa_geo
from hsa_geo.cli.bench import bench
from hsa_geo.cli.explain import explain
from hsa_geo.cli.inspect import inspect
from hsa_geo.cli.output import (
    OutputClosedError,
    error_line,
    note,
    one_line,
    printable_lines,
    say,
    set_up,
)
from hsa_geo.cli.predict import predict
from hsa_geo.cli.train import train
from hsa_geo.errors import HSAError

__all__ = ["app", "run_app"]

#: As shells tell Ctrl-C, and a process whose output nobody reads.
INTERRUPTED, CLOSED = 130, 141

app = typer.Typer(
    name="hsa-geo",
    help="Hierarchical Self-Attention: look into files, train a classifier of pages, ask it.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _flowing(text: str | None) -> str:
    """Paragraphs of one line each, which a terminal of any width breaks where it ends."""
    return "\n\n".join(" ".join(part.split()) for part in (text or "").split("\n\n"))


for command in (inspect, train, predict, explain, bench):
    app.command(help=_flowing(command.__doc__))(command)


def _version(wanted: bool) -> None:
    if wanted:
        say(f"hsa-geo {hsa_geo.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _begin(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        help_text = context.get_help()  # with rich it is printed at once
        if help_text:
            say(help_text)
        raise typer.Exit(2)


def run_app(arguments: list[str]) -> int:
    """Run a command line; see :func:`hsa_geo.cli.run`."""
    try:
        with set_up():
            code = app(arguments, prog_name="hsa-geo", standalone_mode=False)
        if code == INTERRUPTED:  # some versions of typer return it, others raise
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except OutputClosedError:
        return CLOSED
    except (KeyboardInterrupt, typer.Abort):
        note("interrupted")
        return INTERRUPTED
    except Exception as error:
        code, line = _judge(error)
        if "--debug" in arguments:
            note(printable_lines(traceback.format_exc().rstrip()))
        note(f"error: {line}")
        return code


def _judge(error: Exception) -> tuple[int, str]:
    """Exit code and message of an error."""
    if isinstance(error, (HSAError, OSError, MemoryError, RecursionError)):
        return 1, error_line(error)
    if hasattr(error, "format_message"):  # of typer, whose versions have it from different places
        return int(getattr(error, "exit_code", 2)), _usage(error)
    # A mistake of this program, not of what it was given.
    return 1, f"{type(error).__name__}: {error_line(error)} (--debug shows where)"


def _usage(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "hsa-geo"
    message = one_line(error.format_message()).rstrip(".")  # type: ignore[attr-defined]
    message = message.replace(": Value error, ", ": ")  # what checks the value puts before it
    return f"{message} (see `{path} --help`)"
