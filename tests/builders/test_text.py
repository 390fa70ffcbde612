import re
import time
import warnings

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from text_cases import ANY, PARTED, TEXTS, check, check_blanks, kids_of, named, pieces
from torch_geometric.data import Batch

from hsa_geo.builders import from_text
from hsa_geo.builders.tokens import HASH_BUCKETS, ids_of_words, words
from hsa_geo.data import SignalTree
from hsa_geo.errors import (
    BuilderError,
    HSAError,
    HSAWarning,
    LimitError,
    TruncationWarning,
    UnsupportedError,
)
from hsa_geo.nn import HSAConv
from hsa_geo.nn.tokens import TokenEncoder
from hsa_geo.testing import assert_forest_equals_trees

PROSE = """The cat sat. "Why?" it said, e.g. to me!

  It costs $9.99... Or not;
it's up to you.\r\n\r\nThe end"""
ROUNDS = settings(max_examples=120, deadline=None)


def test_the_levels_of_a_text() -> None:
    tree = from_text(PROSE)
    check(PROSE, tree)
    assert tree.tree_name[: tree.num_leaves] == words(PROSE)
    assert named(PROSE, tree, "paragraph") == [
        'The cat sat. "Why?" it said, e.g. to me!',
        "It costs $9.99... Or not;\nit's up to you.",
        "The end",
    ]
    assert named(PROSE, tree, "sentence") == [
        "The cat sat.",
        '"Why?" it said, e.g. to me!',
        "It costs $9.99...",
        "Or not;\nit's up to you.",
        "The end",
    ]
    assert tree.depth == 3
    assert (tree.tree_level[: tree.num_leaves] == 3).all()
    ids = [i for word in ids_of_words(words(PROSE)) for i in word]
    assert tree.text_x[:, 0].tolist() == ids


@pytest.mark.parametrize(
    ("options", "depth"),
    [
        ({}, 3),
        ({"paragraphs": None}, 2),
        ({"sentences": None}, 2),
        ({"paragraphs": None, "sentences": None}, 1),
        ({"punctuation": True, "paragraphs": "line"}, 3),
    ],
)
def test_levels_can_be_left_out(options: dict, depth: int) -> None:
    tree = from_text(PROSE, **options)
    check(PROSE, tree)
    assert tree.depth == depth
    assert ("paragraph" in tree.tree_name) == (
        "paragraphs" not in options or "punct" in str(options)
    )
    assert ("sentence" in tree.tree_name) == ("sentences" not in options)


@pytest.mark.parametrize(
    ("text", "leaves"),
    [
        ("a", ["a"]),
        ("\ufeffHello", ["Hello"]),
        ("one\0two", ["one", "two"]),
        ("\ud83da \udfff b", ["a", "b"]),
        ("日本語。です", ["日", "本", "語", "で", "す"]),
        ("مرحبا، العالم؟ نعم", ["مرحبا", "العالم", "نعم"]),
        ("שלום עולם.", ["שלום", "עולם"]),
        ("e\u0301te\u0301 x", ["e\u0301te\u0301", "x"]),
        ("hi 👩\u200d👩\u200d👧!", ["hi", "👩\u200d👩\u200d👧"]),
        ("हिन्दी भाषा। अच्छा", ["हिन्दी", "भाषा", "अच्छा"]),
    ],
)
def test_any_script(text: str, leaves: list[str]) -> None:
    tree = from_text(text)
    check(text, tree)
    assert pieces(text, tree)[: tree.num_leaves] == leaves


@pytest.mark.parametrize(
    ("text", "leaves"),
    [
        ('"No..." he -- said!', ['"', "No", "...", '"', "he", "--", "said", "!"]),
        ("***", ["***"]),
        ("\ufeff\0 a\u200b, \ud800", ["a", ","]),
        ("★\ufe0f➡\ufe0f $5", ["★\ufe0f", "➡\ufe0f", "$", "5"]),
        ("「東」。", ["「", "東", "」", "。"]),
    ],
)
def test_punctuation_on_request(text: str, leaves: list[str]) -> None:
    tree = from_text(text, punctuation=True)
    check(text, tree)
    assert pieces(text, tree)[: tree.num_leaves] == leaves


@pytest.mark.parametrize(
    "text", ["", " ", "\n\n", "\0", "\ufeff", "...", "- - -", "\ud800", "\u200d"]
)
def test_a_text_without_words_is_refused(text: str) -> None:
    with pytest.raises(BuilderError, match="has no word: skip it, or pass punctuation=True"):
        from_text(text)
    with pytest.raises(BuilderError, match="has no token: skip it"):
        from_text(text, tokenizer=lambda text: [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"abc", "decode it first"),
        (bytearray(b"abc"), "decode it first"),
        (["a", "b"], "list of 2: call from_text for each"),
        (("a",), "tuple of 1: call from_text for each"),
        (None, "NoneType: give a str"),
        (3, "int: give a str"),
    ],
)
def test_only_a_str_is_a_text(text: object, message: str) -> None:
    with pytest.raises(BuilderError, match=message):
        from_text(text)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"tokenizer": "bert-base-uncased"}, BuilderError, "'bert-base-uncased'.*load one first"),
        ({"tokenizer": None}, BuilderError, "tokenizer=None"),
        ({"tokenizer": np.zeros(3)}, BuilderError, "neither"),
        ({"sentences": "pysbd"}, BuilderError, "sentences='pysbd'"),
        ({"sentences": 3}, BuilderError, "sentences=3"),
        ({"sentences": np.zeros(2)}, BuilderError, "sentences=array"),
        ({"paragraphs": "lines"}, BuilderError, "paragraphs='lines'"),
        ({"paragraphs": np.zeros(2)}, BuilderError, "paragraphs=array"),
        ({"language": "de"}, UnsupportedError, "language='de' has no effect"),
        ({"language": "de", "sentences": None}, UnsupportedError, "sentences=None"),
        ({"punctuation": True, "tokenizer": str.split}, UnsupportedError, "punctuation=True"),
        ({"special_tokens": True}, UnsupportedError, "special_tokens=True"),
        ({"max_group": 1}, BuilderError, "max_group=1"),
        ({"max_group": 2.5}, BuilderError, "max_group=2.5"),
        ({"max_group": True}, BuilderError, "max_group=True"),
        ({"hash_buckets": 0}, BuilderError, "hash_buckets=0"),
        ({"hash_buckets": "9"}, BuilderError, "hash_buckets='9'"),
        ({"max_leaves": 0}, BuilderError, "max_leaves=0"),
        ({"on_limit": "warn"}, BuilderError, "on_limit='warn'"),
        ({"on_limit": np.zeros(2)}, BuilderError, "on_limit=array"),
    ],
)
def test_wrong_arguments(options: dict, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        from_text(PROSE, **options)


def test_hash_buckets() -> None:
    many, few = from_text(PROSE), from_text(PROSE, hash_buckets=10)
    assert torch.equal(many.text_x[:, 0] % HASH_BUCKETS, many.text_x[:, 0])
    assert int(few.text_x[:, 0].max()) < 10
    assert len(few.text_x) == len(many.text_x)


def test_names_are_optional() -> None:
    tree, bare = from_text(PROSE), from_text(PROSE, names=False)
    check(PROSE, bare)
    assert "tree_name" not in bare
    assert set(tree.keys()) - set(bare.keys()) == {"tree_name"}
    for key in bare.keys():  # noqa: SIM118
        if isinstance(bare[key], torch.Tensor):
            assert torch.equal(bare[key], tree[key])


# Limits ########################################################################


def test_too_many_leaves() -> None:
    text = "One two. Three four five.\n\nSix"
    with pytest.raises(LimitError, match="6 leaves, more than max_leaves=4: raise max_leaves"):
        from_text(text, max_leaves=4)
    with pytest.warns(TruncationWarning, match="left out the last 2 leaves") as caught:
        tree = from_text(text, max_leaves=4, on_limit="truncate")
    assert caught[0].filename == __file__
    check(text, tree)
    assert tree.tree_name[:4] == ["One", "two", "Three", "four"]
    assert named(text, tree, "paragraph") == ["One two. Three four five."]
    assert len(tree.text_x) == 4
    assert from_text(text, max_leaves=6).num_leaves == 6


def test_a_sentence_without_end() -> None:
    text = "word " * 100_000
    tree = from_text(text)
    assert (tree.num_leaves, tree.num_tree_nodes) == (100_000, 100_003)
    tree = from_text(text, max_group=64, names=False)
    tree.validate()
    kids = torch.bincount(tree.tree_index[0])
    assert int(kids.max()) <= 64
    assert tree.plan.num_pairs < 100_000 * 64 * 1.1
    assert tree.depth == 5  # 100,000 in 1,563 windows, those in 25


@ROUNDS
@given(text=TEXTS, limit=st.integers(2, 5))
@example(text="0\x0c0。0。0", limit=2)
def test_windows_keep_everything_else(text: str, limit: int) -> None:
    assume(words(text))
    tree, plain = from_text(text, max_group=limit), from_text(text)
    check(text, tree)
    check_blanks(text, tree)
    assert all(len(kids) <= limit for kids in kids_of(tree).values())
    assert torch.equal(tree.text_x, plain.text_x)
    for name in ("sentence", "paragraph"):
        # Windows put some of them a level deeper, and ids go by level.
        assert sorted(named(text, tree, name)) == sorted(named(text, plain, name))
    if all(len(kids) <= limit for kids in kids_of(plain).values()):
        assert torch.equal(tree.tree_index, plain.tree_index)


@pytest.mark.parametrize(("count", "sizes"), [(4, [4]), (5, [3, 2]), (8, [4, 4]), (9, [3, 3, 3])])
def test_windows_are_of_about_equal_size(count: int, sizes: list[int]) -> None:
    tree = from_text("a " * count, sentences=None, paragraphs=None, max_group=4)
    got = [len(kids) for parent, kids in kids_of(tree).items() if kids[0] < count]
    assert sorted(got, reverse=True) == sizes
    assert (tree.tree_name.count("window")) == (len(sizes) if len(sizes) > 1 else 0)


# Functions ######################################################################


def test_a_function_as_tokenizer() -> None:
    def spans(text: str) -> list[tuple[int, int]]:
        return [match.span() for match in re.finditer(r"\S+", text)]

    by_string = from_text(PROSE, tokenizer=str.split)
    check(PROSE, by_string)
    assert by_string.tree_name[: by_string.num_leaves] == PROSE.split()
    for result in (spans, lambda text: np.array(spans(text)), lambda text: iter(spans(text))):
        tree = from_text(PROSE, tokenizer=result)
        assert torch.equal(tree.tree_span, by_string.tree_span)
        assert torch.equal(tree.text_x, by_string.text_x)


def test_a_token_across_sentences_belongs_to_the_first() -> None:
    text = "One. Two.\n\nThree. Four"
    tree = from_text(text, tokenizer=lambda _: [(0, 3), (3, 7), (7, 13), (13, 18), (18, 22)])
    check(text, tree)
    assert pieces(text, tree)[:5] == ["One", ". Tw", "o.\n\nTh", "ree. ", "Four"]
    assert named(text, tree, "sentence") == ["One. Tw", "o.\n\nTh", "ree. ", "Four"]
    assert named(text, tree, "paragraph") == ["One. Two.\n\nTh", "ree. Four"]


def test_a_token_with_a_blank_before_it_belongs_to_its_word() -> None:
    text = "One. Two.\n\n Three"
    tree = from_text(text, tokenizer=lambda _: [(0, 4), (4, 8), (8, 9), (9, 17)])
    check(text, tree)
    assert named(text, tree, "sentence") == ["One.", " Two.", "\n\n Three"]
    assert named(text, tree, "paragraph") == ["One. Two.", "\n\n Three"]


def test_functions_for_sentences_and_paragraphs() -> None:
    text = "  a, b; c\n====\nd; e  "
    seen = []

    def sentences(paragraph: str) -> list[str]:
        seen.append(paragraph)
        return paragraph.split(";")

    tree = from_text(text, sentences=sentences, paragraphs=lambda text: text.split("===="))
    check(text, tree)
    assert seen == ["a, b; c\n====", "d; e"]
    assert named(text, tree, "sentence") == ["a, b;", "c\n====", "d;", "e"]


def test_errors_of_a_function_come_through() -> None:
    def broken(text: str) -> list[str]:
        raise RuntimeError("mine")

    for name in ("tokenizer", "sentences", "paragraphs"):
        with pytest.raises(RuntimeError, match="mine"):
            from_text(PROSE, **{name: broken})


@ROUNDS
@given(text=TEXTS, data=st.data())
def test_any_spans_of_a_function(text: str, data: st.DataObject) -> None:
    places = st.lists(st.integers(0, len(text)), max_size=20).map(sorted)

    def spans() -> list[tuple[int, int]]:
        cuts = data.draw(places)
        return list(zip(cuts[::2], cuts[1::2]))

    tokens, parts = spans(), spans()
    options = {"tokenizer": lambda _: tokens, "paragraphs": lambda _: parts}
    if not any(start < end for start, end in tokens):
        with pytest.raises(BuilderError, match="no token"):
            from_text(text, **options)
        return
    tree = from_text(text, **options, max_group=data.draw(st.none() | st.integers(2, 4)))
    check(text, tree)
    assert tree.tree_span[: tree.num_leaves].tolist() == [[s, e] for s, e in tokens if s < e]


@ROUNDS
@given(text=TEXTS, data=st.data())
def test_functions_that_cut_through_words(text: str, data: st.DataObject) -> None:
    assume(words(text))
    places = st.lists(st.integers(0, len(text)), max_size=8).map(lambda cuts: sorted({0, *cuts}))
    paragraphs = [(at, at + 1) for at in data.draw(places) if at < len(text)]

    def sentences(paragraph: str) -> list[str]:
        return [paragraph[:3], paragraph[3:5], paragraph[5:]]

    tree = from_text(text, paragraphs=lambda _: paragraphs, sentences=sentences)
    check(text, tree)
    check_blanks(text, tree)
    assert pieces(text, tree)[: tree.num_leaves] == words(text)


# All texts ######################################################################


@ROUNDS
@given(text=TEXTS)
def test_any_text(text: str) -> None:
    found = words(text)
    if not found:
        with pytest.raises(BuilderError, match="has no word"):
            from_text(text)
        return
    tree = from_text(text)
    check(text, tree)
    check_blanks(text, tree)
    assert pieces(text, tree)[: tree.num_leaves] == found
    # Nothing but what is between words is outside the sentences.
    rest, at = [], 0
    for piece in named(text, tree, "sentence"):
        place = text.index(piece, at)
        rest.append(text[at:place])
        at = place + len(piece)
    assert not words("\n".join([*rest, text[at:]]))


@ROUNDS
@given(text=TEXTS)
def test_any_text_with_its_punctuation(text: str) -> None:
    try:
        tree = from_text(text, punctuation=True, sentences=None)
    except BuilderError:
        assert not any(c.isprintable() and not c.isspace() for c in re.sub("[︀-️]", "", text))
        return
    check(text, tree)
    check_blanks(text, tree)
    gaps, at = "", 0
    for start, end in tree.tree_span[: tree.num_leaves].tolist():
        gaps += text[at:start]
        at = end
    gaps = re.sub("[\u200d\ufe00-\ufe0f]", "", gaps + text[at:])
    assert not any(c.isprintable() and not c.isspace() for c in gaps)


@ROUNDS
@given(
    text=ANY | PARTED,
    options=st.fixed_dictionaries(
        {},
        optional={
            "tokenizer": st.sampled_from(["words", str.split, list, str.splitlines, 7]),
            "sentences": st.sampled_from(["plain", None, str.splitlines, "other"]),
            "paragraphs": st.sampled_from(["blank", "line", None, list]),
            "punctuation": st.booleans(),
            "max_group": st.integers(0, 4),
            "hash_buckets": st.integers(-1, 3),
            "names": st.booleans(),
            "max_leaves": st.integers(0, 40),
        },
    ),
)
def test_a_tree_or_a_typed_error(text: str, options: dict) -> None:
    try:
        tree = from_text(text, **options)
    except HSAError:
        return
    check(text, tree)


@pytest.mark.parametrize(
    "unit", [".", "a", "a-", "1.", '."', ". ", "。", "\n", "\r\n", "\n ", " ", "“"]
)
def test_no_text_takes_quadratic_time(unit: str) -> None:
    text = unit * (400_000 // len(unit)) + " end"
    start = time.perf_counter()
    from_text(text, paragraphs="blank", names=False, punctuation=len(unit) < 2)
    assert time.perf_counter() - start < 4


# In models ######################################################################


def test_a_batch_gives_its_texts_back() -> None:
    trees = [from_text(text) for text in ("One.", PROSE, "a b c. d\n\ne", "東京。")]
    for tree, back in zip(trees, Batch.from_data_list(trees).to_data_list()):
        assert sorted(back.keys()) == sorted(tree.keys())
        for key, value in tree.to_dict().items():
            same = torch.equal(back[key], value) if torch.is_tensor(value) else back[key] == value
            assert same, key


def test_a_batch_equals_its_texts_one_by_one() -> None:
    texts = ("Short text.", PROSE, "Many words. " * 160)  # of 2, 18 and 320 words
    trees = [from_text(text, max_group=32) for text in texts]
    torch.manual_seed(0)
    encoder = TokenEncoder(HASH_BUCKETS, 16).double()
    conv = HSAConv(16, 8, heads=2).double()

    def model(tree: SignalTree) -> torch.Tensor:
        return conv(encoder(tree), tree)

    assert_forest_equals_trees(model, trees)


@pytest.mark.parametrize("name", ["note.txt", "a/b/Note.MD", "C:\\texts\\1.pdf"])
def test_what_looks_like_the_name_of_a_file(name):
    with pytest.warns(HSAWarning, match="looks like the name of a file"):
        from_text(name)


def test_texts_that_end_in_a_name(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for text in ("See note.txt", "note.txt.", "word", "e.g. this"):
            from_text(text)
    with pytest.raises(BuilderError, match=r"is the path .*note\.txt': read the file first"):
        from_text(tmp_path / "note.txt")
