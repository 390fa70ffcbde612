"""What a dataset says of its items, and how they become trees.

:class:`~hsa_geo.datasets.StoredTrees` follows a recipe when trees are built; what a recipe does not
say itself is here.

Example:
    >>> class Stars(Recipe):
    ...     file_name, noun, classes = "stars", "stars", ("few", "many")
    ...     def items(self):
    ...         return [1, 2, 3, 4]
    ...     def tree(self, size):
    ...         y = torch.tensor([int(size > 2)])
    ...         return SignalTree.from_parents([size] * size + [-1], y=y)
    >>> recipe = Stars()
    >>> trees, extra = recipe.build(iter(recipe.items()))
    >>> [tree.num_leaves for tree in trees], extra
    ([1, 2, 3, 4], {'failed': {}})
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hsa_geo.data import SignalTree
from hsa_geo.datasets.labels import check_labels
from hsa_geo.datasets.parts import Part
from hsa_geo.errors import BuilderError, LabelError

__all__ = ["Recipe"]


class Recipe:
    """Items, trees and the report of a dataset, as far as they are the same for all.

    Example:
        See the example of :mod:`hsa_geo.datasets.recipe`.
    """

    #: How the files in ``processed`` begin.
    file_name: str = ""
    #: Names of the classes, by ``y``; empty where ``y`` is no class.
    classes: Sequence[str] = ()
    #: What the items are, in the plural, for messages.
    noun: str = "trees"

    def items(self) -> Sequence[Any]:
        """All there is to build trees from, in a fixed order.

        Called whenever trees are built, also when a killed run continues; sets the attributes
        that are :attr:`stored` (a vocabulary, names).

        Returns:
            The items.

        Raises:
            ArchiveError: If the raw files are not what they should be.
        """
        raise NotImplementedError

    def tree(self, item: Any) -> SignalTree | None:
        """Tree of one item.

        Args:
            item: One of :meth:`items`.

        Returns:
            The tree, None to leave the item out.

        Raises:
            BuilderError: If there is none; the report says so, and the others are built.
        """
        raise NotImplementedError

    def describe(self, item: Any) -> str:
        """Name of an item in the report and in messages.

        Args:
            item: One of :meth:`items`.

        Returns:
            Some characters, different for each item.
        """
        return str(item)[:80]

    def build(self, items: Iterator[Any]) -> Part:
        """Trees of the items of one part; by default :meth:`tree` of each.

        Args:
            items: Some of :meth:`items`, in order.

        Returns:
            The trees, and what :meth:`finish` shall know: what JSON can hold.
        """
        trees, failed = list[SignalTree](), dict[str, str]()
        for item in items:
            try:
                tree = self.tree(item)
            except BuilderError as error:
                failed[self.describe(item)] = f"{type(error).__name__}: {error}"
                continue
            if tree is not None:
                try:
                    check_labels(tree.get("y"), self.classes)
                except LabelError as error:
                    raise LabelError(f"{self.describe(item)}: {error}") from None
                trees.append(tree)
        return trees, {"failed": failed}

    def finish(
        self, items: Sequence[Any], trees: list[SignalTree], extras: Sequence[Mapping[str, Any]]
    ) -> tuple[list[SignalTree], dict[str, Any]]:
        """Last step of building, over all parts.

        Args:
            items: All items.
            trees: All trees, before ``pre_filter`` and ``pre_transform``.
            extras: What :meth:`build` returned beside the trees, for each part.

        Returns:
            The trees to store, and entries of the report; ``"failed"`` says why which items have
            no tree.
        """
        failed = dict[str, str]()
        for extra in extras:
            failed.update(extra.get("failed", {}))
        return trees, {"failed": failed}

    def summary(self, report: Mapping[str, Any]) -> str:
        """What is printed when the trees are built.

        Args:
            report: The report.

        Returns:
            Some lines.
        """
        lines = [f"{self.file_name}: {report['stored']} of {report['items']} {self.noun} stored"]
        failed = list(report["failed"].items())
        lines += [f"unreadable: {name}: {why}" for name, why in failed[:5]]
        lines += [f"and {len(failed) - 5} more unreadable"] if len(failed) > 5 else []
        return "\n".join(lines)
