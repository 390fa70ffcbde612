"""The Brown corpus: tiny ones in its format, and the real one."""

import pytest
import torch
from text_archives import check_trees, real_root, tar_bytes, with_archive

from hsa_geo.datasets.brown import GENRES, GROUPS, Brown
from hsa_geo.errors import ArchiveError, BuilderError, UnsupportedError

NEWS = """

\tThe/at Grand/jj Jury/nn said/vbd ``/`` no/at ''/'' ./.
It/pps paid/vbd $1.40/nns and/or/cc 1/4''/nn ./.

\t*/*


\tThat/dt is/bez all/abn !/. //in
"""
FILES = {
    "package/cats.txt": "ca01 news\ncn02 adventure\ncj03 learned\n",
    "package/ca01": NEWS,
    "package/cn02": "He/pps ran/vbd ./.\n",
    "package/cj03": "\n\nLet/vb x/nn be/be 2/cd ./.\nThen/rb stop/vb\n",
    "package/README": "not read",
    "package/categories.pickle": b"never read",
}


@pytest.fixture
def dataset(tmp_path, monkeypatch):
    with_archive(monkeypatch, Brown, tmp_path, tar_bytes(FILES))
    return Brown(tmp_path, log=False)


def test_structure(dataset):
    check_trees(dataset)
    text = dataset.text(0)
    assert text == (
        'The Grand Jury said " no " .\nIt paid $1.40 and/or 1/4" .\n\n*\n\nThat is all ! /'
    )
    assert dataset.words(0)[4:10] == ["no", "it", "paid", "$1.40", "and/or", '1/4"']
    tree = Brown(dataset.root, log=False, options={"names": True})[0]
    inner = [
        (name, text[start:end])
        for name, (start, end) in zip(tree.tree_name, tree.tree_span.tolist())
    ][tree.num_leaves :]
    assert inner == [
        ("sentence", 'The Grand Jury said " no " .'),
        ("sentence", 'It paid $1.40 and/or 1/4" .'),
        ("sentence", "That is all ! /"),
        ("paragraph", text[:56]),
        ("paragraph", "That is all ! /"),
        ("document", text),
    ]
    assert dataset.report["failed"] == {}
    assert (dataset.report["paragraphs"], dataset.report["sentences"]) == (5, 7)
    assert dataset.report["tokens"] == 8 + 6 + 1 + 5 + 3 + 5 + 2


def test_punctuation(dataset):
    whole = Brown(dataset.root, log=False, options={"punctuation": True})
    check_trees(whole)
    assert whole.words(0)[4:8] == ['"', "no", '"', "."]
    assert sum(tree.num_leaves for tree in whole) == whole.report["tokens"] == 30
    # The paragraph of an asterisk is there, too.
    assert int((whole[0].tree_level == 1).sum()) == 3


def test_labels(dataset):
    assert dataset.names == ["ca01", "cj03", "cn02"]
    assert [dataset.classes[y] for y in dataset.column("y")] == ["news", "learned", "adventure"]
    assert torch.equal(dataset.column("y"), dataset.column("y_genre"))
    groups = Brown(dataset.root, log=False, options={"labels": "groups"})
    assert [groups.classes[y] for y in groups.column("y")] == ["press", "learned", "fiction"]
    assert torch.equal(groups.column("y"), groups.column("y_group"))
    assert groups.num_classes == 4
    assert dataset.num_classes == 15


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"labels": "genre"}, BuilderError, "labels='genre'"),
        ({"sentences": "plain"}, UnsupportedError, "no option 'sentences'"),
        ({"max_group": 4}, UnsupportedError, "no option 'max_group'"),
    ],
)
def test_options(dataset, options, error, message):
    with pytest.raises(error, match=message):
        Brown(dataset.root, log=False, options=options)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"package/cats.txt": "ca01 poems\n"}, "line 1 of cats.txt says 'ca01 poems'"),
        ({"package/cats.txt": "ca01\n"}, "line 1 of cats.txt says 'ca01'"),
        ({"package/cats.txt": "ca01 news\nca09 news\n"}, "ca09' cannot be read"),
        ({"package/cn02": "He/pps ran ./.\n"}, "line 1 of 'cn02' holds 'ran'"),
        ({"package/cn02": "\n/at\n"}, "line 2 of 'cn02' holds '/at'"),
        ({"package/cats.txt": ""}, "none of 0 documents"),
    ],
)
def test_what_is_no_corpus(tmp_path, monkeypatch, change, message):
    with_archive(monkeypatch, Brown, tmp_path, tar_bytes({**FILES, **change}))
    with pytest.raises(ArchiveError, match=message):
        Brown(tmp_path, log=False)
    assert not list((tmp_path / "processed").glob("*.safetensors"))


def test_no_table(tmp_path, monkeypatch):
    files = {name: content for name, content in FILES.items() if "cats" not in name}
    with_archive(monkeypatch, Brown, tmp_path, tar_bytes(files))
    with pytest.raises(ArchiveError, match=r"cats.txt' cannot be read"):
        Brown(tmp_path, log=False)


def test_undecodable_bytes_and_documents_without_words(tmp_path, monkeypatch):
    change = {"package/cn02": b"caf\xe9/nn\n", "package/cj03": "./.\n"}
    with_archive(monkeypatch, Brown, tmp_path, tar_bytes({**FILES, **change}))
    dataset = Brown(tmp_path, log=False)
    assert dataset.words(1) == ["caf\ufffd"]
    assert dataset.report["undecodable"] == 1
    assert list(dataset.report["failed"]) == ["cj03"]


def test_another_archive(tmp_path):
    path = tmp_path / "raw" / Brown.archives[0].filename
    path.parent.mkdir()
    path.write_bytes(tar_bytes(FILES))
    with pytest.raises(ArchiveError, match="has sha256"):
        Brown(tmp_path, log=False)


def test_groups_are_a_partition_of_genres():
    assert len(set(GENRES)) == 15
    assert [len(genres) for genres in GROUPS.values()] == [3, 5, 1, 6]


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    root = real_root(Brown, tmp_path_factory.mktemp("brown"))
    return Brown(root, log=False, options={"punctuation": True})


@pytest.mark.download
def test_real_counts(real):
    assert len(real) == 500
    report = real.report
    assert (report["paragraphs"], report["sentences"], report["tokens"]) == (15667, 57340, 1161192)
    assert report["failed"] == {}
    assert report["words"] == 1161192
    assert "undecodable" not in report
    nodes = torch.stack([tree.tree_level.bincount() for tree in real]).sum(0)
    assert nodes.tolist() == [500, 15667, 57340, 1161192]
    counts = real.column("y_genre").bincount().tolist()
    assert dict(zip(GENRES, counts)) == {
        "news": 44,
        "editorial": 27,
        "reviews": 17,
        "religion": 17,
        "hobbies": 36,
        "lore": 48,
        "belles_lettres": 75,
        "government": 30,
        "learned": 80,
        "fiction": 29,
        "mystery": 24,
        "science_fiction": 6,
        "adventure": 29,
        "romance": 29,
        "humor": 9,
    }
    assert real.column("y_group").bincount().tolist() == [88, 206, 80, 126]


@pytest.mark.download
def test_real_trees(real):
    check_trees(real, slice(0, None, 50))
    assert real.name(0) == "ca01"
    assert real.text(0).startswith("The Fulton County Grand Jury said Friday an investigation of")
    for fold in range(5):
        train, validation, test = real.split(fold)
        assert len(test) in (99, 100, 101)
        assert len(validation) in range(35, 45)
        assert set(real.column("y")[train].tolist()) == set(range(15))
