"""The base of text datasets: words, vocabulary, texts, splits, what happens to bad ones."""

from pathlib import Path

import numpy as np
import pytest
import torch
from text_archives import check_trees
from torch_geometric.loader import DataLoader

from hsa_geo.datasets.text_documents import Document
from hsa_geo.datasets.text_trees import TextTrees, plain_review, read_file
from hsa_geo.errors import ArchiveError, LabelError, UnsupportedError

TEXTS = [
    "The cat sat. The cat ran!",
    "A dog; a dog’s life.\n\nEnd of the dog.",
    "...",
    "The END.",
] + [f"Text number {i} of the cat" for i in range(20)]


class Few(TextTrees):
    file_name, part_size = "few", 3
    classes = ("even", "odd")

    def documents(self):
        self.counts["letters"] = sum(map(len, TEXTS))
        return [
            Document(f"text {i}", text, i % 2, {"group_id": i // 4, "split": 2 * int(i >= 18)})
            for i, text in enumerate(TEXTS)
        ]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return Few(tmp_path_factory.mktemp("few"), log=False)


def test_trees(dataset):
    check_trees(dataset)
    assert dataset.words(1) == ["a", "dog", "a", "dog's", "life", "end", "of", "the", "dog"]
    assert [dataset.name(i) for i in range(3)] == ["text 0", "text 1", "text 3"]
    assert dataset.column("doc_id").tolist() == [0, 1, *range(3, 24)]
    assert dataset.column("y").tolist() == [i % 2 for i in [0, 1, *range(3, 24)]]
    assert dataset.num_classes == 2


def test_report(dataset):
    report = dataset.report
    assert report["documents"] == report["items"] == 24
    assert report["stored"] == 23
    assert report["words"] == sum(tree.num_leaves for tree in dataset)
    assert report["vocabulary"] == len(dataset.vocabulary)
    assert report["letters"] == sum(map(len, TEXTS))
    assert list(report["failed"]) == ["text 2"]
    assert "has no word" in report["failed"]["text 2"]


def test_vocabulary_is_from_frequent_to_rare(dataset):
    counts = torch.cat([tree.word_x for tree in dataset]).bincount()
    assert len(counts) == len(dataset.vocabulary)
    ranked = sorted(zip((-counts).tolist(), dataset.vocabulary))
    assert [word for _, word in ranked] == dataset.vocabulary
    assert dataset.vocabulary[0] == "the"


def test_vocabulary_does_not_depend_on_parts(dataset, tmp_path, monkeypatch):
    monkeypatch.setattr(Few, "part_size", 7)
    other = Few(tmp_path, log=False)
    assert other.vocabulary == dataset.vocabulary
    assert all(torch.equal(a.word_x, b.word_x) for a, b in zip(other, dataset))


def test_loaded_again(dataset):
    again = Few(dataset.root, log=False)
    assert (again.vocabulary, again.texts, again.names) == (
        dataset.vocabulary,
        dataset.texts,
        dataset.names,
    )
    assert again.report == dataset.report


def test_a_killed_build_goes_on(tmp_path, monkeypatch, dataset):
    from hsa_geo.datasets import text_trees

    build, calls = text_trees.document_tree, []

    def dies(tree, settings):
        calls.append(1)
        if len(calls) == 11:
            raise KeyboardInterrupt
        return build(tree, settings)

    monkeypatch.setattr(text_trees, "document_tree", dies)
    with pytest.raises(KeyboardInterrupt):
        Few(tmp_path, log=False)
    again = Few(tmp_path, log=False)
    assert len(calls) == 11 + 23 - 8  # three parts of three, one text of which has no word
    assert again.vocabulary == dataset.vocabulary
    assert all(torch.equal(a.word_x, b.word_x) for a, b in zip(again, dataset))


def test_subset_and_filter(dataset, tmp_path):
    odd = dataset[dataset.column("y") == 1]
    assert odd.text(1) == TEXTS[3]
    assert odd.words(1) == ["the", "end"]
    assert odd.name(1) == "text 3"
    assert odd.groups().tolist() == [i // 4 for i in range(1, 24, 2)]
    filtered = Few(tmp_path, log=False, pre_filter=lambda tree: tree.num_leaves > 5)
    check_trees(filtered)
    assert len(filtered) == 22


def test_batches(dataset):
    batch = next(iter(DataLoader(dataset, batch_size=5)))
    assert batch.validate()
    assert batch.y.shape == (5,)
    assert batch.word_index.tolist() == list(range(batch.num_nodes))


def test_splits(dataset):
    groups = dataset.groups()
    tests = []
    for fold in range(3):
        sets = dataset.split(fold, folds=3, validation=0.3)
        assert sorted(np.concatenate(sets).tolist()) == list(range(23))
        sides = [set(groups[rows].tolist()) for rows in sets]
        assert not sides[0] & sides[1] | sides[0] & sides[2] | sides[1] & sides[2]
        tests += sets[2].tolist()
    assert sorted(tests) == list(range(23))
    train, validation, test = dataset.split(validation=0.25)
    assert test.tolist() == list(range(17, 23))
    assert not set(groups[train].tolist()) & set(groups[validation].tolist())
    assert sorted([*train, *validation]) == list(range(17))
    assert len(dataset[train]) == len(train)
    # Of a subset the indices are those of the subset.
    part = dataset[10:]
    assert part.split()[2].tolist() == list(range(7, 13))


def test_without_a_given_test_set_or_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(
        Few, "documents", lambda self: [Document(t, t, i % 2) for i, t in enumerate(TEXTS)]
    )
    dataset = Few(tmp_path, log=False)
    with pytest.raises(UnsupportedError, match="Few comes without a test set: pass a fold, from 0"):
        dataset.split()
    assert dataset.groups().tolist() == dataset.column("doc_id").tolist()
    assert len(dataset.split(4)[2]) in (4, 5)


def test_options_are_stored_side_by_side(tmp_path):
    plain = Few(tmp_path, log=False)
    flat = Few(tmp_path, log=False, options={"hierarchy": "flat"})
    assert flat[0].depth == 1
    assert plain[0].depth == 3
    assert len(list((tmp_path / "processed").glob("*.safetensors"))) == 2
    assert [tree.word_x.tolist() for tree in flat] == [tree.word_x.tolist() for tree in plain]
    keeps = Few(tmp_path, log=False, options={"punctuation": True})
    assert keeps.words(2) == ["..."]
    with pytest.raises(UnsupportedError, match="no option 'punctation'"):
        Few(tmp_path, log=False, options={"punctation": True})


def test_label_out_of_range(tmp_path, monkeypatch):
    monkeypatch.setattr(Few, "classes", ("even",))
    with pytest.raises(LabelError, match="1"):
        Few(tmp_path, log=False)
    assert not list((tmp_path / "processed").glob("few*.safetensors"))


def test_nothing_pickled(dataset):
    folder = Path(dataset.processed_dir)
    assert sorted(path.name for path in folder.iterdir()) == [
        "few.report.json",
        "few.safetensors",
    ]


def test_read_file(tmp_path):
    counts = {}
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfna\xc3\xafve")
    (tmp_path / "b").write_bytes(b"na\xefve")
    assert read_file(tmp_path / "a", counts) == "naïve"
    assert counts == {}
    assert read_file(tmp_path / "b", counts) == "na\ufffdve"
    assert counts == {"undecodable": 1}
    with pytest.raises(ArchiveError, match=r"'.*c' cannot be read .*so the corpus is not complete"):
        read_file(tmp_path / "c", counts, "the corpus")


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("a<br />b", "a\n\nb"),
        ("a <br><BR/> b", "a\n\nb"),
        ("1 < 2 and 3 > 2", "1 < 2 and 3 > 2"),
        ('<a href="x">link</a> &quot;q&quot;', 'link "q"'),
        ("&lt;b&gt;", "<b>"),
        ("I <3 it", "I <3 it"),
        ("<" * 5000 + "b", "<" * 5000 + "b"),
    ],
)
def test_plain_review(text, plain):
    assert plain_review(text) == plain
