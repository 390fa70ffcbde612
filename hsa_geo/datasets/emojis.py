"""Emojis, each a picture and a name, as signal trees.

The npm package `emoji-datasource-twitter
<https://www.npmjs.com/package/emoji-datasource-twitter>`_ 16.0.0 (MIT; pictures: Twemoji,
CC-BY 4.0) holds 1,911 emojis with a picture of 64 x 64 pixels, a name, and one of the categories
of Unicode.

Example:
    >>> dataset = Emojis("data/emojis")  # doctest: +SKIP
    >>> dataset.names[0], dataset[0].y, dataset[0].image_x.shape  # doctest: +SKIP
    ('hash key', tensor([7]), torch.Size([64, 192]))
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import torch

from hsa_geo.builders._base_folder import BaseFolder
from hsa_geo.builders._page_reader import MAX_IMAGE_BYTES
from hsa_geo.builders.tokens import normalise, words
from hsa_geo.data import Domain, SignalTree
from hsa_geo.datasets.clients import Archive
from hsa_geo.datasets.mixed import MixedTree, by_number_of_items, picture_file
from hsa_geo.datasets.stored import StoredTrees
from hsa_geo.errors import ArchiveError, UnsupportedError

__all__ = ["Emojis", "family_of", "shown_words"]

_LABELS = (
    "smileys? emotions? emotional people body bodies animals? natural nature foods? drinks? "
    "travels? travell?ing places? activity activities objects? symbols? flags? components?"
)
_LABEL = re.compile("|".join(_LABELS.split()), re.I)
_PERSONS = (
    "man men woman women boy girl person people male female mr mrs mx prince princess king queen "
    "adult older old grandfather grandmother father mother s and with in"
)


def shown_words(name: str) -> list[str]:
    """The words of an emoji's name, without those that are in the name of a category.

    Args:
        name: The name, such as ``"Germany Flag"``.

    Returns:
        The words in lower case.

    Example:
        >>> shown_words("Germany Flag"), shown_words("POT OF FOOD")
        (['germany'], ['pot', 'of'])
    """
    return [word for word in words(name.lower()) if not _LABEL.fullmatch(word)]


def family_of(name: str) -> str:
    """Emojis that differ in the person shown only are one family: keep them on one side of a split.

    Args:
        name: The name.

    Returns:
        The name without words for persons; the name if nothing else is left.

    Example:
        >>> family_of("WOMAN RUNNING"), family_of("MAN RUNNING"), family_of("MAN")
        ('running', 'running', 'man')
    """
    found = words(name.lower())
    persons = set(_PERSONS.split())
    rest = [word for word in found if word not in persons and not word.isdigit()]
    return " ".join(rest or found)


class Emojis(StoredTrees):
    r"""1,906 emojis as trees of two parts, picture and name, labelled by their category.

    The first use fetches the package through npm (62 MB).  The root has a picture (patches two
    by two, and those again) and a name (words).  Left out are the five bare skin tones
    (category *Component*); of an emoji in several skin tones only the plain one counts.  Words
    of the categories' names (``flag``, ``food``, ...) are cut from the names.

    ================  =====================  =================================================
    ``word_x``        ``[n]`` int64          words of the name, places in :attr:`vocabulary`
    ``word_index``    ``[n]`` int64          their leaf rows
    ``image_x``       ``[P, 3*p*p]`` uint8   patches of the picture, over white
    ``image_index``   ``[P]`` int64          their leaf rows
    ``y``             ``[1]`` int64          category, place in :attr:`classes`
    ``emoji_id``      ``[1]`` int64          place in :attr:`names` and :attr:`codes`
    ``group_id``      ``[1]`` int64          family, place in :attr:`groups`; emojis that differ
                                             in the person shown only are one family
    ================  =====================  =================================================

    Args:
        root: Folder that holds ``raw`` and ``processed``.
        transform, pre_transform, pre_filter, force_reload, log: As for
            :class:`~hsa_geo.datasets.ManualPages`.
        options: ``patch_size`` (default: 8), ``max_side`` (default: 64) and ``quadtree``
            (default: :obj:`True`; otherwise the picture is one grid). (default: none)

    Raises:
        UnsupportedError: If an option is not known.
        DownloadError: If the package cannot be fetched.
        ArchiveError: If it has another sha256, or is not what it should be.

    Example:
        >>> dataset = Emojis("data/emojis", options={"max_side": 32})  # doctest: +SKIP
        >>> dataset.column("y").bincount()  # doctest: +SKIP
    """

    file_name = "emojis"
    noun = "emojis"
    classes = (
        "Smileys & Emotion",
        "People & Body",
        "Animals & Nature",
        "Food & Drink",
        "Travel & Places",
        "Activities",
        "Objects",
        "Symbols",
        "Flags",
    )
    stored = ("vocabulary", "names", "codes", "groups")
    archives = (
        Archive(
            "npm",
            "emoji-datasource-twitter",
            "16.0.0",
            "emoji-datasource-twitter-16.0.0.tgz",
            "f64a530c63bca463bd8317fdc4615ce63a53a0c65018e4ce2d848aaba7a28877",
            prefix="package",
            patterns=("emoji.json", "img/twitter/64/*.png"),
            max_bytes=64 << 20,
            size=61_684_000,
        ),
    )

    #: Words in the order of the number of names they stand in, the most common first.
    vocabulary: list[str]
    #: Name of each emoji in lower case, by ``emoji_id``, words of categories included.
    names: list[str]
    #: Code points of each emoji, such as ``"1F600"``, by ``emoji_id``.
    codes: list[str]
    #: Names of the families, by ``group_id``.
    groups: list[str]

    def items(self) -> Sequence[dict[str, Any]]:
        """Entries of the index that have a picture and a category."""
        allowed = {"patch_size", "max_side", "quadtree"}
        if unknown := sorted(set(self.options) - allowed):
            raise UnsupportedError(
                f"options has {unknown[0]!r}, which is none of {', '.join(sorted(allowed))}."
            )
        path = self.raw() / "emoji.json"
        try:
            entries = json.loads(path.read_text(encoding="utf-8"))
            found = [
                {
                    "name": str(entry["name"] or entry["short_name"]).lower().replace("_", " "),
                    "code": str(entry["unified"]),
                    "image": str(entry["image"]),
                    "category": str(entry["category"]),
                }
                for entry in sorted(entries, key=lambda entry: entry["sort_order"])
                if entry["category"] != "Component" and entry["has_img_twitter"]
            ]
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise ArchiveError(
                f"'{path}' is not the index of the emojis ({error!r}): remove its folder, and it "
                "is unpacked again."
            ) from error
        unknown = sorted({item["category"] for item in found} - set(self.classes))
        if unknown:
            raise ArchiveError(f"'{path}' has a category {unknown[0]!r} that is not known.")
        self.names = [item["name"] for item in found]
        self.codes = [item["code"] for item in found]
        self.groups = sorted({family_of(name) for name in self.names})
        self.vocabulary = by_number_of_items(map(shown_words, self.names))
        self._number = {word: place for place, word in enumerate(self.vocabulary)}
        self._group = {group: place for place, group in enumerate(self.groups)}
        self._place = {code: place for place, code in enumerate(self.codes)}
        return found

    def describe(self, item: dict[str, Any]) -> str:
        """The code points of an emoji."""
        return str(item["code"])

    def tree(self, item: dict[str, Any]) -> SignalTree:
        """The tree of one emoji."""
        size = int(self.options.get("patch_size", 8))
        mixed = MixedTree("emoji", Domain.SET)
        folder = BaseFolder(self.raw() / "img" / "twitter" / "64", MAX_IMAGE_BYTES)
        grid, _ = picture_file(
            folder, item["image"], patch_size=size, max_side=int(self.options.get("max_side", 64))
        )
        if grid is not None:
            mixed.picture(0, grid, quadtree=bool(self.options.get("quadtree", True)))
        shown = shown_words(item["name"])
        mixed.words(mixed.node("name"), shown, [self._number[normalise(word)] for word in shown])
        tree = mixed.tree(size)
        tree.y = torch.tensor([self.classes.index(item["category"])])
        tree.emoji_id = torch.tensor([self._place[item["code"]]])
        tree.group_id = torch.tensor([self._group[family_of(item["name"])]])
        return tree
