"""Windows of long texts, pieces of words, batches."""

import numpy as np
import pytest

from hsa_geo.datasets.text_windows import batches_by_length, pieces_of_words, windows
from hsa_geo.errors import ShapeError


@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_every_piece_is_read_where_it_is_most_in_the_middle(size):
    for stride in range(1, size + 1):
        for n in range(0, 40):
            starts, first = windows(n, size, stride)
            assert len(first) == len(starts) + 1
            assert (first[0], first[-1]) == (0, n)
            if n == 0:
                assert len(starts) == 0
                continue
            assert starts[0] == 0
            assert starts[-1] == max(n - size, 0)
            assert (np.diff(starts) <= stride).all()
            assert (np.diff(starts) > 0).all()
            for w, start in enumerate(starts):
                for p in range(first[w], first[w + 1]):
                    assert start <= p < start + size
                    far = np.abs(p - (starts + (min(size, n) - 1) / 2))
                    assert far[w] == far.min()
                    assert w == far.argmin()  # the earlier of two alike


def test_short_texts_are_one_window():
    for n in (1, 509, 510):
        starts, first = windows(n, 510, 382)
        assert (starts.tolist(), first.tolist()) == ([0], [0, n])
    starts, first = windows(511, 510, 382)
    assert (starts.tolist(), first.tolist()) == ([0, 1], [0, 256, 511])


@pytest.mark.parametrize(("size", "stride"), [(0, 1), (4, 0), (4, 5), (4, -1)])
def test_windows_that_leave_pieces_out(size, stride):
    with pytest.raises(ShapeError, match=f"windows of {size} pieces every {stride}"):
        windows(9, size, stride)


def pairs(pieces, words):
    piece, place, rows = pieces_of_words(np.array(pieces), np.array(words))
    assert (np.diff(piece) >= 0).all()
    return list(zip(piece.tolist(), rows[place].tolist())), rows.tolist()


@pytest.mark.parametrize(
    ("pieces", "words", "want", "rows"),
    [
        ([[0, 2], [3, 5]], [[0, 2], [3, 5]], [(0, 0), (1, 1)], [0, 1]),
        ([[0, 4], [4, 7]], [[0, 7]], [(0, 0), (1, 0)], [0]),
        ([[0, 5]], [[0, 2], [3, 5]], [(0, 0), (0, 1)], [0, 1]),  # one piece, two words
        ([[0, 3], [3, 6]], [[0, 2], [2, 4], [4, 6]], [(0, 0), (0, 1), (1, 1), (1, 2)], [0, 1, 2]),
        ([[0, 3], [2, 5]], [[1, 2], [3, 5]], [(0, 0), (1, 1)], [0, 1]),  # blanks in front
        ([[2, 3]], [[0, 2], [3, 5]], [], []),  # between words
        ([[0, 1], [0, 1], [0, 1]], [[0, 1]], [(0, 0), (1, 0), (2, 0)], [0]),  # bytes of an emoji
        ([[1, 1], [0, 2]], [[0, 2]], [(1, 0)], [0]),  # a piece of nothing
        ([[0, 2]], [[0, 2], [2, 2], [5, 7]], [(0, 0)], [0]),  # an image, a word without pieces
        ([], [[0, 2]], [], []),
        ([[0, 2]], [], [], []),
    ],
)
def test_pieces_of_words(pieces, words, want, rows):
    assert pairs(pieces, words) == (want, rows)


@pytest.mark.parametrize("words", [[[0, 3], [2, 5]], [[3, 5], [0, 2]]])
def test_words_out_of_order(words):
    with pytest.raises(ShapeError, match="leaves 0 and 1 are out of order or overlap"):
        pieces_of_words([[0, 1]], words)


def test_batches():
    lengths = np.array([3, 9, 1, 4, 4, 20])
    batches = batches_by_length(lengths, 9)
    assert sorted(i for batch in batches for i in batch) == list(range(6))
    assert all(len(b) * lengths[b].max() <= 9 or len(b) == 1 for b in batches)
    assert [b.tolist() for b in batches] == [[5], [1], [3, 4], [0, 2]]
    assert batches_by_length(np.array([], dtype=int), 9) == []
