r"""Weights in ONNX files, found by what the graph does with them.

Exporters keep the names of biases, norms and tables, but not those of the matrices: these are
transposed for the product and get numbers for names.  So the matrix of a linear layer is looked
for from its bias: the bias is added to a product, and one factor of the product is stored.

Matrices and tables of small integers become floating point by :math:`W = (q - z)\,s`, with the
zero point z and the scale s that the graph uses with them.

Needs the extra ``onnx``.  Nothing of a graph is run, and no file beside it is read.

Example:
    >>> import onnx, tempfile
    >>> from onnx import TensorProto, helper, numpy_helper
    >>> weight = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> nodes = [helper.make_node("MatMul", ["x", "onnx::MatMul_7"], ["product"]),
    ...     helper.make_node("Add", ["fc.bias", "product"], ["y"])]
    >>> stored = [numpy_helper.from_array(weight.T.numpy(), "onnx::MatMul_7"),
    ...     numpy_helper.from_array(torch.zeros(2).numpy(), "fc.bias")]
    >>> graph = helper.make_graph(nodes, "tiny", [], [], stored)
    >>> path = tempfile.mkdtemp() + "/tiny.onnx"
    >>> onnx.save(helper.make_model(graph), path)
    >>> OnnxGraph(path).linear("fc.bias")
    tensor([[1., 2.],
            [3., 4.]])
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from hsa_geo._optional import require
from hsa_geo.errors import FileFormatError

__all__ = ["OnnxGraph"]

#: Operations behind which a stored tensor is still the same numbers in another shape.
_SAME = ("Cast", "Expand", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
#: Types of stored tensors that are read.
_TYPES = ("FLOAT", "FLOAT16", "DOUBLE", "INT8", "UINT8", "INT32", "INT64")


_T = TypeVar("_T")


def _typed(look: Callable[[OnnxGraph, str], _T]) -> Callable[[OnnxGraph, str], _T]:
    """Nodes that lack what they must have, or have it twice, are a damaged file."""

    @wraps(look)
    def looked(graph: OnnxGraph, name: str) -> _T:
        try:
            return look(graph, name)
        except FileFormatError:
            raise
        except (IndexError, KeyError, ValueError) as error:
            raise FileFormatError(
                f"'{graph.path}' is damaged around {name!r} ({error}): get it again."
            ) from error

    return looked


class OnnxGraph:
    """The graph of an ONNX file, asked for weights.

    Args:
        path: The file.

    Raises:
        FileFormatError: If it is no ONNX file.
        MissingPackageError: If onnx is not installed.

    Example:
        See the example of :mod:`hsa_geo.datasets.onnx_graph`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._onnx = require("onnx", extra="onnx", purpose="reading weights from ONNX files")
        try:
            # Tensors may name files beside this one, or anywhere: these are not opened.
            graph = self._onnx.load(self.path, load_external_data=False).graph
        except FileNotFoundError:
            raise FileFormatError(f"there is no file '{self.path}': give an ONNX file.") from None
        except Exception as error:  # of protobuf, which has many
            raise FileFormatError(
                f"'{self.path}' is no ONNX file ({type(error).__name__}: {error}): get it again."
            ) from error
        if not graph.node:
            raise FileFormatError(f"'{self.path}' is no ONNX file, or an empty one: get it again.")
        self._size = len(graph.node) + 1
        self._stored = {tensor.name: tensor for tensor in graph.initializer}
        for node in graph.node:
            if not node.output:
                raise FileFormatError(
                    f"'{self.path}' is damaged, as a {node.op_type or 'node'} makes nothing: get "
                    "it again."
                )
            if node.op_type == "Constant" and [one.name for one in node.attribute] == ["value"]:
                self._stored[node.output[0]] = node.attribute[0].t
        self._maker = {name: node for node in graph.node for name in node.output if name}
        self._users: dict[str, list[Any]] = defaultdict(list)
        for node in graph.node:
            for name in dict.fromkeys(node.input):
                self._users[name].append(node)

    @property
    def names(self) -> frozenset[str]:
        """Names of the stored tensors."""
        return frozenset(self._stored)

    @_typed
    def linear(self, bias: str) -> Tensor:
        """The matrix of the linear layer that has this bias.

        Args:
            bias: Name of the stored bias.

        Returns:
            ``[outputs, inputs]`` float32, as :class:`torch.nn.Linear` has it.

        Raises:
            FileFormatError: If the bias is not stored, or is not added to one product with a
                stored matrix, or the sizes do not fit.
        """
        self._needed(bias)
        node = self._only_user(bias)
        if node.op_type == "Gemm":
            weight = self._of_gemm(node, bias)
        elif node.op_type == "Add" and len(node.input) == 2:
            other = [name for name in node.input if name != bias]
            weight = self._of_product(other[0] if other else bias, bias).T
        else:
            raise self._unfit(bias, f"goes into {node.op_type}")
        if weight.dim() != 2 or [weight.size(0)] != list(self._stored[bias].dims):
            raise self._unfit(bias, f"is beside a matrix of {list(weight.shape)}")
        return weight.contiguous()

    @_typed
    def tensor(self, name: str) -> Tensor:
        """A stored tensor that is used as it is, such as the weight of a norm.

        Args:
            name: Its name.

        Returns:
            The tensor, float32.

        Raises:
            FileFormatError: If it is not stored, or no numbers in floating point.
        """
        value = self._read(name)
        if not value.is_floating_point():
            raise self._unfit(name, f"is of {value.dtype}")
        return value.float()

    @_typed
    def table(self, name: str) -> Tensor:
        """A table of embeddings, stored as it is, or as small integers under a name of its own.

        Args:
            name: Its name; that of the integers is ``name + "_quantized"``.

        Returns:
            ``[rows, columns]`` float32.

        Raises:
            FileFormatError: If it is not stored, or its rows are not looked up.
        """
        stored = name if name in self._stored else name + "_quantized"
        users = [node for node in self._users[stored] if node.op_type == "Gather"]
        if stored not in self._stored or not users:
            raise self._unfit(name, "is no stored table whose rows are looked up")
        if stored == name:
            return self.tensor(name)
        after = self._only_user(users[0].output[0])
        if after.op_type != "DequantizeLinear":
            raise self._unfit(name, f"is of integers, and its rows go into {after.op_type}")
        return self._dequantised(stored, after.input[1], _third(after), after, last=2)

    @_typed
    def position(self, first: str) -> Tensor:
        """The table of positions that is added to tokens, the first of which is stored.

        Args:
            first: Name of the stored first token, such as a class token.

        Returns:
            ``[1, tokens, columns]`` float32; of a table that the graph resizes for pictures of
            other sizes, as it is stored.

        Raises:
            FileFormatError: If there is none.
        """
        self._needed(first)
        node = self._only_user(first)
        for _ in range(self._size):
            if node.op_type not in _SAME:
                break
            node = self._only_user(node.output[0])
        adds = [user for user in self._users[node.output[0]] if user.op_type == "Add"]
        if node.op_type != "Concat" or len(adds) != 1:
            raise self._unfit(first, "is not put before tokens that positions are added to")
        (name,) = (name for name in adds[0].input if name != node.output[0])
        maker = self._maker.get(name)
        parts = maker.input if maker is not None and maker.op_type == "Concat" else [name]
        found = [self._source(part) for part in parts]
        if any(part is None or part.dim() != 3 or part.size(0) != 1 for part in found):
            raise self._unfit(first, "is added to positions that are not stored")
        return torch.cat([part for part in found if part is not None], 1).float()

    # Looking ################################################################

    def _unfit(self, name: str, why: str) -> FileFormatError:
        return FileFormatError(
            f"'{self.path}': {name!r} {why}, which is not known of such a model: it has to be "
            "exported from the class of transformers that it is read into."
        )

    def _needed(self, name: str) -> None:
        if name not in self._stored:
            raise FileFormatError(
                f"'{self.path}' stores no {name!r}: it is of another model, or has lost its names."
            )

    def _only_user(self, name: str) -> Any:
        users = [node for node in self._users[name] if node.op_type != "Shape"]
        if len(users) != 1:
            raise self._unfit(name, f"is used {len(users)} times")
        return users[0]

    def _read(self, name: str) -> Tensor:
        self._needed(name)
        tensor = self._stored[name]
        proto = self._onnx.TensorProto
        kind = proto.DataType.Name(tensor.data_type)
        if kind not in _TYPES or tensor.data_location == proto.EXTERNAL:
            where = "in another file" if tensor.data_location == proto.EXTERNAL else f"as {kind}"
            raise self._unfit(name, f"is stored {where}")
        try:
            array = self._onnx.numpy_helper.to_array(tensor)
            return torch.from_numpy(array.copy())
        except Exception as error:  # fewer numbers than its shape says
            raise self._unfit(name, f"is damaged ({error})") from error

    def _source(self, name: str) -> Tensor | None:
        """The stored tensor behind a value, if only its shape or size was changed."""
        for _ in range(self._size):  # a graph in circles has no source
            if name in self._stored:
                break
            maker = self._maker.get(name)
            if maker is None or maker.op_type not in (*_SAME, "Resize"):
                return None
            name = maker.input[0]
        return self._read(name) if name in self._stored else None

    def _options(self, node: Any) -> dict[str, Any]:
        return {one.name: self._onnx.helper.get_attribute_value(one) for one in node.attribute}

    def _of_gemm(self, node: Any, bias: str) -> Tensor:
        options = self._options(node)
        plain = options.get("alpha", 1.0) == options.get("beta", 1.0) == 1.0
        if list(node.input[2:]) != [bias] or options.get("transA", 0) or not plain:
            raise self._unfit(bias, "is not simply added in its Gemm")
        weight = self._matrix(node.input[1], bias)
        return weight if options.get("transB", 0) else weight.T

    def _of_product(self, name: str, bias: str) -> Tensor:
        """``[inputs, outputs]``, the stored factor of a product."""
        maker = self._maker.get(name)
        if maker is not None and maker.op_type == "MatMul":
            return self._matrix(maker.input[1], bias)
        if maker is not None and maker.op_type == "Mul":  # of integers, scaled afterwards
            return self._of_integers(maker, bias)
        raise self._unfit(bias, "is not added to a product")

    def _of_integers(self, scaling: Any, bias: str) -> Tensor:
        """``(q - z) s`` from ``float(MatMulInteger(x, q, .., z)) * (scale of x * s)``."""
        made = [self._maker.get(name) for name in scaling.input]
        cast = [node for node in made if node is not None and node.op_type == "Cast"]
        scales = [node for node in made if node is not None and node.op_type == "Mul"]
        product = self._maker.get(cast[0].input[0]) if cast else None
        stored = [name for node in scales for name in node.input if name in self._stored]
        if product is None or product.op_type != "MatMulInteger" or len(stored) != 1:
            raise self._unfit(bias, "is added to a product that is scaled in another way")
        zero = product.input[3] if len(product.input) > 3 else ""
        return self._dequantised(product.input[1], stored[0], zero)

    def _matrix(self, name: str, bias: str) -> Tensor:
        """A stored factor, or one of integers that are made floating point before the product."""
        if name in self._stored:
            return self.tensor(name)
        maker = self._maker.get(name)
        if maker is not None and maker.op_type == "DequantizeLinear":
            return self._dequantised(maker.input[0], maker.input[1], _third(maker), maker)
        raise self._unfit(bias, "is added to a product with a matrix that is not stored")

    def _dequantised(
        self, name: str, scale: str, zero: str, node: Any = None, last: int = 1
    ) -> Tensor:
        """``(q - z) s``; scale and zero point are one number, or one for each column."""
        q, s = self._read(name), self._read(scale).float()
        z = self._read(zero) if zero else torch.zeros((), dtype=q.dtype)
        columns = q.size(-1) if q.dim() == 2 else -1
        shaped = any(x.dim() > 1 or x.numel() not in (1, columns) for x in (s, z))
        if q.is_floating_point() or shaped:
            raise self._unfit(name, f"has {s.numel()} scales and {z.numel()} zero points")
        options = {} if node is None else self._options(node)
        along = options.get("axis", 1)
        several = max(s.numel(), z.numel()) > 1
        if options.get("block_size", 0) or (several and along not in (last, -1)):
            raise self._unfit(name, f"has scales in blocks, or along axis {along}")
        return (q.float() - z.float()) * s


def _third(node: Any) -> str:
    """The zero point of a ``DequantizeLinear``, if it has one."""
    return node.input[2] if len(node.input) > 2 else ""
