"""Folders that are none, before anything is fetched: told in one sentence."""

import pytest

from hsa_geo import datasets
from hsa_geo.datasets.clients import Archive
from hsa_geo.errors import PathError, UnsupportedError

FETCHED = [
    *(datasets.FormPages, datasets.Brown, datasets.MovieSentences, datasets.SpamMails),
    *(datasets.FoodReviews, datasets.GloVe, datasets.MiniLM, datasets.DINOv2),
    datasets.CrossEncoder,
]


@pytest.fixture
def offline(monkeypatch):
    def fetch(self, *arguments, **options):
        raise AssertionError(f"something was fetched: {self}")

    for name in ("unpacked", "fetched"):
        if hasattr(Archive, name):
            monkeypatch.setattr(Archive, name, fetch)


@pytest.mark.parametrize("dataset", FETCHED, ids=lambda one: one.__name__)
@pytest.mark.parametrize("root", [None, 3, ["data"], "", "a\0b"], ids=repr)
def test_no_folder(dataset, root, offline, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PathError, match="is no folder: give a path"):
        dataset(root)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("dataset", FETCHED, ids=lambda one: one.__name__)
def test_a_file_in_the_way(dataset, offline, tmp_path):
    (tmp_path / "file").write_text("x")
    for root in (tmp_path / "file", tmp_path / "file" / "data"):
        with pytest.raises(PathError, match="file' is a file, not a folder"):
            dataset(root)


@pytest.mark.parametrize("name", ["transform", "pre_transform", "pre_filter"])
def test_no_function(name, offline, tmp_path):
    with pytest.raises(UnsupportedError, match=f"{name}=3 is no function"):
        datasets.FormPages(tmp_path, **{name: 3})


@pytest.mark.parametrize("options", [3, ["images"], "images"])
def test_no_options(options, offline, tmp_path):
    with pytest.raises(UnsupportedError, match="give a dict of options"):
        datasets.FormPages(tmp_path, options=options)


def test_on_disk(tmp_path):
    with pytest.raises(PathError, match="is no folder"):
        datasets.OnDiskTrees(None)
    with pytest.raises(UnsupportedError, match="transform=3"):
        datasets.OnDiskTrees(tmp_path, transform=3)
