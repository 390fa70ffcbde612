"""From forms to pages."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Batch

from hsa_geo.pages import PageReader
from hsa_geo.pages.forms import form_targets, page_labels, page_of_form


def logits_of(rows: list[list[float]]) -> torch.Tensor:
    """Logits of forms from probabilities of the first classes; the rest shares what is left."""
    out = torch.zeros(len(rows), 9)
    for i, row in enumerate(rows):
        out[i] = (1 - sum(row)) / (9 - len(row))
        out[i, : len(row)] = torch.tensor(row)
    return out.log()


def test_page_labels_are_the_union_and_noisy_or():
    logits = logits_of([[0.8, 0.1], [0.3, 0.6], [0.5, 0.4]])
    hit, probability = page_labels(logits, torch.tensor([0, 0, 2]), 3)
    assert hit.tolist() == [[1, 1, 0, 0, 0, 0, 0, 0], [0] * 8, [1, 0, 0, 0, 0, 0, 0, 0]]
    assert probability[0, :2].tolist() == pytest.approx([1 - 0.2 * 0.7, 1 - 0.9 * 0.4], abs=1e-5)
    assert probability[1].tolist() == [0.0] * 8
    assert probability[2, :2].tolist() == pytest.approx([0.5, 0.4], abs=1e-5)
    assert hit.shape == probability.shape == (3, 8)


def test_a_skipped_form_gives_no_label():
    logits = torch.zeros(1, 9)
    logits[0, 8] = 9.0
    hit, probability = page_labels(logits, torch.tensor([0]), 1)
    assert hit.tolist() == [[0] * 8]
    assert float(probability.max()) < 0.01


def test_no_forms_and_certain_forms():
    hit, probability = page_labels(torch.zeros(0, 9), torch.zeros(0, dtype=torch.int64), 2)
    assert hit.tolist() == probability.tolist() == [[0.0] * 8] * 2
    sure = torch.full((4, 9), -1e4)
    sure[:, 3] = 1e4
    hit, probability = page_labels(sure, torch.zeros(4, dtype=torch.int64), 1)
    assert hit.tolist() == [[0, 0, 0, 1, 0, 0, 0, 0]]
    assert bool(torch.isfinite(probability).all())
    assert float(probability[0, 3]) == pytest.approx(1.0)


def test_targets():
    assert form_targets(torch.tensor([0, 7, -1, -2]), 8).tolist() == [0, 7, -1, 8]
    assert form_targets(torch.tensor([-2]), 3).tolist() == [3]


def test_page_of_form():
    counts, reader = [2, 0, 1, 3, 0], PageReader("form")
    trees = [reader("<p>Hi</p>" + "<form><input name=q></form>" * n) for n in counts]
    expected = [page for page, n in enumerate(counts) for _ in range(n)]
    assert page_of_form(Batch.from_data_list(trees)).tolist() == expected
