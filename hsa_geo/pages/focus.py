"""Pages cut down to their forms and what announces them."""

from __future__ import annotations

import torch

from hsa_geo.builders import Field, LeafKind
from hsa_geo.builders.tokens import HASH_BUCKETS, hash_token
from hsa_geo.data import SignalTree

__all__ = ["NOT_NEEDED", "focus"]

#: Tag tokens of the words that say what a page or a part of it is about.
HEADINGS = torch.tensor(
    [hash_token(t, HASH_BUCKETS) for t in ("title", "h1", "h2", "h3", "h4", "legend", "caption")]
)
#: What a classifier of tokens does not look at.
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

    Datasets that store trees already cut down know this function by its name only: after changing
    it, delete their folder ``processed``.

    Args:
        tree: What :func:`~hsa_geo.builders.from_html` made of a page, with the default number of
            hash buckets.
        per_form: Controls and words of each form. (default: 48)
        before: Leaves in front of each form. (default: 8)
        headings: Words of title and headings. (default: 32)
        most: Leaves of the whole tree, as far as each form keeps one. (default: 256)

    Returns:
        The part of the tree, without names, images and kinds of leaves.

    Example:
        >>> from hsa_geo.builders import from_html
        >>> page = "<title>Shop</title>" + "<p>word " * 500 + "<form><input name=q></form>"
        >>> focus(from_html(page)).num_leaves  # the title, eight words, the control
        10
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
