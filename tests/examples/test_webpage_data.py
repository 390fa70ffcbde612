"""Pages of the web page classifier: folds and batches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from webpage_data import Pages

# Folds ######################################################################


def check_folds(pages: Pages) -> None:
    everything, tests = np.arange(len(pages.group)), []
    for fold in range(5):
        train, validation, test = parts = pages.split(fold)
        groups = [set(pages.group[part].tolist()) for part in parts]
        assert not groups[0] & groups[1]
        assert not groups[0] & groups[2]
        assert not groups[1] & groups[2]
        assert min(len(part) for part in parts) > 0
        assert bool(pages.complete[np.concatenate([validation, test])].all())
        assert len(set(np.concatenate(parts).tolist())) == sum(map(len, parts))
        # Nothing is left out but pages of held-out domains that are not complete.
        left = np.setdiff1d(everything, np.concatenate(parts))
        assert not pages.complete[left].any()
        assert not set(pages.group[left].tolist()) & groups[0]
        tests.append(test)
        for a, b in zip(parts, pages.split(fold)):
            assert np.array_equal(a, b)
    assert sorted(np.concatenate(tests).tolist()) == np.flatnonzero(pages.complete).tolist()
    train, validation, test = pages.split(None)
    assert len(test) == 0
    assert not set(pages.group[train].tolist()) & set(pages.group[validation].tolist())
    assert len(train) > 0.7 * len(everything)


def test_folds(small_web):
    check_folds(small_web)


@pytest.mark.download
def test_real_folds_of_the_classifier(form_pages_dataset):
    dataset = form_pages_dataset
    complete = dataset.column("complete").numpy().reshape(-1)
    pages = Pages(dataset, [], dataset.column("y").numpy(), complete, np.asarray(dataset.groups()))
    check_folds(pages)
    sizes = [len(pages.split(fold)[2]) for fold in range(5)]
    assert sum(sizes) == 599
    assert max(sizes) - min(sizes) <= 2


def test_batches(small_web):
    pages = np.arange(3, 40)

    def drawn(rng: np.random.Generator | None) -> Iterator[int]:
        for chosen, batch in small_web.batches(pages, 8, rng):
            assert batch.num_graphs == len(chosen) <= 8
            sizes = [small_web.trees[i].num_leaves for i in chosen]
            assert torch.bincount(batch.batch).tolist() == sizes
            yield from chosen.tolist()

    assert list(drawn(None)) == pages.tolist()
    first, again, other = (list(drawn(np.random.default_rng(s))) for s in (0, 0, 1))
    assert sorted(first) == pages.tolist()
    assert first == again != other
