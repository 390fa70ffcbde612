"""The classifier of subtrees."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch_geometric.data import Batch

from hsa_geo.data import Domain, SignalTree
from hsa_geo.errors import FileFormatError, ShapeError
from hsa_geo.nn import PositionEmbedding, SubtreeClassifier, subtree_mean
from hsa_geo.nn.models import ATTENTIONS
from hsa_geo.nn.tokens import token_bags
from hsa_geo.testing import assert_forest_equals_trees, random_tree

NUM_IDS = 64
CLASSES = 3


def furnished(tree: SignalTree, seed: int) -> SignalTree:
    """Random tokens for a tree; graphs, which have no position embedding, become sequences."""
    generator = torch.Generator().manual_seed(seed)
    tree.tree_domain[tree.tree_domain == Domain.GRAPH] = Domain.SEQUENCE
    count = torch.randint(0, 4, (tree.num_leaves,), generator=generator)
    index = torch.repeat_interleave(torch.arange(tree.num_leaves), count)
    number = torch.randint(0, NUM_IDS, (len(index), 1), generator=generator)
    field = torch.randint(0, 4, (len(index), 1), generator=generator)
    tree.text_x, tree.text_index = torch.cat([number, field], 1), index
    return tree


def page(seed: int, shape: str = "mixed") -> SignalTree:
    return furnished(random_tree(seed, shape=shape), seed)


def rows_of(leaves: int) -> SignalTree:
    """A tree of so many leaves in lines of ten, which lie on a grid."""
    lines = -(-leaves // 10)
    parents = [leaves + i // 10 for i in range(leaves)] + [leaves + lines] * lines + [-1]
    pos = [[i % 10, 0] for i in range(leaves)] + [[i // 5, i % 5] for i in range(lines)] + [[0, 0]]
    domain = [-1] * leaves + [Domain.SEQUENCE] * lines + [Domain.GRID2D]
    return furnished(SignalTree.from_parents(parents, domain=domain, pos=pos), leaves)


def classifier(attention: str = "hsa", seed: int = 0, **options) -> SubtreeClassifier:
    """A model with no parameter at its initial zero or one, in evaluation mode."""
    torch.manual_seed(seed)
    options = {"channels": 16, "num_layers": 2, "heads": 2, **options}
    model = SubtreeClassifier(NUM_IDS, CLASSES, attention=attention, **options)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model.eval()


def leaves_under(tree: SignalTree, node: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for parent, child in tree.tree_index.t().tolist():
        children.setdefault(parent, []).append(child)
    found, stack = [], [node]
    while stack:
        one = stack.pop()
        stack += children.get(one, [])
        found += [] if one in children else [one]
    return found


# The forward pass ###########################################################


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("seed", range(3))
def test_by_hand(attention, seed):
    tree, model = page(seed), classifier(attention)
    nodes = torch.randperm(tree.num_tree_nodes)
    x = model.encoder(model.tokens(tree), tree)
    bags = token_bags(tree, NUM_IDS)
    ends = bags.offsets.tolist()
    for row, node in zip(model(tree, nodes), nodes.tolist()):
        under = leaves_under(tree, node)
        deep = model.lin(model.norm(x[under].mean(0)))
        ids = [i for leaf in under for i in bags.ids[ends[leaf] : ends[leaf + 1]].tolist()]
        wide = model.direct.weight[ids].sum(0) / (len(ids) // 2 + 1) ** 0.5
        assert torch.allclose(row, deep + wide, atol=1e-4)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_roots_are_the_default(attention):
    trees = [page(seed) for seed in range(3)]
    batch, model = Batch.from_data_list(trees), classifier(attention)
    roots = torch.tensor([t.num_tree_nodes for t in trees]).cumsum(0) - 1
    assert torch.equal(model(batch), model(batch, roots))
    assert model(batch).shape == (3, CLASSES)


def test_a_leaf_alone_and_no_node_at_all():
    tree, model = page(0, "single"), classifier()
    assert model(tree).shape == (1, CLASSES)
    out = model(page(1), torch.empty(0, dtype=torch.int64))
    assert out.shape == (0, CLASSES)
    assert torch.isfinite(out.sum())


def test_a_subtree_is_read_in_its_context():
    """Other tokens elsewhere on the page change what HSA says of a form, by the deep part."""
    tree = SignalTree.from_parents(
        [4, 4, 5, 5, 6, 6, -1],
        text_x=torch.tensor([[1, 0], [2, 0], [3, 0], [4, 0]]),
        text_index=torch.arange(4),
    )
    other, form, model = tree.clone(), torch.tensor([4]), classifier()
    other.text_x = torch.tensor([[1, 0], [2, 0], [30, 0], [40, 0]])
    assert not torch.allclose(model(tree, form), model(other, form))
    untrained = SubtreeClassifier(NUM_IDS, CLASSES).eval()
    assert torch.equal(untrained(tree, form), untrained(other, form))


@pytest.mark.parametrize("nodes", [torch.tensor([99]), torch.tensor([-1]), torch.tensor([0.0])])
def test_nodes_that_are_none(nodes):
    with pytest.raises(ShapeError, match="nodes"):
        classifier()(page(0), nodes)


# What it starts from ########################################################


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_the_encoder_starts_as_the_identity(attention):
    tree = page(3)
    model = SubtreeClassifier(NUM_IDS, CLASSES, attention=attention, num_layers=3).eval()
    x = torch.randn(tree.num_leaves, 64)
    assert torch.equal(model.encoder(x, tree), x)
    assert bool((model.direct.weight == 0).all())
    expected = model.lin(model.norm(subtree_mean(model.tokens(tree), tree)))
    assert torch.allclose(model(tree), expected, atol=1e-6)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_gradient_reaches_all_parameters(attention):
    batch, model = Batch.from_data_list([page(seed) for seed in range(8)]), classifier(attention)
    assert {0, 1, 2} <= set(batch.tree_domain.tolist())  # all that have parameters of their own
    model.train()
    logits = model(batch, batch.tree_index[0].unique())
    logits.square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert bool(torch.isfinite(parameter.grad).all()), name
        assert bool((parameter.grad != 0).any()), name


def test_a_step_from_the_start_moves_the_last_layers_first():
    """Zero layers at the end of branches get a gradient at once, what is before them later."""
    batch, model = Batch.from_data_list([page(seed) for seed in range(4)]), classifier()
    model = SubtreeClassifier(NUM_IDS, CLASSES, channels=16, heads=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    nn.functional.cross_entropy(model(batch), torch.tensor([0, 1, 2, 0])).backward()
    block = model.encoder.blocks[0]
    assert bool((block.lin_out.weight.grad != 0).any())
    assert bool((block.conv.lin_qkv.weight.grad == 0).all())
    optimizer.step()
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(batch), torch.tensor([0, 1, 2, 0])).backward()
    assert bool((block.conv.lin_qkv.weight.grad != 0).any())


def test_all_attentions_have_as_many_parameters():
    def count(attention: str, **options: int) -> int:
        model = SubtreeClassifier(2**14, 9, attention=attention, **options)
        return sum(p.numel() for p in model.parameters())

    assert count("deep_set") == 2_426_121
    # Reading order: a length, and a strength for each of the 4 heads.
    assert count("flat") == 2_426_121 + 1 + 4
    # Sequences and grids: a length each, and a strength for each of the 4 heads.
    assert count("hsa") == 2_426_121 + 2 * (1 + 4)
    none = {"position_channels": 0}
    assert count("hsa", **none) == count("flat", **none) == count("deep_set")
    model = SubtreeClassifier(2**14, 9)
    positions = [m for m in model.modules() if isinstance(m, PositionEmbedding)]
    assert sum(p.numel() for m in positions for p in m.parameters()) == 10


def test_embedding_parameters_are_the_tables():
    model = classifier()
    tables = model.embedding_parameters()
    assert [tuple(t.shape) for t in tables] == [(2 * NUM_IDS, 16), (2 * NUM_IDS, CLASSES)]
    own = {id(p) for p in model.parameters()}
    assert all(id(t) in own for t in tables)


@pytest.mark.parametrize("options", [{"attention": "soft"}, {"channels": 10, "heads": 4}])
def test_options_that_do_not_exist(options):
    with pytest.raises(ShapeError):
        SubtreeClassifier(NUM_IDS, CLASSES, **options)


def test_dropout_only_in_training():
    tree = page(0)
    for options in ({"dropout": 0.5}, {"token_dropout": 0.5}):
        model = classifier(**options)
        assert torch.equal(model(tree), model(tree))
        model.train()
        assert not torch.equal(model(tree), model(tree))


# Batches ####################################################################


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_a_batch_equals_its_trees(attention):
    trees = [page(seed, "any") for seed in range(10)] + [page(0, "single")]
    model = classifier(attention)
    assert_forest_equals_trees(model, trees, atol=1e-4)
    assert_forest_equals_trees(
        lambda t: model(t, torch.arange(len(t.tree_level)).flip(0)).flip(0), trees, atol=1e-4
    )


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_short_trees_beside_long_ones(attention):
    """Padding to 500 leaves does not reach a tree of 3, forward or backward."""
    trees, model = [rows_of(n) for n in (3, 50, 500)], classifier(attention)
    together = model(Batch.from_data_list(trees))
    alone = torch.cat([model(tree) for tree in trees])
    assert torch.allclose(together, alone, atol=1e-4)
    of_batch = torch.autograd.grad(together.square().sum(), list(model.parameters()))
    of_each = torch.autograd.grad(alone.square().sum(), list(model.parameters()))
    for (name, _), a, b in zip(model.named_parameters(), of_batch, of_each):
        assert torch.allclose(a, b, rtol=1e-3, atol=1e-3 * float(b.abs().max())), name
    logits = model(Batch.from_data_list(trees))[0]  # of the tree of 3 leaves
    only_its_own = torch.autograd.grad(logits.sum(), model.direct.weight)[0]
    used = token_bags(trees[0], NUM_IDS).ids.unique()
    assert set(only_its_own.abs().sum(1).nonzero().flatten().tolist()) == set(used.tolist())


# Files ######################################################################


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_saved_and_loaded(tmp_path, attention):
    tree, model = page(0), classifier(attention, dropout=0.5, token_dropout=0.5)
    extra = {"classes": ["a", "ü"], "html": {"images": False}}
    model.train().save(tmp_path / "new" / "folder", extra)
    again, told = SubtreeClassifier.load(str(tmp_path / "new" / "folder"))
    assert told == extra
    assert again.config == model.config
    assert not again.training
    assert model.state_dict().keys() == again.state_dict().keys()
    for key, value in model.state_dict().items():
        assert torch.equal(value, again.state_dict()[key]), key
    assert torch.equal(model.eval()(tree), again(tree))
    assert all(p.requires_grad for p in again.parameters())
    names = sorted(path.name for path in (tmp_path / "new" / "folder").iterdir())
    assert names == ["config.json", "model.safetensors"]


def test_the_names_of_hugging_face(tmp_path):
    model, tree = classifier(), page(0)
    model.save_pretrained(tmp_path, {"n": 1})
    assert torch.equal(SubtreeClassifier.from_pretrained(tmp_path)(tree), model.eval()(tree))
    with pytest.raises(FileFormatError, match="more than the limit of 99"):
        SubtreeClassifier.from_pretrained(tmp_path, max_bytes=99)


def test_saved_over_another(tmp_path):
    classifier(seed=1).save(tmp_path)
    classifier(seed=2).save(tmp_path, {"n": 2})
    again, extra = SubtreeClassifier.load(tmp_path)
    assert extra == {"n": 2}
    assert torch.equal(again.lin.weight, classifier(seed=2).lin.weight)


def test_what_cannot_be_saved_leaves_the_old_files(tmp_path):
    classifier(seed=1).save(tmp_path)
    with pytest.raises(TypeError):
        classifier(seed=2).save(tmp_path, {"a set": {1}})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    again, _ = SubtreeClassifier.load(tmp_path)
    assert torch.equal(again.lin.weight, classifier(seed=1).lin.weight)


def edit(folder: Path, change) -> None:
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))


def edit_model(**changes):
    return lambda folder: edit(folder, lambda config: config["model"].update(changes))


def edit_state(change):
    def apply(folder: Path) -> None:
        state = load_file(folder / "model.safetensors")
        change(state)
        save_file(state, folder / "model.safetensors")

    return apply


def write(name: str, content: bytes):
    return lambda folder: (folder / name).write_bytes(content)


def truncate(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


HOSTILE = {
    "garbage weights": write("model.safetensors", b"\x00\xff" * 500),
    "empty weights": write("model.safetensors", b""),
    "a header as long as memory": write("model.safetensors", b"\xff" * 7 + b"\x7f" + b"{" * 64),
    "truncated weights": truncate,
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "a weight too many": edit_state(lambda s: s.update(more=torch.zeros(2))),
    "a weight too few": edit_state(lambda s: s.pop("lin.bias")),
    "a weight of another shape": edit_state(lambda s: s.update({"lin.bias": torch.zeros(7)})),
    "no tokens": edit_state(lambda s: s.pop("tokens.embed.weight")),
    "garbage config": write("config.json", b"\x80\x81 not json"),
    "empty config": write("config.json", b""),
    "a list": write("config.json", b"[1, 2]"),
    "a number": write("config.json", b"1e999"),
    "an endless number": write("config.json", b'{"schema": ' + b"9" * 6000 + b"}"),
    "deep JSON": write("config.json", b"[" * 200_000),
    "no config": lambda folder: (folder / "config.json").unlink(),
    "no schema": lambda folder: edit(folder, lambda c: c.pop("schema")),
    "no model": lambda folder: edit(folder, lambda c: c.pop("model")),
    "no extra": lambda folder: edit(folder, lambda c: c.pop("extra")),
    "extra is a number": lambda folder: edit(folder, lambda c: c.update(extra=3)),
    "an unknown option": edit_model(backdoor=True),
    "an option too few": lambda folder: edit(folder, lambda c: c["model"].pop("num_ids")),
    "an unknown attention": edit_model(attention="os.system"),
    "attention is a list": edit_model(attention=["hsa"]),
    "attention of another kind": edit_model(attention="deep_set", position_channels=8),
    "text for a number": edit_model(channels="16"),
    "no number": edit_model(dropout=None),
    "infinite": edit_model(channels=float("inf")),
    "not a number": edit_model(num_ids=float("nan")),
    "negative": edit_model(num_layers=-1),
    "no heads": edit_model(heads=0),
    "half a channel": edit_model(channels=16.5),
    "dropout of 7": edit_model(token_dropout=7),
    **{
        f"{key} is huge": edit_model(**{key: 10**12})
        for key in (
            "num_ids",
            "num_classes",
            "channels",
            "num_layers",
            "heads",
            "hidden_channels",
            "position_channels",
        )
    },
}


@pytest.mark.parametrize("fault", HOSTILE)
def test_hostile_files(tmp_path, fault):
    classifier().save(tmp_path, {"n": 1})
    HOSTILE[fault](tmp_path)
    with pytest.raises(FileFormatError) as caught:
        SubtreeClassifier.load(tmp_path)
    message = str(caught.value)
    assert str(tmp_path) in message
    assert "\n" not in message
    assert len(message) < len(str(tmp_path)) + 500


def test_newer_schema(tmp_path):
    classifier().save(tmp_path)
    edit(tmp_path, lambda config: config.update(schema=3))
    with pytest.raises(FileFormatError, match=r"has schema 3, .* which reads 1 to 2"):
        SubtreeClassifier.load(tmp_path)


class Payload:
    """Writes a file when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return (Path.write_text, (self.target, "executed"))


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
@pytest.mark.parametrize("writer", ["pickle", "torch"])
def test_nothing_of_a_file_is_executed(tmp_path, name, writer):
    target, folder = tmp_path / "executed", tmp_path / "model"
    classifier().save(folder)
    if writer == "pickle":
        (folder / name).write_bytes(pickle.dumps(Payload(target)))
    else:
        torch.save({"lin.bias": Payload(target)}, folder / name)
    with pytest.raises(FileFormatError):
        SubtreeClassifier.load(folder)
    assert not target.exists()
    pickle.loads(pickle.dumps(Payload(target)))  # the payload would have worked
    assert target.exists()


@pytest.mark.parametrize("place", ["missing", "file"])
def test_no_folder(tmp_path, place):
    (tmp_path / "file").write_text("a file")
    with pytest.raises(FileFormatError, match="give the folder that save"):
        SubtreeClassifier.load(tmp_path / place)
