"""Trees of texts and pictures, put together part by part."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("PIL")
sys.path.insert(0, str(Path(__file__).parent))

from manual_cases import animated, png

from hsa_geo.builders._base_folder import BaseFolder
from hsa_geo.builders.patches import PatchGrid
from hsa_geo.data import Domain
from hsa_geo.datasets.mixed import MixedTree, by_number_of_items, picture_file, sentences_of
from hsa_geo.errors import BuilderError

NUMBER = {"it": 0, "rains": 1, "we": 2, "stay": 3}


def grid(rows, cols):
    """A picture whose patches hold their numbers."""
    cells = np.arange(rows * cols, dtype=np.uint8)[:, None]
    return PatchGrid(rows, cols, np.repeat(cells, 12, 1))


@pytest.mark.parametrize("rows", [1, 2, 3, 5])
@pytest.mark.parametrize("cols", [1, 2, 7])
@pytest.mark.parametrize("quadtree", [True, False])
def test_patches_are_where_they_say(rows, cols, quadtree):
    mixed = MixedTree("item")
    mixed.words(0, ["it"], [0])
    mixed.picture(0, grid(rows, cols), quadtree=quadtree)
    mixed.words(0, ["we"], [2])
    tree = mixed.tree(2)
    tree.validate()
    assert tree.num_leaves == rows * cols + 2
    assert tree.word_x.tolist() == [0, 2]
    assert tree.word_index.tolist() == [0, tree.num_leaves - 1]
    names = [tree.tree_name[row] for row in tree.image_index.tolist()]
    numbers = [f"{n // cols},{n % cols}" for n in tree.image_x[:, 0].tolist()]
    assert names == numbers
    assert sorted(tree.image_x[:, 0].tolist()) == list(range(rows * cols))


def test_positions_are_places_in_sequences_only():
    mixed = MixedTree("item", Domain.SET)
    for name in ("a", "b"):
        mixed.words(mixed.node(name), ["it", "rains"], [0, 1])
    tree = mixed.tree(2)
    assert tree.tree_pos[:4, 0].tolist() == [0, 1, 0, 1]
    assert tree.tree_pos[4:, 0].tolist() == [0, 0, 0]
    assert tree.tree_domain.tolist() == [-1] * 4 + [Domain.SEQUENCE] * 2 + [Domain.SET]


def test_nodes_without_leaves_are_forgotten():
    mixed = MixedTree("item")
    empty = mixed.node("empty", mixed.node("above"))
    mixed.words(mixed.node("full"), ["it"], [0])
    mixed.words(empty, [], [])
    tree = mixed.tree(2)
    tree.validate()
    assert tree.tree_name == ["it", "full", "item"]
    with pytest.raises(BuilderError, match="neither a word nor a picture"):
        MixedTree("item").tree(2)


def test_texts():
    mixed = MixedTree("item")
    mixed.text(mixed.node("one"), "It rains, unknown word", NUMBER)
    mixed.text(mixed.node("two"), "We stay. Unknown. It rains.", NUMBER)
    mixed.text(mixed.node("none"), "Unknown!", NUMBER)
    tree = mixed.tree(2)
    assert tree.word_x.tolist() == [0, 1, 2, 3, 0, 1]
    assert tree.tree_name.count("sentence") == 2
    assert "none" not in tree.tree_name
    assert tree.image_x.shape == (0, 12)
    assert tree.image_index.dtype == torch.int64


def test_long_chains_of_nodes():
    mixed, node = MixedTree("item"), 0
    for _ in range(3000):
        node = mixed.node("deeper", node)
    mixed.words(node, ["it"], [0])
    assert mixed.tree(2).depth == 3001


def test_words_and_sentences():
    assert sentences_of(" ... ") == []
    assert by_number_of_items([["a", "b"], ["b"], []]) == ["b", "a"]
    assert by_number_of_items([["a", "b"], ["b"]], least=2) == ["b"]


def test_picture_files(tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret.png").write_bytes(png("red"))
    (inside / "ok.png").write_bytes(png("red"))
    (inside / "cut.png").write_bytes(png("red")[:30])
    (inside / "gif.gif").write_bytes(animated(["red", "blue"]))
    (inside / "big.png").write_bytes(b"x" * 2000)
    (inside / "link.png").symlink_to(tmp_path / "secret.png")
    os.mkfifo(inside / "pipe.png")
    folder = BaseFolder(inside, 1000)
    read, why = picture_file(folder, "ok.png", patch_size=8, max_side=16)
    assert (read.rows, read.cols, why) == (2, 2, "")
    assert picture_file(folder, "gif.gif")[1] == ""
    for name, reason in [
        ("cut.png", "broken"),
        ("big.png", "too large"),
        *((name, "missing") for name in ("gone.png", "link.png", "../secret.png", "pipe.png", "")),
    ]:
        assert picture_file(folder, name) == (None, reason), name
