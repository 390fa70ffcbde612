"""Trees of a builder over the tokens of an encoder: paragraphs, sentences, what has spans.

A builder says which characters every node covers (``tree_span``), a fast tokenizer which characters
every token covers (its *offsets*).  So tokens find their places in the tree, and replaced layers
attend over it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from hsa_geo.data.signal_tree import SignalTree
from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.hf.intercept import Layers

__all__ = ["given_trees", "token_tree"]


def token_tree(tree: SignalTree, offsets: Any) -> SignalTree:
    """The tree of a text over the tokens that an encoder reads.

    A token becomes a child of the deepest node that covers its first character, a word of several
    tokens their parent.  Tokens without characters (class tokens, separators) become children of
    the root, and so do those outside of all nodes.  Nodes without tokens vanish.

    Args:
        tree: With ``tree_span [M, 2]``, characters of every node, such as
            :func:`~hsa_geo.builders.from_text` gives it.
        offsets: ``[N, 2]``, first character of every token and the one behind its last, as a fast
            tokenizer of transformers gives them; without padding.

    Returns:
        A tree of N leaves in the order of the tokens.

    Raises:
        ShapeError: If the tree has no spans, or ``offsets`` has another shape or is that of two
            texts.

    Example:
        >>> from hsa_geo.builders import from_text
        >>> tree = from_text("One two. Three.")
        >>> offsets = [(0, 0), (0, 3), (4, 7), (7, 8), (9, 12), (12, 14), (14, 15), (0, 0)]
        >>> token_tree(tree, offsets)
        SignalTree(leaves=8, nodes=15, depth=4)
    """
    spans = tree.get("tree_span")
    if spans is None:
        raise ShapeError(
            "the tree has no tree_span [M, 2], which characters its nodes cover: build it with "
            "from_text."
        )
    try:
        token = np.asarray(offsets, dtype=np.int64)
    except (TypeError, ValueError) as error:
        raise ShapeError(
            f"offsets are no pairs of whole numbers ({error}): give [N, 2], the characters of each "
            "token."
        ) from error
    if token.ndim != 2 or token.shape[1] != 2 or not len(token):
        raise ShapeError(
            f"offsets has shape {list(token.shape)}: give [N, 2], the characters of each token."
        )
    begins = token[token[:, 0] < token[:, 1], 0]
    if (np.diff(begins) < 0).any():
        raise ShapeError(
            "offsets go back to the beginning, as those of a pair of texts do: give a tree and the "
            "offsets of each text by itself."
        )
    span = spans.cpu().numpy()
    count, leaves = len(span), tree.num_leaves
    parent = np.full(count, -1)
    edges = tree.tree_index.cpu().numpy()
    parent[edges[1]] = edges[0]
    root = int(np.flatnonzero(parent < 0)[0])

    # The last leaf that begins at or before a token, then up to a node that covers it.
    order = np.argsort(span[:leaves, 0], kind="stable")
    place = np.searchsorted(span[order, 0], token[:, 0], side="right") - 1
    node = np.where(place >= 0, order[np.maximum(place, 0)], root)
    empty = token[:, 0] == token[:, 1]
    node[empty] = root
    while True:
        outside = (token[:, 0] < span[node, 0]) | (token[:, 0] >= span[node, 1])
        outside &= (node != root) & ~empty
        if not outside.any():
            break
        node[outside] = parent[node[outside]]

    used = np.zeros(count, dtype=bool)
    used[root] = True
    above = np.unique(node)
    while len(above):
        above = above[~used[above]]
        used[above] = True
        above = np.unique(parent[above])
    number = np.full(count, -1)
    number[used] = len(token) + np.arange(int(used.sum()))
    inner = np.flatnonzero(used)
    above_of = np.where(parent[inner] < 0, -1, number[np.maximum(parent[inner], 0)])
    parents = np.concatenate([number[node], above_of])
    return SignalTree.from_parents(torch.from_numpy(parents), keep_leaf_order=True)


@contextmanager
def given_trees(model: Any, trees: Sequence[SignalTree]) -> Iterator[None]:
    """Within this context replaced layers attend over given trees, in all threads.

    Args:
        model: With replaced layers; see :func:`~hsa_geo.hf.replace_attention`.
        trees: One for each text of the batches to come, with a leaf for each of its tokens that is
            no padding, in their order; see :func:`token_tree`.

    Raises:
        UnsupportedError: If no layer of the model is replaced.
        ShapeError: If ``trees`` is no list of trees; when the model runs, if the numbers of texts
            or of tokens differ.

    Example:
        >>> from transformers import BertConfig, BertModel
        >>> from hsa_geo.hf import replace_attention
        >>> config = BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
        >>> model = replace_attention(BertModel(config), layers=[0])
        >>> tree = SignalTree.from_parents([5, 6, 6, 6, 5, -1, 5], keep_leaf_order=True)
        >>> with given_trees(model, [tree]):
        ...     model(torch.tensor([[2, 30, 31, 32, 3]])).last_hidden_state.shape
        torch.Size([1, 5, 8])
    """
    layers = Layers.of(model)
    handlers = layers.base.__dict__.get("_hsa_handlers", [])
    every = [plans for handler in handlers if (plans := getattr(handler, "plans", None))]
    if not every:
        raise UnsupportedError(
            "no layer of the model is replaced: replace_attention(model, layers=[...]) first."
        )
    given = [] if isinstance(trees, SignalTree) else list(trees)
    if isinstance(trees, SignalTree) or not all(isinstance(tree, SignalTree) for tree in given):
        raise ShapeError(f"trees={trees!r}: give a list of SignalTrees, one for each text.")
    before = [plans.given for plans in every]
    for plans in every:
        plans.given = given
    try:
        yield
    finally:
        for plans, old in zip(every, before):
            plans.given = old
