"""What the tests of the page builder share."""

import torch
from hypothesis import strategies as st

from hsa_geo.builders import Field, LeafKind
from hsa_geo.builders.tokens import hash_token, normalise
from hsa_geo.data import SignalTree
from hsa_geo.testing.strategies import PAGE_PARTS


def leaf_names(tree: SignalTree, kind: LeafKind = LeafKind.WORD) -> list[str]:
    """Names of the leaves of one kind, in order."""
    rows = (tree.leaf_kind == kind).nonzero().flatten().tolist()
    return [tree.tree_name[row] for row in rows]


def tokens_of(tree: SignalTree, row: int, field: Field) -> list[int]:
    """Token ids of one field of a leaf, in order."""
    mine = tree.text_x[tree.text_index == row]
    return mine[mine[:, 1] == field, 0].tolist()


def ids(text: str) -> list[int]:
    """Ids of blank-separated tokens."""
    return [hash_token(normalise(word)) for word in text.split()]


def shape(tree: SignalTree) -> object:
    """The tree as nested lists of names: ``[name, child, ...]`` for inner nodes."""
    nodes: dict[int, list] = {}
    for parent, child in tree.tree_index.t().tolist():
        nodes.setdefault(parent, [tree.tree_name[parent]]).append(child)
    for node in sorted(nodes):  # children have smaller ids, or are of a deeper level
        nodes[node] = [
            nodes.get(c, tree.tree_name[c]) if isinstance(c, int) else c for c in nodes[node]
        ]
    return nodes[len(tree.tree_level) - 1]


KEYS = {"leaf_kind", "text_x", "text_index", "image_x", "image_index", "form_node", "form_order"}


def check(tree: SignalTree) -> None:
    """What holds for every page."""
    tree.validate()
    n, m = tree.num_leaves, tree.num_tree_nodes
    assert set(tree.keys()) >= KEYS
    assert tree.text_x.shape == (len(tree.text_index), 2)
    assert tree.image_x.shape == (len(tree.image_index), 192)
    assert (tree.text_index.diff() >= 0).all()
    assert (tree.image_index.diff() > 0).all()
    assert torch.isin(tree.text_x[:, 1], torch.tensor([int(f) for f in Field])).all()
    assert int(tree.text_x[:, 0].min()) >= 0
    patches = (tree.leaf_kind == LeafKind.PATCH).nonzero().flatten()
    assert torch.equal(patches, tree.image_index)
    described = torch.zeros(n, dtype=torch.bool)
    described[tree.text_index] = True
    described[tree.image_index] = True
    assert described.all()  # no leaf without features
    assert (tree.form_node >= n).all()
    assert (tree.form_node < m).all()
    children = torch.bincount(tree.tree_index[0], minlength=m)[n:-1]
    lone = set((children == 1).nonzero().flatten().add(n).tolist())
    assert all(k in tree.form_node.tolist() or tree.tree_name[k] == "patches" for k in lone)


FRAGMENTS = st.sampled_from(PAGE_PARTS)
