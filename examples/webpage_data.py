"""Pages for the web page classifier: trees cut down to what matters, folds, batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from sklearn.model_selection import GroupKFold, GroupShuffleSplit
from torch import Tensor
from torch_geometric.data import Batch

from hsa_geo.builders import Field, LeafKind
from hsa_geo.builders.tokens import HASH_BUCKETS, hash_token
from hsa_geo.data import SignalTree
from hsa_geo.datasets import FormPages

#: How pages are read: many labelled forms are hidden until a click, and what a form is for also
#: stands in its id, class and action.
HTML_OPTIONS = {"include_hidden": True, "form_tokens": True, "images": False}
#: Outputs beyond the classes of the dataset: a form that the annotators skipped.
SKIPPED = 8
#: Tag tokens of the words that say what a page or a part of it is about.
HEADINGS = torch.tensor(
    [hash_token(t, HASH_BUCKETS) for t in ("title", "h1", "h2", "h3", "h4", "legend", "caption")]
)
NOT_NEEDED = ("tree_name", "image_x", "image_index", "leaf_kind")


def focus(
    tree: SignalTree,
    per_form: int = 48,
    before: int = 8,
    headings: int = 32,
    most: int = 256,
) -> SignalTree:
    """A page cut down to its forms and what announces them.

    Kept are of every form its first ``per_form`` controls and then words up to that number (but
    half as many at least), the ``before`` leaves in front of it, and the first ``headings`` words
    of the title and the headings; of a page without a form the first 32 leaves beside them.  Of
    pages with so many forms that more than ``most`` leaves are left, less of every form is kept.

    ``FormPages`` stores trees already cut down, and knows this function by its name only: after
    changing it, delete the dataset's folder ``processed``.
    """
    plan, kind = tree.plan, tree.leaf_kind
    slot = plan.node_slot[tree.form_node]
    forms = torch.stack([plan.leaf_start[slot], plan.count[slot]], 1).tolist()  # leaves are runs
    token, field = tree.text_x.unbind(1)
    announces = torch.isin(token, HEADINGS) & (field == Field.TAG)
    titles = tree.text_index[announces].unique()[:headings]
    while True:
        keep = torch.zeros(tree.num_leaves, dtype=torch.bool)
        keep[titles] = True
        for start, count in forms:
            leaves = torch.arange(start, start + count)
            is_control = kind[start : start + count] == LeafKind.CONTROL
            controls, words = leaves[is_control][:per_form], leaves[~is_control]
            keep[controls] = True
            keep[words[: max(per_form - len(controls), (per_form + 1) // 2)]] = True
            keep[max(0, start - before) : start] = True
        if not forms:
            keep[:32] = True
        if int(keep.sum()) <= most or per_form == 1:
            break
        per_form, before = max(1, per_form // 2), before // 2
    tree = tree.restrict(keep)
    for key in NOT_NEEDED:
        if key in tree:
            del tree[key]
    return tree


@dataclass
class Pages:
    """All pages, with what is asked about them often."""

    dataset: FormPages
    trees: list[SignalTree]
    y: np.ndarray  # [pages, 8]
    complete: np.ndarray  # [pages]
    group: np.ndarray  # [pages], web domain

    @classmethod
    def read(cls, root: Path, log: bool = False) -> Pages:
        """Fetch (the first time) and load the pages."""
        dataset = FormPages(root, pre_transform=focus, options=HTML_OPTIONS, log=log)
        return cls(
            dataset,
            [dataset[i] for i in range(len(dataset))],
            dataset.column("y").numpy(),
            dataset.column("complete").numpy().reshape(-1),
            np.asarray(dataset.groups()),
        )

    def split(self, fold: int | None, folds: int = 5) -> tuple[np.ndarray, ...]:
        """Pages to train on, to validate on, and to test on; no web domain is in two of them.

        Test pages are completely annotated ones, validation pages too; pages with forms left
        without annotation only help to train.  ``fold=None`` tests on nothing.
        """
        complete = np.flatnonzero(self.complete)
        test = np.array([], dtype=np.int64)
        if fold is not None:
            splits = GroupKFold(folds).split(complete, groups=self.group[complete])
            test = complete[list(splits)[fold][1]]
        rest = np.flatnonzero(~np.isin(self.group, self.group[test]))
        cut = GroupShuffleSplit(1, test_size=0.12, random_state=0 if fold is None else fold)
        train, validate = next(cut.split(rest, groups=self.group[rest]))
        validate = rest[validate]
        return rest[train], validate[self.complete[validate]], test

    def batches(
        self, pages: np.ndarray, size: int, rng: np.random.Generator | None = None
    ) -> Iterator[tuple[np.ndarray, Batch]]:
        """Batches of pages, shuffled if a generator is given."""
        pages = pages if rng is None else rng.permutation(pages)
        for i in range(0, len(pages), size):
            chosen = pages[i : i + size]
            yield chosen, Batch.from_data_list([self.trees[j] for j in chosen])


def targets(label: Tensor) -> Tensor:
    """Training targets of forms: 0..7 the classes, 8 skipped, -1 not annotated."""
    return torch.where(label == -2, SKIPPED, label)


def page_of_form(batch: Batch) -> Tensor:
    """Index in the batch of the page of every form ``[K]``."""
    plan = batch.plan
    first_leaf = plan.leaf_order[plan.leaf_start[plan.node_slot[batch.form_node]]]
    return batch.batch[first_leaf]


def page_labels(logits: Tensor, page: Tensor, pages: int) -> tuple[Tensor, Tensor]:
    """From forms to pages: labels ``[pages, 8]`` (union of the forms' types) and probabilities.

    The probability of a label is that of at least one form being of that type, as if forms were
    independent.
    """
    hit = torch.zeros(pages, SKIPPED + 1).index_put((page, logits.argmax(-1)), torch.tensor(1.0))
    log_none = torch.log1p(-logits.softmax(-1)[:, :SKIPPED].clamp(max=1 - 1e-6))
    probability = 1 - torch.zeros(pages, SKIPPED).index_add(0, page, log_none).exp()
    return hit[:, :SKIPPED], probability
