"""Emojis: a tiny package that the tests write, and the real one."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("PIL")
sys.path.insert(0, str(Path(__file__).parent))

from manual_cases import make_tar, png

from hsa_geo.builders.tokens import normalise
from hsa_geo.data import Domain
from hsa_geo.datasets import Emojis
from hsa_geo.datasets.emojis import family_of, shown_words
from hsa_geo.datasets.fetch import sha256_of
from hsa_geo.errors import ArchiveError, DownloadError, UnsupportedError

ARCHIVE = Emojis.archives[0]


def entry(name, category, code, order, **more):
    return {
        "name": name,
        "short_name": f"short_{code}",
        "unified": code,
        "image": f"{code.lower()}.png",
        "category": category,
        "sort_order": order,
        "has_img_twitter": True,
        **more,
    }


ENTRIES = [
    entry("POT OF FOOD", "Food & Drink", "1F372", 3),
    entry("WOMAN RUNNING", "People & Body", "1F3C3", 1, skin_variations={"1F3FB": {"image": "x"}}),
    entry("MAN RUNNING", "People & Body", "1F3C4", 2),
    entry("Flag", "Flags", "1F3F3", 4),
    entry(None, "Objects", "1F4F7", 5),
    entry("LIGHT SKIN TONE", "Component", "1F3FB", 6),
    entry("NOT DRAWN", "Objects", "1F4F8", 7, has_img_twitter=False),
]
PICTURES = {f"img/twitter/64/{one['image']}": png("red", (64, 64)) for one in ENTRIES}


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """Makes a dataset of a package with these entries and files."""

    def make(entries=ENTRIES, pictures=PICTURES, **more):
        path = tmp_path / "raw" / ARCHIVE.filename
        path.parent.mkdir()
        index = entries if isinstance(entries, str) else json.dumps(entries)
        path.write_bytes(make_tar({"emoji.json": index, **pictures}, "package/"))
        monkeypatch.setattr(Emojis, "archives", (replace(ARCHIVE, sha256=sha256_of(path)),))
        return Emojis(tmp_path, log=False, **more)

    return make


def test_trees(tiny):
    dataset = tiny()
    assert dataset.names == ["woman running", "man running", "pot of food", "flag", "short 1f4f7"]
    assert [dataset.classes[y] for y in dataset.column("y")] == [
        "People & Body",
        "People & Body",
        "Food & Drink",
        "Flags",
        "Objects",
    ]
    assert dataset.groups == ["flag", "pot of food", "running", "short 1f4f7"]
    assert dataset.column("group_id").tolist() == [2, 2, 1, 0, 3]
    assert dataset.codes[2] == "1F372"
    tree = dataset[2]
    tree.validate()
    assert [dataset.vocabulary[word] for word in tree.word_x] == ["pot", "of"]
    assert [tree.tree_name[row] for row in tree.word_index] == ["pot", "of"]
    assert tree.image_x.shape == (64, 192)
    assert tree.depth == 4  # picture, 4 x 4, 2 x 2, patches
    assert tree.tree_domain[-1] == Domain.SET
    assert tree.tree_domain[tree.tree_name.index("picture")] == Domain.GRID2D
    assert tree.tree_domain[tree.tree_name.index("name")] == Domain.SEQUENCE


def test_places_of_patches(tiny):
    """A patch's way down the quadtree says where it is in the picture."""
    tree = tiny()[0]
    parent = dict(zip(tree.tree_index[1].tolist(), tree.tree_index[0].tolist()))
    for row in tree.image_index.tolist():
        place, node, side = torch.zeros(2), row, 1
        while tree.tree_name[node] != "picture":
            place += tree.tree_pos[node] * side
            node, side = parent[node], 2 * side
        assert tree.tree_name[row] == f"{int(place[0])},{int(place[1])}"


def test_a_name_of_nothing_but_its_category_is_empty(tiny):
    dataset = tiny()
    assert len(dataset[3].word_x) == 0
    assert len(dataset[3].image_x) == 64
    assert "flag" not in dataset.vocabulary


@pytest.mark.parametrize(
    "content", [b"", b"no image", png("red", (64, 64))[:60]], ids=["empty", "text", "cut"]
)
def test_broken_and_missing_pictures(tiny, content):
    pictures = {**PICTURES, "img/twitter/64/1f372.png": content}
    del pictures["img/twitter/64/1f3c3.png"]
    dataset = tiny(pictures=pictures)
    assert [len(tree.image_x) for tree in dataset] == [0, 64, 0, 64, 64]
    assert all(tree.image_x.shape[1] == 192 for tree in dataset)


def test_pictures_outside_of_the_folder(tiny):
    entries = [{**ENTRIES[0], "image": "../../../secret.png"}, ENTRIES[1]]
    dataset = tiny(entries, {**PICTURES, "secret.png": png("blue")})
    assert [len(tree.image_x) for tree in dataset] == [64, 0]


def test_neither_name_nor_picture(tiny):
    pictures = {name: data for name, data in PICTURES.items() if "1f3f3" not in name}
    dataset = tiny(pictures=pictures)
    assert len(dataset) == 4
    assert list(dataset.report["failed"]) == ["1F3F3"]


def test_options(tiny, tmp_path):
    dataset = tiny(options={"max_side": 16, "patch_size": 4, "quadtree": False})
    assert dataset[0].image_x.shape == (16, 48)
    assert dataset[0].depth == 2
    with pytest.raises(UnsupportedError, match="'side'"):
        Emojis(tmp_path, log=False, options={"side": 3})


@pytest.mark.parametrize(
    "index",
    [
        "",
        "[" * 99_999,
        "{}",
        "[1]",
        '[{"name": "A"}]',
        json.dumps([{**ENTRIES[0], "category": "New"}]),
    ],
)
def test_an_index_that_is_none(tiny, index):
    with pytest.raises(ArchiveError, match=r"emoji\.json|none of 0"):
        tiny(index)


def test_words():
    assert shown_words("Flags OF Food & activity-flag") == ["of", "activity-flag"]
    assert family_of("Man in Tuxedo") == family_of("Woman in Tuxedo") == "tuxedo"


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """The real emojis, from ``$HSA_GEO_DATA/emojis``, or fetched through npm (62 MB)."""
    cache = os.environ.get("HSA_GEO_DATA")
    kept = Path(cache, "emojis", "raw", ARCHIVE.filename) if cache else None
    root = tmp_path_factory.mktemp("emojis")
    if kept is not None and kept.is_file():
        (root / "raw").mkdir()
        (root / "raw" / ARCHIVE.filename).symlink_to(kept)
    try:
        return Emojis(root, log=False, options={"max_side": 16})
    except DownloadError as error:
        pytest.skip(f"the emojis cannot be had: {error}")


def test_real(real):
    assert torch.bincount(real.column("y")).tolist() == [
        *(169, 386, 159, 131, 218),
        *(85, 264, 224, 270),
    ]
    assert len(real.codes) == len(set(real.codes)) == 1906
    assert all(len(tree.image_x) == 4 for tree in real[::40])
    for tree in real[::200]:
        tree.validate()


def test_real_names_do_not_show_their_category(real):
    labels = {normalise(word) for name in real.classes for word in name.lower().split(" & ")}
    labels |= {"flag", "symbol", "object", "animal", "activity", "place"}
    assert not set(real.vocabulary) & labels
