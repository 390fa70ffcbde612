"""What a training says while it runs: a bar or lines, metrics.csv, TensorBoard."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hsa_geo._files import disk_is_full, write_text
from hsa_geo._optional import require
from hsa_geo.errors import CheckpointError, DiskFullError
from hsa_geo.training.options import Options
from hsa_geo.training.state import Progress

__all__ = ["COLUMNS", "Bar", "Log", "csv_text"]

#: Columns of ``metrics.csv``; times are not among them, so that a repeated training gives the
#: very same file.
COLUMNS = ("epoch", "step", "learning_rate", "loss", "metric")


def csv_text(history: Sequence[dict[str, Any]]) -> str:
    """``metrics.csv``: a line for each epoch; numbers as Python shows them, thus exactly.

    Example:
        >>> row = {"epoch": 1, "step": 5, "learning_rate": 0.1, "loss": 2.5, "metric": None}
        >>> print(csv_text([row]), end="")
        epoch,step,learning_rate,loss,metric
        1,5,0.1,2.5,
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([row[name] for name in COLUMNS] for row in history)
    return out.getvalue()


class Log:
    """The files of a training: ``metrics.csv``, and TensorBoard's if they are asked for.

    What is there already is written again from the history of the checkpoint, so that epochs
    which a kill undid are no longer in it.

    Args:
        folder: Where, or :obj:`None` for nowhere.
        options: Whether TensorBoard, too.
        progress: Where the training is.

    Raises:
        MissingPackageError: If tensorboard is wanted and not installed.
        DiskFullError: If there is no room for ``metrics.csv``, here or in :meth:`row`.
        CheckpointError: If it cannot be written for another reason.

    Example:
        >>> from hsa_geo.training.options import Options
        >>> from hsa_geo.training.state import Progress
        >>> with Log(None, Options(), Progress()) as log:
        ...     log.row([])
    """

    def __init__(self, folder: Path | None, options: Options, progress: Progress) -> None:
        self.folder, self._board = folder, None
        if folder is None:
            return
        if options.tensorboard:
            require("tensorboard", extra="training", purpose="tensorboard=True")
            from torch.utils.tensorboard import SummaryWriter

            begin = progress.epoch + 1
            self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=begin)
        self._write(progress.history)

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *error: object) -> None:
        if self._board is not None:
            self._board.close()

    def row(self, history: Sequence[dict[str, Any]]) -> None:
        """An epoch was added to the history."""
        if self.folder is None:
            return
        self._write(history)
        if self._board is not None:
            for name in ("learning_rate", "loss", "metric"):
                if history[-1][name] is not None:
                    self._board.add_scalar(name, history[-1][name], history[-1]["epoch"])

    def _write(self, history: Sequence[dict[str, Any]]) -> None:
        assert self.folder is not None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_text(self.folder / "metrics.csv", csv_text(history))
        except OSError as error:
            if disk_is_full(error):
                raise DiskFullError(
                    f"no room for metrics.csv in '{self.folder}' ({error}): free some, and go on "
                    "with resume=True."
                ) from error
            raise CheckpointError(
                f"metrics.csv cannot be written to '{self.folder}' ({error}): see to the folder, "
                "and go on with resume=True."
            ) from error


class Bar:
    """A bar of rich on a terminal, else lines on stderr, one for each epoch.

    Args:
        epochs: How many there will be at most.
        enabled: Say anything at all. (default: :obj:`True`)

    Example:
        >>> with Bar(3, enabled=False) as bar:
        ...     bar.epoch(0, steps=10, done=0)
        ...     bar.step(0.7)
    """

    def __init__(self, epochs: int, enabled: bool = True) -> None:
        self.epochs, self.enabled = epochs, enabled
        self._rich: Any = None
        self._task: Any = None

    def __enter__(self) -> Bar:
        if self.enabled and sys.stderr.isatty():
            try:
                from rich.console import Console
                from rich.progress import Progress
            except ImportError:
                return self
            self._rich = Progress(console=Console(stderr=True), transient=True)
            self._rich.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._rich is not None:
            self._rich.stop()

    def epoch(self, epoch: int, steps: int, done: int) -> None:
        """An epoch (from 0) begins, perhaps in the middle."""
        self._name, self._done = f"epoch {epoch + 1}/{self.epochs}", done
        if self._rich is not None:
            if self._task is not None:
                self._rich.remove_task(self._task)
            self._task = self._rich.add_task(self._name, total=steps, completed=done)

    def step(self, loss: float) -> None:
        """A step is done."""
        self._done += 1
        if self._rich is not None:
            self._rich.update(self._task, completed=self._done, description=self._text(loss))

    def _text(self, loss: float) -> str:
        return f"{self._name}: loss {loss:.4g}"

    def row(self, row: dict[str, Any], seconds: float, best_epoch: int) -> None:
        """An epoch is done."""
        metric = ""
        if row["metric"] is not None:
            best = "best" if best_epoch == row["epoch"] else f"best in epoch {best_epoch}"
            metric = f", metric {row['metric']:.4f} ({best})"
        name = f"epoch {row['epoch']}/{self.epochs}"
        self.say(f"{name}: loss {row['loss']:.4g}{metric}, {seconds:.1f} s")

    def say(self, text: str) -> None:
        """A line on stderr."""
        if not self.enabled:
            return
        if self._rich is not None:
            self._rich.console.print(text, highlight=False)
        else:
            print(text, file=sys.stderr, flush=True)
