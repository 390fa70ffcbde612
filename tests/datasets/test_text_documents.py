"""Documents: options, hierarchies over the same words, trees joined."""

import pytest
import torch

from hsa_geo.builders import from_text
from hsa_geo.data import Domain
from hsa_geo.datasets.text_documents import (
    GIVEN_OPTIONS,
    OPTIONS,
    check_options,
    document_tree,
    join_trees,
)
from hsa_geo.errors import BuilderError, UnsupportedError

TEXT = "One two three. Four five!\n\nSix seven. Eight nine ten eleven twelve."
WORDS = [word.strip(".!") for word in TEXT.lower().split()]


def built(**options):
    return document_tree(from_text(TEXT), check_options(options, OPTIONS))


@pytest.mark.parametrize(
    ("options", "depth", "nodes"),
    [
        ({}, 3, 19),
        ({"hierarchy": "flat"}, 1, 13),
        ({"hierarchy": "windows"}, 1, 13),
        ({"hierarchy": "windows", "windows": [5]}, 2, 16),
        ({"hierarchy": "windows", "windows": 4}, 2, 16),
        ({"hierarchy": "random", "seed": 3}, 3, 19),
        ({"max_words": 4}, 3, 8),
        ({"max_words": 4, "hierarchy": "flat"}, 1, 5),
        ({"max_words": 99}, 3, 19),
    ],
)
def test_hierarchies(options, depth, nodes):
    tree, words = built(**options)
    assert tree.validate()
    assert (tree.depth, tree.num_tree_nodes) == (depth, nodes)
    assert words == WORDS[: options.get("max_words")]
    assert "text_x" not in tree
    assert "tree_name" not in tree
    spans = tree.tree_span[: tree.num_leaves].tolist()
    assert [TEXT[a:b].lower() for a, b in spans] == words


def test_random_hierarchy_is_another_one():
    given, random = built()[0], built(hierarchy="random")[0]
    assert not torch.equal(given.tree_index, random.tree_index)
    again = built(hierarchy="random", seed=0)[0]
    assert torch.equal(again.tree_index, random.tree_index)
    assert not torch.equal(built(hierarchy="random", seed=1)[0].tree_index, random.tree_index)


def test_names_on_request():
    assert built(names=True)[0].tree_name[-1] == "document"


def test_defaults_are_filled_in():
    assert check_options({"punctuation": True}, GIVEN_OPTIONS) == {
        **GIVEN_OPTIONS,
        "punctuation": True,
    }


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"sentence": "plain"}, UnsupportedError, "no option 'sentence': use sentences"),
        ({"tokenizer": "words"}, UnsupportedError, "no option 'tokenizer'"),
        ({"hierarchy": "deep"}, BuilderError, "hierarchy='deep': use one of given, windows"),
        ({"windows": [4]}, UnsupportedError, "windows=.* has no effect with hierarchy='given'"),
        ({"seed": 1, "hierarchy": "flat"}, UnsupportedError, "seed=1 has no effect"),
        ({"max_group": 4, "hierarchy": "flat"}, UnsupportedError, "max_group=4 has no effect"),
        ({"punctuation": "yes"}, BuilderError, "punctuation='yes'"),
        ({"names": 1}, BuilderError, "names=1"),
        ({"max_words": 0}, BuilderError, "max_words=0"),
        ({"max_words": True}, BuilderError, "max_words=True"),
        ({"hierarchy": "windows", "windows": [1]}, BuilderError, "windows has the value 1"),
        ({"hierarchy": "random", "seed": -1}, BuilderError, "seed=-1"),
        ({"sentences": "long"}, BuilderError, "sentences='long'"),
        ({"paragraphs": 5}, BuilderError, "paragraphs=5"),
        ({"max_group": 1}, BuilderError, "max_group=1"),
        ({"language": "de"}, UnsupportedError, "language='de' has no effect"),
    ],
)
def test_options_that_do_not_fit(options, error, message):
    with pytest.raises(error, match=message):
        check_options(options, OPTIONS)


def test_join():
    text = "Re: hello\n\nSo. What?\n\nThen."
    parts = [
        ("subject", 0, from_text(text[:9], paragraphs=None)),
        ("body", 11, from_text(text[11:])),
    ]
    tree = join_trees(parts, len(text), "mail")
    assert tree.validate()
    named = {
        name: [
            text[a:b]
            for (a, b), other in zip(tree.tree_span.tolist(), tree.tree_name)
            if other == name
        ]
        for name in ("subject", "body", "sentence", "paragraph", "mail")
    }
    assert named == {
        "subject": ["Re: hello"],
        "body": ["So. What?\n\nThen."],
        "sentence": ["So.", "What?", "Then.", "Re: hello"],
        "paragraph": ["So. What?", "Then."],
        "mail": [text],
    }
    assert tree.tree_name[:5] == ["Re", "hello", "So", "What", "Then"]
    assert (tree.tree_domain[5:] == Domain.SEQUENCE).all()
    subject, body = (tree.tree_name.index(name) for name in ("subject", "body"))
    assert tree.tree_pos[[subject, body], 0].tolist() == [0, 1]


def test_join_nothing():
    with pytest.raises(BuilderError, match="no part"):
        join_trees([], 0, "mail")
