import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsa_geo.builders.tokens import (
    HASH_BUCKETS,
    Field,
    attribute_tokens,
    hash_token,
    ids_of_words,
    normalise,
    sentence_pieces,
    word_ids,
    words,
)

FIELDS = "WORD TAG TYPE NAME ID PLACEHOLDER LABEL VALUE ALT OPTION TITLE FORM"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("to be, or not", ["to", "be", "or", "not"]),
        ("Sign-up don't rock’n’roll", ["Sign-up", "don't", "rock’n’roll"]),
        ("9.99 1,000 a.b 3.", ["9.99", "1,000", "a", "b", "3"]),
        ("- -- a- -b", ["a", "b"]),
        ("!!! ... $ | » ★ \ufffd", []),
        ("first_name and/or x@y.org", ["first", "name", "and", "or", "x", "y", "org"]),
        ("東京タワー mixed漢字", ["東", "京", "タ", "ワ", "ー", "mixed", "漢", "字"]),
        ("한국어 텍스트", ["한국어", "텍스트"]),
        ("हिन्दी भाषा।", ["हिन्दी", "भाषा"]),
        ("مرحبا، العالم؟", ["مرحبا", "العالم"]),
        ("pass\xadword a\u200bb", ["pass\xadword", "a", "b"]),
        ("\u200d\xad", []),
        ("one\x00two\x85three", ["one", "two", "three"]),
        ("\ud800", []),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("One. Two! Three? Four", 4),
        ("It costs 9.99 e.g. here", 1),
        ('He said "go." Then left', 2),
        ("end.", 1),
        ("a.  \n b", 1),
        ("你好。再见！", 3),
        ("wait... what", 1),
        ("wait... What", 2),
    ],
)
def test_sentences(text: str, count: int) -> None:
    assert len(sentence_pieces(text)) == count


@given(st.text())
def test_sentences_lose_no_word(text: str) -> None:
    assert [w for piece in sentence_pieces(text) for w in words(piece)] == words(text)


@given(st.text())
def test_words_are_parts_of_the_text_in_order(text: str) -> None:
    at = 0
    for word in words(text):
        found = text.find(word, at)
        assert found >= at, f"{word!r} is not in {text[at:]!r}"
        at = found + len(word)


@pytest.mark.parametrize("unit", [".", "a", "a-", "a.", "1.", '."', "-'", ". ", "。", "...a"])
def test_no_text_makes_the_patterns_backtrack(unit: str) -> None:
    text = unit * (400_000 // len(unit))
    start = time.perf_counter()
    words(text)
    sentence_pieces(text)
    attribute_tokens(text)
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("user_password", ["user", "password"]),
        ("userEmail", ["user", "email"]),
        ("login[password][0]", ["login", "password", "0"]),
        ("ctl00$txtURL2", ["ctl", "00", "txt", "url", "2"]),
        ("HTMLParser", ["html", "parser"]),
        ("Größe", ["grösse"]),
        ("", []),
        ("--", []),
    ],
)
def test_attribute_tokens(value: str, expected: list[str]) -> None:
    assert attribute_tokens(value) == expected


@pytest.mark.parametrize(
    ("word", "token"),
    [
        ("E-Mail", "email"),
        ("Don’t", "dont"),
        ("Straße", "strasse"),
        ("ﬁn", "fin"),
        ("e\u0301", "é"),
    ],
)
def test_normalise(word: str, token: str) -> None:
    assert normalise(word) == token


def test_hash_is_the_same_in_another_process() -> None:
    code = "from hsa_geo.builders.tokens import hash_token as h; print(h('password'), h('é'))"
    runs = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in ("1", "2")
    }
    assert runs == {f"{hash_token('password')} {hash_token('é')}\n"}


def test_hyphenated_words_have_parts() -> None:
    assert word_ids("log-in") == tuple(hash_token(t) for t in ("login", "log", "in"))
    assert len(word_ids("don't")) == 1


def test_long_words_are_not_cached() -> None:
    from hsa_geo.builders.tokens import _word_ids

    before = _word_ids.cache_info().currsize
    ids_of_words(["x" * 1000, "y" * 100_000])
    assert _word_ids.cache_info().currsize == before


@given(st.text(), st.integers(1, 2**20))
def test_ids_are_in_range(text: str, buckets: int) -> None:
    for ids in ids_of_words(words(text), buckets):
        assert ids
        assert all(0 <= i < buckets for i in ids)


def test_field_codes_are_stable() -> None:
    assert {f.name: int(f) for f in Field} == {name: k for k, name in enumerate(FIELDS.split())}
    assert HASH_BUCKETS == 16384
