"""Pages of manuals with pictures: tiny packages that the tests write, and the real ones."""

import os
import re
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch_geometric.loader import DataLoader

pytest.importorskip("selectolax")
pytest.importorskip("PIL")
sys.path.insert(0, str(Path(__file__).parent))

from manual_cases import animated, make_deb, png

from hsa_geo.builders.html import LeafKind
from hsa_geo.data import SignalTree
from hsa_geo.datasets import ManualPages, manual_sections
from hsa_geo.datasets.fetch import sha256_of
from hsa_geo.datasets.manual_pages import number_words
from hsa_geo.datasets.manual_sections import MANUALS
from hsa_geo.errors import ArchiveError, DownloadError, UnsupportedError

ROOT = "usr/share/doc/grass-doc/html"
PAGE = """<html><head><title>{name} - GRASS GIS manual</title>
<meta name=description content="{name}: raster things"></head><body><div id=container>
<a href=index.html><img src=grass_logo.png alt="GRASS logo"></a><hr>
<h2>NAME</h2><em><b>{name}</b></em> - Makes a raster map. <h2>KEYWORDS</h2>
<a href=raster.html>raster</a><h2>SYNOPSIS</h2><div id=name><b>{name}</b></div>
<b>{name} --help</b><br><div id=synopsis><b>{name}</b> in=name</div>
<h2>DESCRIPTION</h2>{text}<h2>SEE ALSO</h2><a href=r.info.html>r.info</a>
<hr><p><a href=index.html>Main index</a> | <a href=raster.html>Raster index</a></p></div></body>"""
MODULES = ("r.buffer", "r.li.area", "r.li.mean", "v.net", "d.mon", "g.list")


def files_of(texts, images=()):
    pages = {f"{name}.html": PAGE.format(name=name, text=text) for name, text in texts.items()}
    files = {**pages, "index.html": "<p>index", "grass_logo.png": png("green"), **dict(images)}
    return {f"{ROOT}/{name}": content for name, content in files.items()}


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """Makes a dataset of a package with these files."""

    def make(texts, images=(), **more):
        real = MANUALS["grass"]
        path = tmp_path / "raw" / real.archive.filename
        make_deb(path, files_of(texts, images))
        archive = replace(real.archive, sha256=sha256_of(path))
        monkeypatch.setitem(manual_sections.MANUALS, "grass", replace(real, archive=archive))
        return ManualPages(tmp_path, "grass", log=False, **more)

    return make


def texts(**own):
    """A text for each module: its own, or a word that no other page has."""
    given = {name.replace("_", "."): text for name, text in own.items()}
    return {name: given.get(name, f"word{place}") for place, name in enumerate(MODULES)}


def page(dataset, name):
    return dataset[dataset.pages.index(f"{name}.html")]


def words_of(dataset, tree):
    return [dataset.vocabulary[word] for word in tree.word_x.tolist()]


# Pages ######################################################################


def test_trees(tiny):
    dataset = tiny(
        texts(r_buffer="<p>Buffers a r.mapcalc raster. Twice!<p><img src=a.png alt='A map'>"),
        {"a.png": png("red", (32, 16))},
    )
    assert len(dataset) == 6
    assert dataset.num_classes == 6
    assert dataset.classes == ("raster", "vector", "temporal", "imagery", "general", "display")
    assert dataset.column("y").tolist() == [5, 4, 0, 0, 0, 1]  # in the order of file names
    assert dataset.pages[0] == "d.mon.html"
    assert dataset.groups == ["d.mon", "g.list", "r.buffer", "r.li", "v.net"]
    assert dataset.column("group_id").tolist() == [0, 1, 2, 3, 3, 4]
    tree = page(dataset, "r.buffer")
    tree.validate()
    assert words_of(dataset, tree) == ["buffers", "a", "twice", "a", "map"]
    picture = tree.word_index[-2:]
    assert tree.leaf_kind[picture].tolist() == [LeafKind.IMAGE] * 2
    assert len(set(picture.tolist())) == 1
    assert tree.image_x.shape == (8, 192)
    assert tree.image_x.dtype == torch.uint8
    assert (tree.leaf_kind[tree.image_index] == LeafKind.PATCH).all()
    assert tree.image_x.view(8, 3, 64).float().mean((0, 2)).tolist() == [255, 0, 0]
    assert not {"text_x", "text_index", "form_node", "form_order", "word"} & set(tree.keys())
    report = dataset.report
    assert report["pages_of"]["raster"] == 3
    assert report["with_pictures"] == 1
    assert report["failed"] == {}
    assert report["stored"] == 6


def test_vocabulary_is_by_number_of_pages(tiny):
    dataset = tiny(texts(r_buffer="cat cat dog", v_net="dog eel", d_mon="eel dog"))
    assert dataset.vocabulary[:4] == ["dog", "eel", "cat", "word1"]
    again = ManualPages(dataset.root, "grass", log=False)
    assert again.vocabulary == dataset.vocabulary
    assert again.pages == dataset.pages
    assert again[2].word_x.tolist() == dataset[2].word_x.tolist() == [2, 2, 0]


def test_number_words_of_trees_without_words():
    tree = SignalTree.from_parents([1, -1], word_index=torch.zeros(0, dtype=torch.int64))
    tree.word = []
    assert number_words([tree]) == []
    assert tree.word_x.dtype == torch.int64


def test_nothing_of_the_template_is_left(tiny):
    common = "<p>Used with care.<p>{} only <img src=note.png alt=Note>"
    dataset = tiny(
        {name: common.format(f"word{i}") for i, name in enumerate(MODULES)},
        {"note.png": png("blue")},
    )
    for place, tree in enumerate(dataset):
        number = MODULES.index(dataset.pages[place].removesuffix(".html"))
        assert words_of(dataset, tree) == [f"word{number}", "only"]
        assert tree.image_x.shape == (0, 192)
    assert dataset.report["template"]["images"] == 2  # the logo and the note


def test_a_page_without_anything_is_reported(tiny):
    dataset = tiny(texts(v_net="<p>raster r.info"))
    assert len(dataset) == 5
    assert list(dataset.report["failed"]) == ["v.net.html"]
    assert dataset.column("page_id").tolist() == [0, 1, 2, 3, 4]


# Pictures ###################################################################

CASES = {
    "missing": ("<img src=gone.png alt=x>", {}, 0),
    "broken": ("<img src=a.png alt=x>", {"a.png": png("red")[:40]}, 0),
    "no image": ("<img src=a.png alt=x>", {"a.png": "text"}, 0),
    "outside": ("<img src=../secret.png alt=x>", {"../secret.png": png("red")}, 0),
    "absolute": (f"<img src=/{ROOT}/a.png alt=x>", {"a.png": png("red")}, 0),
    "remote": ("<img src=http://a.org/a.png alt=x>", {"a.png": png("red")}, 0),
    "not unpacked": ("<img src=a.svg alt=x>", {"a.svg": "<svg/>"}, 0),
    "gif": ("<img src=a.gif alt=x>", {"a.gif": animated(["red", "blue", "lime"])}, 4),
    "jpeg": ("<img src='a%20b.jpg?x#y' alt=x>", {"a b.jpg": png("red", format="JPEG")}, 4),
    "long": ("<img src=a.png alt=x>", {"a.png": png("red", (4000, 1))}, 8),
}


@pytest.mark.parametrize("case", CASES)
def test_pictures(tiny, case):
    text, images, patches = CASES[case]
    if case == "outside":  # beside the folder of the pages, where only a path out of it leads
        dataset = tiny(texts(r_buffer=text))
        (Path(dataset.raw_dir) / "secret.png").write_bytes(png("red"))
        dataset = ManualPages(dataset.root, "grass", log=False, force_reload=True)
    else:
        dataset = tiny(texts(r_buffer=text), images)
    tree = page(dataset, "r.buffer")
    assert len(tree.image_x) == len(tree.image_index) == patches
    assert words_of(dataset, tree) == ["x"]
    if case == "gif":  # the first frame
        assert tree.image_x.view(4, 3, 64).float().mean((0, 2)).tolist() == [255, 0, 0]


def test_a_link_out_of_the_folder_is_not_followed(tiny, tmp_path):
    dataset = tiny(texts(r_buffer="<img src=a.png alt=x>"))
    (tmp_path / "secret.png").write_bytes(png("red"))
    (dataset.raw() / "a.png").symlink_to(tmp_path / "secret.png")
    dataset = ManualPages(tmp_path, "grass", log=False, force_reload=True)
    assert len(page(dataset, "r.buffer").image_x) == 0


def test_a_huge_picture_is_left_out(tiny, monkeypatch):
    monkeypatch.setattr("hsa_geo.builders.patches.MAX_PIXELS", 100)
    with pytest.warns(UserWarning, match="left out"):
        dataset = tiny(texts(r_buffer="<img src=a.png alt=x>"), {"a.png": png("red")})
    assert len(page(dataset, "r.buffer").image_x) == 0


def test_empty_modalities_batch(tiny):
    dataset = tiny(texts(r_buffer="<img src=a.png>", v_net="words only"), {"a.png": png("red")})
    assert len(page(dataset, "r.buffer").word_x) == 0
    assert len(page(dataset, "v.net").image_x) == 0
    batch = next(iter(DataLoader(dataset, batch_size=6)))
    assert batch.image_x.shape == (4, 192)
    assert batch.word_index.max() < batch.num_nodes


# Options ####################################################################


def test_options(tiny, tmp_path):
    text, image = "zero<h1>one</h1>two<img src=a.png>", {"a.png": png("red", (64, 64))}
    dataset = tiny(texts(r_buffer=text), image, options={"max_side": 16, "sectioning": True})
    tree = page(dataset, "r.buffer")
    assert len(tree.image_x) == 4
    assert any(name.startswith("section") for name in tree.tree_name)
    plain = ManualPages(tmp_path, "grass", log=False)
    assert len(page(plain, "r.buffer").image_x) == 64
    assert len(list(Path(plain.processed_dir).glob("*.safetensors"))) == 2
    no_pictures = ManualPages(tmp_path, "grass", log=False, options={"images": False})
    assert page(no_pictures, "r.buffer").image_x.shape == (0, 192)


@pytest.mark.parametrize("option", ["base", "charset", "names", "include_hidden", "form_tokens"])
def test_options_that_are_not_for_users(tmp_path, option):
    with pytest.raises(UnsupportedError, match=repr(option)):
        ManualPages(tmp_path, options={option: True})
    assert not list(tmp_path.iterdir())


def test_unknown_manual(tmp_path):
    with pytest.raises(UnsupportedError, match="gimp-help, grass"):
        ManualPages(tmp_path, "emacs")


def test_wrong_hash(tmp_path):
    archive = MANUALS["grass"].archive
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / archive.filename).write_bytes(b"!<arch>\n")
    with pytest.raises(ArchiveError, match="sha256"):
        ManualPages(tmp_path, "grass", log=False)
    assert not (tmp_path / "processed").exists()


# The real manuals ###########################################################


@pytest.fixture(scope="module", params=["gimp-help", "grass"])
def real(request, tmp_path_factory):
    """A real manual, from ``$HSA_GEO_DATA/manual_pages`` or fetched (36 to 50 MB)."""
    cache = os.environ.get("HSA_GEO_DATA")
    archive = MANUALS[request.param].archive
    root = tmp_path_factory.mktemp("manual_pages")
    kept = Path(cache, "manual_pages", "raw", archive.filename) if cache else None
    if kept is not None and kept.is_file():
        (root / "raw").mkdir()
        (root / "raw" / archive.filename).symlink_to(kept)
    try:
        # decoding the 1,900 pictures of one takes most of the time
        options = {"images": False} if request.param == "gimp-help" else {"max_side": 16}
        return ManualPages(root, request.param, log=False, options=options)
    except DownloadError as error:
        pytest.skip(f"the manual cannot be had: {error}")


COUNTS = {
    "gimp-help": [43, 74, 46, 30, 264, 167],
    "grass": [169, 126, 51, 50, 43, 43],
}
NAVIGATION = {
    "gimp-help": {"filter", "filters", "tool", "toolbox", "menus", "dialog", "submenu"},
    "grass": {"raster", "rasters", "vector", "imagery", "temporal", "display", "rast", "general"},
}


def test_real_counts(real):
    assert torch.bincount(real.column("y")).tolist() == COUNTS[real.manual.name]
    assert real.report["with_pictures"] == (0 if real.manual.name == "gimp-help" else 143)
    assert sum(real.report["pages_of"].values()) == len(real) == real.report["stored"]
    for tree in real[::50]:
        tree.validate()


def test_real_pages_do_not_show_their_section(real):
    """The navigation is gone, and no block of text stands on more than three pages."""
    vocabulary = set(real.vocabulary)
    assert not vocabulary & NAVIGATION[real.manual.name]
    assert not [word for word in vocabulary if re.search(real.manual.rules.words, word, re.I)]
    openings = Counter(tuple(tree.word_x[:6].tolist()) for tree in real if len(tree.word_x) > 5)
    assert openings.most_common(1)[0][1] <= 0.05 * len(real)
    endings = Counter(tuple(tree.word_x[-6:].tolist()) for tree in real if len(tree.word_x) > 5)
    assert endings.most_common(1)[0][1] <= 0.05 * len(real)


def test_no_single_word_tells_the_section(real):
    """Whether a word stands on a page says less than 85% (F1) about any section of it."""
    y, count = real.column("y"), len(real.vocabulary)
    has = torch.zeros(len(real), count)
    for row, tree in enumerate(real):
        has[row, tree.word_x] = 1
    for label, name in enumerate(real.classes):
        own = (y == label).float()
        f1 = 2 * (own @ has) / (has.sum(0) + own.sum())
        best = int(f1.argmax())
        assert f1[best] < 0.85, (name, real.vocabulary[best], float(f1[best]))


def test_pictures_do_not_show_their_section(real):
    """No patch but plain and near-plain ones stands on many pages of one section."""
    if real.report["with_pictures"] == 0:
        pytest.skip("built without pictures")
    pages = {}
    for row, tree in enumerate(real):
        for patch in {
            bytes(p.numpy().tobytes()) for p in tree.image_x if int(p.max()) - int(p.min()) > 40
        }:
            pages.setdefault(patch, []).append(row)
    assert pages
    assert max(map(len, pages.values())) <= 0.05 * len(real)
