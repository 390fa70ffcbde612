"""What tells one set of trees from another."""

import itertools

import numpy as np
import pytest
import torch
from torch.utils.data import Subset
from torch_geometric.data import InMemoryDataset
from training_cases import make_trees

from hsa_geo.training.contents import SAMPLES, contents

TREES = make_trees(40)
SIZES = np.array([tree.num_nodes for tree in TREES])


class InMemory(InMemoryDataset):
    def __init__(self, trees, transform=None):
        super().__init__(None, transform)
        self.data, self.slices = self.collate([tree.clone() for tree in trees])


def changed(number, **attributes):
    trees = [tree.clone() for tree in TREES]
    for name, value in attributes.items():
        trees[number][name] = value
    return trees


def of(trees, ids=range(40)):
    return contents(trees, SIZES[np.asarray(ids)])


def test_lists_datasets_and_subsets_of_the_same_trees_are_the_same():
    expected = of(TREES)
    assert len(expected["some"]) == SAMPLES
    assert {"tree 0", "tree 39"} <= expected["some"].keys()
    assert of(tuple(tree.clone() for tree in TREES)) == expected
    assert of(InMemory(TREES)) == expected
    ids = [5, -1, 3, 30]
    part = of([TREES[i] for i in ids], ids)
    assert of(Subset(TREES, ids), ids) == part
    assert of(InMemory(TREES)[torch.tensor(ids)], ids) == part
    assert of(Subset(InMemory(TREES)[10:], [2, 7]), [12, 17]) == of(
        Subset(TREES, [12, 17]), [12, 17]
    )


@pytest.mark.parametrize("make", [list, InMemory])
def test_what_has_changed_is_found(make):
    expected = of(TREES)
    label = of(make(changed(1, y=1 - TREES[1].y)))  # not one of those that are looked at whole
    assert label["labels"] != expected["labels"]
    assert label["some"] == expected["some"]
    words = of(make(changed(39, word_x=TREES[39].word_x + 1)))
    assert words["labels"] == expected["labels"]
    assert words["some"]["tree 39"] != expected["some"]["tree 39"]
    assert sum(words["some"][key] != value for key, value in expected["some"].items()) == 1


def test_words_count_and_what_no_hash_can_hold_does_not():
    first, second = of(changed(0, title="a")), of(changed(0, title="b"))
    assert first["some"]["tree 0"] != second["some"]["tree 0"]
    assert of(changed(0, thing=object())) == of(changed(0, thing=object()))


def test_random_transforms_do_not_matter():
    def shaken(tree):
        tree.word_x = torch.randint(0, 6, tree.word_x.shape)
        return tree

    class Own(torch.utils.data.Dataset):
        def __init__(self, draw):
            self.draw = draw

        def __len__(self):
            return 40

        def __getitem__(self, number):
            tree = TREES[number].clone()
            tree.noise = torch.tensor([self.draw()])
            return tree

    assert of(InMemory(TREES, transform=shaken)) == of(TREES)
    calls = itertools.count()
    drawn = of(Own(lambda: next(calls)))
    assert set(drawn["some"].values()) == {None}
    before = torch.random.get_rng_state()
    assert of(Own(lambda: float(torch.rand(())))) == of(Own(lambda: float(torch.rand(()))))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_large_tensors_are_thinned():
    big = torch.zeros(1_000_003)
    other = big.clone()
    other[-1000:] = 1
    assert of(changed(0, big=big)) != of(changed(0, big=other))
    nothing = contents([], SIZES[:0])
    assert (nothing["trees"], nothing["labels"], nothing["some"]) == (0, None, {})
