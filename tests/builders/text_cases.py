"""What holds for every tree of a text, and texts to try."""

from hypothesis import strategies as st

from hsa_geo.builders.tokens import Field
from hsa_geo.data import Domain, SignalTree
from hsa_geo.testing import texts
from hsa_geo.testing.strategies import TEXT_PARTS

ANY = st.text(st.characters(exclude_categories=()))
PARTED = st.lists(st.sampled_from(TEXT_PARTS), max_size=40).map("".join)
TEXTS = texts()


def pieces(text: str, tree: SignalTree) -> list[str]:
    """The text of every node."""
    return [text[start:end] for start, end in tree.tree_span.tolist()]


def named(text: str, tree: SignalTree, name: str) -> list[str]:
    """The texts of all inner nodes of a name."""
    texts = zip(pieces(text, tree)[tree.num_leaves :], tree.tree_name[tree.num_leaves :])
    return [piece for piece, one in texts if one == name]


def kids_of(tree: SignalTree) -> dict[int, list[int]]:
    """The children of every inner node, in order."""
    kids: dict[int, list[int]] = {}
    for parent, child in tree.tree_index.t().tolist():
        kids.setdefault(parent, []).append(child)
    return kids


def check(text: str, tree: SignalTree) -> None:
    """What holds for every text, however it was cut."""
    tree.validate()
    n, m = tree.num_leaves, tree.num_tree_nodes
    span = tree.tree_span.tolist()
    assert span[-1] == [0, len(text)]
    assert all(0 <= start <= end <= len(text) for start, end in span)
    for parent, kids in kids_of(tree).items():
        at = span[parent][0]
        for place, kid in enumerate(kids):
            assert at <= span[kid][0], f"{kid} begins before its sibling's end"
            at = span[kid][1]
            assert tree.tree_pos[kid].tolist() == [place, 0]
        assert at <= span[parent][1], f"{parent} does not cover its children"
        assert tree.tree_domain[parent] == Domain.SEQUENCE
    # Gaps and leaves give back the text.
    out, at = "", 0
    for start, end in span[:n]:
        out += text[at:start] + text[start:end]
        at = end
    assert out + text[at:] == text
    # Every leaf has features.
    assert tree.text_x.shape == (len(tree.text_index), 2)
    assert set(tree.text_index.tolist()) == set(range(n))
    assert (tree.text_index.diff() >= 0).all()
    assert (tree.text_x[:, 1] == Field.WORD).all()
    assert (tree.text_x[:, 0] >= 0).all()
    if "tree_name" in tree:
        assert len(tree.tree_name) == m
        assert tree.tree_name[-1] == "document"
        assert set(tree.tree_name[n:]) <= {"document", "paragraph", "sentence", "window"}
        for name, (start, end) in zip(tree.tree_name, span[:n]):
            assert name == text[start:end] or start == end


def check_blanks(text: str, tree: SignalTree) -> None:
    """What holds besides where tokens hold no blanks: neither do inner nodes at their ends."""
    for piece in pieces(text, tree)[tree.num_leaves : -1]:
        assert piece == piece.strip()
