"""The page dataset: on a small archive of the same layout, and on the real one."""

import io
import json
import os
import pickle
import subprocess
import sys
import tarfile
import textwrap
import time
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from torch_geometric.loader import DataLoader

from hsa_geo.builders import from_html
from hsa_geo.data import SignalTree
from hsa_geo.datasets import FormPages, form_pages
from hsa_geo.datasets.fetch import sha256_of
from hsa_geo.errors import (
    ArchiveError,
    DownloadError,
    FileFormatError,
    HSAWarning,
    ShapeError,
    UnsupportedError,
)

CONFIG = {
    "form_types": {
        "types": [{"short": c, "full": c} for c in "slrpcmbPVNCo-X"],
        "simplify_map": dict.fromkeys("PVNC", "o"),
        "NA_value": "X",
        "skip_value": "-",
    }
}
SEARCH = "<form>Find <input name=q></form>"
LOGIN = "<form>Log in <input name=user><input name=pass type=password></form>"
EMPTY_FORM = "<form><input type=hidden name=h></form>"
#: Page: source, codes, fields, host.
PAGES = {
    0: (f"<p>Hi there</p>{SEARCH}{LOGIN}", "sl", [["q"], ["pass", "user"]], "www.a.org"),
    1: (f"{EMPTY_FORM}<p>Text</p>{LOGIN}", "ol", [[], ["user", "pass"]], "forum.a.org"),
    2: (f"{SEARCH}{LOGIN}", "Xl", [["q"], ["user", "pass"]], "b.co.uk"),
    3: (f"{LOGIN}{SEARCH}", "-s", [["user", "pass"], ["q"]], "shop.b.co.uk"),
    4: (f"{LOGIN}<p>.</p>", "ls", [["user", "pass"], ["q"]], "c.net"),  # a label too many
    5: ("<script>only()</script>", "s", [["q"]], "d.com"),  # nothing to see
    6: (f"{SEARCH}{LOGIN}{SEARCH}", "ls", [["user", "pass"], ["q"]], "d.com"),  # a form too many
    10: ("<p>No form at all</p>", "", [], "d.com"),
}


def make_sdist(path, pages=PAGES):
    top = "formasaurus-0.10.0"
    index = {
        f"html/{k}.html": {
            "url": f"http://{host}/{k}",
            "forms": list(codes),
            "visible_html_fields": [dict.fromkeys(names, "XX") for names in fields],
        }
        for k, (_, codes, fields, host) in pages.items()
    }
    setup = "from setuptools import setup\nsetup(name='formasaurus', version='0.10.0')\n"
    files = {
        "setup.py": setup.encode(),
        "PKG-INFO": b"Metadata-Version: 2.1\nName: formasaurus\nVersion: 0.10.0\n",
        "formasaurus/data/index.json": json.dumps(index).encode(),
        "formasaurus/data/config.json": json.dumps(CONFIG).encode(),
        "formasaurus/data/model-field.joblib": pickle.dumps("never loaded"),
        **{
            f"formasaurus/data/html/{k}.html": page[0].encode(errors="surrogateescape")
            for k, page in pages.items()
        },
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(f"{top}/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A root with a small archive put there by hand; the dataset accepts its hash."""
    monkeypatch.setattr("subprocess.run", None)  # the client must not be asked
    archive = make_sdist(tmp_path / "root" / "raw" / FormPages.archive)
    monkeypatch.setattr(FormPages, "sha256", sha256_of(archive))
    monkeypatch.setattr(form_pages, "PAGES_PER_PART", 3)
    return tmp_path / "root"


def files_of(root):
    return sorted(p.name for p in (root / "processed").iterdir())


# Labels #####################################################################


def test_pages_and_labels(small):
    dataset = FormPages(small, log=False)
    assert len(dataset) == 7
    assert dataset.column("page_id").tolist() == [0, 1, 2, 3, 4, 6, 10]
    assert all(isinstance(tree, SignalTree) for tree in dataset)
    assert dataset.num_classes == len(dataset.classes) == 8

    def held(values):
        return [dataset.classes[c] for c in values[0].nonzero().flatten().tolist()]

    want = {  # y, form_label, complete
        0: (["search", "login"], [0, 1], True),
        1: (["login", "other"], [1], True),  # the form without visible leaf counts for y
        2: (["login"], [-1, 1], False),
        3: (["search"], [-2, 0], True),
        4: (["search", "login"], [1], True),  # so does the one that was not found
        6: (["search", "login"], [-1, 1, 0], True),
        10: ([], [], True),
    }
    for tree in dataset:
        y, labels, complete = want[int(tree.page_id)]
        assert (held(tree.y), tree.form_label.tolist(), bool(tree.complete)) == (
            y,
            labels,
            complete,
        )
        assert held(tree.y_mask) == (list(dataset.classes) if complete else y)
        assert tree.y.dtype == torch.float32
        assert tree.y_mask.dtype == tree.complete.dtype == torch.bool
        assert tree.form_label.shape == tree.form_node.shape == tree.form_order.shape
        assert [tree.tree_name[k] for k in tree.form_node.tolist()] == ["form"] * len(labels)
        tree.validate()


def test_report(small, capsys):
    report = FormPages(small).report
    assert (report["pages"], report["stored"], report["complete"]) == (8, 7, 7)
    assert list(report["failed"]) == ["5"]
    assert report["failed"]["5"].startswith("BuilderError: the page shows nothing")
    assert report["counts"] == {
        "listed": 12,
        "found": 12,
        "exact": 9,
        "same_place": 0,
        "by_names": 2,
        "unmatched_labels": 1,
        "unmatched_forms": 1,
        "nodes": 11,
        "labelled_nodes": 8,
        "labelled_without_node": 1,
        "undecodable_pages": 0,
        "shortened_pages": 0,
    }
    assert report["unmatched"] == [[4, 1, "s"]]
    assert report["without_node"] == [[1, 0, "o"]]
    assert report["pages_with"]["login"] == 5
    assert report["forms_of"]["skipped"] == report["forms_of"]["not annotated"] == 1
    out, err = capsys.readouterr()
    assert "7 of 8 pages stored" in out
    assert "unreadable page 5: BuilderError" in out
    assert "8/8" in err
    assert json.loads((small / "processed" / "report.json").read_text()) == report


def test_undecodable_pages_are_counted(tmp_path, monkeypatch, capsys):
    """Warnings are errors in these tests."""
    bad = "<meta charset=utf-8><p>caf\udce9</p>" + SEARCH
    pages = {k: (bad, "s", [["q"]], f"{k}.org") for k in (1, 3)}
    pages[2] = (f"<input placeholder='a b'><p>fine \ufffd</p>{SEARCH}", "s", [["q"]], "2.org")
    archive = make_sdist(tmp_path / "raw" / FormPages.archive, pages)
    monkeypatch.setattr(FormPages, "sha256", sha256_of(archive))
    dataset = FormPages(tmp_path, options={"field_tokens": 1})
    assert dataset.report["counts"]["shortened_pages"] == 1
    assert dataset.report["stored"] == 3
    assert dataset.report["counts"]["undecodable_pages"] == 2
    assert "2 pages hold bytes that are no text" in capsys.readouterr().out
    assert dataset.page_text(0) == "caf\ufffd Find"
    assert dataset.form_texts(0) == ["Find"]


def test_quiet(small, capsys):
    FormPages(small, log=False)
    FormPages(small, log=False)
    assert capsys.readouterr() == ("", "")


def test_groups(small):
    dataset = FormPages(small, log=False)
    assert dataset.domains == ["a.org", "b.co.uk", "c.net", "d.com"]
    assert dataset.sites == ["a.org", "b.co.uk", "c.net", "d.com", "forum.a.org", "shop.b.co.uk"]
    assert dataset.groups().tolist() == [0, 0, 1, 1, 2, 3, 3]
    assert dataset.groups("site").tolist() == [0, 4, 1, 5, 2, 3, 3]
    part = dataset[dataset.column("complete")]
    assert part.groups().tolist() == [0, 0, 1, 2, 3, 3]
    assert part.column("page_id").tolist() == [0, 1, 3, 4, 6, 10]
    assert [part.url(i) for i in (0, 2)] == ["http://www.a.org/0", "http://shop.b.co.uk/3"]
    with pytest.raises(ShapeError, match="by='page'"):
        dataset.groups("page")
    with pytest.raises(ShapeError, match="'form_label' does not have one row per page"):
        dataset.column("form_label")
    with pytest.raises(KeyError, match="no attribute 'nothing'"):
        dataset.column("nothing")


def test_texts(small):
    dataset = FormPages(small, log=False)
    assert dataset.html(0).startswith(b"<p>Hi there")
    assert dataset.page_text(0) == "Hi there Find Log in"
    assert dataset.page_text(0, attributes=True) == "Hi there Find Log in q user password pass"
    assert dataset.form_texts(0) == ["Find", "Log in"]
    assert dataset.form_texts(1, attributes=True) == ["Log in user password pass"]  # has a node
    assert dataset[5:].form_texts(1) == []
    (small / "raw" / FormPages.folder / "html" / "0.html").unlink()
    with pytest.raises(ArchiveError, match=r"cannot be read.*unpacked again"):
        dataset.html(0)


# Storage ####################################################################


def test_stored_trees_are_the_built_ones(small):
    dataset = FormPages(small, log=False)
    again = FormPages(small, log=False)
    assert files_of(small) == ["form_pages.safetensors", "report.json"]
    for i, (a, b) in enumerate(zip(dataset, again)):
        fresh = from_html(dataset.html(i))
        assert set(a.keys()) == set(b.keys()) > set(fresh.keys())
        for key in b.keys():  # noqa: SIM118
            same = torch.equal if isinstance(b[key], torch.Tensor) else np.array_equal
            assert same(a[key], b[key]), key
            if key in fresh:
                assert same(fresh[key], b[key]), key
                assert getattr(fresh[key], "dtype", 0) == getattr(b[key], "dtype", 0)


def test_batches(small):
    dataset = FormPages(small, log=False)
    batch = next(iter(DataLoader(dataset, batch_size=7)))
    assert batch.y.shape == batch.y_mask.shape == (7, 8)
    assert batch.page_id.tolist() == dataset.column("page_id").tolist()
    names = [name for page in batch.tree_name for name in page]
    assert {names[k] for k in batch.form_node.tolist()} == {"form"}
    assert len(batch.form_label) == len(batch.form_node) == 11
    for a, b in zip(dataset, batch.to_data_list()):
        assert torch.equal(a.form_node, b.form_node)
        assert torch.equal(a.text_index, b.text_index)


def test_subset_copies_and_single_pages(small):
    dataset = FormPages(small, log=False)
    copied = dataset.copy([2, 3])
    assert copied.column("page_id").tolist() == [2, 3]
    assert copied.page_text(1).startswith("Log in")
    assert dataset.copy([4]).url(0) == "http://c.net/4"
    one = FormPages(small, log=False, force_reload=True, pre_filter=lambda t: t.page_id == 2)
    assert len(one) == 1
    assert one[0].form_label.tolist() == [-1, 1]
    assert one.url(0) == "http://b.co.uk/2"


def test_transforms(small):
    def mark(tree):
        tree.seen = torch.tensor([1])
        return tree

    dataset = FormPages(small, pre_transform=mark, pre_filter=_has_forms, log=False)
    assert len(dataset) == 6
    assert all("seen" in tree for tree in dataset)
    assert dataset.report["stored"] == 6
    assert (
        FormPages(small, transform=lambda t: 7, pre_transform=mark, pre_filter=_has_forms)[0] == 7
    )
    with pytest.warns(HSAWarning, match=r"pre_filter=.*_has_forms.*force_reload=True"):
        FormPages(small, pre_transform=mark, log=False)
    assert len(FormPages(small, force_reload=True, log=False)) == 7
    with pytest.raises(ArchiveError, match="none of 8 pages is left"):
        FormPages(small, force_reload=True, pre_filter=lambda t: False, log=False)
    assert len(FormPages(small, log=False)) == 7  # the old file is whole


def _has_forms(tree):
    return len(tree.form_label) > 0


def test_options(small):
    plain = FormPages(small, log=False)
    other = FormPages(small, log=False, options={"names": False, "hash_buckets": 50})
    assert int(other[0].text_x[:, 0].max()) < 50 <= int(plain[0].text_x[:, 0].max())
    assert "tree_name" not in other[0]
    assert other.report["options"] == {"names": False, "hash_buckets": 50}
    assert len(files_of(small)) == 4  # side by side
    same = FormPages(small, log=False, options={"hash_buckets": 50, "names": False})
    assert torch.equal(same[3].text_x, other[3].text_x)
    assert len(files_of(small)) == 4
    with pytest.raises(UnsupportedError, match="'base'"):
        FormPages(small, options={"base": "."})


@pytest.mark.parametrize("content", [b"", b"\x80\x04junk", pickle.dumps({"a": 1})])
def test_damaged_store(small, content):
    FormPages(small, log=False)
    path = small / "processed" / "form_pages.safetensors"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match="is damaged"):
        FormPages(small, log=False)
    assert len(FormPages(small, force_reload=True, log=False)) == 7


def test_on_disk_is_refused(small):
    with pytest.raises(UnsupportedError, match="would pickle the trees"):
        FormPages(small, log=False).to_on_disk_dataset()


def test_load_knows_one_class(small):
    with pytest.raises(UnsupportedError, match="SignalTree, not dict"):
        FormPages(small, log=False).load("x", dict)


# Archives ###################################################################


def test_wrong_hash(small):
    archive = small / "raw" / FormPages.archive
    archive.write_bytes(archive.read_bytes() + b"x")
    with pytest.raises(ArchiveError, match=r"damaged or altered.*download it again"):
        FormPages(small)
    assert [p.name for p in (small / "raw").iterdir()] == [FormPages.archive]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({0: ("<p>a", "q", [["q"]], "a.org")}, r"1 forms \['q'\]"),
        ({0: ("<p>a", "ss", [["q"]], "a.org")}, "2 forms and 1 lists"),
        ({"../0": ("<p>a", "s", [["q"]], "a.org")}, "would leave the folder"),
        ({"x": ("<p>a", "s", [["q"]], "a.org")}, "'html/x.html'"),
        ({0: ("<p>a", "s", [["q"]], "")}, "has no host"),
    ],
)
def test_strange_archives(small, monkeypatch, change, message):
    archive = make_sdist(small / "raw" / FormPages.archive, {**PAGES, **change})
    monkeypatch.setattr(FormPages, "sha256", sha256_of(archive))
    with pytest.raises(ArchiveError, match=message):
        FormPages(small, log=False)


@pytest.mark.parametrize("content", ["", "[1]", "[" * 99_999])
def test_damaged_index(small, content):
    FormPages(small, log=False)
    (small / "raw" / FormPages.folder / "index.json").write_text(content)
    with pytest.raises(ArchiveError, match=r"does not hold the index.*unpacked again"):
        FormPages(small, log=False, force_reload=True)


def test_missing_index(small):
    FormPages(small, log=False)
    (small / "raw" / FormPages.folder / "index.json").unlink()
    with pytest.raises(ArchiveError, match=r"does not hold the index.*unpacked again"):
        FormPages(small, log=False, force_reload=True)


@pytest.mark.skipif(
    not (find_spec("pip") and find_spec("setuptools")), reason="needs pip and setuptools"
)
def test_download_by_the_real_client(tmp_path, monkeypatch):
    archive = make_sdist(tmp_path / "index" / FormPages.archive)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(archive.parent))
    with pytest.raises(ArchiveError, match=r"with sha256 .* instead of e2bfdd"):
        FormPages(tmp_path / "root", log=False)
    monkeypatch.setattr(FormPages, "sha256", sha256_of(archive))
    assert len(FormPages(tmp_path / "root", log=False)) == 7
    archive.unlink()
    with pytest.raises(DownloadError, match=f"or put '{FormPages.archive}' into"):
        FormPages(tmp_path / "other", log=False)


# Killed and resumed #########################################################

KILLED = """
import sys, time
from hsa_geo.datasets import FormPages, form_pages
form_pages.PAGES_PER_PART = 2
FormPages.sha256 = sys.argv[2]
read_page = form_pages.read_page
def slow(source, page, options):
    time.sleep(60.0 if page.page_id == 6 else 0.0)
    return read_page(source, page, options)
form_pages.read_page = slow
FormPages(sys.argv[1])
"""


def test_a_killed_run_continues(small, monkeypatch):
    monkeypatch.setattr(form_pages, "PAGES_PER_PART", 2)
    script = [sys.executable, "-c", textwrap.dedent(KILLED), str(small), FormPages.sha256]
    with subprocess.Popen(
        script, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE
    ) as process:
        deadline = time.monotonic() + 120
        parts = small / "processed" / "form_pages.safetensors.parts"
        while len(list(parts.glob("[!.]*"))) < 3 and time.monotonic() < deadline:
            assert process.poll() is None, process.stderr.read().decode()
            time.sleep(0.02)
        process.kill()
    assert len(list(parts.glob("[!.]*"))) == 3
    assert files_of(small) == ["form_pages.safetensors.parts"]  # nothing passes for complete

    seen = []
    read_page = form_pages.read_page

    def counting(source, page, options):
        seen.append(page.page_id)
        return read_page(source, page, options)

    monkeypatch.setattr(form_pages, "read_page", counting)
    resumed = FormPages(small, log=False)
    assert seen == [6, 10]
    assert files_of(small) == ["form_pages.safetensors", "report.json"]
    report = resumed.report
    fresh = FormPages(small, log=False, force_reload=True)
    assert len(seen) == 2 + len(PAGES)
    assert fresh.report == report
    assert len(fresh) == len(resumed) == 7
    for a, b in zip(resumed, fresh):
        assert torch.equal(a.text_x, b.text_x)
        assert torch.equal(a.form_label, b.form_label)
        assert a.tree_name == b.tree_name


# The real pages #############################################################


@pytest.mark.download
def test_real_counts(form_pages_dataset):
    dataset = form_pages_dataset
    report = dataset.report
    assert len(dataset) == report["pages"] == 954
    assert report["failed"] == {}
    assert int(dataset.column("complete").sum()) == report["complete"] == 599
    held = dict(zip(dataset.classes, dataset.column("y").sum(0).int().tolist()))
    assert held == {
        "search": 416,
        "login": 241,
        "registration": 164,
        "recovery": 103,
        "contact": 131,
        "mailing list": 132,
        "order": 63,
        "other": 126,
    }
    assert dict(report["pages_with"], **held) == report["pages_with"]
    assert dataset.groups("site").unique().numel() == len(dataset.sites) == 392
    assert dataset.groups().unique().numel() == len(dataset.domains) == 356


@pytest.mark.download
def test_real_alignment(form_pages_dataset):
    counts = form_pages_dataset.report["counts"]
    assert counts["listed"] == 2649 == sum(form_pages_dataset.report["forms_of"].values())
    pairs = counts["exact"] + counts["same_place"] + counts["by_names"]
    assert pairs + counts["unmatched_labels"] == counts["listed"]
    assert pairs + counts["unmatched_forms"] == counts["found"] == 2644
    assert counts["exact"] >= 2500
    assert counts["unmatched_labels"] <= 12
    assert len(form_pages_dataset.report["unmatched"]) == counts["unmatched_labels"]
    labels = torch.cat([tree.form_label for tree in form_pages_dataset])
    assert len(labels) == counts["nodes"]
    assert int((labels >= 0).sum()) == counts["labelled_nodes"] >= 1400


@pytest.mark.download
def test_real_labels_of_forms_are_labels_of_their_page(form_pages_dataset):
    for tree in form_pages_dataset:
        held = tree.form_label[tree.form_label >= 0]
        assert bool(tree.y[0, held].all())
        assert bool(tree.y_mask[0, held].all())
        names = {tree.tree_name[k] for k in tree.form_node.tolist()}
        assert names <= {"form", "table", "tbody", "thead", "tfoot", "tr"}


@pytest.mark.download
def test_real_pages_load_fast_and_batch(form_pages_dataset):
    start = time.perf_counter()
    dataset = FormPages(form_pages_dataset.root, log=False)
    assert time.perf_counter() - start < 10
    batch = next(iter(DataLoader(dataset[:64], batch_size=64)))
    assert batch.y.shape == (64, 8)
    assert batch.num_graphs == 64
    password = [i for i in range(20) if "password" in dataset.page_text(i, attributes=True)]
    assert password


@pytest.mark.download
def test_real_folds(form_pages_dataset):
    selection = pytest.importorskip("sklearn.model_selection")
    dataset = form_pages_dataset[form_pages_dataset.column("complete")]
    groups = dataset.groups()
    for train, test in selection.GroupKFold(5).split(np.zeros(len(dataset)), groups=groups):
        assert not set(groups[train].tolist()) & set(groups[test].tolist())
        assert len(dataset[train]) + len(dataset[test]) == 599
    tested = []
    for fold in range(5):
        sets = dataset.split(fold, seed=1)
        domains = [set(groups[torch.from_numpy(rows)].tolist()) for rows in sets]
        assert sum(map(len, domains)) == len(set.union(*domains))  # each is in one set
        assert abs(len(sets[2]) - 599 / 5) < 5
        tested += sets[2].tolist()
    assert sorted(tested) == list(range(599))
    with pytest.raises(UnsupportedError, match="FormPages comes without a test set"):
        dataset.split()
