"""Vectors of words: which one a word gets, and files of the text format."""

import gzip

import numpy as np
import pytest
import torch

from hsa_geo.datasets import WordVectors, read_vectors
from hsa_geo.errors import FileFormatError, HSAWarning, ShapeError

WORDS = ["do", "n't", "it", "'s", "low", "fat", "paris", "NATO", "o'clock", "50", "ca"]


@pytest.fixture
def table():
    return WordVectors(WORDS, torch.eye(len(WORDS)))


def parts(table, word, **kwargs):
    """Which words a word's vector is the mean of."""
    vectors, found = table.vectors([word], **kwargs)
    held = vectors[0].nonzero().flatten().tolist()
    if held:
        torch.testing.assert_close(vectors[0, held], torch.full((len(held),), 1 / len(held)))
    assert bool(found) == bool(held)
    return [WORDS[i] for i in held]


# Looking up #################################################################


@pytest.mark.parametrize(
    ("word", "want"),
    [
        ("do", ["do"]),
        ("Paris", ["paris"]),
        ("PARIS", ["paris"]),
        ("NATO", ["NATO"]),  # as written comes first
        ("nato", []),  # and capitals are not guessed
        ("don't", ["do", "n't"]),
        ("Don’t", ["do", "n't"]),
        ("can't", ["n't", "ca"]),
        ("It's", ["it", "'s"]),
        ("o'clock", ["o'clock"]),  # whole before parts
        ("low-fat", ["low", "fat"]),
        ("low-fat's", ["'s", "low", "fat"]),
        ("low-quux", ["low"]),
        ("$50", ["50"]),
        ("50%", ["50"]),
        ("quux", []),
        ("-", []),
        ("", []),
        ("'s", ["'s"]),
        ("日本", []),
        ("\ud800", []),
    ],
)
def test_rule(table, word, want):
    assert parts(table, word) == want


def test_without_parts(table):
    assert parts(table, "don't", split=False) == []
    assert parts(table, "Paris", split=False) == ["paris"]


def test_many_words_at_once(table):
    words = ["quux", "do", "don't", "do", "low-fat", "Paris"]
    vectors, found = table.vectors(words)
    assert vectors.dtype == torch.float32
    assert found.dtype == torch.bool
    assert found.tolist() == [False, True, True, True, True, True]
    for word, vector in zip(words, vectors):
        torch.testing.assert_close(vector, table.vectors([word])[0][0])
    empty, none = table.vectors([])
    assert empty.shape == (0, len(WORDS))
    assert none.shape == (0,)


def test_a_part_twice_counts_twice(table):
    torch.testing.assert_close(
        table.vectors(["low-low-fat"])[0][0, 4:6], torch.tensor([2 / 3, 1 / 3])
    )


def test_the_result_is_a_copy_in_any_layout():
    values = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(3, 2))
    values.flags.writeable = False  # as of a mapped file
    table = WordVectors(["a", "b", "c"], values)
    vectors, _ = table.vectors(["c", "a"])
    assert vectors.tolist() == [[4, 5], [0, 1]]
    vectors.zero_()
    assert values[2].tolist() == [4, 5]
    assert (len(table), table.dim, "b" in table, "d" in table) == (3, 2, True, False)
    assert repr(table) == "WordVectors(words=3, dim=2)"


def test_wrong_tables():
    with pytest.raises(ShapeError, match=r"shape \[2, 2\] for 3 words"):
        WordVectors(["a", "b", "c"], torch.eye(2))
    with pytest.raises(ShapeError, match="'a' comes twice"):
        WordVectors(["a", "b", "a"], torch.eye(3))
    with pytest.raises(ShapeError, match="single string 'abc'"):
        WordVectors(["a"], torch.eye(1)).vectors("abc")


# Files ######################################################################


def write(tmp_path, content, name="vectors.txt"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    "content",
    [
        "to 1 2\nbe -0.5 1e-1\n",
        "to 1 2\nbe -0.5 1e-1",  # no line end
        "2 2\nto 1 2\nbe -0.5 1e-1\n",  # header of word2vec
        "2 2\r\nto 1 2 \r\nbe -0.5 1e-1 \r\n",  # blanks at the end, as word2vec writes them
        "to\t1\t2\nbe\t-0.5\t1e-1\n\n",
        "\ufeffto 1 2\nbe -0.5 1e-1\n",  # a byte order mark
        "\ufeff2 2\nto 1 2\nbe -0.5 1e-1\n",
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_formats(tmp_path, content, packed):
    content = gzip.compress(content.encode()) if packed else content
    table = read_vectors(write(tmp_path, content))
    assert table.words == ["to", "be"]
    torch.testing.assert_close(
        torch.from_numpy(table.table.copy()), torch.tensor([[1, 2], [-0.5, 0.1]])
    )


def test_odd_words(tmp_path):
    content = "a 1 2\n. . . 3 4\n\u00a0 5 6\nx\x85y 7 8\n</s> 9 0\n日本 1 1\n"
    table = read_vectors(write(tmp_path, content))
    assert table.words == ["a", ". . .", "\u00a0", "x\x85y", "</s>", "日本"]
    assert table.table[1].tolist() == [3, 4]


def test_a_header_or_a_word(tmp_path):
    """'7 1' may be a header, or the word '7' with a vector of one number."""
    path = write(tmp_path, "7 1\n8 2\n")
    assert read_vectors(path, dim=1).words == ["7", "8"]
    with pytest.raises(FileFormatError, match="says that it holds 7 vectors, but has 1"):
        read_vectors(path)
    assert read_vectors(write(tmp_path, "7 1 2\n8 3 4\n")).words == ["7", "8"]
    with pytest.raises(FileFormatError, match="says that it holds 3 vectors, but has 2"):
        read_vectors(write(tmp_path, "3 2\na 1 2\nb 1 2\n"))


def test_only_and_limit(tmp_path):
    path = write(tmp_path, "3 1\nthe 1\nparis 2\nof 3\n")
    assert read_vectors(path, only=["Paris", "x"]).words == ["paris"]
    assert read_vectors(path, limit=2).words == ["the", "paris"]
    assert len(read_vectors(path, only=["x"])) == 0
    assert read_vectors(path, only=["x"]).vectors(["x"])[0].shape == (1, 1)


def test_repeated_words(tmp_path):
    with pytest.warns(HSAWarning, match="holds 2 words again"):
        table = read_vectors(write(tmp_path, "a 1 2\na 3 4\nb 5 6\na 7 8\n"))
    assert table.table.tolist() == [[1, 2], [5, 6]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "holds no vector"),
        ("\n\n", "holds no vector"),
        ("2 3\n", "holds no vector"),
        ("a\n", "line 1: 0 numbers"),
        ("\ufeff\n", "holds no vector"),
        ("1" * 5000 + " 2\n", "line 1 is b'1+'..., no header"),
        ("2 " + "1" * 5000 + "\n", "line 1 is b'2 1+'..., no header"),
        ("a 1 2\nb 1\n", "line 2: 1 numbers instead of 2"),
        ("a 1 2\nb 1 2 3\nc 1", r"line 3: 1 numbers instead of 2"),
        ("a 1 2\nb x 2\n", "line 2: could not convert"),
        ("a 1 2\n\nb 1 1_0\n", "line 3: '_' in a number"),
        ("a 1 2\nb nan 2\n", "line 2: the vector of 'b' is not finite"),
        ("a 1 -inf\n", "line 1: the vector of 'a' is not finite"),
        ("a 1 1e39\n", "'a' is beyond the range of float32"),
        (b"a 1 2\ncaf\xe9 1 2\n", r"line 2: .* is no UTF-8"),
        (b"2 3\nto \x00\x01\x02\xff\x80\n", "line 2"),  # word2vec's binary format
        (gzip.compress(b"a 1 2\n" * 50)[:-10], "is damaged"),
    ],
)
def test_bad_files(tmp_path, content, message):
    with pytest.raises(FileFormatError, match=message):
        read_vectors(write(tmp_path, content))


def test_bad_arguments(tmp_path):
    path = write(tmp_path, "a 1\n")
    with pytest.raises(ShapeError, match="dim=0"):
        read_vectors(path, dim=0)
    with pytest.raises(ShapeError, match="limit=0"):
        read_vectors(path, limit=0)
    with pytest.raises(FileNotFoundError):
        read_vectors(tmp_path / "none")
    with pytest.raises(FileFormatError, match="line 1: 1 numbers instead of 2"):
        read_vectors(path, dim=2)
