"""SignalClassifier on a GPU: skipped, with the reason shown, where there is none."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch

from hsa_geo.data import Domain, SignalTree
from hsa_geo.nn import PatchConv, SignalClassifier, TokenEncoder, WordEmbedding
from hsa_geo.nn.attentions import ATTENTIONS
from hsa_geo.nn.pooling import READOUTS
from hsa_geo.testing import random_tree

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def document(seed: int) -> SignalTree:
    tree, generator = random_tree(seed, shape="mixed"), torch.Generator().manual_seed(seed)
    tree.tree_domain[tree.tree_domain == Domain.GRAPH] = int(Domain.SET)
    n = tree.num_leaves
    tree.word_x, tree.word_index = torch.randint(0, 9, (n,), generator=generator), torch.arange(n)
    tree.image_x = torch.randint(0, 256, (2, 48), generator=generator).to(torch.uint8)
    tree.image_index = torch.randint(0, n, (2,), generator=generator)
    tree.text_x = torch.randint(0, 4, (n, 2), generator=generator)
    tree.text_index = torch.arange(n)
    tree.leaf_weight = torch.randint(1, 4, (n,), generator=generator)
    tree.part_node = torch.tensor([0, tree.num_tree_nodes - 1])
    return tree


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("readout", READOUTS)
def test_as_on_the_cpu(attention, readout):
    torch.manual_seed(0)
    encoders = {
        "word": WordEmbedding(9, 16, torch.randn(9, 5).half()),
        "image": PatchConv(4, 16),
        "text": TokenEncoder(4, 16),
    }
    model = SignalClassifier(
        encoders, 3, 16, heads=2, attention=attention, readout=readout, structure=True
    ).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    batch = Batch.from_data_list([document(seed) for seed in range(4)])
    there, on_gpu = copy.deepcopy(model).cuda(), batch.clone().to("cuda")
    for given in (None, batch.part_node):
        out = model(batch, given)
        again = there(on_gpu, None if given is None else on_gpu.part_node)
        assert torch.allclose(again.cpu(), out, atol=1e-3)
    model(batch).square().sum().backward()
    there(on_gpu).square().sum().backward()
    for (name, a), b in zip(model.named_parameters(), there.parameters()):
        scale = float(a.grad.abs().max()) + 1e-3
        assert (a.grad - b.grad.cpu()).abs().max() < 1e-2 * scale, name
    with torch.autocast("cuda", dtype=torch.bfloat16):
        half = there(on_gpu)
    assert torch.allclose(half.float().cpu(), model(batch), atol=0.1)
