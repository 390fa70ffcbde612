"""Trees in a database on disk."""

from __future__ import annotations

import pickle
import sqlite3
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.loader import DataLoader

from hsa_geo.data import SignalTree
from hsa_geo.datasets.listops_notation import draw_expressions
from hsa_geo.datasets.listops_trees import expression_trees
from hsa_geo.datasets.on_disk import OnDiskTrees
from hsa_geo.errors import DiskFullError, FileFormatError, MixedKeysError, UnsupportedError
from hsa_geo.testing import random_tree


def listops(count: int, seed: int = 0) -> list[SignalTree]:
    return expression_trees(draw_expressions(count, np.random.default_rng(seed), nested=0.3))


def rich_trees() -> list[SignalTree]:
    """All that a builder may emit, with empty modalities, large ids, half floats and names."""
    trees = []
    for seed in range(8):
        tree = random_tree(seed)
        n, m = tree.num_leaves, tree.num_tree_nodes
        tree.x = torch.randn(n, 3).to(torch.bfloat16)
        tree.image_x = torch.randint(0, 256, (seed % 3, 12), dtype=torch.uint8)
        tree.image_index = torch.arange(seed % 3) % n
        tree.text_x = torch.randn(n, 2, 5).half()
        tree.text_index = torch.arange(n)
        tree.huge = torch.tensor([[2**60 + seed, -seed]])
        tree.flag = torch.arange(n) % 2 == 0
        tree.tree_name = [f"<{i}>\tü" for i in range(m)]
        tree.edge_index = torch.randint(0, n, (2, seed))
        tree.y = torch.tensor([seed])
        trees.append(tree)
    return trees


def same(one: SignalTree, two: SignalTree) -> bool:
    first, second = one.to_dict(), two.to_dict()
    for key, value in first.items():
        other = second[key]
        if isinstance(value, torch.Tensor):
            if value.dtype != other.dtype or not torch.equal(value, other):
                return False
        elif value != other:
            return False
    return set(first) == set(second)


@pytest.fixture
def dataset(tmp_path):
    dataset = OnDiskTrees(tmp_path)
    dataset.extend(listops(60), batch_size=25)
    return dataset


@pytest.mark.parametrize("make", [rich_trees, lambda: listops(20)])
def test_trees_come_back_exactly(tmp_path, make):
    trees = make()
    OnDiskTrees(tmp_path).extend(trees)
    dataset = OnDiskTrees(tmp_path)
    assert len(dataset) == len(trees)
    assert all(same(dataset[i], tree) for i, tree in enumerate(trees))
    assert all(tree.validate() for tree in dataset)


def test_random_access_and_order(dataset):
    trees = listops(60)
    places = [5, 59, 0, 5]
    assert all(same(a, trees[i]) for a, i in zip(dataset.multi_get(places), places))
    assert all(same(a, b) for a, b in zip(dataset.multi_get(slice(50, None)), trees[50:]))
    assert dataset.multi_get([]) == []
    assert same(dataset[-1], trees[-1])


def test_append_and_extend_again(tmp_path):
    trees = listops(9)
    dataset = OnDiskTrees(tmp_path)
    assert len(dataset) == 0
    dataset.extend([])
    dataset.append(trees[0])
    dataset.extend(trees[1:4])
    OnDiskTrees(tmp_path).extend(trees[4:])
    again = OnDiskTrees(tmp_path)
    assert len(again) == 9
    assert all(same(again[i], tree) for i, tree in enumerate(trees))


def test_trees_may_be_written_to(dataset):
    tree = dataset[0]
    tree.symbol_x += 1
    assert not same(tree, dataset[0])
    assert same(listops(60)[0], dataset[0])


@pytest.mark.parametrize("workers", [0, 2])
def test_data_loader(dataset, workers):
    trees = listops(60)
    dataset[0]  # a connection that the workers must not use
    loader = DataLoader(dataset, batch_size=16, num_workers=workers)
    found = [tree for batch in loader for tree in batch.to_data_list()]
    assert all(same(a, b) for a, b in zip(found, trees, strict=True))


@pytest.mark.parametrize("workers", [0, 2])
def test_parts_of_a_dataset(dataset, workers):
    """PyG's own class gives the first trees of the whole."""
    trees = listops(60)
    part = dataset[torch.tensor([40, 3, 17, 59])]
    assert part.leaf_counts().tolist() == [trees[i].num_leaves for i in (40, 3, 17, 59)]
    (batch,) = DataLoader(part, batch_size=4, num_workers=workers)
    found = batch.to_data_list()
    assert all(same(a, trees[i]) for a, i in zip(found, (40, 3, 17, 59), strict=True))
    with pytest.raises(UnsupportedError, match="extend the whole"):
        part.extend(trees[:1])


def test_transform(tmp_path):
    def count(tree: SignalTree) -> SignalTree:
        tree.count = torch.tensor([tree.num_leaves])
        return tree

    OnDiskTrees(tmp_path).extend(listops(5))
    dataset = OnDiskTrees(tmp_path, transform=count)
    assert dataset[2].count == dataset[2].num_leaves
    (batch,) = DataLoader(dataset, batch_size=5)
    assert batch.count.tolist() == dataset.leaf_counts().tolist()


def test_pickled_dataset_opens_a_connection_of_its_own(dataset):
    again = pickle.loads(pickle.dumps(dataset))
    assert same(again[7], dataset[7])


def test_no_pickle_on_disk(dataset):
    dataset.close()
    content = Path(dataset.processed_paths[0]).read_bytes()
    assert b"torch" not in content
    assert b"pickle" not in content
    files = {path.name for path in Path(dataset.root).rglob("*") if path.is_file()}
    assert files == {"sqlite.db", "schema.json"}


def test_integers_are_narrow(tmp_path):
    dataset = OnDiskTrees(tmp_path)
    dataset.extend(listops(300))
    dataset.close()
    size = Path(dataset.processed_paths[0]).stat().st_size
    assert size < 60 * sum(tree.num_leaves for tree in listops(300))
    assert len(dataset.leaf_counts()) == 300  # opened again


def test_other_attributes_are_refused(dataset):
    tree = listops(1)[0]
    tree.more = torch.zeros(1)
    with pytest.raises(MixedKeysError, match=r"\['more'\]"):
        dataset.append(tree)
    for value, message in (
        (torch.zeros(1), r"'y' is torch.float32 \[1\]"),
        (torch.zeros(1, 2, dtype=torch.int64), r"'y' is torch.int64 \[1, 2\]"),
        (3, "'y' is 3"),
    ):
        tree = listops(1)[0]
        tree.y = value
        with pytest.raises(UnsupportedError, match=message):
            dataset.append(tree)
    tree = listops(1)[0]
    tree.tree_pos = torch.zeros(tree.num_tree_nodes, 3)
    with pytest.raises(UnsupportedError, match="'tree_pos' is"):
        dataset.append(tree)
    assert len(dataset) == 60


def test_one_bad_tree_leaves_nothing(dataset):
    trees = listops(5)
    trees[3].y = torch.zeros(2, 2)
    with pytest.raises(UnsupportedError):
        dataset.extend(trees)
    assert len(OnDiskTrees(dataset.root)) == 60


@pytest.mark.parametrize("value", [{"a": 1}, torch.tensor(3), 1.5, torch.zeros(2).to_sparse()])
def test_what_cannot_be_stored(tmp_path, value):
    tree = SignalTree.from_parents([1, -1])
    tree.strange = value
    with pytest.raises(UnsupportedError, match="'strange'"):
        OnDiskTrees(tmp_path).append(tree)
    dataset = OnDiskTrees(tmp_path)
    assert len(dataset) == 0
    dataset.extend(listops(2))
    assert len(dataset) == 2


def test_a_full_disk(dataset):
    dataset.db.cursor.execute("PRAGMA page_count")
    (pages,) = dataset.db.cursor.fetchone()
    dataset.db.cursor.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(DiskFullError, match="no room"):
        dataset.extend(listops(500))
    assert len(dataset) == 60
    assert len(OnDiskTrees(dataset.root)) == 60


def test_two_writers(dataset):
    other = OnDiskTrees(dataset.root)
    other.extend(listops(2))
    with pytest.raises(FileFormatError, match="one process write"):
        dataset.extend(listops(2))
    assert len(OnDiskTrees(dataset.root)) == 62


def test_damaged_database(dataset):
    dataset.close()
    Path(dataset.processed_paths[0]).write_bytes(b"something else entirely" * 50)
    with pytest.raises(FileFormatError, match="cannot be read"):
        OnDiskTrees(dataset.root)


def test_damaged_row(dataset):
    dataset.close()
    with sqlite3.connect(dataset.processed_paths[0]) as connection:
        connection.execute("UPDATE OnDiskTrees SET COL_tree_index = x'0201' WHERE id = 3")
    again = OnDiskTrees(dataset.root)
    assert same(again[2], listops(60)[2])
    with pytest.raises(FileFormatError, match="damaged"):
        again[3]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "does not describe"),
        ("[1", "does not describe"),
        ('{"format": "hsa_geo.OnDiskTrees", "schema": 1, "fields": {}}', "does not describe"),
        (
            '{"format": "hsa_geo.OnDiskTrees", "schema": 9, '
            '"fields": {"num_nodes": {"kind": "count"}}}',
            "schema version 9",
        ),
    ],
)
def test_damaged_schema(dataset, content, message):
    (Path(dataset.processed_dir) / "schema.json").write_text(content)
    with pytest.raises(FileFormatError, match=message):
        OnDiskTrees(dataset.root)


def test_place_that_is_not_there(dataset):
    with pytest.raises(IndexError):
        dataset[60]
