"""Small models exported as the real files are, and their matrices as small integers."""

import copy
import warnings

import pytest
import torch

onnx = pytest.importorskip("onnx")
transformers = pytest.importorskip("transformers")


def random_weights(model, seed=0):
    """Weights that are all different, as exporters join equal ones."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(generator=generator).mul_(0.3)
    return model.eval()


def tiny_dinov2():
    config = transformers.Dinov2Config(
        hidden_size=8, num_hidden_layers=2, num_attention_heads=2, image_size=42
    )
    return random_weights(transformers.Dinov2Model(config))


def tiny_bert(layers=2):
    config = transformers.BertConfig(
        hidden_size=8,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=16,
        vocab_size=30,
        max_position_embeddings=20,
        num_labels=1,
    )
    return random_weights(transformers.BertForSequenceClassification(config))


def exported(module, args, path, names, axes):
    """Write a module as PyTorch's exporter by tracing does it, which made the real files."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            args,
            str(path),
            dynamo=False,
            opset_version=14,
            input_names=names,
            output_names=["out"],
            dynamic_axes=dict.fromkeys(names, axes),
        )
    return path


class Backbone(torch.nn.Module):
    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone

    def forward(self, pixels):
        return self.backbone(pixels).last_hidden_state


class Scores(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.bert, self.classifier = model.bert, model.classifier
        self.model = [model]  # not a module of this one: names begin with "bert."

    def forward(self, ids, mask, types):
        return self.model[0](ids, attention_mask=mask, token_type_ids=types).logits


def dinov2_file(path, model=None):
    pixels = torch.randn(1, 3, 42, 42)
    axes = {0: "batch", 2: "height", 3: "width"}
    return exported(Backbone(model or tiny_dinov2()), (pixels,), path, ["pixels"], axes)


def bert_file(path, model=None):
    ids = torch.randint(0, 30, (2, 7))
    args = (ids, torch.ones_like(ids), torch.zeros_like(ids))
    names = ["ids", "mask", "types"]
    return exported(Scores(model or tiny_bert()), args, path, names, {0: "batch", 1: "length"})


def quantised(path, target, by_column=False, lookups=True):
    """A copy whose products (and tables) are of 8-bit integers, as a dynamic quantiser has it."""
    model = onnx.load(path)
    graph = model.graph
    stored = {tensor.name: tensor for tensor in graph.initializer}
    tables = [name for name in stored if lookups and "embeddings.weight" in name]
    nodes = []
    for node in graph.node:
        factor = node.input[1] if node.op_type in ("MatMul", "Gemm") else None
        if node.op_type == "Gather" and node.input[0] in tables:
            nodes += looked_up(node, stored)
        elif factor in stored:
            nodes += multiplied(node, stored, by_column)
        else:
            nodes.append(node)
    made = copy.deepcopy(model)
    del made.graph.node[:], made.graph.initializer[:]
    made.graph.node.extend(nodes)
    made.graph.initializer.extend(stored.values())
    onnx.save(made, target)
    return target


def store(stored, name, array):
    stored[name] = onnx.numpy_helper.from_array(array, name)


def integers(stored, name, matrix, kind, by_column):
    """Store a matrix as integers with scale and zero point."""
    axis = 0 if by_column else None
    least, most = matrix.min(axis), matrix.max(axis)
    bounds = (-128, 127) if kind == "int8" else (0, 255)
    scale = ((most - least) / 255).astype("float32")
    zero = (bounds[0] - least / scale).round().astype(kind)
    q = (matrix / scale + zero).round().clip(*bounds).astype(kind)
    store(stored, f"{name}_scale", scale)
    store(stored, f"{name}_zero_point", zero)
    store(stored, f"{name}_quantized", q)


def looked_up(node, stored):
    name, helper = node.input[0], onnx.helper
    matrix = onnx.numpy_helper.to_array(stored.pop(name))
    integers(stored, name, matrix, "uint8", False)
    rows = node.output[0] + "_quantized"
    scaled = [rows, f"{name}_scale", f"{name}_zero_point"]
    return [
        helper.make_node("Gather", [f"{name}_quantized", node.input[1]], [rows]),
        helper.make_node("DequantizeLinear", scaled, [node.output[0]]),
    ]


def multiplied(node, stored, by_column):
    name, x, out, helper = node.input[1], node.input[0], node.output[0], onnx.helper
    matrix = onnx.numpy_helper.to_array(stored.pop(name))
    gemm = node.op_type == "Gemm"
    integers(stored, name, matrix.T if gemm else matrix, "int8", by_column)
    seen = [f"{out}_x", f"{out}_xs", f"{out}_xz"]
    product = out + "_product" if gemm else out
    nodes = [
        helper.make_node("DynamicQuantizeLinear", [x], seen),
        helper.make_node("Mul", [seen[1], f"{name}_scale"], [f"{out}_scales"]),
        helper.make_node(
            "MatMulInteger",
            [seen[0], f"{name}_quantized", seen[2], f"{name}_zero_point"],
            [f"{out}_int"],
        ),
        helper.make_node("Cast", [f"{out}_int"], [f"{out}_float"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Mul", [f"{out}_float", f"{out}_scales"], [product]),
    ]
    if gemm:
        nodes.append(helper.make_node("Add", [product, node.input[2]], [out]))
    return nodes
