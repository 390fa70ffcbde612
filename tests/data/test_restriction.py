from __future__ import annotations

import numpy as np
import pytest
import torch
from data_cases import NAMES, Plain, assert_same, full_tree, full_trees, page_tree
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch

from hsa_geo.data import Domain, SignalTree
from hsa_geo.errors import HSAError, ShapeError, TreeError, UnsupportedError
from hsa_geo.ops import hsa_attention
from hsa_geo.testing import random_qkv, trees


def naive(tree: SignalTree, rows: list[int]) -> SignalTree:
    """The restricted tree, built anew from the nodes that have a kept leaf below them."""
    plain = Plain.of(tree)
    kept = [v for v in range(len(plain.parent)) if set(plain.leaves(v)) & set(rows)]
    place = {node: i for i, node in enumerate(kept)}
    return SignalTree.from_parents(
        [place.get(plain.parent[v], -1) for v in kept],
        domain=tree.tree_domain[kept],
        pos=tree.tree_pos[kept],
        name=[tree.tree_name[v] for v in kept] if "tree_name" in tree else None,
    )


@given(trees(max_nodes=24), st.data())
@settings(max_examples=80, deadline=None)
def test_hierarchy_is_the_naive_one(tree, data):
    rows = data.draw(st.sets(st.integers(0, tree.num_leaves - 1), min_size=1))
    small = tree.restrict(torch.tensor(sorted(rows)))
    assert small.validate()
    assert_same(small, naive(tree, sorted(rows)))


@pytest.mark.parametrize("seed", range(12))
def test_everything_refers_to_what_it_did(seed):
    tree = full_tree(seed, max_leaves=20)
    n = tree.num_leaves
    tree.leaf_id = torch.arange(n)
    tree.leaf_tags = [f"leaf {i}" for i in range(n)]
    tree.word_id = torch.arange(len(tree.text_index))
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.choice(n, int(rng.integers(1, n + 1)), replace=False))
    keep_node = {v for v in range(tree.num_tree_nodes) if set(Plain.of(tree).leaves(v)) & {*rows}}
    tree.region_node = torch.tensor([v for v in tree.region_node.tolist() if v in keep_node]).long()

    small = tree.restrict(torch.from_numpy(rows))
    assert small.validate()
    assert small.leaf_id.tolist() == rows.tolist()
    assert small.leaf_tags == [f"leaf {i}" for i in rows]
    assert torch.equal(small.x, tree.x[rows])
    assert torch.equal(small.leaf_y, tree.leaf_y[rows])
    # modalities: the leaf of every row
    words = [i for i, row in enumerate(tree.text_index.tolist()) if row in rows]
    assert torch.equal(small.text_x, tree.text_x[words])
    assert torch.equal(small.leaf_id[small.text_index], tree.text_index[words])
    assert small.image_x.shape == (0, 3, 2, 2)
    # edges among leaves
    ends = [(int(a), int(b)) for a, b in tree.edge_index.t() if {int(a), int(b)} <= {*rows}]
    assert [tuple(pair) for pair in small.leaf_id[small.edge_index].t().tolist()] == ends
    assert len(small.edge_attr) == len(ends)
    # nodes, by their names
    assert [small.tree_name[v] for v in small.region_node] == [
        tree.tree_name[v] for v in tree.region_node
    ]
    for key in ("y", "url", "count", "share", "seen", "weight_index"):
        assert_same(small.to_dict()[key], tree.to_dict()[key], key)
    assert set(small.keys()) == set(tree.keys())


def test_mask_index_list_and_array_agree():
    tree = full_tree(5, region=None)
    tree.region_node = tree.region_node[:0]
    mask = torch.zeros(tree.num_leaves, dtype=torch.bool)
    mask[[0, -1]] = True
    rows = mask.nonzero().squeeze(1)
    small = tree.restrict(mask)
    for leaves in (rows, rows.flip(0), rows.int(), rows.tolist(), rows.numpy(), mask.tolist()):
        assert_same(tree.restrict(leaves), small)  # an order is no permutation


def test_all_leaves_and_again():
    tree = full_tree(3)
    assert_same(tree.restrict(torch.ones(tree.num_leaves, dtype=torch.bool)), tree)
    small = page_tree().restrict([1, 3, 6])
    assert_same(small.restrict([0, 2]), page_tree().restrict([1, 6]))


def test_chains_stay():
    tree = SignalTree.from_parents(
        [4, 5, 5, 6, 6, 4, -1],
        domain=Domain.SEQUENCE,
        pos=[3, 1, 2, 9, 4, 5, 0],
        name=list("abcdefg"),
    )
    small = tree.restrict([1])
    assert small.tree_name == ["b", "f", "e", "g"]
    assert small.tree_pos[:, 0].tolist() == [1, 5, 4, 0]
    assert small.tree_level.tolist() == [3, 2, 1, 0]
    q, k, v = random_qkv(small)
    assert torch.equal(hsa_attention(q, k, v, small), v)  # one leaf attends to itself


def test_input_is_not_changed():
    tree = full_tree(2)
    before = tree.clone()
    tree.region_node = tree.region_node[:0]
    tree.restrict([0]).x.add_(1)
    tree.region_node = before.region_node
    assert_same(tree, before)


@pytest.mark.parametrize(
    ("leaves", "message"),
    [
        ([7], "no leaf 7: the tree has leaves 0..6"),
        ([-1], "no leaf -1"),
        ([2, 5, 2], "leaf 2 is listed twice"),
        ([], "no leaf is kept|dtype torch.float32"),
        (torch.zeros(0).long(), "no leaf is kept"),
        (torch.zeros(7).bool(), "no leaf is kept"),
        (torch.ones(11).bool(), "mask has 11 entries for 7 leaves"),
        ([0.5], "dtype torch.float"),
        ([[1]], r"shape \[1, 1\]"),
        (torch.tensor(3), r"shape \[\]"),
    ],
)
def test_what_is_no_subset(leaves, message):
    with pytest.raises(ShapeError, match=message):
        page_tree().restrict(leaves)


def test_a_pruned_node_that_is_referred_to():
    tree = page_tree(form_node=torch.tensor([NAMES.index("end"), NAMES.index("list")]))
    with pytest.raises(TreeError, match=r"'form_node' refers to node 9 \('end'\).*remove it"):
        tree.restrict([0, 1])
    assert tree.restrict([1, 6]).form_node.tolist() == [4, 2]


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_more_edges_and_matrices():
    tree = page_tree()
    tree.edge_index = torch.tensor([[0, 1], [1, 2]])
    tree.near_edge_index = torch.tensor([[0, 3, 5], [6, 4, 0]])
    tree.near_edge_weight = torch.tensor([1.0, 2.0, 3.0])
    tree.edge_label_index = torch.tensor([[0, 6, 5], [5, 0, 1]])
    tree.edge_label = torch.tensor([1, 2, 3])
    tree.adj = torch.arange(49).view(7, 7)
    tree.face = torch.tensor([[0, 0], [5, 1], [6, 2]])
    small = tree.restrict([0, 5, 6])
    assert small.validate()
    assert small.near_edge_index.tolist() == [[0, 1], [2, 0]]
    assert small.near_edge_weight.tolist() == [1.0, 3.0]
    assert small.edge_label_index.tolist() == [[0, 2], [1, 0]]
    assert small.edge_label.tolist() == [1, 2]
    assert small.adj.tolist() == [[0, 5, 6], [35, 40, 41], [42, 47, 48]]
    assert small.face.tolist() == [[0], [1], [2]]

    tree.adj_t = torch.eye(7).to_sparse_csr()
    with pytest.raises(UnsupportedError, match="'adj_t' is a sparse matrix"):
        tree.restrict([0, 1])


def test_one_edge_does_not_own_what_has_one_row():
    tree = page_tree()
    tree.update(
        {
            "edge_index": torch.tensor([[0], [1]]),
            "edge_attr": torch.ones(1, 2),
            "y": torch.tensor([[1, 0]]),
            "note": ["only"],
        }
    )
    small = tree.restrict([0, 2])
    assert small.edge_attr.shape == (0, 2)
    assert small.y.tolist() == [[1, 0]]
    assert small.note == ["only"]


def test_a_batch_is_refused():
    batch = Batch.from_data_list(full_trees(2))
    with pytest.raises(UnsupportedError, match="before batching"):
        batch.restrict([0])
    with pytest.raises(UnsupportedError, match="before batching"):
        batch.subgraph(torch.tensor([0]))


def test_a_broken_tree_is_refused():
    tree = page_tree()
    tree.tree_index[0, 0] = 99
    with pytest.raises(HSAError, match="holds node 99"):
        tree.restrict([0])


def test_subgraph_and_components_restrict():
    tree = page_tree(x=torch.arange(7.0), edge_index=torch.tensor([[0, 1, 5], [3, 2, 6]]))
    assert_same(tree.subgraph(torch.tensor([4, 0])), tree.restrict([0, 4]))
    parts = tree.connected_components()
    assert torch.cat([part.x for part in parts]).sort().values.tolist() == list(range(7))
    assert len(parts) == 4
    assert all(part.validate() for part in parts)


def test_rows_beside_node_ids_are_no_leaf_attribute():
    # as many forms as leaves: form_label must not be sliced with the leaves
    tree = SignalTree.from_parents(
        [3, 3, 4, 4, -1], form_node=torch.tensor([3, 4, 4]), form_label=torch.tensor([7, 8, 9])
    )
    small = tree.restrict(torch.tensor([0, 2]))
    assert small.form_label.tolist() == [7, 8, 9]
    assert not tree.is_node_attr("form_label")
    assert not tree.is_edge_attr("form_label")


def test_validate_counts_rows_beside_node_ids():
    tree = SignalTree.from_parents([2, 2, -1], form_node=torch.tensor([2]))
    tree.form_label = torch.tensor([1, 2])
    with pytest.raises(ShapeError, match=r"form_label.*2 rows.*form_node.*1"):
        tree.validate()


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 999), data=st.data())
def test_the_order_of_the_leaves_can_be_that_of_the_index(seed, data):
    tree = full_tree(seed)
    tree.leaf_y = torch.arange(tree.num_leaves)
    del tree.region_node  # may refer to what is pruned
    leaves = data.draw(st.permutations(range(tree.num_leaves)))
    leaves = torch.tensor(leaves[: data.draw(st.integers(1, len(leaves)))])
    plain, kept = tree.restrict(leaves), tree.restrict(leaves, keep_order=True)
    assert kept.validate()
    assert kept.leaf_y.tolist() == leaves.tolist()
    assert kept.leaf_y[kept.plan.leaf_order].tolist() == plain.leaf_y.tolist()
    # The same tree: every node has the name of its parent's in both.
    above = [
        sorted((t.tree_name[c], t.tree_name[p]) for p, c in t.tree_index.t().tolist())
        for t in (plain, kept)
    ]
    assert above[0] == above[1]
    for key in ("edge_index", "text_index"):
        assert sorted(kept.leaf_y[kept[key]].flatten().tolist()) == sorted(
            plain.leaf_y[plain[key]].flatten().tolist()
        )
    links = [
        sorted(
            (t.tree_name[a], t.tree_name[b], w)
            for (a, b), w in zip(t.tree_link.t().tolist(), t.tree_link_weight.tolist())
        )
        for t in (tree, plain, kept)
    ]
    names = set(plain.tree_name)
    assert links[1] == links[2] == [link for link in links[0] if {*link[:2]} <= names]
