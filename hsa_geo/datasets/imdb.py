"""IMDB: 50,000 movie reviews, for users who have the files."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from hsa_geo.datasets.text_documents import OPTIONS, Document
from hsa_geo.datasets.text_groups import linked_groups, same_text
from hsa_geo.datasets.text_trees import TextTrees, plain_review, read_file
from hsa_geo.errors import ArchiveError, LabelError

__all__ = ["IMDB"]

_NAME = re.compile(r"(\d+)_(\d+)\.txt")
_TITLE = re.compile(r"/title/(tt\d+)")
_HOW = (
    "get aclImdb_v1.tar.gz from https://ai.stanford.edu/~amaas/data/sentiment and unpack it there, "
    "so that there are train/pos, train/neg, test/pos and test/neg with files such as 0_9.txt"
)


class IMDB(TextTrees):
    r"""The Large Movie Review Dataset: 25,000 training and 25,000 test reviews, half of them good.

    A. Maas et al., `Learning word vectors for sentiment analysis
    <https://aclanthology.org/P11-1015>`_ (2011).  No package holds it, so put the folder
    ``aclImdb`` into ``root/raw`` (a link will do)::

        root/raw/aclImdb/train/pos/0_9.txt        (number of the review, its stars)
        root/raw/aclImdb/train/neg/0_3.txt
        root/raw/aclImdb/test/...
        root/raw/aclImdb/train/urls_pos.txt       (of which movie, line by line; may be missing)

    Breaks in a review end paragraphs, other markup is left out.  Besides what every dataset of
    texts has (see :class:`TextTrees`), a tree has ``rating [1]`` float32 (the stars), ``split [1]``
    (0 training, 2 test), and ``group_id [1]``: reviews of one movie, as far as the files tell, and
    equal texts, are in one group.

    Args:
        root, transform, pre_transform, pre_filter, force_reload, log, options: As in
            :class:`TextTrees`.

    Raises:
        ArchiveError: If the folder is not there or not complete.
        LabelError: If a review's stars do not fit its folder.

    Example:
        >>> dataset = IMDB("data/imdb")  # doctest: +SKIP
        >>> train, validation, test = dataset.split()  # doctest: +SKIP
    """

    file_name = "imdb"
    noun = "reviews"
    part_size = 1024
    build_version = 2  # split is 2 for test, not 1
    classes = ("negative", "positive")
    defaults: ClassVar[dict[str, Any]] = OPTIONS

    def documents(self) -> list[Document]:
        """The reviews: training, test; in each, good ones, bad ones; by number."""
        folder = Path(self.raw_dir, "aclImdb")
        found, movies = list[tuple[str, str, int, float, int]](), list[str | None]()
        for split, part in enumerate(("train", "test")):
            for kind in ("pos", "neg"):
                paths = _numbered(folder / part / kind)
                titles = self._titles(folder / part / f"urls_{kind}.txt", paths)
                for (_, stars), path in paths:
                    good = kind == "pos"
                    if not (7 <= stars <= 10 if good else 1 <= stars <= 4):
                        wanted = "7 to 10" if good else "1 to 4"
                        raise LabelError(
                            f"'{path}' says {stars} stars, but reviews in '{kind}' have {wanted}: "
                            "see that the folder is as it was distributed."
                        )
                    text = plain_review(read_file(path, self.counts, "the data set"))
                    name = f"{part}/{kind}/{path.name}"
                    found.append((name, text, int(good), float(stars), split))
                movies += titles
        groups = linked_groups([movies, [same_text(text, 5) for _, text, *_ in found]])
        self.counts["groups"] = len(set(groups))
        return [
            Document(name, text, label, {"rating": stars, "split": 2 * split, "group_id": group})
            for (name, text, label, stars, split), group in zip(found, groups)
        ]

    def _titles(self, path: Path, paths: Sequence[Any]) -> list[str | None]:
        """The movie of each review; None where the files do not tell."""
        if not path.exists():
            return [None] * len(paths)
        lines = read_file(path, self.counts, "the data set").splitlines()
        titles = [_TITLE.search(line) for line in lines]
        return [
            title.group(1) if number < len(titles) and (title := titles[number]) else None
            for (number, _), _ in paths
        ]


def _numbered(folder: Path) -> list[tuple[tuple[int, int], Path]]:
    """Number, stars and path of each review in a folder, by number."""
    found = []
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise ArchiveError(f"'{folder}' is not there ({error.strerror}): {_HOW}.") from None
    for name in names:
        match = _NAME.fullmatch(name)
        if match:
            found.append(((int(match[1]), int(match[2])), folder / name))
    if not found:
        raise ArchiveError(f"'{folder}' holds no reviews such as 0_9.txt: {_HOW}.")
    return sorted(found)
