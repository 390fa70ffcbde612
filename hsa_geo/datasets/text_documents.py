"""One document of a text dataset: how it becomes a tree of words, with which options.

Example:
    >>> document = Document("a.txt", "To be. Or not!", 1, {"rating": 3.5})
    >>> tree, words = document_tree(from_text(document.text), check_options({}, OPTIONS))
    >>> words, tree
    (['to', 'be', 'or', 'not'], SignalTree(leaves=4, nodes=8, depth=3))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from hsa_geo.builders import from_text
from hsa_geo.data import Domain, SignalTree
from hsa_geo.errors import BuilderError, UnsupportedError
from hsa_geo.transforms import Rewindow, ShuffleHierarchy

__all__ = [
    "GIVEN_OPTIONS",
    "HIERARCHIES",
    "OPTIONS",
    "Document",
    "check_options",
    "document_tree",
    "join_trees",
    "text_tree",
]

#: What stands above the words: what the text says, windows, one root alone, or groups of the
#: text's sizes with words dealt out to them at random.
HIERARCHIES = ("given", "windows", "flat", "random")

#: Options of datasets whose structure is given, and their defaults.
GIVEN_OPTIONS: dict[str, Any] = {
    "punctuation": False,
    "max_words": None,
    "names": False,
    "hierarchy": "given",
    "windows": None,
    "seed": None,
}
#: Options of datasets whose texts are cut into paragraphs and sentences here.
OPTIONS: dict[str, Any] = {
    "sentences": "plain",
    "paragraphs": "blank",
    "language": None,
    "max_group": None,
    **GIVEN_OPTIONS,
}
#: Windows of about a sentence, and of about a paragraph.
_WINDOWS = (16, 4)
_OF_FROM_TEXT = ("sentences", "paragraphs", "language", "max_group", "punctuation")


@dataclass(frozen=True)
class Document:
    """A text with its label.

    Attributes:
        name: What it is called where it comes from, e.g. its file.
        text: The text.
        label: Its class.
        values: What else is known of it: a number for each attribute of the tree, float or int.
        parts: What a dataset needs besides the text to build the tree. (default: :obj:`None`)
    """

    name: str
    text: str
    label: int
    values: Mapping[str, int | float] = field(default_factory=dict)
    parts: Any = None


def check_options(options: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Options with their defaults.

    Args:
        options: What a user gave.
        defaults: All options that there are.

    Returns:
        A value for each option.

    Raises:
        UnsupportedError: If an option is unknown, or has no effect with the others.
        BuilderError: If a value is out of range.

    Example:
        >>> check_options({"hierarchy": "windows"}, GIVEN_OPTIONS)["windows"]
        (16, 4)
    """
    unknown = sorted(set(options) - set(defaults))
    if unknown:
        raise UnsupportedError(f"there is no option {unknown[0]!r}: use {', '.join(defaults)}.")
    found = {**defaults, **options}
    kind = found["hierarchy"]
    if kind not in HIERARCHIES:
        raise BuilderError(f"hierarchy={kind!r}: use one of {', '.join(HIERARCHIES)}.")
    for name, needs in (("windows", "windows"), ("seed", "random")):
        if found[name] is not None and kind != needs:
            raise UnsupportedError(
                f"{name}={found[name]!r} has no effect with hierarchy={kind!r}: leave it out, or "
                f"use hierarchy={needs!r}."
            )
    if found.get("max_group") is not None and kind in ("windows", "flat"):
        raise UnsupportedError(
            f"max_group={found['max_group']} has no effect with hierarchy={kind!r}: leave it out."
        )
    for name in ("punctuation", "names"):
        if not isinstance(found[name], bool):
            raise BuilderError(f"{name}={found[name]!r}: give True or False.")
    words = found["max_words"]
    if words is not None and (not isinstance(words, int) or isinstance(words, bool) or words < 1):
        raise BuilderError(f"max_words={words!r}: give a whole number from 1, or None.")
    if kind == "windows":
        found["windows"] = Rewindow(
            _WINDOWS if found["windows"] is None else found["windows"]
        ).windows
    if kind == "random":
        found["seed"] = ShuffleHierarchy(found["seed"] or 0).seed
    if "sentences" in found:  # fails here rather than at the first text
        text_tree("a", found)
    return found


def text_tree(text: str, options: Mapping[str, Any]) -> SignalTree:
    """The tree of a plain text; see :func:`hsa_geo.builders.from_text`.

    Args:
        text: The text.
        options: Options, as :func:`check_options` returns them.

    Returns:
        The tree, with ``tree_span`` and ``tree_name``.

    Raises:
        BuilderError: If the text has no word.

    Example:
        >>> text_tree("To be. Or not!", OPTIONS).tree_name[4:]
        ['sentence', 'sentence', 'paragraph', 'document']
    """
    known = {key: options[key] for key in _OF_FROM_TEXT if key in options}
    return from_text(text, max_leaves=None, **known)


def document_tree(tree: SignalTree, options: Mapping[str, Any]) -> tuple[SignalTree, list[str]]:
    """The tree as it is stored, but for the ids of its words.

    Args:
        tree: A tree of words with ``tree_name`` and ``tree_span``; other features go.
        options: Options, as :func:`check_options` returns them.

    Returns:
        The tree, and the word of every leaf in lower case, with ``'`` for ``’``.

    Example:
        >>> tree, words = document_tree(from_text("Don’t. Go!"), {**OPTIONS, "hierarchy": "flat"})
        >>> words, tree
        (["don't", 'go'], SignalTree(leaves=2, nodes=3, depth=1))
    """
    for key in ("text_x", "text_index"):
        if key in tree:
            del tree[key]
    if options["max_words"] is not None and tree.num_leaves > options["max_words"]:
        tree = tree.restrict(torch.arange(options["max_words"]))
    if options["hierarchy"] == "windows":
        tree = Rewindow(options["windows"])(tree)
    elif options["hierarchy"] == "flat":
        tree = Rewindow([])(tree)
    elif options["hierarchy"] == "random":
        tree = ShuffleHierarchy(options["seed"])(tree)
    words = [word.lower().replace("’", "'") for word in tree.tree_name[: tree.num_leaves]]
    if not options["names"]:
        del tree.tree_name
    return tree, words


def join_trees(parts: Sequence[tuple[str, int, SignalTree]], length: int, name: str) -> SignalTree:
    """One tree of several, in sequence below a root of their own.

    Args:
        parts: Name, beginning in the whole text, and tree of each part, with ``tree_name`` and
            ``tree_span``; its root is called by the name.
        length: Number of characters of the whole text.
        name: Name of the new root.

    Returns:
        The tree, with ``tree_name`` and ``tree_span``.

    Raises:
        BuilderError: If there are no parts.

    Example:
        >>> parts = [("subject", 0, from_text("Hello")), ("body", 6, from_text("You there."))]
        >>> join_trees(parts, 16, "mail").tree_name
        ['Hello', 'You', 'there', 'sentence', 'sentence', 'paragraph', 'paragraph', 'subject', \
'body', 'mail']
    """
    if not parts:
        raise BuilderError("there is no part to join: skip the document.")
    parents, names, spans, domains, positions, roots, at = [], list[str](), [], [], [], [], 0
    for place, (own, begin, tree) in enumerate(parts):
        m = tree.num_tree_nodes
        parent = np.full(m, -1, dtype=np.int64)
        parent[tree.tree_index[1].numpy()] = tree.tree_index[0].numpy() + at
        pos = tree.tree_pos.clone()
        pos[-1] = torch.tensor([place, 0])
        parents.append(parent)
        names += [*tree.tree_name[:-1], own]
        spans.append(tree.tree_span + begin)
        domains.append(tree.tree_domain)
        positions.append(pos)
        at += m
        roots.append(at - 1)
    parent = np.append(np.concatenate(parents), -1)
    parent[roots] = at
    joined: SignalTree = SignalTree.from_parents(
        parent,
        domain=torch.cat([*domains, torch.tensor([int(Domain.SEQUENCE)])]),
        pos=torch.cat([*positions, torch.zeros(1, 2)]),
        name=[*names, name],
        tree_span=torch.cat([*spans, torch.tensor([[0, length]])]),
    )
    return joined
