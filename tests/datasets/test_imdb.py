"""IMDB: a tiny folder in its format."""

import pytest
from text_archives import check_trees

from hsa_geo.datasets.imdb import IMDB
from hsa_geo.errors import ArchiveError, LabelError

FILES = {
    "train/pos/0_9.txt": "Bromwell High is a <b>cartoon</b>.<br /><br />It ran &amp; ran.",
    "train/pos/1_7.txt": "Fine.",
    "train/pos/10_10.txt": "Seen twice, loved it twice.",
    "train/neg/0_3.txt": "Story of a man. Don't.",
    "train/neg/notes.md": "not read",
    "train/urls_pos.txt": (
        "http://www.imdb.com/title/tt0453418/usercomments\n"
        "http://www.imdb.com/title/tt0000002/usercomments\n"
    ),
    "train/urls_neg.txt": "http://www.imdb.com/title/tt0453418/usercomments\n",
    "train/unsup/0_0.txt": "not read",
    "test/pos/0_10.txt": "I went. I saw. Café!",
    "test/neg/0_1.txt": "seen TWICE, loved it twice",
    "imdb.vocab": "not read",
}


def write(root, files):
    for name, content in files.items():
        path = root / "raw" / "aclImdb" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = content.encode() if isinstance(content, str) else content
        path.write_bytes(content)
    return root


def test_reviews(tmp_path):
    dataset = IMDB(write(tmp_path, FILES), log=False)
    check_trees(dataset)
    assert dataset.names == [
        "train/pos/0_9.txt",
        "train/pos/1_7.txt",
        "train/pos/10_10.txt",
        "train/neg/0_3.txt",
        "test/pos/0_10.txt",
        "test/neg/0_1.txt",
    ]
    assert dataset.text(0) == "Bromwell High is a cartoon.\n\nIt ran & ran."
    assert dataset[0].tree_level.bincount().tolist() == [1, 2, 2, 8]
    assert dataset.column("y").tolist() == [1, 1, 1, 0, 1, 0]
    assert dataset.column("rating").tolist() == [9, 7, 10, 3, 10, 1]
    assert dataset.column("split").tolist() == [0, 0, 0, 0, 2, 2]
    # Of one movie, or the same text.
    assert dataset.groups().tolist() == [0, 1, 2, 0, 3, 2]
    train, validation, test = dataset.split(validation=0)
    assert (train.tolist(), validation.tolist(), test.tolist()) == ([0, 1, 2, 3], [], [4, 5])


def test_byte_order_mark(tmp_path):
    files = {**FILES, "train/pos/1_7.txt": b"\xef\xbb\xbfFine."}
    dataset = IMDB(write(tmp_path, files), log=False)
    assert dataset.text(1) == "Fine."
    assert dataset.words(1) == ["fine"]


def test_files_are_not_needed_afterwards(tmp_path):
    import shutil

    first = IMDB(write(tmp_path, FILES), log=False)
    shutil.rmtree(tmp_path / "raw")
    assert IMDB(tmp_path, log=False).texts == first.texts


def test_a_link_will_do(tmp_path):
    write(tmp_path / "elsewhere", FILES)
    (tmp_path / "root" / "raw").mkdir(parents=True)
    (tmp_path / "root" / "raw" / "aclImdb").symlink_to(tmp_path / "elsewhere" / "raw" / "aclImdb")
    assert len(IMDB(tmp_path / "root", log=False, options={"hierarchy": "flat"})) == 6


def test_not_there(tmp_path):
    with pytest.raises(ArchiveError, match=r"train.pos' is not there .*: get aclImdb_v1.tar.gz"):
        IMDB(tmp_path, log=False)
    assert not list((tmp_path / "processed").glob("imdb*.safetensors"))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"train/pos/2_3.txt": "x"}, LabelError, r"2_3.txt' says 3 stars, .* 'pos' have 7 to 10"),
        ({"test/neg/9_5.txt": "x"}, LabelError, "says 5 stars, .* 'neg' have 1 to 4"),
        ({"test/pos/0_10.txt": None, "test/pos/a.txt": "x"}, ArchiveError, "holds no reviews"),
        ({"test/neg/0_1.txt": None}, ArchiveError, "test.neg' is not there"),
    ],
)
def test_bad_folders(tmp_path, change, error, message):
    files = {name: text for name, text in {**FILES, **change}.items() if text is not None}
    with pytest.raises(error, match=message):
        IMDB(write(tmp_path, files), log=False)


def test_undecodable_and_empty(tmp_path):
    files = {**FILES, "test/pos/1_8.txt": b"caf\xe9 was good", "test/pos/2_8.txt": b" "}
    dataset = IMDB(write(tmp_path, files), log=False)
    assert dataset.report["undecodable"] == 1
    assert list(dataset.report["failed"]) == ["test/pos/2_8.txt"]
    assert dataset.words(5) == ["caf", "was", "good"]


def test_without_urls(tmp_path):
    files = {name: text for name, text in FILES.items() if "urls" not in name}
    dataset = IMDB(write(tmp_path, files), log=False)
    assert dataset.groups().tolist() == [0, 1, 2, 3, 4, 2]
