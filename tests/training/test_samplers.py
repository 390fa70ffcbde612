"""Batches by leaf budget: every tree once, never too large, the same steps for any processes."""

import itertools
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import Subset
from torch_geometric.data import InMemoryDataset
from torch_geometric.loader import DataLoader

from hsa_geo.data import SignalTree
from hsa_geo.datasets.collated import collate_trees
from hsa_geo.errors import HSAWarning, ShapeError, UnsupportedError
from hsa_geo.testing import random_tree
from hsa_geo.training import LeafBudgetBatchSampler, leaf_counts

SIZES = st.lists(st.integers(1, 60), max_size=80)


@st.composite
def samplers(draw):
    """The samplers of all processes."""
    sizes = draw(SIZES)
    replicas = draw(st.integers(1, 4))
    options = {
        "budget": draw(st.integers(60, 200)),
        "shuffle": draw(st.booleans()),
        "seed": draw(st.integers(0, 5)),
        "max_trees": draw(st.none() | st.integers(1, 9)),
        "bucketing": draw(st.integers(0, 3)),
    }
    if draw(st.booleans()):
        options["step_budget"] = draw(st.integers(200, 1500))
    return [
        LeafBudgetBatchSampler(sizes, num_replicas=replicas, rank=rank, **options)
        for rank in range(replicas)
    ]


@given(samplers(), st.integers(0, 3))
@settings(max_examples=150, deadline=None)
def test_every_tree_once_within_the_budgets(all_ranks, epoch):
    seen, of_step = [], {}
    for sampler in all_ranks:
        sampler.set_epoch(epoch)
        batches = list(sampler)
        assert len(batches) == len(sampler) == len(all_ranks[0])
        assert sampler.steps.tolist() == all_ranks[0].steps.tolist()
        for batch, weight, step in zip(batches, sampler.weights, sampler.steps):
            assert batch
            if weight:
                assert sampler.sizes[batch].sum() <= sampler.budget
                assert sampler.max_trees is None or len(batch) <= sampler.max_trees
                of_step.setdefault(int(step), []).extend(batch)
                seen += batch
            else:
                assert batch == [int(sampler.sizes.argmin())]
    first = all_ranks[0]
    assert sorted(seen) == list(range(len(first.sizes)))
    assert sorted(of_step) == list(range(first.num_steps))
    for trees in of_step.values():
        assert first.sizes[trees].sum() <= first.step_budget
    if seen:
        assert 0 < first.fill <= 1


@given(samplers(), st.integers(0, 40))
@settings(max_examples=50, deadline=None)
def test_it_goes_on_at_any_step(all_ranks, step):
    for sampler in all_ranks:
        whole, steps = list(sampler), sampler.steps
        sampler.set_epoch(0, first_step=step)
        assert list(sampler) == [batch for batch, s in zip(whole, steps) if s >= step]
        assert len(sampler) == len(whole)


@pytest.mark.parametrize("bucketing", [0, 4])
def test_steps_do_not_depend_on_the_number_of_processes(bucketing):
    sizes = np.random.default_rng(0).integers(1, 100, 500)
    groups = []
    for replicas in (1, 2, 4, 8):
        steps = {}
        for rank in range(replicas):
            sampler = LeafBudgetBatchSampler(
                sizes, 1600 // replicas, True, 3, replicas, rank, bucketing=bucketing
            )
            for batch, step, weight in zip(sampler, sampler.steps, sampler.weights):
                steps.setdefault(step, []).extend(batch if weight else [])
        groups.append([sorted(steps[step]) for step in sorted(steps)])
    assert groups[0] == groups[1] == groups[2] == groups[3]


@pytest.mark.parametrize("replicas", [2, 4, 8])
def test_shares_are_balanced_and_full(replicas):
    sizes = np.minimum(np.random.default_rng(0).lognormal(5, 0.8, 20_000).astype(int) + 1, 4096)
    loads = []
    for rank in range(replicas):
        sampler = LeafBudgetBatchSampler(sizes, 4096, True, 0, replicas, rank)
        loads.append(np.bincount(sampler.steps, weights=[sizes[b].sum() for b in sampler]))
    assert sampler.fill > 0.93
    loads = np.array(loads)[:, :-1]  # the last step is what is left
    assert np.mean(loads.max(0) / loads.mean(0)) < 1.03


def test_the_order_is_a_function_of_seed_and_epoch():
    sizes = np.random.default_rng(0).integers(1, 9, 100)
    first, again, other = (LeafBudgetBatchSampler(sizes, 30, seed=seed) for seed in (1, 1, 2))
    assert list(first) == list(first) == list(again) != list(other)
    again.set_epoch(1)
    assert list(first) != list(again)
    again.set_epoch(0)
    assert list(first) == list(again)
    still = LeafBudgetBatchSampler(sizes, 30, shuffle=False)
    assert [i for batch in still for i in batch] == list(range(100))


def test_batches_are_as_full_as_can_be():
    sizes = np.random.default_rng(0).integers(1, 40, 300)
    sampler = LeafBudgetBatchSampler(sizes, 49)  # too small a budget for slack
    batches = list(sampler)
    for batch, following in itertools.pairwise(batches):
        assert sizes[batch].sum() + sizes[following[0]] > 49


def test_bucketing_saves_padding():
    sizes = np.random.default_rng(0).lognormal(4, 1, 5000).astype(int) + 1
    budget = int(sizes.max()) + 2000

    def padded(sampler):
        return sum(max(sizes[b]) * len(b) for b in sampler) / sizes.sum()

    plain = LeafBudgetBatchSampler(sizes, budget)
    sorted_ = LeafBudgetBatchSampler(sizes, budget, bucketing=50)
    assert padded(sorted_) < 2 < 5 < padded(plain)
    longest = [max(sizes[b]) for b in sorted_]
    assert abs(np.corrcoef(longest[1:], longest[:-1])[0, 1]) < 0.3  # not sorted any more


def test_a_larger_tree_is_alone():
    with pytest.warns(HSAWarning, match=r"1 of 5 trees .* \(tree 2 has 90\): each is a batch"):
        sampler = LeafBudgetBatchSampler([3, 3, 90, 3, 3], 10, shuffle=False)
    assert list(sampler) == [[0, 1], [2], [3, 4]]
    with pytest.raises(ShapeError, match=r"tree 2 has 90\): raise budget"):
        LeafBudgetBatchSampler([3, 3, 90, 3, 3], 10, on_large="error")
    with pytest.warns(HSAWarning):
        ranks = [LeafBudgetBatchSampler([4, 25, 4, 4], 10, False, 0, 4, rank) for rank in range(4)]
    for sampler in ranks:
        for batch in sampler:
            assert sampler.sizes[batch].sum() <= 10 or batch == [1]


@pytest.mark.parametrize(
    ("error", "message", "options"),
    [
        (ShapeError, "budget=0 must be a whole number", {"budget": 0}),
        (ShapeError, "num_replicas=0", {"num_replicas": 0}),
        (ShapeError, "rank=2 is none", {"num_replicas": 2, "rank": 2}),
        (ShapeError, "max_trees=0", {"max_trees": 0}),
        (ShapeError, "step_budget=5 is less than budget=10", {"step_budget": 5}),
        (ShapeError, "seed=-1", {"seed": -1}),
        (UnsupportedError, "on_large='drop'", {"on_large": "drop"}),
        (ShapeError, "tree 1 has 0 leaves", {"sizes": [1, 0]}),
        (ShapeError, "dtype float64", {"sizes": [1.5, 2.0]}),
        (ShapeError, r"shape \[1, 2\]", {"sizes": torch.ones(1, 2)}),
    ],
)
def test_what_is_wrong_is_named(error, message, options):
    with pytest.raises(error, match=message):
        LeafBudgetBatchSampler(**{"sizes": [1, 2, 3], "budget": 10, **options})


def test_an_empty_dataset_has_no_batches():
    sampler = LeafBudgetBatchSampler([], 10, bucketing=2)
    assert list(sampler) == []
    assert len(sampler) == sampler.num_steps == 0


class Stored(InMemoryDataset):
    """Trees kept collated, which count how often one was built."""

    def __init__(self, trees):
        super().__init__()
        self.data, self.slices = collate_trees(trees)
        self.built = 0

    def get(self, idx):
        self.built += 1
        return super().get(idx)


def some_trees():
    trees = [random_tree(seed, max_leaves=30) for seed in range(20)]
    return [*trees, SignalTree.from_parents([-1]), SignalTree.from_parents([1, 2, -1])]


def test_sizes_come_from_slices():
    trees = some_trees()
    expected = [tree.num_nodes for tree in trees]
    stored = Stored(trees)
    assert leaf_counts(stored).tolist() == expected == leaf_counts(trees).tolist()
    assert leaf_counts(stored[5:9]).tolist() == expected[5:9]
    assert leaf_counts(Subset(stored, [3, 1])).tolist() == [expected[3], expected[1]]
    assert leaf_counts(torch.tensor(expected)).tolist() == expected
    assert stored.built == 0
    assert leaf_counts(Stored(trees[:1])).tolist() == expected[:1]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_with_the_stock_loader(num_workers):
    dataset = Stored(some_trees())
    sampler = LeafBudgetBatchSampler(dataset, budget=60)
    loader = DataLoader(dataset, batch_sampler=sampler, num_workers=num_workers)
    leaves = [batch.num_nodes for batch in loader]
    assert len(leaves) == len(loader) == len(sampler)
    assert max(leaves) <= 60
    assert sum(leaves) == sampler.sizes.sum()


def test_a_million_trees_cost_little():
    sizes = np.random.default_rng(0).integers(20, 400, 1_000_000)
    start = time.process_time()
    sampler = LeafBudgetBatchSampler(sizes, 8192, num_replicas=2)
    assert sum(len(batch) for batch in sampler) > 400_000
    assert time.process_time() - start < 10  # measured: 0.7
