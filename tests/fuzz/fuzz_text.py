"""Texts of all characters, in all the ways to cut them, for from_text."""

# ruff: noqa: SIM905
from __future__ import annotations

import functools
import importlib.util
import random
from pathlib import Path
from typing import Any

import numpy as np
from fuzz_case import Case, options_of, truth

from hsa_geo.builders import from_text

TEXTS = [
    "To be, or not to be. That is the question!\n\nAye: there's the rub...",
    'He said: "Don\'t!" Then (finally) left; Dr. Smith did not. 3.14 e-mail x@y.org',
    "東京は大きい。とても！「はい」と言った。\r\n\r\n한국어 문장입니다. हिन्दी वाक्य। दूसरा॥",
    "مرحبا بالعالم؟ شكرا، نعم۔ שלום עולם. ภาษาไทย ကမ္ဘာ။ ខ្មែរ។ ሰላም።",
    "👩\u200d👩\u200d👧 ❤\ufe0f 🇫🇷 1\ufe0f\u20e3 e\u0301 ﬁ İ ß",
    "a\tb\x0bc\x0cd\x1ce\x85f\u2028g\u2029h\u3000i\xa0j\u200bk\ufeffl\0m",
    "[CLS] one [SEP] two [MASK] <s> </s> <|end|> ##ing",
]
PARTS = [
    *("to", "Be", "Don't", "e-mail", "9.99", "Dr.", "z. B.", "http://a.b/c?d=1", "x@y.org", "A.B."),
    *(
        ".",
        "!",
        "?",
        "...",
        "…",
        ",",
        "-",
        "--",
        "—",
        '"',
        "'",
        "“",
        "”",
        "(",
        ")",
        "[1]",
        "«",
        "»",
    ),
    *(" ", "  ", "\t", "\n", "\n\n", "\r\n", "\r\n\r\n", "\r", "\v", "\f", "\x1c", "\x1d", "\x85"),
    *("\u2028", "\u2029", "\u3000", "\u200b", "\u200d", "\u200f", "\u202e", "\ufeff", "\0", "\xad"),
    *("。", "！", "「", "」", "ー", "ﾊﾟ", "।", "؟", "،", "།", "\ufe0f", "\u0301", "\u20e3", "\x7f"),
    *("\ud83d", "\ude00", "\udfff", "\ud800", "\U0010ffff", "\ufffe", "\uffff", "\U000e0001"),
]
CATEGORIES = [  # ranges of characters of one kind
    *((0, 32), (32, 127), (127, 160), (160, 592), (0x300, 0x370), (0x370, 0x590), (0x590, 0x700)),
    *((0x900, 0xE80), (0x1000, 0x10A0), (0x1100, 0x1200), (0x2000, 0x2070), (0x2190, 0x2C00)),
    *((0x3000, 0x3100), (0x4E00, 0xA000), (0xAC00, 0xD7A4), (0xD800, 0xE000), (0xE000, 0xF900)),
    *((0xFB00, 0x10000), (0x10000, 0x10FFFF), (0x1D400, 0x1D800), (0x1F000, 0x1FB00)),
    *((0xE0000, 0xE01F0), (0x110, 0x111)),
]


def _letters(text: str) -> list[str]:
    return list(text)


def _generated(text: str) -> Any:
    return iter(text.split())


def _spans(text: str) -> Any:
    return [(i, min(i + 3, len(text))) for i in range(0, len(text), 3)]


def _span_array(text: str) -> Any:
    return np.array(_spans(text) or np.zeros((0, 2))).astype(np.uint64)


def _behind(text: str) -> Any:
    return [(0, len(text) + 1)]


def _backwards(text: str) -> Any:
    return text.split()[::-1]


def _overlapping(text: str) -> Any:
    return [(0, 2), (1, 3)]


def _all(text: str) -> Any:
    return [text]


def _nothing(text: str) -> Any:
    return None


def _mixed(text: str) -> Any:
    return ["a", (0, 1), None]


def _floats(text: str) -> Any:
    return [(0.0, 1.5), (2.0, float("nan"))]


def _large(text: str) -> Any:
    return [(0, 10**30), (-(2**63), 1)]


def _empty_strings(text: str) -> Any:
    return ["", *text.split(), ""]


def _bytes(text: str) -> Any:
    return text.encode("utf-8", "replace")


def _ragged(text: str) -> Any:
    return [(0, 1), (2,), ()]


FUNCTIONS = [
    *(str.split, _letters, _generated, _spans, _span_array, _all, _empty_strings, str.splitlines),
    *(
        _behind,
        _backwards,
        _overlapping,
        _nothing,
        _mixed,
        _floats,
        _large,
        _ragged,
        len,
        _bytes,
    ),
]


@functools.cache
def tokenizers() -> list[Any]:
    """Small tokenizers of the package tokenizers, where it is installed."""
    if importlib.util.find_spec("tokenizers") is None:
        return []
    from tokenizers import (
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        processors,
        trainers,
    )

    found = []
    special = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
    corpus = [text.encode("utf-8", "replace").decode() for text in TEXTS]
    wordpiece = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    wordpiece.normalizer = normalizers.BertNormalizer()
    wordpiece.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    wordpiece.train_from_iterator(
        corpus,
        trainers.WordPieceTrainer(vocab_size=300, show_progress=False, special_tokens=special),
    )
    wordpiece.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    wordpiece.enable_truncation(8)
    wordpiece.enable_padding(length=12)
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    bpe.decoder = decoders.ByteLevel()
    bpe.post_processor = processors.ByteLevel(trim_offsets=True)
    bpe.train_from_iterator(
        corpus,
        trainers.BpeTrainer(
            vocab_size=400,
            show_progress=False,
            special_tokens=["<s>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    unigram = Tokenizer(models.Unigram())
    unigram.normalizer = normalizers.NFKC()
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    unigram.train_from_iterator(
        corpus,
        trainers.UnigramTrainer(
            vocab_size=400, show_progress=False, special_tokens=["<unk>"], unk_token="<unk>"
        ),
    )
    bare = Tokenizer(models.WordLevel({"a": 0}))  # no token for unknown words
    found += [wordpiece, bpe, unigram, bare]
    return found


RULES = ["plain", "plain", None, *FUNCTIONS]
if importlib.util.find_spec("sentencex") is not None:
    RULES += ["sentencex"] * 6
OPTIONS = {
    "sentences": RULES,
    "paragraphs": ["blank", "line", "line", None, *FUNCTIONS[:12]],
    "punctuation": [True, False],
    "special_tokens": [True, False],
    "max_group": [2, 3, 10, 1000],
    "hash_buckets": [1, 2, 2**14, 2**40],
    "names": [True, False],
    "max_leaves": [1, 3, 1000, None],
    "on_limit": ["error", "truncate", "truncate"],
}
KEYS = frozenset(
    "tree_index tree_level tree_domain tree_pos num_nodes tree_span text_x text_index".split()
)


def case(rng: random.Random, folder: Path) -> Case:
    """A text and options."""
    options = options_of(rng, OPTIONS)
    own = tokenizers()
    draw = rng.random()
    if draw < 0.2:
        options["tokenizer"] = rng.choice(FUNCTIONS)
    elif draw < 0.4 and own:
        options["tokenizer"] = rng.choice(own)
        if rng.random() < 0.9:
            options.pop("hash_buckets", None)
    if _is(options.get("sentences"), "sentencex") and rng.random() < 0.7:
        options["language"] = rng.choice("en de ja ar hi am xx EN-us zh_CN x 1 eng".split())
    if rng.random() < 0.8:  # what goes with few others
        if "tokenizer" in options:
            options.pop("punctuation", None)
        if not any(options.get("tokenizer") is one for one in own):
            options.pop("special_tokens", None)
    source: Any = _text(rng)
    if rng.random() < 0.003:
        source = rng.choice(
            (None, 1, b"bytes", bytearray(b"x"), ["a"], ("a", "b"), {"a"}, float("nan"))
        )
    keys = KEYS | ({"tree_name"} if truth(options.get("names", True)) else set())
    return Case(from_text, source, options, (), keys)


def _is(value: Any, name: str) -> bool:
    return isinstance(value, str) and value == name


def _text(rng: random.Random) -> str:
    kind = rng.randrange(10)
    if kind < 5:
        text = rng.choice(TEXTS)
        for _ in range(1 + int(rng.expovariate(0.3))):
            text = _mutated(rng, text)
    elif kind < 8:
        text = "".join(rng.choices(PARTS, k=rng.randrange(60)))
    elif kind == 8:
        low, high = rng.choice(CATEGORIES)
        text = "".join(chr(rng.randrange(low, high)) for _ in range(rng.randrange(80)))
    else:
        text = "".join(chr(rng.randrange(0x110000)) for _ in range(rng.randrange(40)))
    if rng.random() < 0.03:  # huge runs
        at = rng.randrange(len(text) + 1)
        run = rng.choice((*PARTS, "ab", "a.", ". ", '" ', "\n ", "「", "a-", "1.", "http://"))
        text = text[:at] + run * rng.choice((1000, 5000, 20_000)) + text[at:]
    return text


def _mutated(rng: random.Random, text: str) -> str:
    at = rng.randrange(len(text) + 1)
    end = at + 1 + int(rng.expovariate(0.1))
    kind = rng.randrange(7)
    if kind == 0:
        return text[:at] + rng.choice(PARTS) + text[at:]
    if kind == 1:
        return text[:at] + text[end:]
    if kind == 2:
        return text[:at] + text[at:end] * rng.choice((2, 2, 10)) + text[end:]
    if kind == 3:
        return text[:at] + chr(rng.randrange(*rng.choice(CATEGORIES))) + text[at:]
    if kind == 4:
        return text[:at] + text[at:end].swapcase() + text[end:]
    if kind == 5:
        return text[at:] + rng.choice(TEXTS)
    return text[:at] + rng.choice(PARTS).join(text[at:end]) + text[end:]
