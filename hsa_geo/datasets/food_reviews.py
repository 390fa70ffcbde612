"""Amazon reviews of fine foods: great, or other."""

from __future__ import annotations

from typing import Any

from hsa_geo.datasets.clients import Archive
from hsa_geo.datasets.r_lazy import read_lazy
from hsa_geo.datasets.text_documents import Document
from hsa_geo.datasets.text_groups import linked_groups, same_text
from hsa_geo.datasets.text_trees import TextTrees, plain_review
from hsa_geo.errors import ArchiveError, LabelError

__all__ = ["FoodReviews"]

#: Variables of the R package: the training set and the test set.
_TABLES = ("training_data", "testing_data")


class FoodReviews(TextTrees):
    r"""4,000 training and 1,000 test reviews of as many products.

    From the Debian package ``r-cran-modeldata`` 1.1.0 (4 MB; MIT licence), there called
    ``small_fine_foods``, which took them from J. McAuley and J. Leskovec, "From amateurs to
    connoisseurs" (2013).  A review is great if it gives five stars (2,600 and 658), else other.
    Reading it takes the package ``rdata``, not R.

    The tree is document, paragraph, sentence, word; breaks in the review end paragraphs, other
    markup is left out.  Besides what every dataset of texts has (see :class:`TextTrees`), a tree
    has ``split [1]`` (0 training, 2 test) and ``group_id [1]``, equal for equal texts: some
    reviews stand at several products, seven of the test set in the training set, too.

    Args:
        root, transform, pre_transform, pre_filter, force_reload, log, options: As in
            :class:`TextTrees`.

    Raises:
        DownloadError: If the package cannot be fetched (it takes apt-get).
        ArchiveError: If it has another sha256, or is not what it should be.
        MissingPackageError: If rdata is not installed.

    Example:
        >>> dataset = FoodReviews("data/food_reviews")  # doctest: +SKIP
        >>> train, validation, test = dataset.split()  # doctest: +SKIP
    """

    file_name = "food_reviews"
    part_size = 512
    classes = ("other", "great")
    build_version = 2  # split is 2 for test, not 1
    archives = (
        Archive(
            "deb",
            "r-cran-modeldata",
            "1.1.0-1",
            "r-cran-modeldata_1.1.0-1_all.deb",
            "66c2e08bb4bf695d972b1e72ea44d5af9ada3c42841793d3871017f7b896bf95",
            prefix="usr/lib/R/site-library/modeldata/data",
            patterns=("Rdata.rdb", "Rdata.rdx"),
            max_bytes=64 << 20,
            size=4253384,
        ),
    )

    def documents(self) -> list[Document]:
        """The reviews, those of the training set first."""
        tables = read_lazy(self.raw() / "Rdata", _TABLES)
        rows = [
            (*row, split) for split, name in enumerate(_TABLES) for row in _rows(tables[name], name)
        ]
        texts = [plain_review(review) for _, review, _, _ in rows]
        groups = linked_groups([[same_text(text) for text in texts]])
        given: list[set[int]] = [set(), set()]
        for (*_, split), group in zip(rows, groups):
            given[split].add(group)
        self.counts["texts_in_both_sets"] = len(given[0] & given[1])
        return [
            Document(product, text, label, {"group_id": group, "split": 2 * split})
            for (product, _, label, split), text, group in zip(rows, texts, groups)
        ]


def _rows(table: Any, name: str) -> list[tuple[str, str, int]]:
    """Product, review and label of each row of a table."""
    try:
        columns = [list(table[key]) for key in ("product", "review", "score")]
    except (KeyError, TypeError, ValueError) as error:
        raise ArchiveError(
            f"'{name}' is no table with product, review and score ({error!r}): use the pinned "
            "version."
        ) from None
    rows = []
    for product, review, score in zip(*columns):
        if score not in FoodReviews.classes:
            raise LabelError(
                f"the review of '{product}' in '{name}' has the score '{score}', which is none of "
                f"{FoodReviews.classes}: use the pinned version."
            )
        if not isinstance(product, str) or not isinstance(review, str):
            raise ArchiveError(f"'{name}' has a row without text ({product!r}, {review!r}).")
        rows.append((str(product), str(review), FoodReviews.classes.index(score)))
    return rows
