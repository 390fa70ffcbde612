"""What the tests of the page builder share."""

from hsa_geo.builders import Field, LeafKind
from hsa_geo.builders.tokens import hash_token, normalise
from hsa_geo.data import SignalTree


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
