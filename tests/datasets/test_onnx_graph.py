"""Weights found by what a graph does with them; graphs that do something else are refused."""

import numpy as np
import pytest
import torch

from hsa_geo.datasets.onnx_graph import OnnxGraph
from hsa_geo.errors import FileFormatError, MissingPackageError

onnx = pytest.importorskip("onnx")
helper, as_tensor = onnx.helper, onnx.numpy_helper.from_array

W = np.arange(6, dtype=np.float32).reshape(3, 2)  # [inputs, outputs]
B = np.zeros(2, dtype=np.float32)


@pytest.fixture
def graph(tmp_path):
    """Make a graph of nodes and stored arrays."""

    def make(nodes, **stored):
        tensors = [as_tensor(np.asarray(array), name) for name, array in stored.items()]
        made = helper.make_graph([helper.make_node(*n[:3], **n[3]) for n in nodes], "", [], [])
        made.initializer.extend(tensors)
        onnx.save(helper.make_model(made), tmp_path / "a.onnx")
        return OnnxGraph(tmp_path / "a.onnx")

    return make


ADD = ("Add", ["b", "xw"], ["y"], {})


@pytest.mark.parametrize("add", [ADD, ("Add", ["xw", "b"], ["y"], {})])
def test_a_product_and_its_bias(graph, add):
    found = graph([("MatMul", ["x", "w"], ["xw"], {}), add], w=W, b=B)
    assert torch.equal(found.linear("b"), torch.from_numpy(W.T))
    assert found.names == {"w", "b"}


@pytest.mark.parametrize(("weight", "options"), [(W.T, {"transB": 1}), (W, {})])
def test_gemm(graph, weight, options):
    found = graph([("Gemm", ["x", "w", "b"], ["y"], options)], w=weight, b=B)
    assert torch.equal(found.linear("b"), torch.from_numpy(W.T))


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("columns", [False, True])
def test_small_integers(graph, kind, columns):
    q = np.array([[0, 100], [7, 50], [3, 120]], kind)
    scale = np.array([0.5, 0.25] if columns else 0.5, np.float32)
    zero = np.array([3, 100] if columns else 7, kind)
    expected = torch.from_numpy(((q.astype(float) - zero) * scale).T).float()
    stored = {"q": q, "s": scale, "z": zero, "b": B}
    product = [
        ("DynamicQuantizeLinear", ["x"], ["xq", "xs", "xz"], {}),
        ("Mul", ["xs", "s"], ["ss"], {}),
        ("MatMulInteger", ["xq", "q", "xz", "z"], ["i"], {}),
        ("Cast", ["i"], ["f"], {"to": 1}),
        ("Mul", ["f", "ss"], ["xw"], {}),
        ADD,
    ]
    assert torch.equal(graph(product, **stored).linear("b"), expected)
    before = [
        ("DequantizeLinear", ["q", "s", "z"], ["w"], {}),
        ("MatMul", ["x", "w"], ["xw"], {}),
        ADD,
    ]
    assert torch.equal(graph(before, **stored).linear("b"), expected)
    without = [("DequantizeLinear", ["q", "s"], ["w"], {}), *before[1:]]
    plain = torch.from_numpy((q.astype(float) * scale).T).float()
    assert torch.equal(graph(without, **stored).linear("b"), plain)


def test_tables(graph):
    plain = graph([("Gather", ["t", "ids"], ["rows"], {})], t=W)
    assert torch.equal(plain.table("t"), torch.from_numpy(W))
    q, scale, zero = W.astype(np.uint8), np.float32(0.5), np.uint8(2)
    stored = {"t_quantized": q, "s": scale, "z": zero}
    rows = ("Gather", ["t_quantized", "ids"], ["rows"], {})
    small = graph([rows, ("DequantizeLinear", ["rows", "s", "z"], ["x"], {})], **stored)
    assert torch.equal(small.table("t"), torch.from_numpy((W - 2) / 2))
    with pytest.raises(FileFormatError, match="its rows go into Cast"):
        graph([rows, ("Cast", ["rows"], ["x"], {"to": 1})], **stored).table("t")
    with pytest.raises(FileFormatError, match="no stored table whose rows are looked up"):
        graph([ADD], b=B).table("b")


def test_positions(graph):
    first, rest = np.ones((1, 1, 2), np.float32), np.arange(8, dtype=np.float32).reshape(1, 4, 2)
    shape = np.array([1, 2, 2, 2])
    before = [
        ("Expand", ["cls", "n"], ["many"], {}),
        ("Concat", ["many", "patches"], ["tokens"], {"axis": 1}),
        ("Add", ["tokens", "places"], ["y"], {}),
    ]
    expected = torch.from_numpy(np.concatenate([first, rest], 1))
    stored = {"cls": first, "n": np.array([1, 1, 2])}
    assert torch.equal(graph(before, places=expected.numpy(), **stored).position("cls"), expected)
    resized = [
        ("Reshape", ["rest", "shape"], ["square"], {}),
        ("Resize", ["square", "", "", "size"], ["other"], {}),
        ("Concat", ["first", "other"], ["places"], {"axis": 1}),
        *before,
    ]
    stored |= {"rest": rest, "first": first, "shape": shape}
    assert torch.equal(graph(resized, **stored).position("cls"), expected)
    with pytest.raises(FileFormatError, match="positions that are not stored"):
        graph([("Sin", ["k"], ["places"], {}), *before], **stored).position("cls")
    with pytest.raises(FileFormatError, match="not put before tokens"):
        graph([("Add", ["cls", "x"], ["y"], {})], **stored).position("cls")


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([ADD], "is not added to a product"),
        ([("Mul", ["b", "x"], ["y"], {})], "goes into Mul"),
        ([("MatMul", ["x", "v"], ["xw"], {}), ADD], "a matrix that is not stored"),
        ([("MatMul", ["x", "w"], ["xw"], {}), ADD, ADD], "is used 2 times"),
        ([("Mul", ["x", "w"], ["xw"], {}), ADD], "scaled in another way"),
        ([("Gemm", ["x", "w", "b"], ["y"], {"alpha": 2.0})], "not simply added in its Gemm"),
        ([("Gemm", ["x", "w", "c"], ["y"], {"transB": 1})], "is used 0 times"),
        ([("Gemm", ["x", "w", "b"], ["y"], {"transB": 1})], r"beside a matrix of \[3, 2\]"),
    ],
)
def test_other_graphs_are_refused(graph, nodes, said):
    with pytest.raises(FileFormatError, match=said):
        graph(nodes, w=W, b=B).linear("b")


def test_scales_that_do_not_fit(graph):
    nodes = [
        ("DequantizeLinear", ["q", "s"], ["w"], {}),
        ("MatMul", ["x", "w"], ["xw"], {}),
        ADD,
    ]
    rows = np.ones(3, np.float32)
    with pytest.raises(FileFormatError, match="has 3 scales and 1 zero points"):
        graph(nodes, q=W.astype(np.int8), s=rows, b=B).linear("b")


def test_types(graph):
    found = graph([ADD], half=W.astype(np.float16), whole=W.astype(np.int64), odd=W > 1)
    assert torch.equal(found.tensor("half"), torch.from_numpy(W))
    with pytest.raises(FileFormatError, match=r"is of torch\.int64"):
        found.tensor("whole")
    with pytest.raises(FileFormatError, match="is stored as BOOL"):
        found.tensor("odd")
    with pytest.raises(FileFormatError, match="stores no 'none'"):
        found.tensor("none")


def test_constants_are_stored_tensors(graph):
    value = as_tensor(W, "value")
    found = graph([("Constant", [], ["w"], {"value": value}), ADD])
    assert torch.equal(found.tensor("w"), torch.from_numpy(W))


def test_other_files_are_not_read(graph, tmp_path):
    """A tensor may say that it is in a file: of any path, which is not opened."""
    (tmp_path / "secret").write_bytes(W.tobytes())
    graph([ADD], w=W)
    model = onnx.load(tmp_path / "a.onnx")
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="secret")
    (tmp_path / "a.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(FileFormatError, match="is stored in another file"):
        OnnxGraph(tmp_path / "a.onnx").tensor("w")


def test_damaged_files(graph, tmp_path):
    with pytest.raises(FileFormatError, match="there is no file"):
        OnnxGraph(tmp_path / "none.onnx")
    (tmp_path / "b.onnx").write_bytes(b"no such thing")
    with pytest.raises(FileFormatError, match="is no ONNX file"):
        OnnxGraph(tmp_path / "b.onnx")
    (tmp_path / "c.onnx").write_bytes(b"")
    with pytest.raises(FileFormatError, match="or an empty one"):
        OnnxGraph(tmp_path / "c.onnx")
    graph([ADD], w=W)
    model = onnx.load(tmp_path / "a.onnx")
    model.graph.initializer[0].dims[0] = 10**9
    (tmp_path / "a.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(FileFormatError, match="is damaged"):
        OnnxGraph(tmp_path / "a.onnx").tensor("w")


def test_without_onnx(graph, tmp_path, monkeypatch):
    graph([ADD], w=W)
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(MissingPackageError, match=r"hsa_geo\[onnx\]"):
        OnnxGraph(tmp_path / "a.onnx")


def test_lost_names(graph):
    with pytest.raises(FileFormatError, match="stores no 'c'"):
        graph([ADD], b=B).linear("c")
    with pytest.raises(FileFormatError, match="stores no 'cls'"):
        graph([ADD], b=B).position("cls")


def test_scales_along_another_axis_are_refused(graph):
    """Of a square matrix one scale for each row cannot be told from one for each column."""
    square = {"q": np.array([[1, 2], [3, 4]], np.int8), "s": np.array([1, 10], np.float32), "b": B}
    gemm = ("Gemm", ["x", "w", "b"], ["y"], {"transB": 1})

    def made(**options):
        return graph([("DequantizeLinear", ["q", "s"], ["w"], options), gemm], **square)

    expected = torch.tensor([[1.0, 20.0], [3.0, 40.0]])
    assert torch.equal(made().linear("b"), expected)
    assert torch.equal(made(axis=-1).linear("b"), expected)
    for options in ({"axis": 0}, {"block_size": 2}):
        with pytest.raises(FileFormatError, match="scales in blocks, or along axis"):
            made(**options).linear("b")
    square["s"] = square["s"][:, None]
    with pytest.raises(FileFormatError, match="has 2 scales"):
        made().linear("b")


def test_graphs_in_circles_end(graph):
    circle = [("Identity", ["b"], ["c"], {}), ("Identity", ["c"], ["b"], {})]
    found = graph([("Identity", ["cls"], ["b"], {}), *circle], cls=B)
    with pytest.raises(FileFormatError):
        found.position("cls")
    concat = ("Concat", ["cls", "p"], ["t"], {"axis": 1})
    add = ("Add", ["t", "q"], ["y"], {})
    circle = [("Identity", ["q"], ["r"], {}), ("Identity", ["r"], ["q"], {})]
    with pytest.raises(FileFormatError, match="positions that are not stored"):
        graph([concat, add, *circle], cls=B).position("cls")


@pytest.mark.parametrize(
    "nodes",
    [
        [("MatMul", ["x"], ["xw"], {}), ADD],
        [("Identity", ["b"], [], {})],
        [("Constant", [], ["w"], {}), ("MatMul", ["x", "w"], ["xw"], {}), ADD],
        [("DequantizeLinear", ["w"], ["v"], {}), ("MatMul", ["x", "v"], ["xw"], {}), ADD],
    ],
)
def test_nodes_that_lack_something(graph, nodes):
    with pytest.raises(FileFormatError):
        graph(nodes, b=B, **({"w": W} if nodes[0][0] != "Constant" else {})).linear("b")


def test_a_sum_of_a_value_with_itself_has_no_positions(graph):
    nodes = [("Concat", ["cls", "p"], ["t"], {"axis": 1}), ("Add", ["t", "t"], ["y"], {})]
    with pytest.raises(FileFormatError):
        graph(nodes, cls=B).position("cls")
