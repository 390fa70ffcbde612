import re
import sys
import time
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from text_cases import TEXTS, check, check_blanks, named, pieces

from hsa_geo.builders import from_text
from hsa_geo.builders._text_cuts import paragraph_starts, sentence_starts
from hsa_geo.builders.tokens import sentence_pieces, words
from hsa_geo.errors import BuilderError, MissingPackageError


def cut(text: str, starts: np.ndarray) -> list[str]:
    bounds = [*starts.tolist(), len(text)]
    return [text[start:end] for start, end in pairwise(bounds)]


@pytest.mark.parametrize(
    "gap", ["\n\n", "\n \t\n", "\r\n\r\n", "\r\r", "\n\n\n\n", "\x85\x85", "\f"]
)
@pytest.mark.parametrize("more", ["\u2028 \u2028", "\u2029", "\v\n", "\n\xa0\u3000\n", "\n\f\n"])
def test_paragraphs_end_at(gap: str, more: str) -> None:
    text = f"One\nline.{gap}Two{more}three"
    parts = cut(text, paragraph_starts(text, "blank"))
    assert [part.strip() for part in parts if part.strip()] == ["One\nline.", "Two", "three"]
    assert "".join(parts) == text


@pytest.mark.parametrize(
    "gap", ["\n", "\r\n", "\r", "\v", "\x85", "\u2028", " ", "\t", "\x1c", "\u200b\n"]
)
def test_paragraphs_do_not_end_at(gap: str) -> None:
    text = f"One{gap}two"
    assert paragraph_starts(text, "blank").tolist() == [0]


@pytest.mark.parametrize(
    "gap", ["\n", "\r\n", "\r", "\v", "\x85", "\u2028", "\f", "\u2029", "\n\n"]
)
def test_paragraphs_of_lines(gap: str) -> None:
    text = f"One{gap}two"
    parts = cut(text, paragraph_starts(text, "line"))
    assert [part.strip() for part in parts if part.strip()] == ["One", "two"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("It costs 9.99 e.g. here. No", ["It costs 9.99 e.g. here.", "No"]),
        ('He said "go." (Then left.) Yes', ['He said "go."', "(Then left.)", "Yes"]),
        ("wait... what... What?! Oh", ["wait... what...", "What?!", "Oh"]),
        ("你好。再见！「是。」好", ["你好。", "再见！", "「是。」", "好"]),
        ("مرحبا؟ نعم. لا۔ ها", ["مرحبا؟", "نعم.", "لا۔", "ها"]),
        ("यह है। वह है॥ हाँ", ["यह है।", "वह है॥", "हाँ"]),
        ("Да. Нет, т. е. да. Что", ["Да.", "Нет, т. е. да.", "Что"]),
        ("Ναι. Όχι. ναι", ["Ναι.", "Όχι. ναι"]),
        ("ሰላም። አዎ", ["ሰላም።", "አዎ"]),
        ("one.two.three", ["one.two.three"]),
        ("Title\nText here.\nMore", ["Title\nText here.", "More"]),
    ],
)
def test_plain_sentences(text: str, expected: list[str]) -> None:
    parts = cut(text, sentence_starts(text, np.array([0]), "plain", None))
    assert [part.strip() for part in parts] == expected


@given(text=TEXTS)
@settings(max_examples=200, deadline=None)
def test_plain_sentences_end_where_those_of_pages_do(text: str) -> None:
    """But for what is new here: other scripts, and other alphabets' small letters."""
    text = re.sub('[؟۔।॥։።፧။៕｡αάέ-ώа-џ)"]', "", text)
    parts = cut(text, sentence_starts(text, np.array([0]), "plain", None))
    assert [w for w in map(words, parts) if w] == [
        w for w in map(words, sentence_pieces(text)) if w
    ]


@given(text=TEXTS)
@settings(max_examples=200, deadline=None)
def test_cuts_tile_the_text(text: str) -> None:
    paragraphs = paragraph_starts(text, "blank")
    sentences = sentence_starts(text, paragraphs, "plain", None)
    lines = paragraph_starts(text, "line")
    for starts in (paragraphs, sentences, lines):
        assert starts[0] == 0
        assert (np.diff(starts) > 0).all()
        assert starts[-1] < max(len(text), 1)
    assert np.isin(paragraphs, sentences).all()
    for part in cut(text, paragraphs):
        assert not re.search(r"\S[ \t]*(\r\n|\n)[ \t]*(\r\n|\n)\s*\S", part)


# The library ####################################################################


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencex", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'hsa_geo\[text\]'"):
        from_text("One. Two.", sentences="sentencex")


@pytest.mark.parametrize("language", ["", "english", "e", 3, "1", " en"])
def test_a_language_is_a_code(language: object) -> None:
    with pytest.raises(BuilderError, match="is no language code"):
        from_text("One. Two.", sentences="sentencex", language=language)


def test_a_library_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        """What a Rust library raises."""

    def panic(language: str, text: str) -> list[str]:
        raise PanicException("index out of range")

    monkeypatch.setitem(sys.modules, "sentencex", SimpleNamespace(segment=panic))
    with pytest.raises(BuilderError, match=r"PanicException: index out of range.*plain"):
        from_text("One. Two.", sentences="sentencex")
    lossy = SimpleNamespace(segment=lambda language, text: text.split(". "))
    monkeypatch.setitem(sys.modules, "sentencex", lossy)
    with pytest.raises(BuilderError, match=r"did not give back.*update it to 1\.0"):
        from_text("One. Two.", sentences="sentencex")

    def stop(language: str, text: str) -> list[str]:
        raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "sentencex", SimpleNamespace(segment=stop))
    with pytest.raises(KeyboardInterrupt):
        from_text("One. Two.", sentences="sentencex")


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("Dr. Smith left. He ran.", None, ["Dr. Smith left.", "He ran."]),
        ("Das gilt z. B. hier. Ja.", "de", ["Das gilt z. B. hier.", "Ja."]),
        ("Hola, Sr. López. ¿Qué tal? Bien.", "es-MX", ["Hola, Sr. López.", "¿Qué tal?", "Bien."]),
        ("你好。再见！", "zh", ["你好。", "再见！"]),
        ("مرحبا؟ نعم.", "AR", ["مرحبا؟", "نعم."]),
        ("One.\r\n\r\nTwo\x85\x85three. Four", "en", ["One.", "Two", "three.", "Four"]),
        ("Mr.\nSmith\ud800. Yes\0", "en", ["Mr.\nSmith\ud800.", "Yes\0"]),
    ],
)
def test_sentences_of_the_library(text: str, language: str | None, expected: list[str]) -> None:
    pytest.importorskip("sentencex")
    tree = from_text(text, sentences="sentencex", language=language)
    check(text, tree)
    assert named(text, tree, "sentence") == expected


@given(text=TEXTS)
@settings(max_examples=300, deadline=None)
def test_any_text_by_the_library(text: str) -> None:
    pytest.importorskip("sentencex")
    for paragraphs in ("blank", None):
        if not words(text):
            with pytest.raises(BuilderError, match="no word"):
                from_text(text, sentences="sentencex", paragraphs=paragraphs)
            continue
        tree = from_text(text, sentences="sentencex", paragraphs=paragraphs)
        check(text, tree)
        check_blanks(text, tree)
        assert pieces(text, tree)[: tree.num_leaves] == words(text)


def test_a_long_paragraph_by_the_library() -> None:
    """Windows of the text change nothing."""
    sentencex = pytest.importorskip("sentencex")
    text = "".join(f"Dr. Smith said {i} times yes, and left. " for i in range(2000)).strip()
    tree = from_text(text, sentences="sentencex")
    assert named(text, tree, "sentence") == [s.strip() for s in sentencex.segment("en", text)]
    assert len(named(text, tree, "sentence")) == 2000
    endless = from_text("word " * 20_000, sentences="sentencex", names=False)
    assert endless.num_tree_nodes == 20_003


@pytest.mark.parametrize("unit", ["“", "“a. ", "a", ". ", "。", "\n ", "(", '"a'])
def test_no_text_takes_the_library_quadratic_time(unit: str) -> None:
    pytest.importorskip("sentencex")
    text = unit * (100_000 // len(unit)) + " end"
    start = time.perf_counter()
    from_text(text, sentences="sentencex", paragraphs=None, names=False)
    assert time.perf_counter() - start < 30  # quadratic time takes minutes
