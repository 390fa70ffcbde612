"""N24News: news articles with a picture, of 24 sections, for those who have the files.

N24News (`Wang et al., LREC 2022 <https://aclanthology.org/2022.lrec-1.729>`_) comes from no
package registry; its authors say where the files are, and under which terms.  They go below
``root/raw``, as their archive has them::

    raw/news/nytimes_train.json  nytimes_dev.json  nytimes_test.json    (or nytimes_dataset.json)
    raw/imgs/<image_id>.jpg

Also read: the files without the folder ``news``, ``nytimes_dataset_full.json`` (with bodies), and
pictures in ``images``.  A file is a JSON list of articles: ``section``, ``headline``,
``abstract``, ``caption``, ``image_id``, and ``article`` or ``body``.

Example:
    >>> dataset = N24News("data/n24news")  # doctest: +SKIP
    >>> train, validation, test = dataset.split()  # doctest: +SKIP
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from hsa_geo.builders._base_folder import BaseFolder
from hsa_geo.builders._page_reader import MAX_IMAGE_BYTES
from hsa_geo.builders.tokens import words
from hsa_geo.data import Domain, SignalTree
from hsa_geo.datasets.mixed import MixedTree, by_number_of_items, picture_file
from hsa_geo.datasets.stored import StoredTrees
from hsa_geo.errors import ArchiveError, UnsupportedError

__all__ = ["N24News"]

_SPLITS = ("train", "dev", "test")
_WHOLE = ("nytimes_dataset_full.json", "nytimes_dataset.json")
_PARTS = ("headline", "abstract", "body", "caption")
_NEWLINE = re.compile(r"\s*\n\s*")
_DEFAULTS: dict[str, Any] = {
    "patch_size": 16,
    "max_side": 128,
    "quadtree": True,
    "min_articles": 2,
    "max_words": 1000,
    "parts": _PARTS,
}


class N24News(StoredTrees):
    r"""News articles as trees: headline, abstract, body, and a picture with its caption.

    The root is a set of these parts, those that an article lacks left out.  A text is a sequence
    of sentences of words, the body one of paragraphs; the picture is a grid of patches two by
    two, and those again, beside its caption.

    ================  =====================  =================================================
    ``word_x``        ``[n]`` int64          words, places in :attr:`vocabulary`
    ``word_index``    ``[n]`` int64          their leaf rows
    ``image_x``       ``[P, 3*p*p]`` uint8   patches of the picture, none if it cannot be read
    ``image_index``   ``[P]`` int64          their leaf rows
    ``y``             ``[1]`` int64          section, place in :attr:`classes`
    ``doc_id``        ``[1]`` int64          place in :attr:`ids`, the articles' image ids
    ``split``         ``[1]`` int64          0 train, 1 dev, 2 test; -1 from a file of all
    ================  =====================  =================================================

    ``report["pictures"]`` counts the pictures that were read, missing, broken or too large, and
    ``report["cut_bodies"]`` the articles whose body has more words than ``max_words``: only the
    first so many became leaves.

    Args:
        root: Folder that holds ``raw`` with the files, and gets ``processed``.
        transform, pre_transform, pre_filter, force_reload, log: As for
            :class:`~hsa_geo.datasets.ManualPages`.
        options: ``patch_size`` (default: 16), ``max_side`` (128 pixels), ``quadtree`` (true),
            ``min_articles`` that a word of the vocabulary occurs in (2), ``max_words`` of a body,
            the first ones, in the vocabulary or not (1,000), ``parts`` to read (headline, abstract,
            body and caption). (default: none)

    Raises:
        ArchiveError: If the files are not there, or are not what they should be.
        UnsupportedError: If an option is not known.

    Example:
        >>> N24News("data/n24news", options={"parts": ["headline", "caption"]})  # doctest: +SKIP
    """

    file_name = "n24news"
    noun = "articles"
    build_version = 2  # bodies that were cut are counted
    validation_given = True
    stored = ("vocabulary", "classes", "ids")

    #: Words in the order of the number of articles they occur in, the most common first.
    vocabulary: list[str]
    #: Image id of each article, by ``doc_id``.
    ids: list[str]

    def items(self) -> Sequence[dict[str, Any]]:
        """The articles of all files."""
        if unknown := sorted(set(self.options) - set(_DEFAULTS)):
            raise UnsupportedError(
                f"options has {unknown[0]!r}, which is none of {', '.join(sorted(_DEFAULTS))}."
            )
        self._set = _DEFAULTS | self.options
        if wrong := sorted(set(self._set["parts"]) - set(_PARTS)):
            raise UnsupportedError(f"parts has {wrong[0]!r}, which is none of {', '.join(_PARTS)}.")
        raw = Path(self.raw_dir)
        articles = [
            _article(entry, path, place, split)
            for split, path in _files(raw)
            for place, entry in enumerate(_entries(path))
        ]
        folders = [raw / name for name in ("imgs", "images", "news/imgs") if (raw / name).is_dir()]
        self._folder = BaseFolder(folders[0] if folders else raw / "imgs", MAX_IMAGE_BYTES)
        self.classes = tuple(sorted({article["section"] for article in articles}))
        self.ids = [article["image_id"] for article in articles]
        self.vocabulary = by_number_of_items(
            (
                [word for part in self._set["parts"] for word in words(article[part])]
                for article in articles
            ),
            int(self._set["min_articles"]),
        )
        self._number = {word: place for place, word in enumerate(self.vocabulary)}
        for place, article in enumerate(articles):
            article["place"] = place
        return articles

    def describe(self, item: Mapping[str, Any]) -> str:
        """The image id of an article."""
        return str(item["image_id"])[:80]

    def build(self, items: Iterator[dict[str, Any]]) -> tuple[list[SignalTree], dict[str, Any]]:
        """Trees of some articles, with counts of their pictures and of bodies that were cut."""
        self._pictures, self._cut = Counter[str](), 0
        trees, extra = super().build(items)
        return trees, {**extra, "pictures": dict(self._pictures), "cut_bodies": self._cut}

    def finish(
        self,
        items: Sequence[dict[str, Any]],
        trees: list[SignalTree],
        extras: Sequence[Mapping[str, Any]],
    ) -> tuple[list[SignalTree], dict[str, Any]]:
        """Sum up the counts of the parts."""
        pictures = Counter[str]()
        for extra in extras:
            pictures.update(extra["pictures"])
        trees, report = super().finish(items, trees, extras)
        return trees, {
            **report,
            "pictures": dict(pictures),
            "cut_bodies": sum(extra["cut_bodies"] for extra in extras),
            "words": len(self.vocabulary),
        }

    def summary(self, report: Mapping[str, Any]) -> str:
        """What every dataset says, and how many bodies were cut."""
        lines = [super().summary(report)]
        if report["cut_bodies"]:
            most = self._set["max_words"]
            lines.append(f"bodies cut to their first {most:,} words: {report['cut_bodies']}")
        return "\n".join(lines)

    def tree(self, item: Mapping[str, Any]) -> SignalTree:
        """The tree of one article."""
        mixed, number = MixedTree("article", Domain.SET), self._number
        parts = set(self._set["parts"])
        for part in ("headline", "abstract"):
            if part in parts:
                mixed.text(mixed.node(part), item[part], number)
        if "body" in parts:
            body, left = mixed.node("body"), int(self._set["max_words"])
            paragraphs = [(text, words(text)) for text in _NEWLINE.split(item["body"])]
            self._cut += sum(len(found) for _, found in paragraphs) > left
            for paragraph, found in paragraphs:
                if left <= 0:
                    break
                text = paragraph if len(found) <= left else " ".join(found[:left])
                mixed.text(mixed.node("paragraph", body), text, number)
                left -= len(found)
        figure = mixed.node("figure", 0, Domain.SET)
        size = int(self._set["patch_size"])
        grid, why = _picture(self._folder, item["image_id"], size, int(self._set["max_side"]))
        self._pictures[why or "read"] += 1
        if grid is not None:
            mixed.picture(figure, grid, quadtree=bool(self._set["quadtree"]))
        if "caption" in parts:
            mixed.text(mixed.node("caption", figure), item["caption"], number)
        tree = mixed.tree(size)
        tree.y = torch.tensor([self.classes.index(item["section"])])
        tree.doc_id = torch.tensor([item["place"]])
        tree.split = torch.tensor([item["split"]])
        return tree


def _picture(folder: BaseFolder, image_id: str, size: int, side: int) -> tuple[Any, str]:
    """The picture of an article, whatever its file is called."""
    why = "missing"
    for ending in (".jpg", ".jpeg", ".png", ".webp", ".gif"):
        name = f"{image_id}{ending}"
        grid, why = picture_file(folder, name, patch_size=size, max_side=side)
        if why != "missing":
            return grid, why
    return None, why


def _files(raw: Path) -> list[tuple[int, Path]]:
    """The files that are there, with the number of their split."""
    for folder in (raw / "news", raw):
        parts = [(i, folder / f"nytimes_{name}.json") for i, name in enumerate(_SPLITS)]
        there = [(i, path) for i, path in parts if path.is_file()]
        if there:
            missing = [path.name for _, path in parts if not path.is_file()]
            if missing:
                raise ArchiveError(f"'{folder}' lacks {', '.join(missing)}: add the file.")
            return there
        for name in _WHOLE:
            if (folder / name).is_file():
                return [(-1, folder / name)]
    raise ArchiveError(
        f"'{raw}' holds no articles, and N24News comes from no package registry: get the files "
        "from its authors (https://github.com/billywzh717/N24News) and put the folders news (with "
        "nytimes_train.json, nytimes_dev.json, nytimes_test.json) and imgs there."
    )


def _entries(path: Path) -> list[Any]:
    """The articles of one file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ArchiveError(
            f"'{path}' cannot be read as JSON ({type(error).__name__}: {error}): get it again."
        ) from error
    if not isinstance(content, list):
        raise ArchiveError(
            f"'{path}' holds a {type(content).__name__}, not a list of articles: get it again."
        )
    return content


def _article(entry: Any, path: Path, place: int, split: int) -> dict[str, Any]:
    """The fields of an article, checked."""
    if not isinstance(entry, dict) or not isinstance(entry.get("section"), str):
        raise ArchiveError(
            f"article {place} of '{path}' has no section: it is not in the format of N24News."
        )
    article: dict[str, Any] = {"section": entry["section"], "split": split}
    article["image_id"] = str(entry.get("image_id") or "")
    texts = {**entry, "body": entry.get("body") or entry.get("article")}
    for part in _PARTS:
        value = texts.get(part)
        if value is not None and not isinstance(value, str):
            raise ArchiveError(
                f"article {place} of '{path}' has a {part} that is no text but {value!r:.40}: "
                "it is not in the format of N24News."
            )
        article[part] = value or ""
    return article
