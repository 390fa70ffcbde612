"""Groups of tokens by their keys."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.hf import Clusters, Windows, measure_layers, replace_attention
from hsa_geo.hf.hierarchies import hierarchy_from, to_config
from hsa_geo.hf.labels import Tokens, plan_from_labels
from hsa_geo.ops import tree_energy

transformers = pytest.importorskip("transformers")


def tokens(lengths):
    """Texts whose first and last token are special."""
    text = torch.repeat_interleave(torch.tensor(lengths))
    place = torch.cat([torch.arange(n) for n in lengths])
    special = torch.cat([(torch.arange(n) == 0) | (torch.arange(n) == n - 1) for n in lengths])
    return Tokens(text, place, special, None, None, len(lengths))


@pytest.mark.parametrize("window", [2, 4, 8])
@pytest.mark.parametrize("lengths", [[3], [6], [40], [100, 9, 2, 33]])
def test_groups_are_balanced_and_nested(window, lengths):
    given = tokens(lengths)
    keys = torch.randn(sum(lengths), 2, 8, generator=torch.Generator().manual_seed(0))
    labels = Clusters(window).labels(given, keys)
    plan = plan_from_labels(given.text, labels, len(lengths))
    assert plan.num_leaves == sum(lengths)
    for low, high in pairwise(labels):
        for value in low[low >= 0].unique():
            assert len(high[low == value].unique()) == 1  # nested
    if labels:
        sizes = labels[0][labels[0] >= 0].unique(return_counts=True)[1]
        assert window / 2 < sizes.max() <= window
    assert all((label[given.special] == -1).all() for label in labels)
    width = plan.group_ptr.diff()
    assert int(width.max()) <= max(window + 2, 4)


def test_like_keys_come_together():
    """Four far apart kinds of tokens, mixed up in the text."""
    generator = torch.Generator().manual_seed(0)
    kind = torch.randperm(16, generator=generator) % 4
    centre = 20 * torch.randn(4, 2, 8, generator=generator)
    keys = centre[kind] + 0.01 * torch.randn(16, 2, 8, generator=generator)
    keys = torch.cat([keys[:1], keys, keys[:1]])
    labels = Clusters(4).labels(tokens([18]), keys)
    assert len(labels) == 1
    for value in range(4):
        assert len(labels[0][1:-1][kind == value].unique()) == 1


def test_they_are_closer_to_flat_attention_than_windows_are():
    """Where like tokens are scattered, at equal cost: what grouping by content is for."""
    generator = torch.Generator().manual_seed(0)
    kind = torch.randperm(64, generator=generator) % 8
    centre = 3 * torch.randn(8, 2, 8, generator=generator)
    keys = centre[kind] + 0.3 * torch.randn(64, 2, 8, generator=generator)
    query = torch.randn(66, 2, 8, generator=generator)
    keys = torch.cat([keys[:1], keys, keys[:1]])
    given = tokens([66])
    energy = {
        name: float(
            tree_energy(query, keys, plan_from_labels(given.text, labels, 1), tie="key").mean()
        )
        for name, labels in (
            ("clusters", Clusters(8).labels(given, keys)),
            ("windows", Windows(8).labels(given)),
        )
    }
    assert energy["clusters"] < energy["windows"] - 0.1


def groups(label):
    return {frozenset((label == v).nonzero().flatten().tolist()) for v in label.unique() if v >= 0}


def test_the_texts_of_a_batch_do_not_mix():
    keys = torch.randn(60, 2, 8, generator=torch.Generator().manual_seed(0))
    both = Clusters(4).labels(tokens([40, 20]), keys)
    for number, part in ((0, slice(0, 40)), (1, slice(40, 60))):
        alone = Clusters(4).labels(tokens([[40, 20][number]]), keys[part])
        assert [groups(label[part]) for label in both[: len(alone)]] == [*map(groups, alone)]
        assert all(not groups(label[part]) for label in both[len(alone) :])


def make(kind="bert"):
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(
        kind,
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=32,
        vocab_size=60,
    )
    return transformers.AutoModel.from_config(config, attn_implementation="eager").eval()


def test_in_a_model(tmp_path):
    ids = torch.randint(5, 60, (3, 30), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[1, 12:] = 0
    model = replace_attention(make(), layers=[1, 2], hierarchy=Clusters(4))
    with torch.no_grad():
        out = model(ids, attention_mask=mask).last_hidden_state
        alone = model(ids[1:2, :12]).last_hidden_state
    torch.testing.assert_close(out[1, :12], alone[0], rtol=1e-4, atol=1e-5)
    assert hierarchy_from(to_config(Clusters(8))) == Clusters(8)
    (option,) = [
        o for o in measure_layers(make(), [{"input_ids": ids}], [Clusters(4)]) if o.layer == 1
    ]
    plain = [o for o in measure_layers(make(), [{"input_ids": ids}], [4]) if o.layer == 1]
    # 28 ordinary tokens: as many groups by content as windows, and grouping costs something.
    assert option.flops > plain[0].flops
    assert option.flops - Clusters(4).flops([30] * 3, 16) == pytest.approx(plain[0].flops, rel=0.2)


def test_what_is_refused():
    with pytest.raises(ShapeError, match="window=6: give a power of two"):
        Clusters(6)
    model = replace_attention(make("mpnet"), layers=[1], hierarchy=Clusters(4))
    with pytest.raises(UnsupportedError, match="not side by side"):
        model(torch.randint(5, 60, (1, 30)))
