"""Several sibling groups as the kernels take them, and what their gradients should be."""

from __future__ import annotations

from itertools import pairwise

import torch
from group_cases import dense_gradients, make_group, to_dtype
from torch import Tensor

from hsa_geo.ops.compiled.frame import flat, rows
from hsa_geo.ops.compiled.groups import group_backward, group_forward
from hsa_geo.ops.compiled.layout import Adjoints, Groups, Scores
from hsa_geo.ops.wide import WideGroup

SIZES = (2, 5, 3, 9, 4)  # of groups: multiples of four, and with every remainder


class Bench:
    """Several groups, members in random places of the rows, positions in random nodes."""

    def __init__(self, parts: list[WideGroup], *, seed: int = 0, wide: int = 256) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.parts, one = parts, parts[0]
        self.diagonal, self.heads = one.diagonal, one.q.size(1)
        size = torch.tensor([len(part.q) for part in parts])
        ptr = torch.nn.functional.pad(size.cumsum(0), (1, 0))
        n = int(ptr[-1])
        self.row = torch.randperm(n, generator=generator)
        self.node = torch.randperm(2 * n, generator=generator).view(2, n)  # top and own
        order = torch.randperm(len(parts), generator=generator)  # of the groups' pairs
        pairs = (size * (size - 1))[order].cumsum(0) - (size * (size - 1))[order]
        self.pair = torch.empty_like(pairs).index_copy_(0, order, pairs)
        self.order = order.tolist()
        self.parent = torch.randperm(len(parts) + 2, generator=generator)[: len(parts)]
        self.at = [slice(int(a), int(b)) for a, b in pairwise(ptr)]
        self.groups = Groups(
            *(t.numpy() for t in (ptr, self.row, *self.node.contiguous(), self.pair, self.parent))
        )
        self.q, self.k, self.v, self.term = (self.by_row(name) for name in ("q", "k", "v", "term"))
        self.pos = None
        if one.top is not None:
            self.pos = torch.zeros(2 * n, self.heads, one.top.size(2), dtype=one.q.dtype)
            self.pos[self.node[0]] = torch.cat([part.top for part in parts])
            if one.own is not None:
                self.pos[self.node[1]] = torch.cat([part.own for part in parts])
        bias, mask = self.by_pair("bias"), self.by_pair("mask")
        own_mask = self.by_row("own_mask")
        empty = one.q.new_empty(0)
        self.bias = bias
        self.scores = Scores(
            *(flat(empty).dtype.type(one.scale), flat(empty if self.term is None else self.term)),
            rows(empty.view(0, 0, 0) if self.pos is None else self.pos),
            flat(empty if bias is None else bias),
            1 if bias is None else bias.size(1),
            *(flat(empty if t is None else t) for t in (mask, own_mask)),
            *(self.heads, self.diagonal, wide),
        )

    def by_row(self, name: str) -> Tensor | None:
        """A tensor of all groups by row."""
        if getattr(self.parts[0], name) is None:
            return None
        joined = torch.cat([getattr(part, name) for part in self.parts])
        return torch.empty_like(joined).index_copy_(0, self.row, joined)

    def by_pair(self, name: str) -> Tensor | None:
        if getattr(self.parts[0], name) is None:
            return None
        return torch.cat([getattr(self.parts[i], name) for i in self.order])

    def pairs(self, g: int) -> slice:
        n = len(self.parts[g].q)
        return slice(int(self.pair[g]), int(self.pair[g]) + n * (n - 1))

    def members(self, g: int) -> Tensor:
        return self.row[self.at[g]]

    def forward(self, g0: int, g1: int, h0: int, h1: int) -> tuple[Tensor, Tensor]:
        """Outputs and log-sum-exps by row; 7 where the kernel wrote nothing."""
        out = torch.full_like(self.v, 7.0)
        lse = torch.full(self.v.shape[:2], 7.0, dtype=self.v.dtype)
        tensors = (rows(self.q), rows(self.k), rows(self.v))
        group_forward(*tensors, self.groups, self.scores, g0, g1, h0, h1, rows(out), flat(lse))
        return out, lse


def bench(
    having: tuple[str, ...], *, diagonal: bool, bias_heads: int = 2, heads: int = 2, **options
) -> Bench:
    parts = [
        make_group(
            *(size, heads, 3, 2),
            diagonal=diagonal,
            having=having,
            bias_heads=bias_heads,
            seed=size,
        )
        for size in SIZES
    ]
    return Bench(parts, **options)


def backward(
    x: Bench, g0: int, g1: int, h0: int, h1: int, *, seed: int = 0
) -> tuple[dict[str, Tensor], list[dict[str, Tensor]]]:
    """Gradients of the kernel, and for every group those of dense autograd."""
    generator = torch.Generator().manual_seed(seed)
    dtype, (n, heads, value_dim) = x.v.dtype, x.v.shape

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    parents = len(x.parts) + 2
    above = parents if x.diagonal else n
    grad, weight, slope = (
        draw(n, heads, value_dim),
        draw(above, heads).sigmoid(),
        draw(above, heads),
    )
    means = {"q": draw(parents, heads, x.q.size(2)), "k": draw(parents, heads, x.q.size(2))}
    means |= {"v": draw(parents, heads, value_dim), "term": draw(parents, heads)}
    to = {name: torch.full_like(getattr(x, name), 7.0) for name in ("q", "k", "v")}
    empty = x.q.new_empty(0)
    to["term"] = empty if x.term is None else torch.full_like(x.term, 7.0)
    to["pos"] = empty if x.pos is None else torch.zeros_like(x.pos)
    to["bias"] = empty if x.bias is None else torch.full((len(x.bias), heads), 7.0, dtype=dtype)
    _, lse = x.forward(0, len(x.parts), 0, heads)
    adjoints = Adjoints(
        *(rows(grad), flat(weight), flat(slope), rows(to["q"]), rows(to["k"]), rows(to["v"])),
        *(flat(m if x.diagonal else empty) for m in means.values()),
        *(flat(to["term"]), flat(to["pos"]), flat(to["bias"])),
    )
    tensors = (rows(x.q), rows(x.k), rows(x.v))
    group_backward(*tensors, x.groups, x.scores, g0, g1, h0, h1, flat(lse), adjoints)

    expected = []
    for g, part in enumerate(x.parts):
        row, size = x.members(g), len(part.q)
        if x.diagonal:  # weight by parent; the slope is that of the mean of the log-sum-exps
            parent = int(x.parent[g])
            factors = weight[parent].expand(size, -1), (slope[parent] / size).expand(size, -1)
        else:
            factors = weight[row], slope[row]
        wanted = dense_gradients(
            to_dtype(part, torch.float64), *(t.double() for t in (grad[row], *factors))
        )
        if x.diagonal:
            for name, mean in means.items():
                if name in wanted:
                    wanted[name] = wanted[name] + mean[parent].double() / size
        expected.append(wanted)
    return to, expected
