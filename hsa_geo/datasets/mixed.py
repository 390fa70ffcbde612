"""Trees of texts and pictures, put together part by part.

Example:
    >>> mixed = MixedTree("article")
    >>> headline = mixed.node("headline")
    >>> mixed.words(headline, ["rain", "again"], [4, 7])
    >>> mixed.words(mixed.node("caption"), ["rain"], [4])
    >>> tree = mixed.tree(patch_size=8)
    >>> tree.num_leaves, tree.word_x.tolist(), tree.image_x.shape
    (3, [4, 7, 4], torch.Size([0, 192]))
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch

from hsa_geo.builders._base_folder import BaseFolder
from hsa_geo.builders._grids import grid_nodes, window_levels
from hsa_geo.builders.patches import PatchGrid, image_patches
from hsa_geo.builders.tokens import normalise, sentence_pieces, words
from hsa_geo.data import Domain, SignalTree
from hsa_geo.errors import BuilderError, LimitError

__all__ = ["MixedTree", "by_number_of_items", "picture_file", "sentences_of"]


class MixedTree:
    """Collects the nodes of a tree top-down; a node's parts stand in the order they were added.

    Args:
        name: Name of the root.
        domain: What the root's children are. (default: a sequence)

    Example:
        See the example of :mod:`hsa_geo.datasets.mixed`.
    """

    def __init__(self, name: str, domain: Domain = Domain.SEQUENCE) -> None:
        self.parent, self.name = [-1], [name]
        self.domain, self.pos = [int(domain)], [(0.0, 0.0)]
        self._children = [0]
        self._leaf: list[bool] = [False]
        self._word: list[int] = []
        self._word_node: list[int] = []
        self._patches: list[np.ndarray] = []
        self._patch_node: list[int] = []

    def node(self, name: str, parent: int = 0, domain: Domain = Domain.SEQUENCE) -> int:
        """Add an inner node.

        Args:
            name: Its name.
            parent: Its parent. (default: the root)
            domain: What its children are. (default: a sequence)

        Returns:
            Its number; it is forgotten if it gets no leaf.
        """
        return self._add(parent, name, int(domain), leaf=False)

    def _add(self, parent: int, name: str, domain: int, *, leaf: bool) -> int:
        sequence = self.domain[parent] == Domain.SEQUENCE
        self.pos.append((float(self._children[parent]) if sequence else 0.0, 0.0))
        self._children[parent] += 1
        self.parent.append(parent)
        self.name.append(name)
        self.domain.append(domain)
        self._children.append(0)
        self._leaf.append(leaf)
        return len(self.parent) - 1

    def words(self, parent: int, words: Sequence[str], ids: Sequence[int]) -> None:
        """Add words as leaves.

        Args:
            parent: Their parent.
            words: Their names.
            ids: Their numbers, for ``word_x``.
        """
        for word, number in zip(words, ids, strict=True):
            self._word_node.append(self._add(parent, word, -1, leaf=True))
            self._word.append(number)

    def text(self, parent: int, text: str, number: Mapping[str, int]) -> None:
        """Add a text: sentences of words, without a node for a single sentence.

        Args:
            parent: Parent of the sentences.
            text: The text.
            number: Of each normalised word; other words are left out.
        """
        sentences = [
            [word for word in sentence if normalise(word) in number]
            for sentence in sentences_of(text)
        ]
        sentences = [sentence for sentence in sentences if sentence]
        for sentence in sentences:
            below = parent if len(sentences) == 1 else self.node("sentence", parent)
            self.words(below, sentence, [number[normalise(word)] for word in sentence])

    def picture(self, parent: int, grid: PatchGrid, *, quadtree: bool = True) -> None:
        """Add the patches of a picture.

        Args:
            parent: Parent of the picture's node.
            grid: The patches.
            quadtree: Group patches two by two, and those again; otherwise the picture is one
                grid. (default: :obj:`True`)
        """
        windows = window_levels("window", 2 if quadtree else [])
        nodes = grid_nodes(grid.rows, grid.cols, windows)
        sequence = self.domain[parent] == Domain.SEQUENCE
        place = (float(self._children[parent]) if sequence else 0.0, 0.0)
        self._children[parent] += 1
        total, leaves = len(nodes.parent), len(nodes.cell)
        first = len(self.parent)
        self.parent += [parent if p < 0 else first + int(p) for p in nodes.parent]
        self.pos += [(float(row), float(col)) for row, col in nodes.pos[:-1]] + [place]
        rows = [f"{cell // grid.cols},{cell % grid.cols}" for cell in nodes.cell.tolist()]
        self.name += rows + ["window"] * (total - leaves)
        if total > leaves:
            self.name[-1] = "picture"
        self.domain += [-1] * leaves + [int(Domain.GRID2D)] * (total - leaves)
        self._children += [0] * total
        self._leaf += [True] * leaves + [False] * (total - leaves)
        self._patches.append(grid.patches[nodes.cell])
        self._patch_node += range(first, first + leaves)

    def tree(self, patch_size: int) -> SignalTree:
        """The tree of what was added.

        Args:
            patch_size: Side of a patch in pixels, for the width of an empty ``image_x``.

        Returns:
            The tree with ``word_x``, ``word_index``, ``image_x``, ``image_index``, ``tree_name``.

        Raises:
            BuilderError: If it has no leaf.
        """
        total = len(self.parent)
        keep = list(self._leaf)
        for node in range(total - 1, 0, -1):  # windows come after their cells, others before
            if keep[node]:
                above = self.parent[node]
                while above >= 0 and not keep[above]:
                    keep[above] = True
                    above = self.parent[above]
        if not keep[0]:
            raise BuilderError("there is neither a word nor a picture: leave the item out.")
        new = np.cumsum(keep) - 1
        kept = np.flatnonzero(keep)
        leaf_row = np.cumsum(self._leaf) - 1
        empty = np.zeros((0, 3 * patch_size**2), dtype=np.uint8)
        pixels = np.concatenate([*self._patches, empty])
        return SignalTree.from_parents(
            [-1 if self.parent[i] < 0 else int(new[self.parent[i]]) for i in kept],
            domain=[self.domain[i] for i in kept],
            pos=torch.tensor([self.pos[i] for i in kept]),
            name=[self.name[i] for i in kept],
            word_x=torch.tensor(self._word, dtype=torch.int64),
            word_index=torch.from_numpy(leaf_row[self._word_node].astype(np.int64)),
            image_x=torch.from_numpy(pixels),
            image_index=torch.from_numpy(leaf_row[self._patch_node].astype(np.int64)),
        )


def sentences_of(text: str) -> list[list[str]]:
    """Words of each sentence of a text.

    Args:
        text: The text.

    Returns:
        The words as they stand; sentences without words are left out.

    Example:
        >>> sentences_of("It rains. We stay in!")
        [['It', 'rains'], ['We', 'stay', 'in']]
    """
    return [found for found in map(words, sentence_pieces(text)) if found]


def by_number_of_items(texts: Iterable[Iterable[str]], least: int = 1) -> list[str]:
    """Normalised words by the number of items they occur in, the most common first.

    Args:
        texts: Words of every item.
        least: Leave out words of fewer items. (default: 1)

    Returns:
        The vocabulary.

    Example:
        >>> by_number_of_items([["So", "so"], ["it"], ["is", "it"]])
        ['it', 'is', 'so']
    """
    counts = Counter[str]()
    for text in texts:
        counts.update({normalise(word) for word in text})
    found = (word for word, count in counts.items() if count >= least)
    return sorted(found, key=lambda word: (-counts[word], word))


def picture_file(
    folder: BaseFolder, name: str, *, patch_size: int = 8, max_side: int = 64
) -> tuple[PatchGrid | None, str]:
    """Read a picture's file inside a folder.

    Args:
        folder: The folder.
        name: Name of the file below it.
        patch_size: Side of a patch in pixels. (default: 8)
        max_side: Longest side in pixels it is reduced to. (default: 64)

    Returns:
        Its patches and ``""``; or None and why: ``"missing"`` (there is no such regular file
        inside the folder), ``"broken"`` or ``"too large"``.

    Example:
        >>> picture_file(BaseFolder("/tmp", 100), "../etc/passwd")
        (None, 'missing')
    """
    try:
        data = folder.read_name(name)
        if data is None:
            return None, "missing"
        grid = image_patches(data, patch_size=patch_size, max_side=max_side)
    except LimitError:
        return None, "too large"
    return grid, "" if grid is not None else "broken"
