"""Stored vectors of words: made once, found by document and place, and nobody else's."""

import copy
import json
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch_geometric.data import InMemoryDataset
from torch_geometric.loader import DataLoader

from hsa_geo.builders import from_text
from hsa_geo.data import SignalTree
from hsa_geo.datasets import TextEncoder, TokenFeatures, make_token_features, with_features
from hsa_geo.datasets.collated import collate_trees
from hsa_geo.errors import FileFormatError, ShapeError, UnsupportedError
from hsa_geo.transforms import DropLeaves, Rewindow

TEXTS = [
    "The cat sat.",
    "Cats play! The cat's playing.",
    "x",
    "日本語 the cat",
    "the cat sat " * 20,
    "play cat play",
    "the \U0001f600 sat",
]


class Texts(InMemoryDataset):
    """A dataset of texts, as those of hsa_geo are."""

    def __init__(self, root, texts=TEXTS, ids=None, transform=None, change=None):
        super().__init__(str(root), transform)
        self.texts = dict(zip(ids or range(len(texts)), texts))
        trees = []
        for key, text in self.texts.items():
            tree = from_text(text, names=False)
            del tree.text_x, tree.text_index
            tree.doc_id = torch.tensor([key])
            trees.append(tree if change is None else change(tree))
        self.data, self.slices = collate_trees(trees)

    def text(self, i):
        return self.texts[int(self.get(self.indices()[i]).doc_id)]


@pytest.fixture(scope="module")
def encoder(tiny_bert):
    return TextEncoder(tiny_bert)


@pytest.fixture
def made(tmp_path, encoder):
    """A dataset and its features, in several shards."""
    dataset = Texts(tmp_path / "root")
    features = make_token_features(dataset, encoder, shard_words=8, log=False)
    return dataset, features


def expected(encoder, tree, text):
    return encoder.words([text], [tree.tree_span[: tree.num_nodes]])[0]


def shards(folder):
    return sorted(folder.glob("*.safetensors"))


# Made and read ##############################################################


def test_every_tree_gets_its_own(made, encoder):
    dataset, features = made
    assert features.folder == Path(dataset.root, "features", f"{encoder.settings['model']}-3")
    assert len(shards(features.folder)) == len(features.index["shards"]) > 2
    assert len(features) == features.index["documents"] == 7
    assert features.index["words"] == features.index["vectors"] == sum(t.num_nodes for t in dataset)
    featured = with_features(dataset, features.folder, check=True)
    for i, tree in enumerate(featured):
        vectors, rows = expected(encoder, dataset[i], TEXTS[i])
        assert tree.token_x.dtype == torch.float16
        assert tree.token_index.dtype == torch.int64
        torch.testing.assert_close(tree.token_x.float(), vectors, rtol=2e-3, atol=2e-3)
        assert torch.equal(tree.token_index, rows)
        tree.validate()
    assert "token_x" not in dataset[0]  # the given one is as it was


def test_subsets_batches_and_transforms(made):
    dataset, features = made
    dataset.transform = DropLeaves(0.5, seed=0)
    featured = with_features(dataset, features.folder)
    some = featured[[4, 1, 0]]
    assert [int(tree.doc_id) for tree in some] == [4, 1, 0]
    for tree in some:
        whole = features(dataset.get(int(tree.doc_id)))
        assert len(tree.token_x) == tree.num_nodes < whole.num_nodes
        held = (whole.token_x.unsqueeze(0) == tree.token_x.unsqueeze(1)).all(-1).any(1)
        assert held.all()
    dataset.transform = None
    featured = with_features(dataset, features.folder)
    for workers in (0, 2):
        loader = DataLoader(featured, batch_size=7, num_workers=workers)
        batch = next(iter(loader))
        assert batch.token_index.tolist() == list(range(batch.num_nodes))
        assert len(batch.token_x) == batch.num_nodes
        for tree, back in zip(featured, batch.to_data_list()):
            assert torch.equal(tree.token_x, back.token_x)


def test_another_hierarchy_over_the_same_words(made, encoder, tmp_path):
    """Leaves in windows, in another order, or only some of them: the features are the words'."""
    dataset, features = made
    by_place = {}
    for tree in map(features, dataset):
        spans = tree.tree_span[: tree.num_nodes].tolist()
        for k, row in enumerate(tree.token_index.tolist()):
            by_place[int(tree.doc_id), tuple(spans[row])] = tree.token_x[k]

    def shuffled(tree):
        order = torch.randperm(tree.num_nodes, generator=torch.Generator().manual_seed(1))
        spans = tree.tree_span[: tree.num_nodes][order]
        root = torch.tensor([[0, 10_000]])
        return SignalTree.from_parents(
            [tree.num_nodes] * tree.num_nodes + [-1],
            tree_span=torch.cat([spans, root]),
            doc_id=tree.doc_id,
        )

    for change in (Rewindow([2]), shuffled, lambda tree: tree.restrict(torch.arange(1))):
        other = Texts(tmp_path / "other", change=change)
        for tree in with_features(other, features.folder):
            assert tree.token_index.tolist() == list(range(tree.num_nodes))
            spans = tree.tree_span[: tree.num_nodes].tolist()
            for k in range(tree.num_nodes):
                want = by_place[int(tree.doc_id), tuple(spans[k])]
                assert torch.equal(tree.token_x[k], want)
    # Features of the shuffled trees are the same features.
    again = Texts(tmp_path / "other", change=shuffled)
    before = [path.stat().st_mtime_ns for path in shards(features.folder)]
    make_token_features(again, encoder, features.folder, shard_words=8, log=False)
    assert [path.stat().st_mtime_ns for path in shards(features.folder)] == before


def test_leaves_without_text_and_words_without_pieces(tmp_path, encoder):
    tree = SignalTree.from_parents(
        [4] * 4 + [-1], tree_span=torch.tensor([[0, 3], [3, 3], [4, 5], [6, 9], [0, 9]])
    )
    tree.doc_id = torch.tensor([5])
    features = make_token_features(
        [tree], encoder, tmp_path / "f", texts=["the \x01 cat"], log=False
    )
    assert (features.index["words"], features.index["vectors"]) == (3, 2)
    read = features(tree)
    assert read.token_index.tolist() == [0, 3]
    assert read.token_x.shape == (2, 16)
    assert "token_x" not in tree
    pictures = copy.copy(tree)
    pictures.tree_span = torch.zeros(5, 2, dtype=torch.int64)
    none = make_token_features([pictures], encoder, tmp_path / "g", texts=[""], log=False)
    assert none(pictures).token_x.shape == (0, 16)
    assert none(pictures).token_index.shape == (0,)


def test_no_documents(tmp_path, encoder):
    features = make_token_features([], encoder, tmp_path, texts=[], log=False)
    assert len(features) == 0
    assert len(TokenFeatures(tmp_path)) == 0


def test_modality_pickle_and_repr(made):
    dataset, features = made
    other = TokenFeatures(features.folder, modality="context")
    tree = pickle.loads(pickle.dumps(other))(dataset[1])
    assert tree.context_x.shape == (tree.num_nodes, 16)
    assert "token_x" not in tree
    both = with_features(with_features(dataset, features.folder), features.folder, "context")
    assert {"token_x", "context_x"} <= set(both[0].keys())
    assert repr(other) == f"TokenFeatures('{features.folder}', modality='context')"


# Going on ###################################################################


def test_what_is_done_is_not_done_again(made, encoder, monkeypatch):
    dataset, features = made
    whole = [path.read_bytes() for path in shards(features.folder)]
    calls = []
    words = encoder.words
    monkeypatch.setattr(
        encoder, "words", lambda texts, *a, **k: calls.append(len(texts)) or words(texts, *a, **k)
    )

    def again(**kwargs):
        calls.clear()
        make_token_features(dataset, encoder, shard_words=8, log=False, **kwargs)
        return sum(calls)

    assert again() == 0
    second = shards(features.folder)[1]
    second.write_bytes(second.read_bytes()[:-1])
    lost = again()
    assert 0 < lost < 7
    second.write_bytes(second.read_bytes()[:-1] + b"\x55")  # the right length
    assert again() == lost
    second.unlink()
    (features.folder / "features.json").unlink()
    assert again() == lost
    assert [path.read_bytes() for path in shards(features.folder)] == whole
    calls.clear()
    make_token_features(dataset, encoder, log=False)  # complete, however it is cut
    assert not calls
    assert [path.read_bytes() for path in shards(features.folder)] == whole


def test_a_changed_text_is_done_again_and_old_files_go(made, encoder):
    dataset, features = made
    before = {path.name for path in shards(features.folder)}
    dataset.texts[6] = "cat \U0001f600 sat"  # words at the same places
    with pytest.raises(FileFormatError, match="features of other documents or texts"):
        make_token_features(dataset, encoder, shard_words=8, log=False)
    (features.folder / "notes.txt").write_text("mine")
    features = make_token_features(dataset, encoder, shard_words=8, force=True, log=False)
    after = {path.name for path in shards(features.folder)}
    assert len(after) == len(before)
    assert len(before & after) == len(before) - 1
    vectors, _ = expected(encoder, dataset[6], "cat \U0001f600 sat")
    torch.testing.assert_close(features(dataset[6]).token_x.float(), vectors, rtol=2e-3, atol=2e-3)
    assert (features.folder / "notes.txt").exists()


def test_features_of_another_encoder_are_not_replaced(made, encoder, tiny_bert):
    dataset, features = made
    other = TextEncoder(tiny_bert, layer=1, window=9)
    with pytest.raises(FileFormatError, match=r"features of another layer, window, stride: give"):
        make_token_features(dataset, other, features.folder, log=False)
    assert make_token_features(dataset, other, log=False).folder != features.folder


KILLED = """
import sys, time
sys.path.insert(0, sys.argv[1])
from test_token_features import Texts
from hsa_geo.datasets import TextEncoder, make_token_features
encoder = TextEncoder(sys.argv[3])
words, calls = encoder.words, []
def slow(*args, **kwargs):
    calls.append(0)
    time.sleep(60.0 if len(calls) == 3 else 0.0)
    return words(*args, **kwargs)
encoder.words = slow
make_token_features(Texts(sys.argv[2]), encoder, shard_words=8)
"""


def test_a_killed_run_continues(tmp_path, tiny_bert, encoder, monkeypatch):
    folder = tmp_path / "features" / f"{tiny_bert.name}-3"
    here = os.path.dirname(__file__)
    script = [sys.executable, "-c", KILLED, here, str(tmp_path), str(tiny_bert)]
    with subprocess.Popen(
        script, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE
    ) as process:
        deadline = time.monotonic() + 120
        while len(shards(folder)) < 2 and time.monotonic() < deadline:
            assert process.poll() is None, process.stderr.read().decode()
            time.sleep(0.02)
        process.kill()
    assert len(shards(folder)) == 2
    with pytest.raises(FileFormatError, match=r"no complete features.*goes on"):
        TokenFeatures(folder)
    half = folder / f".{shards(folder)[0].name}-left"
    half.write_bytes(b"half")
    sizes = []
    words = encoder.words
    monkeypatch.setattr(
        encoder, "words", lambda texts, *a, **k: sizes.append(len(texts)) or words(texts, *a, **k)
    )
    dataset = Texts(tmp_path)
    resumed = make_token_features(dataset, encoder, shard_words=8, log=False)
    assert 0 < sum(sizes) < 7
    assert not half.exists()
    fresh = make_token_features(dataset, encoder, tmp_path / "fresh", shard_words=8, log=False)
    assert fresh.index == resumed.index
    for a, b in zip(shards(folder), shards(tmp_path / "fresh")):
        assert a.read_bytes() == b.read_bytes()


def test_progress(tmp_path, encoder, capsys):
    make_token_features(Texts(tmp_path), encoder, shard_words=8)
    out, err = capsys.readouterr()
    assert out == ""
    assert f"Encoding words with {encoder.settings['model']}: 7/7" in err


# Faults #####################################################################


def test_damaged_files(made):
    dataset, features = made
    path = shards(features.folder)[0]
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    with pytest.raises(FileFormatError, match=r"is damaged.*make_token_features"):
        TokenFeatures(features.folder)
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    TokenFeatures(features.folder)
    with pytest.raises(FileFormatError, match="its checksum is another one"):
        TokenFeatures(features.folder, check=True)
    path.write_bytes(shards(features.folder)[1].read_bytes())
    with pytest.raises(FileFormatError, match="is damaged"):
        TokenFeatures(features.folder, check=True)
    path.unlink()
    with pytest.raises(FileFormatError, match="is damaged"):
        TokenFeatures(features.folder)
    with pytest.raises(FileFormatError, match="is damaged"):
        with_features(dataset, features.folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is damaged"),
        ("[" * 99_999, "is damaged"),
        ("[]", "lists no shards"),
        ('{"format": "hsa_geo.token_features", "schema": 9, "shards": {}}', "has schema 9"),
        ('{"format": "other", "schema": 1, "shards": {}}', "of format 'other'"),
    ],
)
def test_damaged_index(made, content, message):
    _, features = made
    (features.folder / "features.json").write_text(content)
    with pytest.raises(FileFormatError, match=message):
        TokenFeatures(features.folder)


def test_trees_of_something_else(made):
    dataset, features = made
    tree = copy.copy(dataset[0])
    tree.tree_span = tree.tree_span + 1
    with pytest.raises(FileFormatError, match=r"other words than those of document 0.*at 1:4"):
        features(tree)
    tree = copy.copy(dataset[0])
    tree.doc_id = torch.tensor([70])
    with pytest.raises(ShapeError, match="holds no document 70"):
        features(tree)
    del tree.doc_id
    with pytest.raises(ShapeError, match=r"no doc_id \[1\]"):
        features(tree)
    tree = copy.copy(dataset[0])
    del tree.tree_span
    with pytest.raises(ShapeError, match=r"no tree_span \[M, 2\]"):
        features(tree)
    with pytest.raises(UnsupportedError, match="TokenFeatures takes single trees"):
        features(next(iter(DataLoader(dataset, batch_size=2))))
    with pytest.raises(ShapeError, match="a list has no transform"):
        with_features([dataset[0]], features.folder)


def test_bad_datasets(tmp_path, encoder):
    twice = Texts(tmp_path, ids=list(range(7)))
    trees = [twice[0], twice[0]]
    with pytest.raises(ShapeError, match="doc_id=0 comes twice"):
        make_token_features(trees, encoder, tmp_path / "f", texts=["a", "b"], log=False)
    with pytest.raises(ShapeError, match="1 texts for 2 trees"):
        make_token_features(trees, encoder, tmp_path / "f", texts=["a"], log=False)
    with pytest.raises(ShapeError, match=r"a list has no text\(i\)"):
        make_token_features(trees, encoder, tmp_path / "f", log=False)
    with pytest.raises(ShapeError, match="give a folder"):
        make_token_features(trees, encoder, texts=["a", "b"], log=False)
    with pytest.raises(ShapeError, match="shard_words=0"):
        make_token_features(twice, encoder, shard_words=0, log=False)
    assert list(tmp_path.glob("f/*")) == []


def test_vectors_beyond_float16(tmp_path, encoder, monkeypatch):
    words = encoder.words
    monkeypatch.setattr(
        encoder, "words", lambda *a, **k: [(x * 1e5, rows) for x, rows in words(*a, **k)]
    )
    with pytest.raises(ShapeError, match="beyond the range of float16"):
        make_token_features(Texts(tmp_path), encoder, log=False)
    assert shards(tmp_path / "features") == []


def test_json_of_the_index_says_what_it_is(made, encoder):
    _, features = made
    index = json.loads((features.folder / "features.json").read_text())
    for key, value in encoder.settings.items():
        assert index[key] == value
