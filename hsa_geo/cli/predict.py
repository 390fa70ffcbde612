"""``hsa-geo predict``: the labels of pages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hsa_geo.cli.files import find_files, read_bytes
from hsa_geo.cli.options import AsJson, Debug, Paths
from hsa_geo.cli.output import (
    DATA_ERRORS,
    caught_warnings,
    counted,
    note,
    printable,
    progress,
    record,
    report,
    say,
    table,
    waiting,
)
from hsa_geo.cli.sources import Kind, kind_of
from hsa_geo.cli.train import FORM_PAGES, MODEL
from hsa_geo.errors import FileFormatError

__all__ = ["load_classifier", "predict"]


def predict(
    paths: Paths,
    model: Annotated[Path, typer.Option("--model", "-m", help="Folder of the model.")] = MODEL,
    every: Annotated[
        bool, typer.Option("--all", help="Read all files of folders, whatever they are called.")
    ] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Say which labels web pages have.

    Of a single page all probabilities are shown; of folders, or several pages, a line for each as
    soon as it is read.  Pages that cannot be read are reported, and the exit code is then 1.
    """
    single = len(paths) == 1 and not paths[0].is_dir()
    if every and not any(path.is_dir() for path in paths):
        raise typer.BadParameter("--all is for folders, but none is given: leave it out.")
    data = read_bytes(paths[0]) if single else b""  # a missing page is said before a missing model
    classifier = load_classifier(model)
    if single:
        with caught_warnings() as warned:
            content = _record(classifier, paths[0], data)
        if as_json:
            record(content | {"warnings": warned})
        else:
            _show(content)
            for line in warned:
                note(f"warning: {line}")
        return 0
    read = failed = 0
    with progress("pages", lines=True) as advance:

        def wanted(path: Path) -> bool:
            return every or kind_of(path) is Kind.html

        for path, error in find_files(paths, wanted, "--all"):
            try:
                if error is not None:
                    raise error
                with caught_warnings() as warned:
                    content = _record(classifier, path, read_bytes(path))
            except DATA_ERRORS as wrong:
                failed += 1
                report(path, wrong, as_json)
            else:
                read += 1
                if as_json:
                    record(content | {"warnings": warned})
                else:
                    say(_line(content))
                    for line in warned:
                        note(f"warning: {printable(path)}: {line}")
            advance()
    note(counted("page", read, failed))
    return 1 if failed else 0


def load_classifier(folder: Path) -> Any:
    """The classifier in a folder.

    Raises:
        FileFormatError: If there is none.
    """
    if not folder.is_dir():
        raise FileFormatError(
            f"there is no model in '{folder}': train one, such as by `hsa-geo train {FORM_PAGES}`, "
            "or give --model."
        )
    with waiting("loading PyTorch and the model"):
        from hsa_geo.pages import PageClassifier

        return PageClassifier.load(folder)


def _record(classifier: Any, path: Path, data: bytes) -> dict[str, Any]:
    whole = classifier.reader.whole(data, base=path.parent)  # which counts if it reads pictures
    tree = classifier.reader.reduce(whole)
    found = classifier.predict_tree(tree)
    content = {"path": str(path), "labels": found.labels, "probabilities": found.probabilities}
    content |= {"leaves": tree.num_leaves, "leaves_of_page": whole.num_leaves}
    if classifier.reader.unit == "form":
        content["forms"] = [form._asdict() for form in found.forms]
    return content


def _labels(content: dict[str, Any]) -> str:
    return ", ".join(map(printable, content["labels"])) or "no form of a known type"


def _line(content: dict[str, Any]) -> str:
    found, p = content["labels"], content["probabilities"]
    surest = f"{max(p[label] for label in found):.3f}" if found else "     "
    return f"{surest}  {_labels(content):<30}  {printable(content['path'])}"


def _show(content: dict[str, Any]) -> None:
    say(f"{printable(content['path'])}: {_labels(content)}")
    rows = [(label, f"{p:.3f}") for label, p in content["probabilities"].items()]
    say(table(["label", "probability"], rows))
    forms = content.get("forms", [])
    for number, form in enumerate(forms, start=1):
        what = f"{printable(form['label'])} ({form['probability']:.3f})"
        say(f"form {number} of {len(forms)}: {what}")
    if content["leaves"] < content["leaves_of_page"]:
        note(
            f"note: the model reads {content['leaves']:,} of the page's "
            f"{content['leaves_of_page']:,} words and controls"
        )
