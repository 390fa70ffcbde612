"""``hsa-geo train``: a page classifier from labelled pages."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from hsa_geo._files import make_folder
from hsa_geo.cli.options import AsJson, Debug
from hsa_geo.cli.output import (
    caught_warnings,
    error_line,
    note,
    printable,
    progress,
    record,
    say,
    waiting,
)
from hsa_geo.errors import FileFormatError, PathError, TrainingError

__all__ = ["FORM_PAGES", "MODEL", "Attention", "train"]

#: What the real pages with annotated forms are called.
FORM_PAGES = "form-pages"
#: Where a model is written and looked for.
MODEL = Path("page-model")
#: Where the real pages are kept.
DATA = Path("data/form_pages")
#: Fewer validation pages than these say little.
FEW = 20


class Attention(StrEnum):
    """What mixes the leaves of a page."""

    hsa = "hsa"
    flat = "flat"
    deep_set = "deep_set"


def train(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A folder with a folder of pages for each label; a CSV file of paths and labels; "
            f"or {FORM_PAGES}, 954 real pages whose forms were annotated, fetched the first time.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the model.")] = MODEL,
    data: Annotated[
        Path | None, typer.Option(help=f"Where {FORM_PAGES} is kept; {DATA}, if not given.")
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(min=1, help=f"Most epochs; 30, or 10 of {FORM_PAGES}, if not given."),
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(
            min=1, help=f"Stop after so many without a better score; 10, or 4 of {FORM_PAGES}."
        ),
    ] = None,
    validation: Annotated[
        float, typer.Option(min=0, max=0.5, help="Share of the pages to choose the best epoch by.")
    ] = 0.15,
    images: Annotated[
        bool,
        typer.Option(
            "--images",
            help="Read pictures, too: those within the pages and files in their folders.",
        ),
    ] = False,
    attention: Annotated[Attention, typer.Option(help="What mixes the leaves.")] = Attention.hsa,
    channels: Annotated[int, typer.Option(min=1, help="Width of the model.")] = 64,
    layers: Annotated[int, typer.Option(min=1, help="Blocks of the model.")] = 1,
    heads: Annotated[int, typer.Option(min=1, help="Heads; they divide the width.")] = 4,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of everything random.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on after an interruption.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace what is in the folder of the model.")
    ] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Train a page classifier, with early stopping, and save it.

    Pages that cannot be read are reported and left out; the exit code is then 1.

    A training that was interrupted goes on with --resume.
    """
    work = out / "training"
    if channels % heads:
        raise typer.BadParameter(
            f"--channels {channels} is no multiple of --heads {heads}: change one of them."
        )
    if not 0 <= validation <= 0.5:  # nan, which passes the check of the range in some versions
        raise typer.BadParameter(f"--validation {validation}: give a share of 0 to 0.5.")
    if resume and overwrite:
        raise typer.BadParameter("--resume goes on, --overwrite begins anew: give one of them.")
    real = source == FORM_PAGES and not Path(source).exists()
    if data is not None and not real:
        raise typer.BadParameter(f"--data is for {FORM_PAGES}, not for '{source}': leave it out.")
    _check_place(out, work, resume, overwrite)
    with waiting("loading PyTorch"):
        from hsa_geo.pages import PageSettings, train_pages

    if real and images:
        raise typer.BadParameter(f"--images: {FORM_PAGES} come without pictures; leave it out.")
    pages = (
        _form_pages(DATA if data is None else data, validation, seed)
        if real
        else _own_pages(source, validation, seed, images)
    )
    settings = PageSettings(
        attention=attention.value,
        channels=channels,
        num_layers=layers,
        heads=heads,
        epochs=epochs or (10 if real else 30),
        patience=patience or (4 if real else 10),
        batch_size=32 if real else 16,
        seed=seed,
    )
    sizes = f"{len(pages.train):,} pages to train on, {len(pages.validation):,} to validate on"
    note(f"{len(pages.labels):,} labels, {sizes}")
    if resume and not work.is_dir():
        note(f"note: '{printable(out)}' holds no interrupted training: beginning one")
    make_folder(out)
    if overwrite:
        shutil.rmtree(work, ignore_errors=True)
    try:
        classifier, result = train_pages(
            pages.train,
            pages.validation or None,
            pages.reader,
            pages.labels,
            settings,
            folder=work,
            resume=resume,
        )
    except KeyboardInterrupt:
        instead = " in place of --overwrite" if overwrite else ""
        note(
            f"interrupted: the same command with --resume{instead} goes on from '{printable(work)}'"
        )
        raise
    classifier.save(out)
    (work / "metrics.csv").replace(out / "metrics.csv")
    shutil.rmtree(work, ignore_errors=True)
    _tell(out, pages, result, as_json)
    return 1 if pages.failed else 0


def _check_place(out: Path, work: Path, resume: bool, overwrite: bool) -> None:
    """Refuse before the work what would be refused after it; nothing is made yet."""
    there = next((place for place in (out, *out.parents) if os.path.lexists(place)), out)
    if os.path.lexists(there) and not there.is_dir():
        raise PathError(f"'{there}' is a file, not a folder to write into: give another --out.")
    # An interrupted training beside a model was begun by --overwrite.
    going_on = resume and work.is_dir()
    if (out / "config.json").exists() and not (overwrite or going_on):
        raise FileFormatError(
            f"'{out}' holds a model already: give another --out, or --overwrite to replace it."
        )
    if work.exists() and not _only_training(work):
        raise FileFormatError(
            f"'{work}' holds what no training has written, and would be in its way: give another "
            "--out."
        )
    if work.is_dir() and not (resume or overwrite):
        raise TrainingError(
            f"'{out}' holds an interrupted training: give --resume to go on, or --overwrite to "
            "begin anew."
        )


def _only_training(work: Path) -> bool:
    """Whether a folder holds nothing but checkpoints and metrics, and so may be removed."""
    if work.is_symlink() or not work.is_dir():
        return False
    ours = ("checkpoint-", "metrics.csv")  # behind a dot while they are written
    return all(
        path.is_file() and path.name.removeprefix(".").startswith(ours) for path in work.iterdir()
    )


def _form_pages(root: Path, share: float, seed: int) -> Any:
    from hsa_geo.pages import form_pages

    with contextlib.redirect_stdout(sys.stderr):  # results alone are on stdout
        return form_pages(root, share, seed)


def _own_pages(source: str, share: float, seed: int, images: bool) -> Any:
    from hsa_geo.pages import find_labelled, labelled_pages

    found = find_labelled(source)

    def shown(pages: Iterable[Any]) -> Iterator[Any]:
        with progress("reading pages", len(found)) as advance:
            for page in pages:
                yield page
                advance()

    with caught_warnings() as warned:
        pages = labelled_pages(found, share, seed, images=images, read=shown)
    if warned:
        note(f"warning: {len(warned):,} times something was lost in reading, first: {warned[0]}")
    for path, error in pages.failed:
        note(f"error: {printable(path)}: {error_line(error)}")
    return pages


def _tell(out: Path, pages: Any, result: Any, as_json: bool) -> None:
    if as_json:
        record(
            {
                "model": str(out),
                "labels": pages.labels,
                "pages": len(pages.train),
                "validation_pages": len(pages.validation),
                "failed": [
                    {"path": str(path), "error": type(error).__name__, "message": error_line(error)}
                    for path, error in pages.failed
                ],
                "score": result.metric,
                "epoch": result.best_epoch,
                "parameters": result.parameters,
            }
        )
        return
    if result.metric is None:
        say("too few pages to validate on: the weights are those of the last epoch")
    else:
        say(
            f"best epoch {result.best_epoch}: mean of macro- and micro-F1 {result.metric:.3f} on "
            f"{len(pages.validation):,} validation pages"
        )
        if len(pages.validation) < FEW:
            note(
                f"note: {len(pages.validation):,} validation pages say little of how right the "
                "model is: label more, or train on all, --validation 0, and look at its answers."
            )
    say(f"model of {result.parameters:,} parameters in '{printable(out)}'; try it:")
    say(f"hsa-geo predict PAGE.html{'' if out == MODEL else f' --model {printable(out)}'}")
