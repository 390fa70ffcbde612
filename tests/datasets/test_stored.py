"""The base of the datasets: what is stored is what was built, whatever happens in between."""

import errno
import json
import multiprocessing
import pickle
import shutil
import sys
import time
from pathlib import Path

import pytest
import torch
from torch_geometric.loader import DataLoader

sys.path.insert(0, str(Path(__file__).parent))

from small_trees import TEXTS, SmallTexts, build, make_archive

from hsa_geo.data import SignalTree
from hsa_geo.datasets.collated import load_collated, save_collated
from hsa_geo.datasets.stored import StoredTrees
from hsa_geo.errors import (
    ArchiveError,
    BuilderError,
    DiskFullError,
    FileFormatError,
    HSAWarning,
    LabelError,
    ShapeError,
    UnsupportedError,
)


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A folder with the archive in it; no client may be asked."""
    monkeypatch.setattr(SmallTexts, "archive", SmallTexts.archive)  # undone at the end
    make_archive(tmp_path / "root")
    return tmp_path / "root"


def processed(root):
    return sorted(p.name for p in (root / "processed").iterdir())


# What is stored #############################################################


def test_trees(root, capsys):
    dataset = SmallTexts(root)
    out, err = capsys.readouterr()
    assert out == "small: 4 of 6 texts stored\nunreadable: c: BuilderError: it is empty\n"
    assert "Building trees of texts: 6/6" in err
    assert dataset.built == ["a", "b", "c", "d", "e", "f"]
    assert dataset.vocabulary == ["buy", "cat", "end", "left", "out", "sat", "the"]
    again = SmallTexts(root)
    assert capsys.readouterr() == ("", "")
    assert not hasattr(again, "built")
    assert again.vocabulary == dataset.vocabulary
    assert again.labels == dataset.labels == {name: TEXTS[name][1] for name in "abcdef"}
    for some in (dataset, again):
        words = [[some.vocabulary[w] for w in tree.word_x] for tree in some]
        assert [" ".join(text) for text in words] == [TEXTS[name][0] for name in "abdf"]
        assert some.column("y").tolist() == [0, 1, 1, 1]
        assert all(isinstance(tree, SignalTree) for tree in some)
    assert processed(root) == ["small.report.json", "small.safetensors"]
    assert not (root / "processed" / "pre_transform.pt").exists()
    batch = next(iter(DataLoader(again, batch_size=4)))
    assert batch.y.tolist() == [0, 1, 1, 1]
    assert batch.word_index.tolist() == list(range(11))


def test_report(root):
    dataset = SmallTexts(root, log=False, options={"a": 1})
    report = dataset.report
    assert report == json.loads(next((root / "processed").glob("small-*.report.json")).read_text())
    assert report["archives"] == [
        {"client": "npm", "requirement": "small@1.0", "sha256": SmallTexts.archive.sha256}
    ]
    assert {k: report[k] for k in ("options", "items", "stored", "failed", "build_version")} == {
        "options": {"a": 1},
        "items": 6,
        "stored": 4,
        "failed": {"c": "BuilderError: it is empty"},
        "build_version": 1,
    }


def test_options_lie_side_by_side(root):
    SmallTexts(root, log=False)
    SmallTexts(root, log=False, options={"a": 1, "b": 2})
    SmallTexts(root, log=False, options={"b": 2, "a": 1})
    SmallTexts(root, log=False, options={"b": 3})
    assert len(processed(root)) == 6


def test_classes_and_columns(root):
    dataset = SmallTexts(root, log=False)
    assert dataset.num_classes == dataset[1:].num_classes == dataset[:1].num_classes == 2
    assert dataset[2:].column("y").tolist() == [1, 1]
    with pytest.raises(ShapeError, match="'word_x' does not have one row per text: read it"):
        dataset.column("word_x")
    copied = dataset.copy([3, 0])
    assert copied.column("y").tolist() == [1, 0]
    assert copied.vocabulary == dataset.vocabulary


def test_transforms(root):
    def longer(tree):
        return tree.num_leaves > 1

    def mark(tree):
        tree.mark = torch.tensor([tree.num_leaves])
        return tree

    dataset = SmallTexts(root, pre_transform=mark, pre_filter=longer, log=False)
    assert dataset.column("mark").tolist() == [3, 3, 4]
    with pytest.warns(HSAWarning, match=r"pre_transform=.*not None.*force_reload=True"):
        SmallTexts(root, pre_filter=longer, log=False)
    assert len(SmallTexts(root, log=False, force_reload=True)) == 4
    with pytest.raises(ArchiveError, match=r"none of 6 texts is left.*'c': 'BuilderError"):
        SmallTexts(root, log=False, force_reload=True, pre_filter=lambda tree: False)
    assert len(SmallTexts(root, log=False)) == 4  # the old file is whole


def test_what_other_code_built_is_told(root, monkeypatch):
    SmallTexts(root, log=False)
    monkeypatch.setattr(SmallTexts, "build_version", 2)
    with pytest.warns(HSAWarning, match=r"build_version=1, not 2: pass force_reload=True"):
        SmallTexts(root, log=False)
    SmallTexts(root, log=False, force_reload=True)
    SmallTexts(root, log=False)  # warnings are errors here


def test_raw_files_may_go_unless_they_are_needed(root, monkeypatch):
    SmallTexts(root, log=False)
    shutil.rmtree(root / "raw")
    assert len(SmallTexts(root, log=False)) == 4
    monkeypatch.setattr(SmallTexts, "raw_needed", True)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ArchiveError, match=r"npm' is missing.*put 'small-1\.0\.tgz' into"):
        SmallTexts(root, log=False)


def test_generated_trees_need_no_archive(tmp_path):
    class Generated(StoredTrees):
        file_name = "generated"

        def items(self):
            return range(self.options.get("count", 3))

        def tree(self, item):
            return SignalTree.from_parents([item + 1] * (item + 1) + [-1])

    dataset = Generated(tmp_path, log=False, options={"count": 5})
    assert [tree.num_leaves for tree in dataset] == [1, 2, 3, 4, 5]
    assert [p.name for p in tmp_path.iterdir()] == ["processed"]
    one = Generated(tmp_path, log=False, options={"count": 1})
    assert [tree.num_leaves for tree in one] == [1]
    with pytest.raises(ArchiveError, match="none of 0 trees is left"):
        Generated(tmp_path, log=False, options={"count": 0})


def test_many_strings_are_stored_beside_the_header(tmp_path):
    class Words(StoredTrees):
        file_name, stored = "words", ("vocabulary", "few")

        def items(self):
            self.vocabulary = [f"wort{k}ä\udc80" for k in range(5000)]
            self.few = ["a", "b"]
            return [1]

        def tree(self, item):
            return SignalTree.from_parents([1, -1])

    made, read = Words(tmp_path, log=False), Words(tmp_path, log=False)
    assert made.vocabulary == read.vocabulary == [f"wort{k}ä\udc80" for k in range(5000)]
    assert read.few == ["a", "b"]
    head = (tmp_path / "processed" / "words.safetensors").read_bytes()[:8]
    assert int.from_bytes(head, "little") < 5000  # bytes of the header


def test_two_datasets_may_share_a_root(root):
    class Others(SmallTexts):
        file_name, stored, classes = "others", (*SmallTexts.stored, "classes"), ()

        def items(self):
            self.classes = ["one", "two", "three"]
            return super().items()

        def tree(self, item):
            tree = super().tree(item)
            if tree is not None:
                tree.y = tree.y + 1
            return tree

    def mark(tree):
        return tree

    SmallTexts(root, log=False)
    Others(root, log=False, pre_transform=mark)
    assert SmallTexts(root, log=False).column("y").tolist() == [0, 1, 1, 1]
    others = Others(root, log=False, pre_transform=mark)
    assert others.column("y").tolist() == [1, 2, 2, 2]
    assert others.classes == ["one", "two", "three"]
    assert others.num_classes == 3
    path = root / "processed" / "others.safetensors"
    data, slices, extra = load_collated(path)
    save_collated(path, data, slices, {**extra, "classes": ["one"]})
    with pytest.raises(LabelError, match="there are 1 classes"):  # those in the file count
        Others(root, log=False, pre_transform=mark)


def test_refused(root):
    dataset = SmallTexts(root, log=False)
    with pytest.raises(UnsupportedError, match="would pickle the trees"):
        dataset.to_on_disk_dataset()
    with pytest.raises(UnsupportedError, match="SignalTree, not dict"):
        dataset.load("x", dict)
    with pytest.raises(NotImplementedError):
        StoredTrees(root / "none", log=False)


# Labels #####################################################################


def test_a_label_that_is_no_class_is_told_when_the_trees_are_built(tmp_path, monkeypatch):
    monkeypatch.setattr(SmallTexts, "archive", SmallTexts.archive)
    make_archive(tmp_path, {**TEXTS, "d": ("sat", "eggs")})
    with pytest.raises(LabelError, match=r"^d: y holds 7 .*but there are 2 classes, 0 to 1"):
        SmallTexts(tmp_path, log=False)
    assert processed(tmp_path) == ["small.safetensors.parts"]
    make_archive(tmp_path, TEXTS)  # repaired
    shutil.rmtree(tmp_path / "raw" / "small-1.0")
    assert len(SmallTexts(tmp_path, log=False)) == 4
    assert processed(tmp_path) == ["small.report.json", "small.safetensors"]


def test_also_where_a_subclass_builds_whole_parts_or_a_transform_spoils_them(root):
    class Parts(SmallTexts):
        def build(self, items):
            trees = [self.tree(item) for item in items if item in "ab"]
            for tree in trees:
                tree.y = tree.y + 5
            return trees, {}

    with pytest.raises(LabelError, match="y holds 5"):
        Parts(root, log=False)

    def spoil(tree):
        tree.y = tree.y - 1
        return tree

    with pytest.raises(LabelError, match="y holds -1"):
        SmallTexts(root, log=False, pre_transform=spoil, force_reload=True)
    assert "small.safetensors" not in processed(root)


def test_and_when_they_are_read(root, monkeypatch):
    SmallTexts(root, log=False)
    path = root / "processed" / "small.safetensors"
    data, slices, extra = load_collated(path)
    data.y[2] = 2
    save_collated(path, data, slices, extra)
    with pytest.raises(
        LabelError, match=r"small\.safetensors.*holds 2 \(at place 2\).*reload=True"
    ):
        SmallTexts(root, log=False)
    assert SmallTexts(root, log=False, force_reload=True).column("y").tolist() == [0, 1, 1, 1]
    monkeypatch.setattr(SmallTexts, "classes", ("ham",))
    with pytest.raises(LabelError, match="there are 1 classes"):
        SmallTexts(root, log=False)


# Damage #####################################################################


def flip(content):
    """A wrong bit among the tensors."""
    return content[:-9] + bytes([content[-9] ^ 4]) + content[-8:]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[: len(content) // 2],
        lambda content: content + b"more",
        lambda content: b"\xff" * 1000,
        lambda content: pickle.dumps({"a": 1}),
        flip,
    ],
    ids=["empty", "cut", "longer", "garbage", "pickle", "flipped"],
)
def test_damaged_trees(root, damage):
    SmallTexts(root, log=False)
    path = root / "processed" / "small.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(FileFormatError, match=r"small\.safetensors' is damaged.*force_reload=True"):
        SmallTexts(root, log=False)
    assert len(SmallTexts(root, log=False, force_reload=True)) == 4
    path.write_bytes(damage(path.read_bytes()))
    path.unlink()  # the other remedy
    assert len(SmallTexts(root, log=False)) == 4


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe"])
def test_damaged_report(root, content):
    SmallTexts(root, log=False)
    path = root / "processed" / "small.report.json"
    path.write_bytes(content)
    with pytest.raises(
        FileFormatError, match=r"report\.json' is damaged.*remove it, or pass force"
    ):
        SmallTexts(root, log=False)
    assert len(SmallTexts(root, log=False, force_reload=True)) == 4
    path.write_bytes(content)
    path.unlink()
    assert SmallTexts(root, log=False).report["stored"] == 4


def test_file_without_the_vocabulary(root):
    SmallTexts(root, log=False)
    path = root / "processed" / "small.safetensors"
    data, slices, extra = load_collated(path)
    del extra["vocabulary"]
    save_collated(path, data, slices, extra)
    with pytest.raises(FileFormatError, match=r"lacks 'vocabulary'.*force_reload=True"):
        SmallTexts(root, log=False)
    assert len(SmallTexts(root, log=False, force_reload=True)) == 4


def test_damaged_part(root, monkeypatch):
    monkeypatch.setattr(SmallTexts, "slow", "f")
    monkeypatch.setattr("time.sleep", lambda seconds: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        SmallTexts(root, log=False)
    parts = sorted((root / "processed" / "small.safetensors.parts").glob("*.safetensors"))
    assert len(parts) == 2
    parts[0].write_bytes(flip(parts[0].read_bytes()))
    monkeypatch.setattr(SmallTexts, "slow", "")
    assert SmallTexts(root, log=False).built == ["a", "b", "e", "f"]


# Kills, full disks, several processes #######################################


def start(root, slow=""):
    """A process of its own that builds the trees; forked, as that takes no time."""
    process = multiprocessing.get_context("fork").Process(target=build, args=(root, slow))
    process.start()
    return process


def wait_for(path, process):
    deadline = time.monotonic() + 300
    while not path.exists() and time.monotonic() < deadline:
        assert process.is_alive()
        time.sleep(0.01)
    assert path.exists()


def test_killed_in_the_middle(root):
    process = start(root, slow="e")
    wait_for(root / "slow", process)
    process.kill()
    process.join()
    assert processed(root) == ["small.safetensors.parts"]  # nothing passes for complete
    (root / "processed" / ".small.safetensors-half").write_bytes(b"half")  # killed while writing
    resumed = SmallTexts(root, log=False)
    assert resumed.built == ["e", "f"]
    assert processed(root) == ["small.report.json", "small.safetensors"]
    fresh = SmallTexts(root, log=False, force_reload=True)
    assert fresh.built == list("abcdef")
    assert fresh.report == resumed.report
    assert fresh.vocabulary == resumed.vocabulary
    for a, b in zip(resumed, fresh):
        assert torch.equal(a.word_x, b.word_x)


def test_parts_of_other_archives_or_code_are_not_used(root, monkeypatch):
    monkeypatch.setattr(SmallTexts, "slow", "e")
    monkeypatch.setattr("time.sleep", lambda seconds: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        SmallTexts(root, log=False)
    monkeypatch.setattr(SmallTexts, "slow", "")
    monkeypatch.setattr(SmallTexts, "build_version", 2)
    assert SmallTexts(root, log=False).built == list("abcdef")


def test_who_waits_goes_on_when_the_other_one_dies(root):
    first = start(root, slow="e")
    wait_for(root / "slow", first)
    second = start(root)
    time.sleep(0.5)
    assert second.is_alive()  # waiting: it would take no time
    assert (root / "built").read_text() == "abcd"
    first.kill()
    second.join(300)
    assert second.exitcode == 0
    assert (root / "built").read_text() == "abcdef"


def test_several_processes_build_once(root):
    processes = [start(root) for _ in range(4)]
    for process in processes:
        process.join(300)
        assert process.exitcode == 0
    assert (root / "built").read_text() == "abcdef"
    assert processed(root) == ["small.report.json", "small.safetensors"]


def test_without_locks_several_processes_still_end_well(root, monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def flock(*args):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    processes = [start(root) for _ in range(4)]
    for process in processes:
        process.join(300)
        assert process.exitcode == 0
    assert len(SmallTexts(root, log=False)) == 4


def test_full_disk(tiny_disk, monkeypatch):
    """While fetching, unpacking and building: always the same error, and nothing half-written."""
    monkeypatch.setattr(SmallTexts, "archive", SmallTexts.archive)
    long = {**TEXTS, "d": ("word " * 500_000, "spam")}
    path = make_archive(tiny_disk, long)
    with pytest.raises(DiskFullError, match=r"raw/small-1\.0' .*free some, or give another root"):
        SmallTexts(tiny_disk, log=False)
    assert [p.name for p in path.parent.iterdir()] == ["small-1.0.tgz"]

    path = make_archive(tiny_disk, {**TEXTS, "d": ("word " * 150_000, "spam")})
    with pytest.raises(DiskFullError, match="No space left to write"):
        SmallTexts(tiny_disk, log=False)
    left = processed(tiny_disk)
    assert left == ["small.safetensors.parts"]
    parts = list((tiny_disk / "processed" / left[0]).iterdir())
    assert [p.suffix for p in parts] == [".safetensors"]  # the first, finished one
    make_archive(tiny_disk, TEXTS)
    shutil.rmtree(tiny_disk / "raw" / "small-1.0")
    assert len(SmallTexts(tiny_disk, log=False)) == 4


def test_an_error_of_the_subclass_passes(root, monkeypatch):
    def tree(self, item):
        raise BuilderError("all bad")

    monkeypatch.setattr(SmallTexts, "tree", tree)
    with pytest.raises(ArchiveError, match=r"none of 6 texts.*'f': 'BuilderError: all bad'"):
        SmallTexts(root, log=False)
