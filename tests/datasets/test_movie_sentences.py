"""Rated sentences: tiny files in their format, and the real ones."""

import pytest
import torch
from text_archives import check_trees, real_root, tar_bytes, with_archive

from hsa_geo.datasets.movie_sentences import MovieSentences
from hsa_geo.errors import ArchiveError, BuilderError, UnsupportedError

MOVIES = (
    "1\t2.5\tThe Rock is destined. Really!\r\n2\t-0.6\tToo tepid\r\n"
    "3\t0\tSo &amp; so\r\n4\t-4\ttoo TEPID!\r\n5\t4\t…"
)
REVIEWS = (
    "1_1\t-0.9\tno picture scrolling b/w.\r\n1_2\t-0.15\trepost. from 2004\r\n1_3\t3\t!\r\n"
    "1_4\t1.5\tdon't buy\r\n309_7\t0.45\tit worked.\r\n309_8\t2.75\tsentence"
)
INNER = {
    "hutto_ICWSM_2014/movieReviewSnippets_GroundTruth.txt": "\ufeff" + MOVIES,
    "hutto_ICWSM_2014/movieReviewSnippets_anonDataRatings.txt": "1\t2\n",
    "hutto_ICWSM_2014/amazonReviewSnippets_GroundTruth.txt": REVIEWS,
    "hutto_ICWSM_2014/nytEditorialSnippets_GroundTruth.txt": REVIEWS.replace("1_", "7_"),
    "hutto_ICWSM_2014/tweets_GroundTruth.txt": "1\t1.0\t@anonymous yay\r\n2\t-1\tnay",
    "hutto_ICWSM_2014/vaderSentiment.py": "never run",
}


def sdist(change=None):
    name = "vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz"
    files = {key: value for key, value in {**INNER, **(change or {})}.items() if value is not None}
    return tar_bytes({"vaderSentiment-3.3.2/setup.py": "never run", name: tar_bytes(files)})


@pytest.fixture
def root(tmp_path, monkeypatch):
    with_archive(monkeypatch, MovieSentences, tmp_path, sdist())
    return tmp_path


def test_movies(root):
    dataset = MovieSentences(root, log=False)
    check_trees(dataset)
    assert dataset.names == ["1", "2", "3", "4", "5"]
    assert [dataset.text(i) for i in range(4)] == [
        "The Rock is destined. Really!",
        "Too tepid",
        "So & so",
        "too TEPID!",
    ]
    assert dataset.column("rating").tolist() == pytest.approx([2.5, -0.6, 0, -4])
    assert dataset.column("y").tolist() == [1, 0, 0, 0]
    assert dataset.groups().tolist() == [0, 1, 2, 1]
    assert list(dataset.report["failed"]) == ["5"]
    assert dataset[0].tree_level.bincount().tolist() == [1, 1, 2, 5]
    assert "sentence_node" not in dataset[0]
    assert not list(dataset.raw().glob("*.py"))


def test_reviews(root):
    dataset = MovieSentences(root, log=False, options={"source": "amazon"})
    check_trees(dataset)
    assert dataset.names == ["1", "309"]
    assert dataset.text(0) == "no picture scrolling b/w.\nrepost. from 2004\n!\ndon't buy"
    tree = dataset[0]
    assert tree.depth == 2
    spans = tree.tree_span[tree.sentence_node].tolist()
    assert [dataset.text(0)[a:b] for a, b in spans] == [
        "no picture scrolling b/w.",
        "repost. from 2004",
        "don't buy",
    ]
    assert tree.sentence_rating.tolist() == pytest.approx([-0.9, -0.15, 1.5])
    assert dataset.column("rating").tolist() == pytest.approx([3.45 / 4, 1.6])
    assert dataset.column("y").tolist() == [1, 1]
    assert dataset[1].sentence_node.tolist() == [3, 4]  # no leaf, though one is called sentence
    assert dataset.report["sentences"] == 6
    assert dataset.report["originals"] == 2


def test_sentences_of_reviews(root):
    options = {"source": "editorials", "unit": "sentence", "punctuation": True}
    dataset = MovieSentences(root, log=False, options=options)
    check_trees(dataset)
    assert dataset.names == ["7_1", "7_2", "7_3", "7_4", "309_7", "309_8"]
    assert dataset.groups().tolist() == [0, 0, 0, 0, 1, 1]
    assert dataset.column("y").tolist() == [0, 0, 1, 1, 1, 1]
    assert dataset[1].tree_level.bincount().tolist() == [1, 1, 1, 4]


def test_windows_in_reviews(root):
    options = {"source": "amazon", "max_group": 2}
    tree = MovieSentences(root, log=False, options=options)[0]
    assert tree.validate()
    assert tree.depth == 5
    assert tree.sentence_rating.tolist() == pytest.approx([-0.9, -0.15, 1.5])
    for options in ({"hierarchy": "flat"}, {"hierarchy": "random"}, {"max_words": 3}):
        tree = MovieSentences(root, log=False, options={"source": "amazon", **options})[0]
        assert tree.validate()
        assert "sentence_node" not in tree


def test_tweets(root):
    dataset = MovieSentences(root, log=False, options={"source": "tweets"})
    assert dataset.words(0) == ["anonymous", "yay"]
    assert len(dataset) == 2


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"source": "books"}, BuilderError, "source='books': use one of movies, amazon"),
        ({"unit": "word"}, BuilderError, "unit='word'"),
        ({"unit": "document"}, UnsupportedError, "'movies' does not say"),
        ({"source": "amazon", "sentences": "plain"}, UnsupportedError, "sentences='plain' has no"),
    ],
)
def test_options(root, options, error, message):
    with pytest.raises(error, match=message):
        MovieSentences(root, log=False, options=options)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1\t2\ta\n2\t4.5\tb", "line 2 .* rating 4.5"),
        ("1\t-5\ta", "rating -5.0"),
        ("1\tnan\ta", "rating nan"),
        ("1\tgood\ta", "line 1 .* is '1.tgood.ta', not an id"),
        ("1\t2", "not an id, a rating and a text"),
        ("", "none of 0 documents"),
        (None, "movieReviewSnippets_GroundTruth.txt' cannot be read"),
    ],
)
def test_bad_files(tmp_path, monkeypatch, content, message):
    name = "hutto_ICWSM_2014/movieReviewSnippets_GroundTruth.txt"
    with_archive(monkeypatch, MovieSentences, tmp_path, sdist({name: content}))
    with pytest.raises(ArchiveError, match=message):
        MovieSentences(tmp_path, log=False)


def test_undecodable(tmp_path, monkeypatch):
    name = "hutto_ICWSM_2014/tweets_GroundTruth.txt"
    with_archive(monkeypatch, MovieSentences, tmp_path, sdist({name: b"1\t1\tcaf\xe9 here"}))
    dataset = MovieSentences(tmp_path, log=False, options={"source": "tweets"})
    assert dataset.words(0) == ["caf", "here"]
    assert dataset.report["undecodable"] == 1


class Tenth(MovieSentences):
    """Every tenth item, so that the test is quick."""

    def documents(self):
        self.all = super().documents()
        return self.all[::10]


@pytest.mark.download
@pytest.mark.parametrize(
    ("source", "items", "sentences", "positive"),
    [
        ("movies", 10605, 10605, 5242),
        ("amazon", 300, 3708, 183),
        ("editorials", 498, 5190, 184),
        ("tweets", 4200, 4200, 2897),
    ],
)
def test_real(real, source, items, sentences, positive):
    dataset = Tenth(real, log=False, options={"source": source, "punctuation": True})
    assert len(dataset.all) == items
    assert dataset.report["sentences"] == sentences
    assert sum(document.label for document in dataset.all) == positive
    assert "undecodable" not in dataset.report
    assert dataset.report["failed"] == {}
    check_trees(dataset, slice(0, None, 20))
    if source in ("amazon", "editorials"):
        documents = dataset.all[::10]
        assert [len(tree.sentence_node) for tree in dataset] == [len(d.parts) for d in documents]
        means = torch.stack([tree.sentence_rating.mean() for tree in dataset])
        torch.testing.assert_close(means, dataset.column("rating"))


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    return real_root(MovieSentences, tmp_path_factory.mktemp("movies"))
