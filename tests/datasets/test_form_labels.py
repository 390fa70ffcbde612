"""Classes, certainty, domains, and the alignment of forms."""

import itertools
import random

import pytest

from hsa_geo.datasets.form_labels import (
    CLASSES,
    NOT_ANNOTATED,
    SKIPPED,
    align,
    form_codes,
    page_labels,
    registered_domain,
    site,
)
from hsa_geo.errors import ArchiveError

CONFIG = {
    "form_types": {
        "types": [{"short": c, "full": c} for c in "slrpcmbPVNCo-X"],
        "simplify_map": dict.fromkeys("PVNC", "o"),
        "NA_value": "X",
        "skip_value": "-",
    }
}


def test_codes():
    codes = form_codes(CONFIG)
    assert [codes[c] for c in "slrpcmbo"] == list(range(len(CLASSES)))
    assert {codes[c] for c in "PVNC"} == {CLASSES.index("other")}
    assert (codes["X"], codes["-"]) == (NOT_ANNOTATED, SKIPPED)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "does not describe form types"),
        ([], "does not describe form types"),
        ({"form_types": {**CONFIG["form_types"], "types": [{"short": "q"}]}}, "form type 'q'"),
    ],
)
def test_unknown_config(config, message):
    with pytest.raises(ArchiveError, match=message):
        form_codes(config)


@pytest.mark.parametrize(
    ("labels", "held", "certain", "complete"),
    [
        ([0, 1, 1], {0, 1}, set(range(8)), True),
        ([], set(), set(range(8)), True),
        ([SKIPPED, 2], {2}, set(range(8)), True),  # skipped: counts for nothing
        ([NOT_ANNOTATED, 2, SKIPPED], {2}, {2}, False),  # a positive is certain
        ([NOT_ANNOTATED], set(), set(), False),
    ],
)
def test_page_labels(labels, held, certain, complete):
    y, mask, whole = page_labels(labels)
    assert {c for c, value in enumerate(y) if value} == held
    assert {c for c, value in enumerate(mask) if value} == certain
    assert whole is complete
    assert len(y) == len(mask) == len(CLASSES)


@pytest.mark.parametrize(
    ("url", "host", "domain"),
    [
        ("http://example.com/a?b#c", "example.com", "example.com"),
        ("https://WWW.Example.COM:8080", "example.com", "example.com"),
        ("http://user:pw@forum.example.com./", "forum.example.com", "example.com"),
        ("http://shop.example.co.uk/", "shop.example.co.uk", "example.co.uk"),
        ("http://www.example.co.uk/", "example.co.uk", "example.co.uk"),
        ("http://a.b.example.com.br/", "a.b.example.com.br", "example.com.br"),
        ("http://co.uk/", "co.uk", "co.uk"),
        ("http://forum.co.com/", "forum.co.com", "co.com"),  # not a country code
        ("http://name.free.fr/", "name.free.fr", "free.fr"),
        ("http://www.example.de/", "example.de", "example.de"),
        ("http://localhost/", "localhost", "localhost"),
        ("http://192.168.0.1:80/", "192.168.0.1", "192.168.0.1"),
        ("http://[2001:db8::1]/", "2001:db8::1", "2001:db8::1"),
        ("http://abc.onion/", "abc.onion", "abc.onion"),
    ],
)
def test_domains(url, host, domain):
    assert site(url) == host
    assert registered_domain(url) == domain


@pytest.mark.parametrize("url", ["", "example.com", "http:///x", "http://[bad/"])
def test_no_host(url):
    with pytest.raises(ArchiveError, match="has no host"):
        registered_domain(url)


# Alignment ##################################################################


@pytest.mark.parametrize(
    ("found", "wanted", "pairs"),
    [
        ([], [], []),
        (["q"], [], []),
        ([], ["q"], []),
        (["q", "up"], ["q", "up"], [(0, 0), (1, 1)]),
        (["s", "lp"], ["s"], [(0, 0)]),  # the parser sees one more at the end
        (["g", "s", "lp"], ["g", "s"], [(0, 0), (1, 1)]),
        (["up", "e", "up"], ["", "up", "e", "up"], [(0, 1), (1, 2), (2, 3)]),  # one less
        (["a", "b", "c"], ["a", "x", "b", "c"], [(0, 0), (1, 2), (2, 3)]),
        (["a", "x", "b"], ["a", "b"], [(0, 0), (2, 1)]),
        (["ab", "cd"], ["abe", "c"], [(0, 0), (1, 1)]),  # some names differ
        (["q", "abc"], ["q", "xy"], [(0, 0)]),  # another form altogether
        (["q", ""], ["q", "xy"], [(0, 0), (1, 1)]),  # the parser lost its fields
        (["", "q"], ["q", "x"], [(1, 0)]),  # as many, but contradicting names
        (["", "q"], ["q"], [(1, 0)]),  # a real match beats an empty one
        (["a", "a"], ["a", "a", "a"], [(0, 0), (1, 1)]),  # the earliest of equals
        (["a", "b"], ["b", "a"], [(1, 0)]),  # order is kept
        (["", "", ""], ["", "", ""], [(0, 0), (1, 1), (2, 2)]),
        (["uq", "", "", "j"], ["u", "q", "b", ""], [(0, 0), (1, 1), (2, 2), (3, 3)]),  # as many
        (["ab", "abc"], ["abc"], [(1, 0)]),  # the more they share the better
    ],
)
def test_align(found, wanted, pairs):
    assert align(found, wanted) == pairs  # strings are lists of one-letter names


def test_align_is_the_best_monotone_pairing():
    def likeness(a, b):
        if not a or not b:
            return 0.5 if not a and not b else 0.01
        return len(a & b) / len(a | b)

    rng = random.Random(0)
    for _ in range(200):
        found, wanted = (
            ["".join(rng.sample("abcd", rng.randint(0, 3))) for _ in range(rng.randint(0, 4))]
            for _ in range(2)
        )
        if len(found) == len(wanted) and all(map(likeness, map(set, found), map(set, wanted))):
            assert align(found, wanted) == [(i, i) for i in range(len(found))]
            continue
        score = [[likeness(set(a), set(b)) for b in wanted] for a in found]
        best = 0.0
        for size in range(min(len(found), len(wanted)) + 1):
            for rows in itertools.combinations(range(len(found)), size):
                for cols in itertools.combinations(range(len(wanted)), size):
                    picked = [score[i][j] for i, j in zip(rows, cols)]
                    best = max(best, sum(picked)) if all(picked) else best
        pairs = align(found, wanted)
        assert sum(score[i][j] for i, j in pairs) == pytest.approx(best)
        assert all(score[i][j] > 0 for i, j in pairs)
        assert all(a < c and b < d for (a, b), (c, d) in itertools.pairwise(pairs))
