"""The zero-shot example of ranking, on a small model and pages of the same form."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import zero_shot_ranking as example
from zero_shot_table import read

from hsa_geo.datasets.manual_sections import manual_of

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")
pytest.importorskip("selectolax")

PAGE = """<html><head><title>{name}</title><meta name="description" content="{name}: {query}">
</head><body><ul><li><a href="#description">DESCRIPTION</a></ul><h2>NAME</h2>{name} - {query}
<h2><a name="description">DESCRIPTION</a></h2>{name} is <em>about</em> {text}
<h3>More</h3>of <b>it</b>.<h2>NOTES</h2>Unseen.</body></html>"""


def words(i, count):
    return " ".join(f"w{i} w{(i * k) % 40} and" for k in range(count))


@pytest.fixture
def root(tmp_path):
    """What would have been fetched: a model with its tokenizer, and the pages of the manual."""
    torch.manual_seed(0)
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{i}" for i in range(40)), "and", "about"]
    ids = {name: i for i, name in enumerate(names)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    folder = tmp_path / "cross_encoder" / "ms-marco-MiniLM-L-12-v2"
    special = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=made, **special).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(ids),
        hidden_size=16,
        num_hidden_layers=12,
        num_attention_heads=2,
        intermediate_size=16,
        num_labels=1,
        initializer_range=0.2,
    )
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    pages = tmp_path / "manual_pages" / "raw" / manual_of("grass").archive.folder
    pages.mkdir(parents=True)
    for i in range(40):
        page = PAGE.format(name=f"r.m{i}", query=words(i, 2), text=words(i, 30))
        (pages / f"r.m{i}.html").write_text(page)
    short = PAGE.format(name="r.short", query=words(1, 2), text="short")
    (pages / "r.short.html").write_text(short)
    (pages / "index.html").write_text("<h2>DESCRIPTION</h2>" + words(1, 99))
    return tmp_path


def test_questions(root):
    questions = example.questions_of(root / "manual_pages", cut=70)
    assert len(questions) == 40
    for i, question in enumerate(questions):
        right = question.passages[0].split()
        assert len(question.passages) == 1 + example.OTHERS
        assert len(set(question.passages)) == 1 + example.OTHERS
        assert len(right) == 70
        assert right[1:3] == ["is", "about"]
        assert f"w{right[0].removeprefix('r.m')} " in question.query
        assert not right[0].startswith(("NAME", "NOTES"))
        assert "Unseen." not in question.passages[0], i
    parts = [example.chosen(questions, part, 10) for part in ("validation", "test")]
    assert [len(part) for part in parts] == [10, 10]
    assert not {q.query for q in parts[0]} & {q.query for q in parts[1]}


def test_program(root, monkeypatch, capsys):
    """It goes on where it was stopped: what is kept is not computed again."""
    line = ["--root", str(root), "--out", str(root / "out"), "--quick"]
    assert example.main(line) == 0
    for name in ("first", "mrr"):
        title, rows = read(root / "out" / f"ranking_{name}.json")
        assert title.startswith("3 queries, 31 passages of 64 to 64 words each; ")
        assert [row.share < 1 for row in rows] == [False, True, True]
        assert rows[0].cosine == pytest.approx(1.0)
        assert rows[1].share == pytest.approx((9 + 3 * rows[1].replaced) / 12)
        assert 0 <= rows[1].accuracy <= 1
    kept = rows
    monkeypatch.setattr(example.CrossEncoder, "scores", None)
    assert example.main(line) == 0
    assert read(root / "out" / "ranking_mrr.json")[1] == kept
    assert "key-tied, windows of 8, [7, 9, 11]: " in capsys.readouterr().out


def test_race(root):
    line = ["--root", str(root), "--out", str(root / "out"), "--quick", "--race"]
    assert example.main(line) == 0
    report = json.loads((root / "out" / "ranking_race.json").read_text())
    kinds = [row["setting"] and row["setting"]["kind"] for row in report["rows"]]
    assert kinds == [None, "key"]  # rivals take as long as HSA over the same groups


def test_measure(root, capsys):
    line = ["--root", str(root), "--out", str(root / "out"), "--measure"]
    assert example.main(line) == 0
    said = capsys.readouterr().out
    assert said.count("│ key ") == said.count("│ block ") == 3
    assert not (root / "out").exists()


def test_unknown_settings_are_refused_before_anything_is_read(tmp_path, capsys):
    assert example.main(["--only", "none", "--root", str(tmp_path)]) == 1
    assert "--only none: give some of" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


def test_ranks():
    """The right passage is first; ties count against it."""
    scores = np.array([[3.0, 1, 2], [1, 2, 3], [2, 2, 1]])
    assert example.hits(scores, "first").right.tolist() == [[1, 0, 0]]
    assert example.hits(scores, "mrr").right[0] == pytest.approx([1, 1 / 3, 1 / 2])


def test_cosines_are_correlations():
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=(2, 5, 9))
    found = [example.unit(example.Outcome(x, 0, 0)).vectors for x in (one, other)]
    expected = [np.corrcoef(a, b)[0, 1] for a, b in zip(one, other)]
    assert (found[0] * found[1]).sum(1) == pytest.approx(expected)
