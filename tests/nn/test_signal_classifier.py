"""The classifier of signals of any modalities, and its baselines."""

from __future__ import annotations

import copy
import json
from itertools import pairwise

import pytest
import torch
import torch._dynamo
from safetensors.torch import load_file, save_file
from torch import nn
from torch_geometric.data import Batch

from hsa_geo.data import Domain, SignalTree
from hsa_geo.errors import FileFormatError, MixedKeysError, ShapeError, UnsupportedError
from hsa_geo.nn import (
    FrozenModule,
    HierarchicalReadout,
    LinearFeatures,
    PatchConv,
    SignalClassifier,
    Symbols,
    TokenEncoder,
    WordEmbedding,
    hierarchical_mean,
    subtree_mean,
)
from hsa_geo.nn.attentions import ATTENTIONS
from hsa_geo.nn.pooling import READOUTS
from hsa_geo.testing import assert_forest_equals_trees, random_tree
from hsa_geo.transforms import RepeatLeaves

WIDTH, WORDS, CLASSES, PATCH = 8, 20, 3, 4
attentions = pytest.mark.parametrize("attention", ATTENTIONS)
readouts = pytest.mark.parametrize("readout", READOUTS)


def furnished(tree: SignalTree, seed: int) -> SignalTree:
    """Words, patches and hashed tokens on random leaves; no graphs, which need encodings."""
    generator = torch.Generator().manual_seed(seed)
    n = tree.num_leaves
    tree.tree_domain[tree.tree_domain == Domain.GRAPH] = Domain.SEQUENCE

    def draw(high: int, *size: int) -> torch.Tensor:
        return torch.randint(0, high, size, generator=generator)

    tree.word_x, tree.word_index = draw(WORDS, n), torch.arange(n)
    tree.image_x = draw(256, seed % 3, 3 * PATCH**2).to(torch.uint8)
    tree.image_index = draw(n, seed % 3)
    tree.text_x = torch.stack([draw(16, 2 * n), draw(3, 2 * n)], 1)
    tree.text_index = draw(n, 2 * n)
    return tree


def document(seed: int, shape: str = "mixed") -> SignalTree:
    return furnished(random_tree(seed, shape=shape), seed)


def encoders() -> dict[str, nn.Module]:
    table = torch.randn(WORDS, 5, generator=torch.Generator().manual_seed(0)).half()
    return {
        "word": WordEmbedding(WORDS, WIDTH, table),
        "image": PatchConv(PATCH, WIDTH),
        "text": TokenEncoder(16, WIDTH),
    }


def classifier(seed: int = 0, given=None, **options) -> SignalClassifier:
    """A model with no parameter at its initial zero or one, in evaluation mode."""
    torch.manual_seed(seed)
    options = {"channels": WIDTH, "heads": 2, **options}
    model = SignalClassifier(given or encoders(), CLASSES, **options)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model.eval()


# What it computes ###########################################################


@attentions
@pytest.mark.parametrize("structure", [False, True])
def test_by_hand(attention, structure):
    tree, model = document(1), classifier(attention=attention, structure=structure)
    x = model.features(tree)
    if structure:
        x = x + model.structure(tree)
    x = model.encoder(x, tree)
    nodes = torch.randperm(tree.num_tree_nodes)
    expected = model.lin(model.norm(subtree_mean(x, tree, nodes)))
    assert torch.allclose(model(tree, nodes), expected, atol=1e-5)
    assert torch.allclose(model(tree), model.lin(model.norm(x.mean(0, keepdim=True))), atol=1e-5)
    assert torch.allclose(model.leaf_logits(tree), model.lin(model.norm(x)), atol=1e-5)


@readouts
def test_readouts(readout):
    tree, model = document(2), classifier(readout=readout)
    pooled = model.readout(model.leaves(tree), tree)
    assert torch.allclose(model(tree), model.lin(model.norm(pooled)), atol=1e-5)
    if readout == "root":
        assert isinstance(model.readout, HierarchicalReadout)
        assert torch.equal(pooled, hierarchical_mean(model.leaves(tree), tree))
    if readout != "query":  # which transforms what it reads
        leaves = torch.arange(tree.num_leaves)
        assert torch.allclose(model(tree, leaves), model.leaf_logits(tree), atol=1e-4)


@attentions
@readouts
def test_a_batch_equals_its_trees(attention, readout):
    trees = [document(seed, "any") for seed in range(6)] + [document(0, "single")]
    model = classifier(attention=attention, readout=readout, structure=True)
    assert_forest_equals_trees(model, trees, atol=1e-4)
    assert_forest_equals_trees(model.leaf_logits, trees, atol=1e-4)
    batch = Batch.from_data_list(trees)
    starts = [0, *torch.tensor([t.num_tree_nodes for t in trees]).cumsum(0).tolist()]
    nodes = torch.cat([torch.tensor([high - 1, low]) for low, high in pairwise(starts)])
    expected = torch.cat([model(t, torch.tensor([t.num_tree_nodes - 1, 0])) for t in trees])
    assert torch.allclose(model(batch, nodes), expected, atol=1e-4)


@attentions
@readouts
def test_gradients_reach_everything(attention, readout):
    batch = Batch.from_data_list([document(seed) for seed in range(5)])
    model = classifier(attention=attention, readout=readout, structure=True)
    model(batch).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert (parameter.grad != 0).any(), name


def context(model: SignalClassifier) -> float:
    """How much the logits of the first leaf feel another word on the last."""
    tree = SignalTree.from_parents(
        [4, 4, 5, 5, 6, 6, -1], word_x=torch.tensor([1, 2, 3, 4]), word_index=torch.arange(4)
    )
    other = tree.clone()
    other.word_x[3] = 9
    with torch.no_grad():
        return float((model.leaf_logits(tree) - model.leaf_logits(other))[0].abs().max())


def test_who_sees_other_leaves():
    words = {"word": Symbols(WORDS, WIDTH)}
    for attention in ATTENTIONS:
        for structure in (False, True):
            model = classifier(given=words, attention=attention, structure=structure)
            assert (context(model) > 1e-4) == (attention != "none")
    untrained = SignalClassifier(words, CLASSES, WIDTH, heads=2)
    assert context(untrained) == 0  # blocks start as the identity
    mixing = SignalClassifier(words, CLASSES, WIDTH, heads=2, zero_init=False)
    assert context(mixing) > 1e-4


@attentions
def test_who_knows_the_hierarchy(attention):
    """Two trees over the same leaves: HSA tells them apart, others if they are told."""
    words = {"word_x": torch.tensor([1, 2, 3, 4]), "word_index": torch.arange(4)}
    pairs = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1], **words)
    other = SignalTree.from_parents([5, 4, 4, 4, 5, -1], **words)
    for structure in (False, True):
        model = classifier(
            given={"word": Symbols(WORDS, WIDTH)}, attention=attention, structure=structure
        ).double()
        knows = (model(pairs) - model(other)).abs().max() > 1e-8
        assert knows == (structure or attention == "hsa")


@attentions
@readouts
def test_a_leaf_of_weight_w_counts_as_w_leaves(attention, readout):
    model = classifier(attention=attention, readout=readout, position_channels=0)
    for seed in range(3):
        tree = document(seed)
        generator = torch.Generator().manual_seed(seed)
        tree.leaf_weight = torch.randint(1, 4, (tree.num_leaves,), generator=generator)
        big = RepeatLeaves()(tree.clone())
        assert big.num_leaves > tree.num_leaves
        assert torch.allclose(model(tree), model(big), atol=1e-4)


def test_no_nodes():
    model, none = classifier(), torch.empty(0, dtype=torch.int64)
    for readout in READOUTS:
        model = classifier(readout=readout)
        assert model(document(1), none).shape == (0, CLASSES)


# Sizes ######################################################################


@pytest.mark.parametrize("structure", [False, True])
@readouts
def test_all_have_as_many_parameters(structure, readout):
    sizes = []
    for attention in ATTENTIONS:
        model = SignalClassifier(
            {"word": Symbols(WORDS, 64)},
            CLASSES,
            attention=attention,
            readout=readout,
            structure=structure,
        )
        sizes.append(sum(p.numel() for p in model.encoder.parameters()))
    assert max(sizes) <= 1.02 * min(sizes)


# Dtypes #####################################################################


@attentions
@readouts
def test_float64(attention, readout):
    tree, model = document(3), classifier(attention=attention, readout=readout, structure=True)
    wide = copy.deepcopy(model).double()(tree)
    assert wide.dtype == torch.float64
    assert torch.allclose(model(tree).double(), wide, atol=1e-4)


@attentions
@readouts
def test_half_precision(attention, readout):
    batch = Batch.from_data_list([document(seed) for seed in range(3)])
    model = classifier(attention=attention, readout=readout)
    expected = model(batch)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(batch)
    assert torch.allclose(out.float(), expected, atol=0.1)
    out.float().square().sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())
    narrow = copy.deepcopy(model).to(torch.bfloat16)(batch)
    assert narrow.dtype == torch.bfloat16
    assert torch.allclose(narrow.float(), expected, atol=0.2)


# torch.compile ##############################################################


def test_one_graph_for_all_batches():
    pytest.importorskip("numba")
    given = {"word": encoders()["word"], "image": PatchConv(PATCH, WIDTH)}
    model = classifier(given=given, readout="query", num_layers=1, values="keys")
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend="aot_eager")
    with torch._dynamo.config.patch(error_on_recompile=True):
        for seed in range(4):
            batch = Batch.from_data_list([document(7 * seed + i) for i in range(4 + seed)])
            assert 2 < len(batch.image_x) < 16  # convolutions differ from 16 on
            results = []
            for fn in (compiled, model):
                out = fn(batch)
                grads = torch.autograd.grad(out.square().sum(), list(model.parameters()))
                results.append((out, *grads))
            for actual, expected in zip(*results):
                assert torch.allclose(actual, expected, atol=1e-4, rtol=1e-4)
    torch._dynamo.reset()


# Learning ###################################################################


def test_it_learns_what_flat_attention_cannot():
    """Do the two words of each pair agree?  As a list of words all documents are the same."""
    torch.manual_seed(0)

    def pairs(agree: bool) -> SignalTree:
        word = torch.tensor([0, 0, 1, 1])[torch.randperm(4)]
        words = torch.stack([word, word if agree else 1 - word], 1).flatten()
        parents = [8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, -1]
        return SignalTree.from_parents(
            parents, word_x=words, word_index=torch.arange(8), y=torch.tensor([int(agree)])
        )

    train, test = ([pairs(bool(i % 2)) for i in range(n)] for n in (64, 32))
    train, test = Batch.from_data_list(train), Batch.from_data_list(test)
    right = {}
    for attention in ("hsa", "flat"):
        torch.manual_seed(0)
        model = SignalClassifier(
            {"word": Symbols(2, 16)}, 2, 16, heads=2, attention=attention, position_channels=0
        )
        optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
        for _ in range(60):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(train), train.y).backward()
            optimizer.step()
        right[attention] = (model(test).argmax(1) == test.y).float().mean()
    assert right["hsa"] > 0.95
    assert right["flat"] < 0.7


def test_dropout_only_in_training():
    tree = document(1)
    for options in ({"dropout": 0.5}, {"attention_dropout": 0.5}):
        for attention in ("hsa", "flat"):
            model = classifier(attention=attention, **options)
            assert torch.equal(model(tree), model(tree))
            model.train()
            assert not torch.equal(model(tree), model(tree))


# What is refused ############################################################


@pytest.mark.parametrize(
    ("options", "error", "quote"),
    [
        ({"attention": "linear"}, ShapeError, "attention='linear' is unknown"),
        ({"readout": "max"}, ShapeError, "readout='max' is unknown"),
        ({"heads": 3}, ShapeError, "channels=8 is not a multiple of heads=3"),
        ({"channels": 16}, ShapeError, "has channels=8, but channels=16 are needed"),
        ({"num_classes": 0}, ShapeError, "num_classes=0"),
        ({"num_classes": 2.5}, ShapeError, "num_classes=2.5"),
        ({"attention": "flat", "attention_dropout": 2.0}, ShapeError, "dropout=2.0"),
        ({"num_layers": -1}, ShapeError, "num_layers=-1"),
        ({"hidden_channels": 0}, ShapeError, "hidden_channels=0"),
        ({"dropout": 1.5}, ShapeError, "dropout=1.5"),
        ({"position_channels": -2}, ShapeError, "position_channels=-2"),
        ({"position_channels": 7}, ShapeError, "channels=7 must be even"),
        ({"energy": "l3"}, ShapeError, "energy='l3' is unknown"),
        ({"values": "queries"}, ShapeError, "values='queries' is unknown"),
        ({"colour": 3}, UnsupportedError, "colour=3 is no option"),
        ({"attention": "none", "values": "keys"}, UnsupportedError, "values='keys' has no meaning"),
        ({"attention": "deep_set", "energy": "l2"}, UnsupportedError, "energy='l2' has no meaning"),
        ({"attention": "flat", "backend": "edge"}, UnsupportedError, "backend='edge'"),
        ({"attention": "none", "attention_dropout": 0.1}, UnsupportedError, "attention_dropout"),
    ],
)
def test_what_is_refused(options, error, quote):
    options = {"num_classes": CLASSES, "channels": WIDTH, "heads": 2, **options}
    with pytest.raises(error, match=quote):
        SignalClassifier({"word": Symbols(WORDS, WIDTH)}, **options)


def test_trees_that_do_not_fit():
    tree, model = document(1), classifier()
    with pytest.raises(ShapeError, match="holds 9999"):
        model(tree, torch.tensor([9999]))
    del tree.image_x
    with pytest.raises(MixedKeysError, match="no image_x"):
        model(tree)


def test_defaults_are_known_to_all():
    """So that one set of options serves a comparison."""
    options = {"energy": "dot", "values": "own", "qk_norm": False, "backend": "auto"}
    for attention in ATTENTIONS:
        told = classifier(attention=attention, **options)(document(1))
        assert torch.equal(told, classifier(attention=attention)(document(1)))


@pytest.mark.parametrize("attention", ["hsa", "flat"])
def test_options_reach_the_layers(attention):
    options = {"energy": "l2", "values": "keys", "qk_norm": True, "attention_dropout": 0.25}
    model = classifier(attention=attention, **options)
    for block in model.encoder.blocks:
        assert (block.conv.energy, block.conv.values) == ("l2", "keys")
        assert block.conv.norm_q is not None
        assert block.conv.dropout == 0.25
    assert model(document(1)).isfinite().all()


# Files ######################################################################


@attentions
@readouts
def test_saved_and_loaded(tmp_path, attention, readout):
    tree = document(1)
    model = classifier(attention=attention, readout=readout, structure=attention == "flat")
    extra = {"vocabulary": ["a", "ü"]}
    model.train().save(tmp_path / "new" / "folder", extra)
    again, told = SignalClassifier.load(tmp_path / "new" / "folder")
    assert told == extra
    assert again.config == model.config
    assert not again.training
    assert torch.equal(model.eval()(tree), again(tree))
    assert again.features.encoders["word"].table.dtype == torch.float16
    trained = [name for name, p in again.named_parameters() if p.requires_grad]
    assert trained == [name for name, _ in model.named_parameters()]
    again(tree).sum().backward()


def test_the_names_of_hugging_face(tmp_path):
    model, tree = classifier(), document(1)
    model.save_pretrained(tmp_path, {"classes": ["a", "b", "c"]})
    again = SignalClassifier.from_pretrained(tmp_path)
    assert torch.equal(again(tree), model.eval()(tree))
    assert SignalClassifier.load(tmp_path)[1] == {"classes": ["a", "b", "c"]}
    with pytest.raises(FileFormatError, match="more than the limit of 99"):
        SignalClassifier.from_pretrained(tmp_path, max_bytes=99)


def test_saved_in_another_dtype(tmp_path):
    model = classifier().double()
    model.save(tmp_path)
    again, _ = SignalClassifier.load(tmp_path)
    assert torch.equal(again(document(1)), model(document(1)))


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(3 * PATCH**2, WIDTH)

    def forward(self, x):
        return self.lin(x.float() / 255)


def test_encoders_of_ones_own(tmp_path):
    tree = document(2)

    def frozen() -> nn.Module:
        return nn.Sequential(FrozenModule(Own()), LinearFeatures(WIDTH, WIDTH))

    model = classifier(given={"word": Symbols(WORDS, WIDTH), "image": frozen()})
    model.save(tmp_path)
    with pytest.raises(FileFormatError, match=r"of which \['image'\] are modules of one's own"):
        SignalClassifier.load(tmp_path)
    with pytest.raises(FileFormatError, match=r"\['image', 'video'\] were given"):
        SignalClassifier.load(tmp_path, encoders={"image": frozen(), "video": frozen()})
    with pytest.raises(FileFormatError, match="does not hold a saved SignalClassifier"):
        SignalClassifier.load(tmp_path, encoders={"image": Own()})
    again, _ = SignalClassifier.load(tmp_path, encoders={"image": frozen()})
    assert torch.equal(again(tree), model(tree))
    assert not again.features.encoders["image"][0].module.lin.weight.requires_grad


def test_a_subclass_is_a_module_of_ones_own(tmp_path):
    class Mine(Symbols):
        pass

    classifier(given={"word": Mine(WORDS, WIDTH)}).save(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model"]["encoders"] == {"word": None}


@pytest.mark.parametrize("own", [False, True])
def test_one_encoder_for_two_modalities(tmp_path, own):
    class Mine(Symbols):
        pass

    shared = (Mine if own else Symbols)(WORDS, WIDTH)
    model = SignalClassifier({"word": shared, "tag": shared}, CLASSES, channels=WIDTH, heads=2)
    tree = SignalTree.from_parents([2, 2, -1])
    for name in ("word", "tag"):
        tree[f"{name}_x"], tree[f"{name}_index"] = torch.tensor([1, 2]), torch.tensor([0, 1])
    model.eval().save(tmp_path)
    given = {"word": Mine(WORDS, WIDTH)} if own else None
    again, _ = SignalClassifier.load(tmp_path, given)
    assert torch.equal(again(tree), model(tree))
    assert again.features.encoders["word"] is again.features.encoders["tag"]


def test_encoders_may_have_a_dtype_of_their_own(tmp_path):
    model = SignalClassifier({"word": Symbols(WORDS, WIDTH)}, CLASSES, channels=WIDTH, heads=2)
    model.features.encoders.half()
    model.save(tmp_path)
    again, _ = SignalClassifier.load(tmp_path)
    assert again.features.encoders["word"].table.dtype == torch.float16


@pytest.mark.parametrize("what", ["lin.weight", "encoder", "features.encoders.image"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.int64])
def test_mixed_dtypes_are_refused(tmp_path, what, dtype):
    classifier().save(tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    chosen = [name for name in state if name.startswith(what) and name.endswith("weight")]
    state[chosen[0]] = state[chosen[0]].to(dtype)
    save_file(state, tmp_path / "model.safetensors")
    with pytest.raises(FileFormatError, match=r"is torch\.\w+"):
        SignalClassifier.load(tmp_path)


def edited(**changes):
    def change(config) -> None:
        for key, value in changes.items():
            name, _, field = key.partition("__")
            if field:
                config["model"]["encoders"][name]["config"][field] = value
            else:
                config["model"][name] = value

    return change


HUGE = 10**12
HOSTILE = {
    "a huge table": edited(word__table=[HUGE, HUGE]),
    "a wider table": edited(word__table=[WORDS, 6]),
    "many words": edited(word__num_words=HUGE),
    "huge patches": edited(image__patch=HUGE),
    "other tokens": edited(text__num_ids=17),
    "an unknown class": lambda c: c["model"]["encoders"]["word"].update({"class": "os.system"}),
    "a module": lambda c: c["model"]["encoders"]["word"].update({"class": "FrozenModule"}),
    "no encoders": lambda c: c["model"].pop("encoders"),
    "encoders are a list": edited(encoders=["word"]),
    "an unknown option": edited(backdoor=True),
    "another attention": edited(attention="deep_set"),
    "another readout": edited(readout="query"),
    "an unknown readout": edited(readout="os.system"),
    "told the structure": edited(structure=True),
    "tied values": edited(values="keys"),
    **{
        f"{key} is huge": edited(**{key: HUGE})
        for key in (
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
    classifier().save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    HOSTILE[fault](config)
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(FileFormatError) as caught:
        SignalClassifier.load(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_nothing_random_is_left_after_loading(tmp_path):
    """Every tensor comes from the file."""
    model = classifier(readout="query", structure=True)
    model.save(tmp_path)
    again, _ = SignalClassifier.load(tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    assert state.keys() == again.state_dict().keys()
    assert all(torch.equal(value, state[key]) for key, value in again.state_dict().items())


def test_reset_and_repr():
    model = classifier(readout="query", structure=True)
    table = model.features.encoders["word"].table.clone()
    for parameter in model.parameters():
        nn.init.constant_(parameter, 0.123)
    model.reset_parameters()
    assert not any((p == 0.123).all() for p in model.parameters())
    assert torch.equal(model.features.encoders["word"].table, table)
    assert repr(model) == (
        "SignalClassifier(['word', 'image', 'text'], 3, 8, attention='hsa', readout='query')"
    )
