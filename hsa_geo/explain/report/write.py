"""Writing a report, with as much in it as fits."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hsa_geo._files import file_in_folder, replacing
from hsa_geo.data.signal_tree import SignalTree
from hsa_geo.errors import LimitError, NonFiniteError, ShapeError
from hsa_geo.explain.gradients import attribute_leaves
from hsa_geo.explain.report.contents import Contents
from hsa_geo.explain.scores import LeafScores, one_tree
from hsa_geo.explain.watch import Run, answer, evaluating

__all__ = ["Report", "write_report"]

#: Labels explained, bytes of matrices and bytes of pictures, from all to the least.
_DETAILS = ((5, 1_000_000, 1_500_000), (3, 400_000, 600_000), (1, 100_000, 200_000), (1, 0, 0))


@dataclass(frozen=True)
class Report:
    """What was written.

    Attributes:
        path: The file.
        size: Its bytes.
        labels: Names of all outputs.
        logits: The outputs.
        scores: Explanations of the outputs that the page shows, the largest first.
        parts: Of each of these the ids of the nodes that matter most.
        notes: What is not in the file, or not exact, as sentences.

    Example:
        >>> Report(Path("a.html"), 0, ["a"], [0.5]).notes
        []
    """

    path: Path
    size: int
    labels: list[str]
    logits: list[float]
    scores: list[LeafScores] = field(default_factory=list)
    parts: list[list[int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def write_report(
    path: str | os.PathLike[str],
    model: nn.Module,
    tree: SignalTree,
    *,
    labels: Sequence[str] | None = None,
    node: int | None = None,
    title: str = "Explanation",
    remarks: Sequence[str] = (),
    multi_label: bool = False,
    method: str = "integrated_gradients",
    steps: int = 32,
    max_steps: int = 64,
    max_bytes: int = 5_000_000,
    run: Run | None = None,
) -> Report:
    """Write an explanation as one HTML file that needs nothing else and reaches for nothing.

    The page shows the leaves of the tree in reading order as the model read them, with pictures,
    shaded by what they add to a label or by where attention looks; the tree with the sums of its
    parts; the attention among the children of any part, by layer and head; the parts that matter
    most for each label; and what the hierarchy saves against flat attention.  It has no links and
    no fonts of others, its policy forbids all network, and whatever the tree's names hold is text.
    Orange adds and blue takes away, strong ones underlined; it follows the reader's choice of
    dark or light, and keys work.

    Args:
        path: The file.
        model: As in :func:`attribute_leaves`.
        tree: One tree.
        labels: Names of the outputs. (default: their numbers)
        node: Id of the subtree whose answer is explained. (default: the root)
        title: Title of the page. (default: ``"Explanation"``)
        remarks: Sentences about the source, shown below the title. (default: none)
        multi_label: Outputs are answered for themselves, by a sigmoid each; otherwise they share
            one softmax. (default: :obj:`False`)
        method, steps, max_steps: As in :func:`attribute_leaves`.
        max_bytes: Largest file; labels, matrices and pictures are left out until it is met, which
            the page says. (default: 5,000,000)
        run: As in :func:`attribute_leaves`.

    Returns:
        What was written.

    Raises:
        PathError: If ``path`` is a folder, or lies in none.
        ShapeError: If an argument does not fit.
        NonFiniteError: If an output is no finite number.
        UnsupportedError: For a batch, or a model that cannot be explained.
        LimitError: If even the least does not fit into ``max_bytes``.

    Example:
        >>> from hsa_geo.builders import from_html
        >>> from hsa_geo.nn import SignalClassifier, TokenEncoder
        >>> page = from_html("<h1>Log in</h1><form><input name=user></form>")
        >>> model = SignalClassifier({"text": TokenEncoder(2**14, 16)}, 2, channels=16)
        >>> report = write_report("report.html", model, page, labels=["other", "login"])
        >>> report.path.read_text(encoding="utf-8")[:15], len(report.scores)
        ('<!DOCTYPE html>', 2)
    """
    one_tree(tree)
    file_in_folder(Path(path))  # before the work, too
    with torch.no_grad(), evaluating(model):
        out = answer(model, tree, node, run).detach().reshape(-1).double().cpu()
    if not bool(out.isfinite().all()):
        raise NonFiniteError(
            "the model answers with no finite numbers, which nothing explains: train it anew."
        )
    for name, given in (("labels", labels), ("remarks", remarks)):
        if given is not None and (isinstance(given, str) or not isinstance(given, Sequence)):
            raise ShapeError(f"{name}={given!r:.80} is no list: give a list of str.")
    if remarks is None:
        remarks = ()
    labels = [str(k) for k in range(len(out))] if labels is None else list(map(str, labels))
    if len(labels) != len(out):
        raise ShapeError(f"labels has {len(labels)} names for {len(out)} outputs: give one each.")
    order = torch.argsort(out, descending=True, stable=True).tolist()
    options: dict[str, Any] = {"method": method, "steps": steps, "max_steps": max_steps}
    explained = order[: _DETAILS[0][0]]
    scores = attribute_leaves(model, tree, target=explained, node=node, run=run, **options)
    contents = Contents(tree, labels, out, scores, multi_label, node, list(map(str, remarks)))
    contents.look(model, run)
    for detail in _DETAILS:
        page = contents.page(title, detail)
        content = page.text.encode()
        if len(content) <= max_bytes:
            with replacing(Path(path)) as file:
                file.write_bytes(content)
            found = (page.scores, page.parts, page.notes)
            return Report(Path(path), len(content), labels, out.tolist(), *found)
    raise LimitError(
        f"the report of {tree.num_leaves} leaves takes {len(content)} bytes at least, more than "
        f"max_bytes={max_bytes}: explain part of the tree, tree.restrict(leaves), or raise "
        "max_bytes."
    )
