"""Spam: a tiny corpus in the format of the package, and the real one."""

import re
from collections import Counter

import pytest
from text_archives import check_trees, real_root, tar_bytes, with_archive

from hsa_geo.datasets.spam_mails import FOLDERS, SpamMails
from hsa_geo.errors import ArchiveError

HAM = b"Received: by filter\nSubject: Re: A new window\n\nI like it. Do you?\n\nYours,\nAnna\n"
FILES = {
    "package/data/easy-ham-1/00001.aa.txt": HAM,
    "package/data/easy-ham-1/00001.aa.json": "not read",
    "package/data/easy-ham-1/00002.ab.txt": b"Subject: a NEW window 2\n\nNo, I do not.",
    "package/data/easy-ham-2/00001.ba.txt": b"To: all\n\nNo subject here at all, 7 words",
    "package/data/hard-ham-1/00001.ca.txt": b"Subject: lone\n\n",
    "package/data/spam-1/00001.da.txt": (
        b"Subject: Buy 100 pills\nContent-Type: text/html\n\n<h1>Buy</h1><p>now! And again."
    ),
    "package/data/spam-1/00002.db.txt": b"\n...",
    "package/data/spam-2/00001.ea.txt": b"Subject: caf\xe9\n\nno subject HERE at all, 99 words",
    "package/data/file_list.json": "[]",
}


@pytest.fixture
def dataset(tmp_path, monkeypatch):
    with_archive(monkeypatch, SpamMails, tmp_path, tar_bytes(FILES))
    return SpamMails(tmp_path, log=False, options={"names": True})


def test_mails(dataset):
    check_trees(dataset)
    assert dataset.name(0) == "easy-ham-1/00001.aa.txt"
    assert dataset.text(0) == "Re: A new window\n\nI like it. Do you?\n\nYours,\nAnna"
    assert "filter" not in dataset.vocabulary  # of another header
    tree = dataset[0]
    assert Counter(tree.tree_name[tree.num_leaves :]) == {
        "mail": 1,
        "subject": 1,
        "body": 1,
        "paragraph": 2,
        "sentence": 4,
    }
    subject = tree.tree_name.index("subject")
    assert tree.tree_span[subject].tolist() == [0, 16]
    kids = tree.tree_index[1][tree.tree_index[0] == tree.num_tree_nodes - 1]
    assert [tree.tree_name[i] for i in kids.tolist()] == ["subject", "body"]
    html = dataset[4]
    assert dataset.text(4) == "Buy 100 pills\n\nBuy\n\nnow! And again."
    assert html.tree_name.count("paragraph") == 2


def test_what_is_missing_is_no_node(dataset):
    assert "subject" not in dataset[2].tree_name[dataset[2].num_leaves :]
    assert dataset[3].tree_name == ["lone", "sentence", "subject", "mail"]
    assert list(dataset.report["failed"]) == ["spam-1/00002.db.txt"]


def test_labels_and_groups(dataset):
    assert dataset.column("y").tolist() == [0, 0, 0, 0, 1, 1]
    folders = [list(FOLDERS)[i] for i in dataset.column("folder").tolist()]
    assert folders == [name.partition("/")[0] for name in map(dataset.name, range(6))]
    assert dataset.groups().tolist() == [0, 0, 1, 2, 3, 1]
    assert dataset.report["mails_with"] == {"html": 1, "undecodable": 1}


def test_windows(dataset):
    for options in ({"hierarchy": "windows", "windows": [4]}, {"max_group": 2}):
        check_trees(SpamMails(dataset.root, log=False, options=options))


def test_a_folder_is_missing(tmp_path, monkeypatch):
    files = {name: content for name, content in FILES.items() if "spam-2" not in name}
    with_archive(monkeypatch, SpamMails, tmp_path, tar_bytes(files))
    with pytest.raises(ArchiveError, match="no mails in 'spam-2'"):
        SpamMails(tmp_path, log=False)


class Twentieth(SpamMails):
    """Every twentieth mail, so that the test is quick."""

    def documents(self):
        self.all = super().documents()
        return self.all[::20]


@pytest.mark.download
def test_real(tmp_path):
    dataset = Twentieth(real_root(SpamMails, tmp_path), log=False)
    mails = dataset.all
    counts = Counter(document.name.partition("/")[0] for document in mails)
    assert [counts[name] for name in FOLDERS] == [2500, 1400, 250, 500, 1396]
    assert Counter(document.label for document in mails) == {0: 4150, 1: 1896}
    assert all(document.text.strip() for document in mails)
    assert dataset.report["failed"] == {}
    check_trees(dataset, slice(0, None, 25))
    # No header but the subject; one mail quotes its own.
    header = re.compile(r"(Received|Return-Path|Delivered-To|X-[\w-]+):", re.IGNORECASE)
    assert sum(bool(header.match(document.parts[1])) for document in mails) == 1
    assert max(Counter(document.values["group_id"] for document in mails).values()) < 300
