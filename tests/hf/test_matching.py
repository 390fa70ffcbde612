"""The loss of a recovery, against loops over tokens."""

from __future__ import annotations

import pytest
import torch

from hsa_geo.hf.matching import first_tokens, matching_loss, mean_tokens, relative_error


def case(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(3, 2, 6, 4, generator=generator, dtype=dtype)  # three layers
    t = torch.randn(3, 2, 6, 4, generator=generator, dtype=dtype)
    valid = torch.tensor([[1, 1, 1, 1, 0, 0], [0, 1, 1, 1, 1, 1]]).bool()  # on either side
    return h, t, valid


def by_hand(h, t, valid):
    def error(pairs):
        return sum(((a - b) ** 2).sum() for a, b in pairs) / sum((b**2).sum() for _, b in pairs)

    tokens = [(i, j) for i in range(2) for j in range(6) if valid[i, j]]
    layers = [error([(h[k, i, j], t[k, i, j]) for i, j in tokens]) for k in range(3)]
    means = [[x[2, i][valid[i]].mean(0) for i in range(2)] for x in (h, t)]
    first = [[x[2, 0, 0], x[2, 1, 1]] for x in (h, t)]
    return (sum(layers) / 3 + error(list(zip(*means))) + error(list(zip(*first)))) / 3


def test_the_loss():
    h, t, valid = case()
    torch.testing.assert_close(matching_loss(h, t, valid), by_hand(h, t, valid))
    assert matching_loss(t, t, valid) == 0
    assert matching_loss(0 * t, t, valid) == pytest.approx(1.0)


def test_padding_changes_nothing():
    h, t, valid = case()
    expected = matching_loss(h, t, valid)
    h[:, ~valid], t[:, ~valid] = 1e9, -1e9
    assert matching_loss(h, t, valid) == expected


def test_gradients():
    h, t, valid = case()
    h.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: matching_loss(x, t, valid), h)


def test_nothing_to_match_is_no_nan():
    zero = torch.zeros(2, 3)
    assert relative_error(zero, zero) == 0
    h, _, valid = case(torch.float32)
    assert mean_tokens(h[0], valid).shape == first_tokens(h[0], valid).shape == (2, 4)
