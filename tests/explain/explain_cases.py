"""Models and a task with a known answer, for the tests of explanations."""

from __future__ import annotations

import functools

import torch
from torch_geometric.data import Batch

from hsa_geo.data import Domain, SignalTree
from hsa_geo.nn import LinearFeatures, SignalClassifier, Symbols

NUM_SYMBOLS = 30
#: The symbol that makes a tree one of the class; all others are noise.
SIGNS = (3, 7, 11)


def classifier(num_classes=3, dtype=torch.float64, features=5, seed=0, **options):
    """A model of ``tree.x`` whose blocks are not the identity, in evaluation mode."""
    torch.manual_seed(seed)
    options = {"channels": 16, "num_layers": 2, "heads": 4, "zero_init": False, **options}
    encoders = {"x": LinearFeatures(features, options["channels"])}
    model = SignalClassifier(encoders, num_classes, **options).to(dtype).eval()
    for name, parameter in model.readout.named_parameters():
        if name == "lin.weight":  # which starts as the mean
            torch.nn.init.normal_(parameter)
    return model


def planted(seed, boxes=4, words=6, signs=2):
    """A page of boxes of words, a few of them the sign of its class; ``planted`` says which."""
    generator = torch.Generator().manual_seed(seed)
    label = int(torch.randint(len(SIGNS), (1,), generator=generator))
    n = boxes * words
    word = torch.randint(NUM_SYMBOLS, (n,), generator=generator)
    word = torch.where(torch.isin(word, torch.tensor(SIGNS)), 0, word)
    place = torch.randperm(n, generator=generator)[:signs]
    word[place] = SIGNS[label]
    sign = torch.zeros(n, dtype=torch.bool)
    sign[place] = True
    parent = torch.cat([n + torch.arange(n) // words, torch.full((boxes,), n + boxes)])
    return SignalTree.from_parents(
        [*parent.tolist(), -1],
        domain=Domain.SET,
        word_x=word,
        word_index=torch.arange(n),
        planted=sign,
        y=torch.tensor([label]),
    )


@functools.cache
def trained(seed=0, steps=40, **options):
    """A model that has learned the task of :func:`planted`."""
    torch.manual_seed(seed)
    options = {"channels": 16, "num_layers": 1, "heads": 2, **options}
    model = SignalClassifier(
        {"word": Symbols(NUM_SYMBOLS, options["channels"])}, len(SIGNS), **options
    )
    batch = Batch.from_data_list([planted(1000 + k) for k in range(150)])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(batch), batch.y).backward()
        optimizer.step()
    model.eval()
    held = Batch.from_data_list([planted(5000 + k) for k in range(50)])
    right = (model(held).argmax(1) == held.y).double().mean()
    assert right > 0.9, f"the model has not learned the task ({right})"
    return model
