"""Food reviews: tiny files in the format of the package, and the real ones."""

from collections import Counter

import pytest
from text_archives import check_trees, deb_bytes, real_root, with_archive

pytest.importorskip("rdata")

from r_files import lazy_files

from hsa_geo.datasets.food_reviews import FoodReviews
from hsa_geo.errors import ArchiveError, LabelError

FOLDER = "usr/lib/R/site-library/modeldata/data"
TRAIN = {
    "product": ["B1", "B2", "B3", "B4"],
    "review": [
        "Great stuff. Buy it!",
        "Bad.<br /><br />Very bad &amp; <b>old</b>.",
        "great stuff, buy it",
        "It's so so.",
    ],
    "score": ["great", "other", "great", "other"],
}
TEST = {"product": ["B5", "B6"], "review": ["So, so; it’s", "Fine"], "score": ["other", "great"]}


def package(train=TRAIN, test=TEST, **more):
    index, blob = lazy_files({"training_data": train, "other": [1], "testing_data": test})
    return deb_bytes({f"{FOLDER}/Rdata.rdx": index, f"{FOLDER}/Rdata.rdb": blob, **more})


@pytest.fixture
def dataset(tmp_path, monkeypatch):
    with_archive(monkeypatch, FoodReviews, tmp_path, package(**{f"{FOLDER}/Rdata.rds": b"no"}))
    return FoodReviews(tmp_path, log=False)


def test_reviews(dataset):
    check_trees(dataset)
    assert dataset.names == ["B1", "B2", "B3", "B4", "B5", "B6"]
    assert dataset.text(1) == "Bad.\n\nVery bad & old."
    assert dataset[1].tree_level.bincount().tolist() == [1, 2, 2, 4]
    assert dataset.column("y").tolist() == [1, 0, 1, 0, 0, 1]
    assert dataset.column("split").tolist() == [0, 0, 0, 0, 2, 2]
    assert dataset.groups().tolist() == [0, 1, 0, 2, 3, 4]
    assert dataset.report["texts_in_both_sets"] == 0
    assert sorted(path.name for path in dataset.raw().iterdir()) == ["Rdata.rdb", "Rdata.rdx"]


def test_given_split(dataset):
    train, validation, test = dataset.split(validation=0)
    assert (train.tolist(), validation.tolist(), test.tolist()) == ([0, 1, 2, 3], [], [4, 5])


def test_text_in_both_sets(tmp_path, monkeypatch):
    test = {**TEST, "review": ["Its so so", "it's SO so"]}
    with_archive(monkeypatch, FoodReviews, tmp_path, package(test=test))
    assert FoodReviews(tmp_path, log=False).report["texts_in_both_sets"] == 1


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"score": ["great", "other", "good", "other"]}, LabelError, "'B3' .* score 'good'"),
        ({"review": None}, ArchiveError, "no table with product, review and score"),
        ({"review": [1, 2, 3, 4]}, ArchiveError, "a row without text"),
    ],
)
def test_what_is_no_table(tmp_path, monkeypatch, change, error, message):
    train = {key: value for key, value in {**TRAIN, **change}.items() if value is not None}
    with_archive(monkeypatch, FoodReviews, tmp_path, package(train))
    with pytest.raises(error, match=message):
        FoodReviews(tmp_path, log=False)
    assert not list((tmp_path / "processed").glob("*.safetensors"))


def test_file_missing(tmp_path, monkeypatch):
    index, _ = lazy_files({"training_data": TRAIN})
    with_archive(monkeypatch, FoodReviews, tmp_path, deb_bytes({f"{FOLDER}/Rdata.rdx": index}))
    with pytest.raises(ArchiveError, match=r"Rdata.rdb' cannot be read"):
        FoodReviews(tmp_path, log=False)


class Tenth(FoodReviews):
    """Every tenth review, so that the test is quick."""

    def documents(self):
        self.all = super().documents()
        return self.all[::10]


@pytest.mark.download
def test_real(tmp_path):
    dataset = Tenth(real_root(FoodReviews, tmp_path), log=False)
    assert dataset.report["failed"] == {}
    assert dataset.report["texts_in_both_sets"] == 7
    every = dataset.all
    assert len(every) == 5000
    counts = Counter((document.values["split"], document.label) for document in every)
    assert counts == {(0, 0): 1400, (0, 1): 2600, (2, 0): 342, (2, 1): 658}
    assert every[0].text == "this stuff is  not stuffing  its  not good at all  save your money"
    assert len({document.values["group_id"] for document in every}) == 4972
    check_trees(dataset, slice(0, None, 25))
    train, validation, test = dataset.split()
    assert len(dataset) == 500
    assert (len(train), len(validation), len(test)) == (360, 40, 100)
