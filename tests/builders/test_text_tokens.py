"""Hugging Face tokenizers, made here; nothing is downloaded."""

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from text_cases import TEXTS, check, kids_of, named, pieces

from hsa_geo.builders import from_text
from hsa_geo.builders._text_tokens import read_tokens
from hsa_geo.builders.tokens import ids_of_words
from hsa_geo.errors import BuilderError, HSAError, LimitError, TruncationWarning, UnsupportedError
from hsa_geo.nn.tokens import TokenEncoder

LINES = ["The cat sat on the mat. Hello world!", "to be or not to be, that is the question"]


def word_piece() -> Any:
    """Like BERT's: lower case, accents off, [CLS] and [SEP] around the text."""
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    made.normalizer = tokenizers.normalizers.BertNormalizer()
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    special = ["[UNK]", "[CLS]", "[SEP]", "[PAD]"]
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=120, special_tokens=special, show_progress=False
    )
    made.train_from_iterator(LINES, trainer)
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    return made


def byte_level(trim_offsets: bool = False, add_prefix_space: bool = False) -> Any:
    """Like GPT-2's: bytes, merged; a blank belongs to the word behind it."""
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    level = tokenizers.pre_tokenizers.ByteLevel
    made.pre_tokenizer = level(add_prefix_space=add_prefix_space)
    made.post_processor = tokenizers.processors.ByteLevel(trim_offsets=trim_offsets)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=320,
        initial_alphabet=level.alphabet(),
        special_tokens=["<|end|>"],
        show_progress=False,
    )
    made.train_from_iterator([*LINES, "\U0001f600\U0001f601 \U0001f600\U0001f602"] * 3, trainer)
    return made


def sentence_piece() -> Any:
    """Like T5's: the blank is a mark of its own, and one stands before the text."""
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.Unigram())
    made.normalizer = tokenizers.normalizers.NFKC()
    made.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    trainer = tokenizers.trainers.UnigramTrainer(
        vocab_size=60, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False
    )
    made.train_from_iterator(LINES * 5, trainer)
    return made


MAKERS = {
    "word_piece": word_piece,
    "byte_level": byte_level,
    "byte_level_trimmed": lambda: byte_level(True, True),
    "sentence_piece": sentence_piece,
}
KEPT: dict[str, Any] = {}


def test_ids_and_offsets_are_kept() -> None:
    tokenizer = word_piece()
    text = "The cat sat. Hello\n\nWORLD! Zzz"
    tree = from_text(text, tokenizer=tokenizer)
    check(text, tree)
    encoding = tokenizer.encode(text, add_special_tokens=False)
    assert tree.text_x[:, 0].tolist() == encoding.ids
    assert tree.text_index.tolist() == list(range(len(encoding.ids)))
    assert tree.tree_span[: tree.num_leaves].tolist() == [list(o) for o in encoding.offsets]
    assert named(text, tree, "sentence") == ["The cat sat.", "Hello", "WORLD!", "Zzz"]
    assert tree.tree_name[:4] == ["The", "cat", "sat", "."]
    vectors = TokenEncoder(tokenizer.get_vocab_size(), 8)(tree)
    assert vectors.shape == (tree.num_leaves, 8)


def test_special_tokens_are_children_of_the_root() -> None:
    tokenizer = word_piece()
    text = " The cat [SEP] sat. Hello "
    tree = from_text(text, tokenizer=tokenizer, special_tokens=True)
    check(text, tree)
    encoding = tokenizer.encode(text)
    n = tree.num_leaves
    assert tree.text_x[:, 0].tolist() == encoding.ids
    assert tree.tree_name[0] == "[CLS]"
    assert tree.tree_name[n - 1] == "[SEP]"
    assert tree.tree_span[0].tolist() == [0, 0]
    assert tree.tree_span[n - 1].tolist() == [len(text)] * 2
    root = tree.num_tree_nodes - 1
    kids = tree.tree_index[1, tree.tree_index[0] == root].tolist()
    assert kids == [0, root - 1, n - 1]
    assert tree.tree_pos[kids, 0].tolist() == [0, 1, 2]
    # One that stands in the text is a token of its sentence.
    written = pieces(text, tree).index("[SEP]")
    assert 0 < written < n - 1
    assert tree.tree_level[written] == 3
    without = from_text(text, tokenizer=tokenizer)
    assert torch.equal(without.text_x, tree.text_x[1:-1])
    assert from_text(text, tokenizer=tokenizer, special_tokens=True, max_group=2).num_leaves == n


@pytest.mark.parametrize("length", [510, 512, 513, 5000])
def test_no_text_is_truncated(length: int) -> None:
    tokenizer = word_piece()
    tokenizer.enable_truncation(512, stride=3, direction="left")
    tokenizer.enable_padding(length=600, pad_id=3, pad_token="[PAD]")
    before = (tokenizer.truncation, tokenizer.padding)
    tree = from_text("cat " * length, tokenizer=tokenizer)
    assert tree.num_leaves == length
    assert from_text("cat " * length, tokenizer=tokenizer, special_tokens=True).num_leaves == (
        length + 2
    )
    assert (tokenizer.truncation, tokenizer.padding) == before
    assert len(tokenizer.encode("cat " * 5000).ids) == 600


def test_bytes_of_a_character() -> None:
    tokenizer = byte_level()
    text = "a😀é 東京."
    tree = from_text(text, tokenizer=tokenizer)
    check(text, tree)
    encoding = tokenizer.encode(text)
    assert tree.text_x[:, 0].tolist() == encoding.ids
    assert tree.num_leaves > len(text)
    width = tree.tree_span[: tree.num_leaves].diff(dim=1).flatten()
    assert int(width.sum()) == len(text)
    # Every character is the span of the first token that touches it.
    first = {start: i for i, (start, _) in reversed(list(enumerate(encoding.offsets)))}
    for start, i in first.items():
        assert pieces(text, tree)[i][0] == text[start]
    for name, token, w in zip(tree.tree_name, encoding.tokens, width.tolist()):
        assert w or name == token


def test_a_blank_before_a_word_is_part_of_its_token() -> None:
    tokenizer = byte_level()
    text = "to be. The cat"
    tree = from_text(text, tokenizer=tokenizer)
    check(text, tree)
    assert named(text, tree, "sentence") == ["to be.", " The cat"]
    trimmed = from_text(text, tokenizer=byte_level(True))
    assert named(text, trimmed, "sentence") == ["to be.", "The cat"]


def test_the_bytes_of_a_full_stop_stay_in_its_sentence() -> None:
    text = "東。京！ 都"
    tree = from_text(text, tokenizer=byte_level())
    check(text, tree)
    assert named(text, tree, "sentence") == ["東。", "京！", " 都"]
    sizes = [len(kids) for parent, kids in kids_of(tree).items() if kids[0] < tree.num_leaves]
    assert sizes == [6, 6, 4]


def test_a_text_of_blanks_alone() -> None:
    tree = from_text("  \n\n ", tokenizer=byte_level())
    check("  \n\n ", tree)
    with pytest.raises(BuilderError, match="has no token: skip it"):
        from_text("", tokenizer=word_piece(), special_tokens=True)


@pytest.mark.parametrize("maker", MAKERS)
@given(text=TEXTS)
@settings(max_examples=100, deadline=None)
def test_any_text(maker: str, text: str) -> None:
    if maker not in KEPT:
        KEPT[maker] = MAKERS[maker]()
    tokenizer = KEPT[maker]
    clean = "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
    encoding = tokenizer.encode(clean, add_special_tokens=False)
    if not encoding.ids:
        with pytest.raises(BuilderError, match="has no token"):
            from_text(text, tokenizer=tokenizer)
        return
    tree = from_text(text, tokenizer=tokenizer)
    check(text, tree)
    assert tree.text_x[:, 0].tolist() == encoding.ids
    span = tree.tree_span[: tree.num_leaves].tolist()
    for (start, end), (first, last) in zip(span, encoding.offsets):
        assert start == end or (start >= first and end == last)
    touched = {i for start, end in encoding.offsets for i in range(start, end)}
    assert touched == {i for start, end in span for i in range(start, end)}


def test_limits_count_special_tokens() -> None:
    tokenizer = word_piece()
    with pytest.warns(TruncationWarning, match="the last 2 leaves"):
        tree = from_text(
            "the cat",
            tokenizer=tokenizer,
            special_tokens=True,
            max_leaves=2,
            on_limit="truncate",
        )
    assert tree.tree_name[:2] == ["[CLS]", "the"]
    with (
        pytest.warns(TruncationWarning),
        pytest.raises(LimitError, match="max_leaves=1 leaves special tokens alone"),
    ):
        from_text(
            "the cat",
            tokenizer=tokenizer,
            special_tokens=True,
            max_leaves=1,
            on_limit="truncate",
        )


def test_arguments_without_effect_are_refused() -> None:
    tokenizer = word_piece()
    with pytest.raises(UnsupportedError, match="hash_buckets=10 has no effect"):
        from_text("cat", tokenizer=tokenizer, hash_buckets=10)
    with pytest.raises(UnsupportedError, match="punctuation=True"):
        from_text("cat", tokenizer=tokenizer, punctuation=True)


def test_a_tokenizer_that_fails() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    broken = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    broken.enable_truncation(4)
    with pytest.raises(BuilderError, match=r"the tokenizer failed .*check its vocabulary"):
        from_text("cat", tokenizer=broken)
    assert broken.truncation["max_length"] == 4


def test_ready_made_tokenizers() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.implementations.ByteLevelBPETokenizer()
    made.train_from_iterator(LINES, vocab_size=300, show_progress=False)
    text = "to be. 😀"
    tree = from_text(text, tokenizer=made)
    check(text, tree)
    assert tree.text_x[:, 0].tolist() == made.encode(text).ids


def test_tokenizers_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=word_piece(),
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        model_max_length=8,
    )
    text = "The cat sat on the mat. " * 9
    for special in (False, True):
        tree = from_text(text, tokenizer=fast, special_tokens=special)
        check(text, tree)
        assert tree.text_x[:, 0].tolist() == fast(text, add_special_tokens=special)["input_ids"]
    fast(text, truncation=True, padding="max_length")  # stays set in the tokenizer
    assert from_text(text, tokenizer=fast).num_leaves == 63


def test_slow_tokenizers_are_refused() -> None:
    """Stand-ins of theirs, as they differ between versions of transformers."""
    slow = type("Slow", (), {"__module__": "transformers.models.x", "is_fast": False})
    with pytest.raises(UnsupportedError, match=r"Slow is a slow one.*use_fast=True"):
        from_text("cat", tokenizer=slow())
    if "transformers" in sys.modules:
        bare = type("Mine", (sys.modules["transformers"].PreTrainedTokenizer,), {})
        with pytest.raises(UnsupportedError, match="Mine is a slow one"):
            from_text("cat", tokenizer=bare.__new__(bare))


def test_special_tokens_within_the_text_are_refused() -> None:
    """No tokenizer at hand does that."""

    class Odd:
        __module__ = "tokenizers"
        truncation = padding = None

        def encode(self, text: str, add_special_tokens: bool) -> SimpleNamespace:
            return SimpleNamespace(
                ids=[1, 0, 1],
                offsets=[(0, 1), (0, 0), (2, 3)],
                tokens=["a", "[MID]", "b"],
                special_tokens_mask=[0, 1, 0],
            )

        def no_truncation(self) -> None: ...

        def no_padding(self) -> None: ...

    with pytest.raises(UnsupportedError, match="in the midst"):
        from_text("a b", tokenizer=Odd(), special_tokens=True)
    assert from_text("a b", tokenizer=Odd()).num_leaves == 3


def test_words_are_hashed_like_those_of_pages() -> None:
    tokens = read_tokens("E-Mail me", "words", False, False, 100)
    assert tokens.counts.tolist() == [3, 1]
    assert tokens.ids.tolist() == [i for ids in ids_of_words(["E-Mail", "me"], 100) for i in ids]
    assert not tokens.special.any()
    assert tokens.head(1).ids.tolist() == tokens.ids.tolist()[:3]
    assert tokens.start.dtype == tokens.ids.dtype == np.int64


def test_any_object_is_refused_by_a_typed_error() -> None:
    for odd in (7, object(), [], {"a": 1}, b"words", ("words",)):
        with pytest.raises(HSAError):
            from_text("cat", tokenizer=odd)
