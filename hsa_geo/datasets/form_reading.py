"""One annotated page: its tree, the class of each form, and how forms and labels went together.

Example:
    >>> entry = {"url": "http://a.org/", "forms": ["s"], "visible_html_fields": [{"q": "qq"}]}
    >>> page = Annotation.from_index("html/7.html", entry, {"s": 0})
    >>> page.page_id, page.domain, page.labels
    (7, 'a.org', (0,))
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from hsa_geo.builders.html import form_fields, from_html, parse_html
from hsa_geo.data import SignalTree
from hsa_geo.datasets.form_labels import (
    CLASSES,
    NOT_ANNOTATED,
    SKIPPED,
    align,
    page_labels,
    registered_domain,
    site,
)
from hsa_geo.errors import ArchiveError, DecodingWarning, TruncationWarning

__all__ = ["Annotation", "Matching", "label_statistics", "match_forms", "read_page", "report_text"]


#: Warnings of the builder that the report counts instead of showing them page by page.
_COUNTED = (DecodingWarning, TruncationWarning)


@dataclass(frozen=True)
class Annotation:
    """What the index says about a page.

    Attributes:
        page_id: Number of the page.
        url: Where it was taken from.
        codes: Type code of each form, in page order.
        labels: Class of each form; see :data:`hsa_geo.datasets.form_labels.CLASSES`.
        fields: Names of the visible fields of each form.
        domain: Registered domain.
        site: Host without ``www.``.

    Example:
        See the example of :mod:`hsa_geo.datasets.form_reading`.
    """

    page_id: int
    url: str
    codes: tuple[str, ...]
    labels: tuple[int, ...]
    fields: tuple[tuple[str, ...], ...]
    domain: str
    site: str

    @classmethod
    def from_index(
        cls, name: str, entry: Mapping[str, Any], codes: Mapping[str, int]
    ) -> Annotation:
        """Read an entry of the index.

        Args:
            name: Key of the entry, ``html/<number>.html``.
            entry: Its ``url``, ``forms`` and ``visible_html_fields``.
            codes: Class of each code, from :func:`hsa_geo.datasets.form_labels.form_codes`.

        Returns:
            The annotation.

        Raises:
            ArchiveError: If the name or a code is unknown, or the lists differ in length.

        Example:
            See the example of :mod:`hsa_geo.datasets.form_reading`.
        """
        number = re.fullmatch(r"html/(\d{1,9})\.html", name)
        forms, fields = entry["forms"], entry["visible_html_fields"]
        unknown = [code for code in forms if code not in codes]
        if number is None or unknown or len(forms) != len(fields):
            raise ArchiveError(
                f"the index has '{name}' with {len(forms)} forms {unknown or ''}and "
                f"{len(fields)} lists of fields, which is not understood: use the pinned version."
            )
        return cls(
            page_id=int(number.group(1)),
            url=entry["url"],
            codes=tuple(forms),
            labels=tuple(codes[code] for code in forms),
            fields=tuple(tuple(names) for names in fields),
            domain=registered_domain(entry["url"]),
            site=site(entry["url"]),
        )


@dataclass
class Matching:
    """How the forms of pages went together with their labels.

    Attributes:
        counts: ``listed`` forms of the index; ``found`` by the parser; pairs that agree in
            place and field names (``exact``), in place only (``same_place``), or were paired at
            another place (``by_names``); ``unmatched_labels`` and ``unmatched_forms`` that are
            in no pair; ``nodes`` that stand for a form in the trees, ``labelled_nodes`` of them
            with a class; ``labelled_without_node``: forms with a class that the parser found,
            but left without any visible content; ``undecodable_pages`` with bytes that are no
            text in the page's charset; ``shortened_pages`` of which a limit left something out,
            such as the 65th token of a list of options.
        unmatched: Page, place in the index and code of each unmatched label.
        without_node: The same for each of ``labelled_without_node``.

    Example:
        >>> Matching(Counter(found=1)).add(Matching(Counter(found=2))).counts["found"]
        3
    """

    counts: Counter[str] = field(default_factory=Counter)
    unmatched: list[list[Any]] = field(default_factory=list)
    without_node: list[list[Any]] = field(default_factory=list)

    def add(self, other: Matching) -> Matching:
        """Count another page in; returns itself."""
        self.counts.update(other.counts)
        self.unmatched += other.unmatched
        self.without_node += other.without_node
        return self

    def to_json(self) -> dict[str, Any]:
        """As plain lists and dicts."""
        return {
            "counts": dict(self.counts),
            "unmatched": self.unmatched,
            "without_node": self.without_node,
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Matching:
        """What :meth:`to_json` gave."""
        return cls(Counter(content["counts"]), content["unmatched"], content["without_node"])


def match_forms(
    page: Annotation, found: Sequence[Sequence[str]], order: Sequence[int]
) -> tuple[list[int], Matching]:
    """Class of each form that has a node.

    Args:
        page: The annotation.
        found: Field names of each form of the DOM.
        order: Ordinal in ``found`` of each form that has a node.

    Returns:
        The class of each, and how the matching went.

    Example:
        >>> page = Annotation(1, "", ("s", "l"), (0, 1), (("q",), ("pw",)), "", "")
        >>> labels, how = match_forms(page, [["pw"]], [0])
        >>> labels, how.counts["by_names"], how.unmatched
        ([1], 1, [[1, 0, 's']])
    """
    pairs = align(found, page.fields)
    to_label = {i: page.labels[j] for i, j in pairs}
    labels = [to_label.get(i, NOT_ANNOTATED) for i in order]
    matched, nodes = {j for _, j in pairs}, set(order)
    counts = Counter(
        listed=len(page.labels),
        found=len(found),
        exact=sum(i == j and set(found[i]) == set(page.fields[j]) for i, j in pairs),
        same_place=sum(i == j and set(found[i]) != set(page.fields[j]) for i, j in pairs),
        by_names=sum(i != j for i, j in pairs),
        unmatched_labels=len(page.labels) - len(pairs),
        unmatched_forms=len(found) - len(pairs),
        nodes=len(order),
        labelled_nodes=sum(label >= 0 for label in labels),
    )
    hidden = [j for i, j in pairs if i not in nodes and page.labels[j] >= 0]
    counts["labelled_without_node"] = len(hidden)
    missing = [j for j in range(len(page.labels)) if j not in matched]
    return labels, Matching(
        counts,
        [[page.page_id, j, page.codes[j]] for j in missing],
        [[page.page_id, j, page.codes[j]] for j in hidden],
    )


def read_page(
    source: bytes, page: Annotation, options: Mapping[str, Any] | None = None
) -> tuple[SignalTree, Matching]:
    """Build the tree of a page and attach its labels.

    Args:
        source: The page.
        page: Its annotation.
        options: Keyword arguments of :func:`hsa_geo.builders.from_html`. (default: none)

    Returns:
        The tree with ``page_id [1]``, ``form_label [K]``, ``y [1, 8]``, ``y_mask [1, 8]`` and
        ``complete [1]``, and how the matching went.

    Raises:
        BuilderError: If the page cannot be turned into a tree.

    Example:
        >>> page = Annotation(1, "", ("s",), (0,), (("q",),), "", "")
        >>> tree, how = read_page(b"<form>Find <input name=q></form>", page)
        >>> tree.form_label, tree.complete
        (tensor([0]), tensor([True]))
    """
    tree, parser, warned = _build(source, options or {})
    labels, how = match_forms(page, _listed_fields(parser, page), tree.form_order.tolist())
    how.counts["undecodable_pages"] = int(DecodingWarning in warned)
    how.counts["shortened_pages"] = int(TruncationWarning in warned)
    y, certain, complete = page_labels(page.labels)
    tree.page_id = torch.tensor([page.page_id])
    tree.form_label = torch.tensor(labels, dtype=torch.int64)
    tree.y = torch.tensor([y])
    tree.y_mask = torch.tensor([certain])
    tree.complete = torch.tensor([complete])
    return tree, how


def _build(source: bytes, options: Mapping[str, Any]) -> tuple[SignalTree, Any, set[type[Warning]]]:
    """The tree, the parsed page, and which of the warnings that the report counts it raised."""
    with warnings.catch_warnings(record=True) as caught:
        for category in _COUNTED:
            warnings.simplefilter("always", category)
        tree, parser = from_html(source, **options), parse_html(source)
    for one in caught:
        if not issubclass(one.category, _COUNTED):
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    return tree, parser, {one.category for one in caught}


def _listed_fields(parser: Any, page: Annotation) -> list[list[str]]:
    """Field names of each form, without those of ``<button>``, which the index leaves out."""
    listed = {name for names in page.fields for name in names}
    buttons = {node.attributes.get("name") for node in parser.css("form button")} - listed
    return [[name for name in names if name not in buttons] for names in form_fields(parser)]


def label_statistics(pages: Iterable[Annotation]) -> dict[str, Any]:
    """Number of pages and forms of every class, from the annotations alone.

    Args:
        pages: The annotations.

    Returns:
        ``complete``: pages without unannotated forms; ``pages_with`` and ``forms_of``: per
        class, and forms that are skipped or not annotated.

    Example:
        >>> page = Annotation(1, "", ("s", "s"), (0, 0), ((), ()), "", "")
        >>> stats = label_statistics([page])
        >>> stats["pages_with"]["search"], stats["forms_of"]["search"]
        (1, 2)
    """
    names = {**dict(enumerate(CLASSES)), SKIPPED: "skipped", NOT_ANNOTATED: "not annotated"}
    pages_with, forms_of = Counter[str](), Counter[str]()
    complete = 0
    for page in pages:
        pages_with.update({names[label] for label in page.labels})
        forms_of.update(names[label] for label in page.labels)
        complete += page_labels(page.labels)[2]
    return {
        "complete": complete,
        "pages_with": {name: pages_with[name] for name in names.values()},
        "forms_of": {name: forms_of[name] for name in names.values()},
    }


def report_text(report: Mapping[str, Any]) -> str:
    """The report of :class:`hsa_geo.datasets.FormPages` in a few lines.

    Args:
        report: The report.

    Returns:
        The text.

    Example:
        >>> dataset = FormPages("data/form_pages")  # doctest: +SKIP
        >>> print(report_text(dataset.report))  # doctest: +SKIP
    """
    counts, failed = report["counts"], report["failed"]
    lines = [
        f"{report['stored']} of {report['pages']} pages stored, {report['complete']} of the pages "
        f"fully annotated, {report['sites']} sites, {report['domains']} registered domains",
        f"forms: {counts['listed']} annotated or listed, {counts['found']} found by the parser; "
        f"{counts['exact']} agree in place and fields, {counts['same_place']} in place only, "
        f"{counts['by_names']} aligned by fields, {counts['unmatched_labels']} labels and "
        f"{counts['unmatched_forms']} forms left over",
        f"tree nodes of forms: {counts['nodes']}, {counts['labelled_nodes']} with a class; "
        f"{counts['labelled_without_node']} forms with a class show nothing and have no node",
    ]
    if counts.get("undecodable_pages"):
        lines.append(
            f"{counts['undecodable_pages']} pages hold bytes that are no text in their charset"
        )
    if counts.get("shortened_pages"):
        lines.append(f"{counts['shortened_pages']} pages are left shorter by a limit")
    lines += [f"unreadable page {page}: {reason}" for page, reason in failed.items()]
    return "\n".join(lines)
