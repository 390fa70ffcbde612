"""Elec: tiny files in its format."""

import pytest
from text_archives import check_trees

from hsa_geo.datasets.elec import Elec
from hsa_geo.errors import ArchiveError, BuilderError, LabelError, UnsupportedError

TRAIN = [
    "it 's a good one . i 'd buy it ( again ) ! !",
    "broke after 1.5 days ...  do n't buy",
    "works .",
    "does not work . '' never did",
    "fine",
    "Works!",
    "ok ? yes .",
    "meh -- meh",
    "good",
    "bad",
]
TRAIN_LABELS = ["2", "1"] * 5
TEST = ["works .", "bad . bad ."]
FILES = {
    "elec-25k-train.txt.tok": "\n".join(TRAIN) + "\n",
    "elec-25k-train.cat": "\n".join(TRAIN_LABELS) + "\n",
    "elec-test.txt.tok": "\n".join(TEST),
    "elec-test.cat": "2\r\n1\r\n",
    "elec-25k-train.txt": "\n".join(["It's good. I'd buy it!", *TRAIN[1:]]) + "\n",
    "elec-test.txt": "Works.\nBad. Bad.\n",
}


def write(root, change=None):
    folder = root / "raw" / "elec"
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in {**FILES, **(change or {})}.items():
        if content is not None:
            content = content.encode() if isinstance(content, str) else content
            (folder / name).write_bytes(content)
    return root


def test_byte_order_marks(tmp_path):
    marked = {name: "\ufeff" + content for name, content in FILES.items()}
    dataset = Elec(write(tmp_path, marked), log=False)
    assert dataset.words(0)[:2] == ["it", "'s"]
    assert dataset.column("y").tolist()[:2] == [1, 0]


def test_tokens(tmp_path):
    dataset = Elec(write(tmp_path), log=False)
    check_trees(dataset)
    assert len(dataset) == 12
    assert dataset.name(0) == "elec-25k-train:1"
    assert dataset.name(10) == "elec-test:1"
    assert dataset.words(0) == ["it", "'s", "a", "good", "one", "i", "'d", "buy", "it", "again"]
    assert dataset.words(1) == ["broke", "after", "1.5", "days", "do", "n't", "buy"]
    sentences = [
        [text[a:b] for a, b in tree.tree_span[tree.num_leaves : -1].tolist()]
        for tree, text in zip(dataset[:4], map(dataset.text, range(4)))
    ]
    assert sentences == [
        ["it 's a good one .", "i 'd buy it ( again ) ! !"],
        ["broke after 1.5 days ...", "do n't buy"],
        ["works ."],
        ["does not work . ''", "never did"],
    ]
    assert dataset.column("y").tolist() == [1, 0] * 6
    assert dataset.column("split").tolist() == [0] * 10 + [2] * 2
    assert dataset.column("part").tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert [len(part) for part in dataset.split()] == [9, 1, 2]


def test_punctuation(tmp_path):
    dataset = Elec(write(tmp_path), log=False, options={"punctuation": True})
    check_trees(dataset)
    assert dataset.words(0) == TRAIN[0].split()


def test_untokenised(tmp_path):
    options = {"tokens": False, "sentences": "plain"}
    dataset = Elec(write(tmp_path), log=False, options=options)
    check_trees(dataset)
    assert dataset.words(0) == ["it's", "good", "i'd", "buy", "it"]
    assert dataset[11].tree_level.bincount().tolist() == [1, 1, 2, 2]


def test_another_size(tmp_path):
    more = {"elec-05k-train.txt.tok": "a\nb\n", "elec-05k-train.cat": "1\n2\n"}
    dataset = Elec(write(tmp_path, more), log=False, options={"size": "05k"})
    assert len(dataset) == 4


def test_equal_texts_are_one_group(tmp_path):
    change = {"elec-test.txt.tok": "It 's a good one , I 'd buy it : again\nbad . bad .\n"}
    groups = Elec(write(tmp_path, change), log=False).groups().tolist()
    assert groups[10] == groups[0]
    assert len(set(groups)) == 11


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"elec-test.cat": None}, ArchiveError, r"elec-test.cat' is not there: get elec2.tar.gz"),
        ({"elec-test.cat": "2\n"}, ArchiveError, "'elec-test' has 2 reviews but 1 labels"),
        ({"elec-test.cat": "2\n3\n"}, LabelError, "line 2 of 'elec-test.cat' is '3'"),
        ({"elec-25k-train.cat": "\n" * 10}, LabelError, "line 1 of 'elec-25k-train.cat' is ''"),
    ],
)
def test_bad_files(tmp_path, change, error, message):
    with pytest.raises(error, match=message):
        Elec(write(tmp_path, change), log=False)
    assert not list((tmp_path / "processed").glob("*.safetensors"))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"tokens": 1}, BuilderError, "tokens=1"),
        ({"size": "../25k"}, BuilderError, "size='../25k'"),
        ({"size": "50k"}, ArchiveError, "elec-50k-train.txt.tok' is not there"),
        ({"sentences": None}, UnsupportedError, "sentences=None has no effect"),
    ],
)
def test_options(tmp_path, options, error, message):
    with pytest.raises(error, match=message):
        Elec(write(tmp_path), log=False, options=options)


def test_undecodable_and_empty(tmp_path):
    change = {"elec-test.txt.tok": b"caf\xe9 good\n\n"}
    dataset = Elec(write(tmp_path, change), log=False)
    assert dataset.report["undecodable"] == 1
    assert list(dataset.report["failed"]) == ["elec-test:2"]
    assert len(dataset) == 11
