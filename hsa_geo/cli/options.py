"""Options that several commands have, so that they are called alike."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["AsJson", "Debug", "Paths"]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]
#: Looked for by :func:`hsa_geo.cli.app.run_app`, which shows the traceback.
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Paths = Annotated[list[Path], typer.Argument(metavar="PATH", help="Files, and folders of files.")]
