from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hsa_geo.data import SignalTree
from hsa_geo.data import buckets as module
from hsa_geo.data.buckets import bucket_width, make_buckets


def test_padding_is_bounded():
    size = np.arange(2, 200_000)
    width = bucket_width(size)
    assert (width >= size).all()
    assert (width <= 1.25 * size).all()
    assert (np.diff(width) >= 0).all()
    assert np.array_equal(bucket_width(width), width)
    assert len(np.unique(width)) <= 4 * np.log2(size[-1]) + 4


def test_small_sizes_are_not_padded():
    assert bucket_width(np.arange(1, 9)).tolist() == list(range(1, 9))


def groups_of(sizes):
    ptr = torch.tensor([1, *sizes]).cumsum(0)
    size = torch.tensor(sizes)
    pairs = size * (size - 1)
    return ptr, pairs.cumsum(0) - pairs, tuple(sizes)


@given(st.lists(st.integers(2, 70), max_size=30))
@settings(max_examples=80, deadline=None)
def test_every_group_is_in_one_bucket(sizes):
    ptr, pair_start, sizes = groups_of(sizes) if sizes else (torch.tensor([1]), torch.zeros(0), ())
    seen = []
    for bucket in make_buckets(ptr, pair_start, sizes):
        k, width = bucket.slots.shape
        assert bucket.valid.shape == (k, width)
        assert torch.equal(bucket.valid.sum(1), bucket.size)
        assert bucket.padded == bool((~bucket.valid).any())
        for row in range(k):
            slots = bucket.slots[row][bucket.valid[row]].tolist()
            group = ptr.tolist().index(slots[0])
            assert slots == list(range(ptr[group], ptr[group + 1]))
            assert bucket.slots[row][~bucket.valid[row]].unique().tolist() in ([], [slots[0]])
            assert int(bucket.pair_start[row]) == int(pair_start[group])
            assert width <= 1.25 * len(slots)
            seen.append(group)
    assert sorted(seen) == list(range(len(sizes)))


def test_large_buckets_are_split(monkeypatch):
    monkeypatch.setattr(module, "MAX_PAIRS", 100)
    ptr, pair_start, sizes = groups_of([5] * 10 + [40])
    found = make_buckets(ptr, pair_start, sizes)
    assert [tuple(b.slots.shape) for b in found] == [(4, 5), (4, 5), (2, 5), (1, 40)]


@pytest.mark.parametrize("parents", [[-1], [-1, 0], [-1, 0, 1, 2]])
def test_no_groups(parents):
    assert SignalTree.from_parents(parents).plan.buckets == ()
