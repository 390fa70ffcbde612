"""``hsa-geo explain``: why a page has its labels, as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hsa_geo._files import file_in_folder
from hsa_geo.cli.files import read_bytes
from hsa_geo.cli.options import AsJson, Debug
from hsa_geo.cli.output import caught_warnings, note, printable, record, say, table, waiting
from hsa_geo.cli.predict import load_classifier
from hsa_geo.cli.train import MODEL

__all__ = ["explain"]

#: What a report of ours holds near its beginning (page.html).
GENERATOR = '<meta name="generator" content="hsa_geo">'
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
    data = read_bytes(path)
    _check_out(out, path)
    classifier = load_classifier(model)
    with waiting("explaining"), caught_warnings() as warned:
        whole = classifier.reader.whole(data, base=path.parent)
        tree = classifier.reader.named_of(whole)
        content = _explained(classifier, tree, whole.num_leaves, path, out, form)
    if as_json:
        record(content | {"warnings": warned})
        return 0
    say(f"{printable(out)}: {content['bytes']:,} bytes; open it in a browser")
    label = next(iter(content["parts"]), "")
    rows = [[part["part"], f"{part['adds']:+.3f}"] for part in content["parts"].get(label, [])]
    count = len(content.get("forms", []))
    of_form = f", form {content['form']} of {count}" if count > 1 else ""
    by_parts = ", by these parts:" if rows else ""
    say(f"{printable(path)}{of_form}: {printable(label)}{by_parts}")
    if rows:
        say(table(["part", "adds"], rows[:_PARTS]))
    for line in [*content["remarks"], *content["notes"], *warned]:
        note(f"note: {printable(line)}")
    return 0


def _check_out(out: Path, page: Path) -> None:
    """Refuse before the work a place where a report would take the place of something else."""
    file_in_folder(out)
    if not out.exists():
        return
    if out.samefile(page):
        raise typer.BadParameter(f"'{out}' is the page itself: give another file to --out.")
    if not out.is_file():
        raise typer.BadParameter(f"'{out}' is no regular file: give another name to --out.")
    with open(out, "rb") as file:
        ours = GENERATOR.encode() in file.read(4096)
    if not ours and out.stat().st_size:
        raise typer.BadParameter(
            f"'{out}' exists and is no report of hsa-geo, which alone is replaced: give another "
            "name to --out."
        )


def _explained(
    classifier: Any, tree: Any, leaves: int, path: Path, out: Path, form: int | None
) -> dict[str, Any]:
    """Write the report; what it says, as JSON."""
    from hsa_geo.explain import write_report
    from hsa_geo.explain.report.contents import excerpt
    from hsa_geo.pages.forms import NONE

    labels, node = list(classifier.labels), None
    more: dict[str, Any] = {"leaves": tree.num_leaves, "leaves_of_page": leaves}
    remarks = []
    if classifier.reader.unit == "form":
        forms = _forms(classifier, tree)
        number = _chosen(forms, form)
        labels, node = [*labels, NONE], int(tree.form_node[number])
        more |= {"form": number + 1, "forms": [one._asdict() for one in forms]}
        remarks += _about_forms(forms, number)
    elif form is not None:
        raise typer.BadParameter(
            f"--form {form}: the model answers for whole pages; leave it out, or give a model for "
            "forms to --model."
        )
    if tree.num_leaves < leaves:
        remarks.append(
            f"The model reads {tree.num_leaves:,} of the page's {leaves:,} words and controls: its "
            "forms, what stands before them, and headings."
        )
    words = [f"“{NONE}” is the answer for forms of no type that the model knows."]
    words = words if node is not None else []
    if classifier.reader.patch is None:
        words.append("The model reads words and controls; pictures it does not see.")
    title = f"{path.name}: explanation"
    options: dict[str, Any] = {"labels": labels, "node": node, "title": title}
    options["remarks"] = [*remarks, *words]
    report = write_report(out, classifier.model, tree, **options)
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
        **more,
        "outputs": dict(zip(report.labels, report.logits)),
        "parts": parts,
        "remarks": remarks,
        "notes": report.notes,
    }


def _forms(classifier: Any, tree: Any) -> list[Any]:
    """What the classifier says of the forms of a page."""
    from hsa_geo.errors import BuilderError

    forms: list[Any] = classifier.predict_tree(tree).forms
    if not forms:
        raise BuilderError("the page shows no form, and the model answers for forms: give another.")
    return forms


def _chosen(forms: list[Any], wanted: int | None) -> int:
    """Index of the form that is explained."""
    from hsa_geo.pages.forms import NONE

    if wanted is None:
        known = [k for k, one in enumerate(forms) if one.label != NONE]
        return max(known or range(len(forms)), key=lambda k: forms[k].probability)
    if wanted > len(forms):
        raise typer.BadParameter(f"--form {wanted}: the page shows {len(forms)} forms.")
    return wanted - 1


def _about_forms(forms: list[Any], chosen: int) -> list[str]:
    """Which form is explained, what the others are, and how to ask for them."""
    if len(forms) == 1:
        return []
    others = [
        f"{k + 1} {one.label} ({one.probability:.2f})" for k, one in enumerate(forms) if k != chosen
    ]
    rest = f" and {len(others) - 8} more" if len(others) > 8 else ""
    return [
        f"Form {chosen + 1} of {len(forms)} is explained; the others, which --form shows by their "
        f"number: {', '.join(others[:8])}{rest}."
    ]
