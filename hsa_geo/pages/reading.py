"""How a page becomes the tree that a classifier reads."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from hsa_geo.builders import from_html
from hsa_geo.builders._page_reader import PageOptions
from hsa_geo.builders.tokens import HASH_BUCKETS
from hsa_geo.data import SignalTree
from hsa_geo.errors import BuilderError, FileFormatError
from hsa_geo.pages.focus import NOT_NEEDED, focus

__all__ = ["FORM_OPTIONS", "PAGE_OPTIONS", "UNITS", "PageReader"]

#: What a classifier can answer for.
UNITS = ("page", "form")
#: Of whole pages: what a person sees.
PAGE_OPTIONS = {"images": False}
#: Of forms: many are hidden until a click, and what one is for also stands in its id and action.
FORM_OPTIONS = {"include_hidden": True, "form_tokens": True, "images": False}
#: Side in pixels of the patches of pictures, where they are read.
PATCH = 8
#: Options that a file may set, and the types of their values; none of them reaches a file, and
#: none lifts a limit.
_TYPES: dict[str, type] = {
    **dict.fromkeys(("images", "form_tokens", "include_hidden", "sectioning", "collapse"), bool),
    **dict.fromkeys(("hash_buckets", "field_tokens"), int),
    **dict.fromkeys(("tables", "sets"), str),
}
#: Most hash buckets and tokens of a field.
_MOST = 2**24


@dataclass(frozen=True)
class PageReader:
    """Turns pages into trees, always in the same way.

    What exceeds the limits of :func:`~hsa_geo.builders.from_html` is left out, with a warning.

    Args:
        unit: ``"page"``, or ``"form"`` for a tree cut down to the forms of the page by
            :func:`~hsa_geo.pages.focus`. (default: ``"page"``)
        options: Options of :func:`~hsa_geo.builders.from_html`: ``images`` (of whole pages only:
            what announces a form are words and controls), ``form_tokens``,
            ``include_hidden``, ``sectioning``, ``collapse``, ``hash_buckets``, ``field_tokens``,
            ``tables``, ``sets`` (a tag or ``"boxes"``).  (default: those of the unit)

    Raises:
        BuilderError: If an option is none of these, or has no such value.

    Example:
        >>> reader = PageReader("form")
        >>> reader("<p>Hello</p><form><input name=q></form>").form_node.numel()
        1
        >>> PageReader.from_config(reader.config) == reader
        True
    """

    unit: str = "page"
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise BuilderError(f"unit={self.unit!r:.80} is unknown: use one of {UNITS}.")
        if not isinstance(self.options, Mapping):
            raise BuilderError(f"options={self.options!r:.80}: give a dict of options.")
        for name, value in self.options.items():
            if name not in _TYPES or type(value) is not _TYPES[name]:
                known = ", ".join(f"{k} ({t.__name__})" for k, t in _TYPES.items())
                raise BuilderError(f"the option {name!r:.80}={value!r:.80} is none of {known}.")
            if type(value) is int and not 1 <= value <= _MOST:
                raise BuilderError(f"{name}={value!r:.80}: give a number from 1 to {_MOST}.")
        if self.unit == "form" and self.hash_buckets != HASH_BUCKETS:
            raise BuilderError(f"hash_buckets={self.hash_buckets}: forms need {HASH_BUCKETS}.")
        if self.unit == "form" and self.options.get("images"):
            raise BuilderError("images=True: forms are read without pictures, so leave it out.")
        own = FORM_OPTIONS if self.unit == "form" else PAGE_OPTIONS
        object.__setattr__(self, "options", {**own, **self.options})
        # The values, too, before a page is read: kinds of tables, tags of sets, and both together.
        PageOptions(**self.options)

    @property
    def hash_buckets(self) -> int:
        """Number of buckets that tokens are hashed into; the ``num_ids`` of a model."""
        return int(self.options.get("hash_buckets", HASH_BUCKETS))

    @property
    def patch(self) -> int | None:
        """Side of the patches of pictures, the ``patch`` of a model; None if none are read."""
        return PATCH if self.options["images"] else None

    @property
    def config(self) -> dict[str, Any]:
        """What makes the reader again, as JSON."""
        return {"unit": self.unit, "options": dict(self.options)}

    @classmethod
    def from_config(cls, config: Any) -> PageReader:
        """The reader of a :attr:`config`, which may come from anywhere.

        Raises:
            FileFormatError: If it is none.
        """
        if not isinstance(config, dict) or config.keys() != {"unit", "options"}:
            raise FileFormatError(
                f"{config!r:.200} does not say how pages are read: give a config."
            )
        try:
            return cls(config["unit"], config["options"])
        except (BuilderError, TypeError) as error:
            raise FileFormatError(f"it does not say how pages are read: {error}") from error

    def whole(
        self,
        source: bytes | str | os.PathLike[str],
        charset: str | None = None,
        base: str | os.PathLike[str] | None = None,
    ) -> SignalTree:
        """The tree of a page as the builder makes it, with names and all forms.

        Args:
            source, charset, base: As for :func:`~hsa_geo.builders.from_html`; ``base`` counts only
                where pictures are read.

        Returns:
            The tree.

        Raises:
            BuilderError: If it is a folder, shows nothing, or cannot be read as a page.
            OSError: If the file cannot be read.
        """
        if isinstance(source, os.PathLike) and os.path.isdir(source):
            raise BuilderError(
                f"{os.fspath(source)!r} is a folder: give a file, such as one in it."
            )
        options = {**self.options, "charset": charset, "on_limit": "truncate"}
        if self.patch is not None:
            options |= {"base": base, "patch_size": self.patch}
        return from_html(source, **options)

    def reduce(self, tree: SignalTree) -> SignalTree:
        """What of a :meth:`whole` tree the model reads.

        Args:
            tree: The tree; it is left as it is.

        Returns:
            Another one, without names.
        """
        if self.unit == "form":
            return focus(tree)
        tree = tree.clone()
        read = () if self.patch is None else ("image_x", "image_index")
        for key in NOT_NEEDED:
            if key in tree and key not in read:
                del tree[key]
        return tree

    def named(
        self,
        source: bytes | str | os.PathLike[str],
        charset: str | None = None,
        base: str | os.PathLike[str] | None = None,
    ) -> SignalTree:
        """The tree that the model reads, with the names and kinds of its leaves, for people.

        Args:
            source, charset, base: As for :meth:`__call__`.

        Returns:
            The tree of :meth:`__call__` with ``tree_name`` and ``leaf_kind``.

        Example:
            >>> PageReader("form").named("<form>Find <input name=q></form>").tree_name
            ['Find', 'input[text] q', 'form', 'html']
        """
        return self.named_of(self.whole(source, charset, base))

    def named_of(self, whole: SignalTree) -> SignalTree:
        """The same of a tree that :meth:`whole` made, which is left as it is.

        Args:
            whole: The tree.

        Returns:
            As :meth:`named`.

        Example:
            >>> reader = PageReader("form")
            >>> whole = reader.whole("<p>One two</p>" * 9 + "<form><input name=q></form>")
            >>> whole.num_leaves, reader.named_of(whole).num_leaves
            (19, 9)
        """
        whole = whole.clone()
        whole.leaf_number = torch.arange(whole.num_leaves)
        tree = self.reduce(whole)
        shown = whole.restrict(tree.leaf_number)  # the same leaves in the same order
        tree.tree_name, tree.leaf_kind = shown.tree_name, shown.leaf_kind
        del tree.leaf_number
        return tree

    def __call__(
        self,
        source: bytes | str | os.PathLike[str],
        charset: str | None = None,
        base: str | os.PathLike[str] | None = None,
    ) -> SignalTree:
        """The tree that the model reads.

        Args:
            source: The page: bytes, markup, or a path.
            charset: Its charset, if the transport told it. (default: :obj:`None`)
            base: The folder in which files of pictures may be read, where pictures are read at
                all; nothing outside it is. (default: those within the page alone)

        Returns:
            The tree.

        Raises:
            BuilderError: If it shows nothing, or cannot be read as a page.
            OSError: If the file cannot be read.
        """
        return self.reduce(self.whole(source, charset, base))
