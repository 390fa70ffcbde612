"""``hsa-geo explain``: why a page has its labels, as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hsa_geo.cli.files import read_bytes
from hsa_geo.cli.options import AsJson, Debug
from hsa_geo.cli.output import caught_warnings, note, printable, record, say, table
from hsa_geo.cli.predict import load_classifier
from hsa_geo.cli.train import MODEL

__all__ = ["explain"]

#: Parts listed for the label that is most likely.
_PARTS = 5


def explain(
    path: Annotated[Path, typer.Argument(metavar="PAGE", help="A web page.")],
    model: Annotated[Path, typer.Option("--model", "-m", help="Folder of the model.")] = MODEL,
    out: Annotated[Path, typer.Option("--out", "-o", help="The HTML file to write.")] = Path(
        "report.html"
    ),
    form: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of the form to explain, as `hsa-geo predict` counts, of a model for "
            "forms.  [default: the surest of a known type]",
        ),
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Write a page that shows why a web page has its labels; open it in a browser.

    It shows the words of the page as the model reads them, shaded by what they add to each label,
    with the tree of the page, the attention in it, and the parts that matter most.
    """
    if out.exists() and path.exists() and out.samefile(path):
        raise typer.BadParameter(f"'{out}' is the page itself: give another file to --out.")
    data = read_bytes(path)
    classifier = load_classifier(model)
    with caught_warnings() as warned:
        tree = classifier.reader.named(data)
        content = _explained(classifier, tree, path, out, form)
    if as_json:
        record(content | {"warnings": warned})
        return 0
    say(f"{printable(out)}: {content['bytes']:,} bytes; open it in a browser")
    label = next(iter(content["parts"]), "")
    rows = [[part["part"], f"{part['adds']:+.3f}"] for part in content["parts"].get(label, [])]
    say(f"{printable(path)}: {printable(label)}" + (", by these parts:" if rows else ""))
    if rows:
        say(table(["part", "adds"], rows[:_PARTS]))
    for line in [*content["notes"], *warned]:
        note(f"note: {printable(line)}")
    return 0


def _explained(
    classifier: Any, tree: Any, path: Path, out: Path, form: int | None
) -> dict[str, Any]:
    """Write the report; what it says, as JSON."""
    from hsa_geo.explain import write_report
    from hsa_geo.explain.report.contents import excerpt
    from hsa_geo.pages.forms import NONE

    labels, node = list(classifier.labels), None
    if classifier.reader.unit == "form":
        number = _form(classifier, tree, form)
        labels, node = [*labels, NONE], int(tree.form_node[number])
    elif form is not None:
        raise typer.BadParameter(
            f"--form {form}: the model answers for whole pages; leave it out, or give a model for "
            "forms to --model."
        )
    title = f"{path.name}: explanation"
    report = write_report(out, classifier.model, tree, labels=labels, node=node, title=title)
    parts = {
        report.labels[scores.target or 0]: [
            {"part": excerpt(tree, node), "adds": float(scores.node[node])} for node in nodes
        ]
        for scores, nodes in zip(report.scores, report.parts)
    }
    return {
        "path": str(path),
        "report": str(out),
        "bytes": report.size,
        **({} if node is None else {"form": number + 1}),
        "outputs": dict(zip(report.labels, report.logits)),
        "parts": parts,
        "notes": report.notes,
    }


def _form(classifier: Any, tree: Any, wanted: int | None) -> int:
    """Index of the form that is explained."""
    from hsa_geo.errors import BuilderError
    from hsa_geo.pages.forms import NONE

    forms = classifier.predict_tree(tree).forms
    if not forms:
        raise BuilderError("the page shows no form, and the model answers for forms: give another.")
    if wanted is None:
        known = [k for k, one in enumerate(forms) if one.label != NONE]
        return max(known or range(len(forms)), key=lambda k: forms[k].probability)
    if wanted > len(forms):
        raise typer.BadParameter(f"--form {wanted}: the page shows {len(forms)} forms.")
    return wanted - 1
