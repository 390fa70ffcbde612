"""Trees from labels: against trees built node by node."""

from __future__ import annotations

import pytest
import torch

from hsa_geo.builders import from_sequence
from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.hf import Flat, Sentences, Squares, Windows
from hsa_geo.hf.hierarchies import hierarchy_from, to_config
from hsa_geo.hf.labels import Tokens, plan_from_labels, window_labels
from hsa_geo.ops import hsa_attention


def tokens(lengths, special=(), ids=None, grid=None):
    """Texts of given lengths; ``special`` are places in the whole batch."""
    text = torch.repeat_interleave(torch.tensor(lengths))
    place = torch.cat([torch.arange(n) for n in lengths])
    mark = torch.zeros(len(text), dtype=torch.bool)
    mark[list(special)] = True
    return Tokens(text, place, mark, ids, grid, len(lengths))


def plan(hierarchy, given):
    return plan_from_labels(given.text, hierarchy.labels(given), given.num_texts)


def attend(plan, seed=0):
    q, k, v = torch.randn(
        3, plan.num_leaves, 2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    return hsa_attention(q, k, v, plan, backend="block")


@pytest.mark.parametrize("count", [1, 2, 4, 5, 16, 17, 63, 64, 65, 100])
@pytest.mark.parametrize("window", [2, 3, 4])
def test_windows_are_those_of_the_builder(count, window):
    mine = plan(Windows(window, special=True), tokens([count]))
    built = from_sequence(torch.zeros(count, 1), windows=window).plan
    assert mine.num_pairs == built.num_pairs
    torch.testing.assert_close(attend(mine), attend(built), rtol=1e-12, atol=1e-12)


def test_special_tokens_are_children_of_the_root():
    given = tokens([12], special=[0, 11])
    mine = plan(Windows(4), given)
    root = mine.num_nodes - 1
    children = mine.slot_top[mine.group_ptr[0] : mine.group_ptr[1]]
    assert int(mine.slot_bottom[0]) == root
    assert {0, 11} <= set(children.tolist())
    assert len(children) == 2 + 3  # ten tokens are three windows of 4


def test_the_texts_of_a_pair_are_subtrees():
    given = tokens([12], special=[0, 6, 11])  # runs of 5 and 4
    mine = plan(Windows(4), given)
    assert int(mine.group_ptr[1] - mine.group_ptr[0]) == 3 + 2
    labels = Windows(4).labels(given)
    assert labels[-1].tolist() == [-1, 0, 0, 0, 0, 0, -1, 1, 1, 1, 1, -1]


def test_texts_of_a_batch_are_trees_of_their_own():
    lengths = [1, 7, 30, 2]
    ends = [0, 1, 7, 8, 37, 38, 39]
    whole = plan(Windows(3), tokens(lengths, ends))
    parts, start = [], 0
    for n in lengths:
        own = [i - start for i in ends if start <= i < start + n]
        parts.append(plan(Windows(3), tokens([n], own)))
        start += n
    assert whole.num_trees == 4
    assert whole.num_pairs == sum(part.num_pairs for part in parts)
    q, k, v = torch.randn(3, 40, 2, 4, dtype=torch.float64)
    out = hsa_attention(q, k, v, whole, backend="block")
    start = 0
    for n, part in zip(lengths, parts):
        at = slice(start, start + n)
        torch.testing.assert_close(
            out[at], hsa_attention(q[at], k[at], v[at], part, backend="block")
        )
        start += n


def test_sentences():
    #            [CLS] a  b  .  c  d  e  f  !  g [SEP]
    ids = torch.tensor([0, 5, 6, 9, 5, 6, 7, 8, 10, 5, 1])
    given = tokens([11], special=[0, 10], ids=ids)
    labels = Sentences((9, 10), 2).labels(given)
    mine = plan_from_labels(given.text, labels, 1)
    leaves_of_sentences = {(1, 2, 3), (4, 5, 6, 7, 8), (9,)}
    rows, ptr = mine.leaves_under(torch.arange(mine.num_slots))
    spans = {tuple(sorted(rows[a:b].tolist())) for a, b in zip(ptr[:-1].tolist(), ptr[1:].tolist())}
    assert leaves_of_sentences <= spans
    assert (1, 2, 3, 4, 5, 6, 7, 8) in spans  # a window of two sentences
    assert (4, 5) in spans  # a window of two tokens in a sentence


def test_a_run_of_marks_ends_one_sentence():
    ids = torch.tensor([5, 9, 9, 9, 5, 5])
    labels = Sentences((9,), 4).labels(tokens([6], ids=ids))
    assert labels[-1].tolist() == [0, 0, 0, 0, 1, 1]


@pytest.mark.parametrize(("grid", "window"), [((4, 4), 2), ((5, 7), 2), ((9, 3), 3), ((1, 1), 2)])
def test_squares(grid, window):
    """Tokens of one square of the lowest level lie within its side; two pictures stay apart."""
    n = grid[0] * grid[1]
    given = tokens([n + 1, n + 1], special=[0, n + 1], grid=grid)
    labels = Squares(window).labels(given)
    mine = plan_from_labels(given.text, labels, 2)
    assert (mine.num_trees, mine.num_leaves) == (2, 2 * n + 2)
    for label in labels[:1]:
        for value in label[label >= 0].unique():
            at = (label == value).nonzero().squeeze(1)
            assert len(given.text[at].unique()) == 1
            patch = given.place[at] - 1
            assert int((patch // grid[1]).max() - (patch // grid[1]).min()) < window
            assert int((patch % grid[1]).max() - (patch % grid[1]).min()) < window
    root = int(mine.group_ptr[1] - mine.group_ptr[0]) if mine.num_groups else 1
    assert root <= window * window + 1


def test_no_tokens():
    empty = window_labels(torch.empty(0, dtype=torch.int64), 4)
    assert empty == []


@pytest.mark.parametrize(
    "hierarchy", [Flat(), Windows(5), Windows(4, special=True), Sentences((3, 4), 6), Squares(2)]
)
def test_configs_hold_them(hierarchy):
    assert hierarchy_from(to_config(hierarchy)) == hierarchy


def test_what_is_refused():
    with pytest.raises(ShapeError, match="window=1"):
        Windows(1)
    with pytest.raises(ShapeError, match=r"ends=\(\)"):
        Sentences(())
    with pytest.raises(ShapeError, match="window=1"):
        Sentences((4,), 1)
    with pytest.raises(ShapeError, match="window=0"):
        Squares(0)
    with pytest.raises(UnsupportedError, match="inputs_embeds"):
        Sentences((4,)).labels(tokens([3]))
    with pytest.raises(UnsupportedError, match="reads texts"):
        Squares(2).labels(tokens([3]))
    with pytest.raises(UnsupportedError, match="is no hierarchy"):
        hierarchy_from("windows")
    with pytest.raises(UnsupportedError, match="kind is one of"):
        hierarchy_from({"kind": "circles"})
    with pytest.raises(UnsupportedError, match="describes no hierarchy"):
        hierarchy_from({"kind": "windows", "size": 3})
    with pytest.raises(UnsupportedError, match="cannot be kept"):
        to_config(object())
