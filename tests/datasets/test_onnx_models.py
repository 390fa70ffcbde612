"""Converted models compute what those computed that were exported."""

import pytest
import torch

from hsa_geo.datasets.cross_encoder import bert_from_onnx
from hsa_geo.datasets.dinov2 import dinov2_from_onnx
from hsa_geo.datasets.onnx_graph import OnnxGraph
from hsa_geo.datasets.onnx_models import converted, loaded
from hsa_geo.errors import FileFormatError

onnx = pytest.importorskip("onnx")
transformers = pytest.importorskip("transformers")
pytest.importorskip("torch.onnx")

import onnx_cases as cases  # noqa: E402


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("onnx")
    cases.dinov2_file(folder / "dinov2.onnx")
    cases.bert_file(folder / "bert.onnx")
    cases.quantised(folder / "bert.onnx", folder / "small.onnx")
    cases.quantised(folder / "bert.onnx", folder / "columns.onnx", True)
    # onnx's own evaluation knows no DequantizeLinear of this version.
    cases.quantised(folder / "bert.onnx", folder / "small-run.onnx", lookups=False)
    cases.quantised(folder / "bert.onnx", folder / "columns-run.onnx", True, lookups=False)
    return folder


def inputs():
    ids = torch.randint(0, 30, (3, 11), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[1, 8:] = 0
    types = torch.zeros_like(ids)
    types[:, 4:] = 1
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}


@torch.no_grad()
@pytest.mark.parametrize("size", [42, 70])
def test_dinov2(files, size):
    """At 70 pixels positions are interpolated, from the table as it was stored."""
    original = cases.tiny_dinov2()
    made = dinov2_from_onnx(files / "dinov2.onnx", original.config)
    pixels = torch.randn(2, 3, size, size)
    expected = original(pixels).last_hidden_state
    assert torch.equal(made(pixels).last_hidden_state, expected)
    assert not made.training
    names = OnnxGraph(files / "dinov2.onnx").names
    assert not any("fc1.weight" in name or "position" in name for name in names)  # they are lost
    assert bool((made.embeddings.mask_token == 0).all())


@torch.no_grad()
def test_bert(files):
    original = cases.tiny_bert()
    made = bert_from_onnx(files / "bert.onnx", original.config)
    assert torch.equal(made(**inputs()).logits, original(**inputs()).logits)


@torch.no_grad()
@pytest.mark.parametrize("name", ["small", "columns"])
def test_bert_of_small_integers(files, name):
    """The graph itself, by onnx's own evaluation, rounds between layers and so differs a bit."""
    original = cases.tiny_bert()
    made = bert_from_onnx(files / f"{name}.onnx", original.config)
    for key, weight in original.state_dict().items():
        step = (weight.max() - weight.min()) / 255
        off = (made.state_dict()[key] - weight).abs().max()
        assert off <= 0.51 * step, key
    file = files / f"{name}-run.onnx"
    made = bert_from_onnx(file, original.config)
    evaluator = pytest.importorskip("onnx.reference").ReferenceEvaluator(str(file))
    x = inputs()
    names = ("ids", "mask", "types")
    (theirs,) = evaluator.run(None, dict(zip(names, (value.numpy() for value in x.values()))))
    ours = made(**x).logits
    torch.testing.assert_close(ours, torch.from_numpy(theirs), rtol=0, atol=0.05)
    torch.testing.assert_close(ours, original(**x).logits, rtol=0, atol=0.05)
    assert not torch.equal(ours, original(**x).logits)


def test_models_of_other_sizes(files):
    config = cases.tiny_bert(3).config
    with pytest.raises(FileFormatError, match=r"stores no 'bert\.encoder\.layer\.2\."):
        bert_from_onnx(files / "bert.onnx", config)
    config = cases.tiny_bert(1).config
    with pytest.raises(FileFormatError, match=r"has 'bert\.encoder\.layer\.1\..*has not"):
        bert_from_onnx(files / "bert.onnx", config)
    config = cases.tiny_bert().config
    config.vocab_size = 31
    with pytest.raises(FileFormatError, match=r"is \[30, 8\] and not \[31, 8\]"):
        bert_from_onnx(files / "bert.onnx", config)


def test_weights_that_are_not_finite(files, tmp_path):
    model = onnx.load(files / "bert.onnx")
    (tensor,) = (t for t in model.graph.initializer if t.name == "classifier.bias")
    tensor.CopyFrom(onnx.numpy_helper.from_array(torch.tensor([torch.nan]).numpy(), tensor.name))
    onnx.save(model, tmp_path / "nan.onnx")
    with pytest.raises(FileFormatError, match=r"'classifier\.bias' is not finite"):
        bert_from_onnx(tmp_path / "nan.onnx", cases.tiny_bert().config)


def test_lost_names(files, tmp_path):
    """Nothing is guessed where the biases have lost their names, too."""
    model = onnx.load(files / "bert.onnx")
    name = "bert.encoder.layer.1.output.dense.bias"
    for tensor in model.graph.initializer:
        tensor.name = "onnx::Add_9" if tensor.name == name else tensor.name
    for node in model.graph.node:
        node.input[:] = ["onnx::Add_9" if x == name else x for x in node.input]
    onnx.save(model, tmp_path / "lost.onnx")
    with pytest.raises(FileFormatError, match=r"stores no .*layer\.1\.output\.dense\.bias"):
        bert_from_onnx(tmp_path / "lost.onnx", cases.tiny_bert().config)


# Folders ####################################################################


def test_converted_once(tmp_path):
    made = []

    def make():
        made.append(1)
        return cases.tiny_bert()

    folder = tmp_path / "a" / "model"
    for _ in range(2):
        assert (
            converted(folder, make, lambda new: (new / "more").write_text("x") and None) == folder
        )
    assert made == [1]
    assert (folder / "more").read_text() == "x"
    model = loaded(folder, "BertForSequenceClassification")
    assert not model.training
    assert not any(p.requires_grad for p in model.parameters())
    x = inputs()
    with torch.no_grad():
        assert torch.equal(model(**x).logits, cases.tiny_bert()(**x).logits)
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["model"]


def test_a_failure_leaves_nothing(tmp_path):
    def fail():
        raise FileFormatError("bad")

    with pytest.raises(FileFormatError, match="bad"):
        converted(tmp_path / "a" / "model", fail)
    assert list((tmp_path / "a").iterdir()) == []


def test_damaged_folders(tmp_path):
    converted(tmp_path / "model", cases.tiny_bert)
    weights = tmp_path / "model" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FileFormatError, match=r"cannot be loaded.*made anew"):
        loaded(tmp_path / "model", "BertForSequenceClassification")
    config = cases.tiny_bert().bert
    config.save_pretrained(tmp_path / "other")
    with pytest.raises(FileFormatError, match=r"lacks 'classifier\.bias'"):
        loaded(tmp_path / "other", "BertForSequenceClassification")
