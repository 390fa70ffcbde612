"""What does not fit as an argument of a transform is refused when it is made, by a typed error."""

import numpy as np
import pytest
import torch

from hsa_geo.data import Domain, SignalTree
from hsa_geo.errors import BuilderError
from hsa_geo.transforms import (
    AddTreePE,
    AttributeHierarchy,
    ClusterHierarchy,
    CommunityHierarchy,
    ContractChains,
    DropLeaves,
    GivenHierarchy,
    MaskLeaves,
    MergeEqualLeaves,
    MetisHierarchy,
    RepeatLeaves,
    RestrictHierarchy,
)

HUGE = 10**5000  # has no repr


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ClusterHierarchy([8, 3]), r"attr=\[8, 3\] is no string: give the name"),
        (lambda: ClusterHierarchy(seed="a"), "seed='a': give a whole number from 0"),
        (lambda: ClusterHierarchy(seed=2**32), r"seed=4294967296: .* below 2\*\*32"),
        (lambda: ClusterHierarchy(sizes=[HUGE, -HUGE]), "sizes has the value <int>"),
        (lambda: AttributeHierarchy(3), "keys=3: give the name of an attribute, or a sequence"),
        (lambda: AttributeHierarchy(None), "keys=None: give"),
        (lambda: AttributeHierarchy(["a", 3]), r"keys=\['a', 3\]: give"),
        (lambda: CommunityHierarchy(weight=["a"]), r"weight=\['a'\] is no string: .* or None"),
        (lambda: CommunityHierarchy(seed=-1), "seed=-1: give"),
        (lambda: MetisHierarchy(2, weight=1), "weight=1 is no string"),
        (lambda: MetisHierarchy(2, seed="a"), "seed='a': give"),
        (lambda: DropLeaves(seed="x"), "seed='x': give"),
        (lambda: DropLeaves(seed=True), "seed=True: give"),
        (lambda: DropLeaves(HUGE), "p=<int> is no probability"),
        (lambda: DropLeaves(mask=[True, False]), r"mask=\[True, False\] is no string"),
        (lambda: MaskLeaves(mask=torch.ones(2)), r"mask=tensor\(.* is no string"),
        (lambda: MaskLeaves(value="a"), "value='a' is no number: give a number, or a dense tensor"),
        (lambda: MaskLeaves(value=None), "value=None is no number"),
        (lambda: MaskLeaves(value=HUGE), "value=<int> is no number"),
        (lambda: MaskLeaves(value=torch.eye(2).to_sparse()), "is no number"),
        (lambda: MaskLeaves(attrs=3), "attrs=3: give"),
        (lambda: MaskLeaves(store=3), "store=3 is no string"),
        (lambda: MergeEqualLeaves(3), "attrs=3: give"),
        (lambda: MergeEqualLeaves([3]), r"attrs=\[3\]: give"),
        (lambda: RepeatLeaves("x"), "max_leaves has the value 'x': give whole numbers from 1"),
        (lambda: RepeatLeaves(0), "max_leaves has the value 0"),
        (lambda: RestrictHierarchy(SignalTree.from_parents([-1]), 3), "key=3 is no string"),
    ],
)
def test_typed_errors(make, message):
    with pytest.raises(BuilderError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda **flag: ClusterHierarchy(**flag), "add_links"),
        (lambda **flag: ClusterHierarchy(**flag), "add_pos"),
        (lambda **flag: CommunityHierarchy(**flag), "add_links"),
        (lambda **flag: AttributeHierarchy("a", **flag), "add_links"),
        (lambda **flag: GivenHierarchy(partitions="a", **flag), "add_links"),
        (lambda **flag: MetisHierarchy(2, **flag), "add_links"),
        (lambda **flag: ContractChains(**flag), "keep_positions"),
        (lambda **flag: AddTreePE(**flag), "weighted"),
        (lambda **flag: AddTreePE(**flag), "cat"),
    ],
)
def test_flags_are_true_or_false(make, name):
    for value in ("no", 1, None, [], torch.ones(2)):
        with pytest.raises(BuilderError, match=f"{name}=.*: give True or False"):
            make(**{name: value})
    for value in (True, np.bool_(False)):
        assert getattr(make(**{name: value}), name) is bool(value)


def test_a_domain_by_its_number():
    assert GivenHierarchy([-1], domain=1).domain is Domain.SEQUENCE
    with pytest.raises(BuilderError, match="domain is SEQUENCE"):
        GivenHierarchy(partitions=[0], domain=1, add_links=True)


@pytest.mark.parametrize("transform", [DropLeaves, MaskLeaves])
def test_a_mask_leaves_nothing_to_draw(transform):
    for extra, shown in (({"p": 0.5}, "p=0.5"), ({"p": 0}, "p=0"), ({"seed": 0}, "seed=0")):
        with pytest.raises(BuilderError, match=f"mask='m' and {shown} are both given"):
            transform(mask="m", **extra)


def test_names_with_a_meaning_hold_no_mask():
    for name in (
        *("tree_index", "tree_level", "tree_pos", "tree_link", "tree_mine", "num_nodes", "batch"),
        *("leaf_weight", "edge_index", "edge_mask", "ptr", "adj_t", "face", "word_index", "a_node"),
        *("num_leaves", "plan", "keys", "validate", "x", "", "_store"),
    ):
        with pytest.raises(BuilderError, match=f"store='{name}' is a name with a meaning"):
            MaskLeaves(store=name)
    with pytest.raises(BuilderError, match="store='token'"):
        MaskLeaves(attrs=["token"], store="token")
    tree = SignalTree.from_parents(
        [2, 2, -1],
        x=torch.ones(2, 1),
        y=torch.ones(1),
        old=torch.ones(2, dtype=torch.bool),
        a_node=torch.tensor([0, 2]),
        b_index=torch.tensor([1, 0]),
    )
    with pytest.raises(BuilderError, match="store='y' names an attribute that the tree has"):
        MaskLeaves(store="y")(tree)
    for name in ("a_mask", "b_x"):
        with pytest.raises(BuilderError, match=f"store='{name}' names no leaf attribute"):
            MaskLeaves(store=name)(tree)
    out = MaskLeaves(0.0, store="old")(tree)
    assert out.validate()
    assert out.old.tolist() == [False, False]
    assert tree.old.all()


def test_a_mask_of_another_shape():
    tree = SignalTree.from_parents([2, 2, -1], m=torch.ones(2, 1, dtype=torch.bool))
    tree.n = torch.tensor(True)
    for name in ("m", "n"):
        with pytest.raises(BuilderError, match=f"mask='{name}' is torch.bool"):
            DropLeaves(mask=name)(tree)


def test_a_complex_value_does_not_fit_real_features():
    tree = SignalTree.from_parents([2, 2, -1], x=torch.ones(2, 1))
    with pytest.raises(ValueError, match="does not fit 'x'"):
        MaskLeaves(1.0, 1j)(tree)
