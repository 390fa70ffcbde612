"""What the attention benchmark compares: our backends, other attention, and two yardsticks.

Each contender says precisely what its clock covers.  Layers that bring projections of their own
are measured whole, and once more without these where that can be done by calling their own code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from attention_limits import (
    Limits,
    skip_block,
    skip_edge,
    skip_flat,
    skip_h_transformer,
    skip_many,
    skip_numba,
    skip_pairs,
    skip_projected,
)
from attention_shapes import Work
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch_geometric.nn import GPSConv, TransformerConv
from torch_geometric.utils import to_dense_batch

from hsa_geo.data import TreePlan
from hsa_geo.ops import hsa_attention


@dataclass(frozen=True)
class Run:
    """A contender made ready: what to call, and the tensors that get gradients."""

    forward: Callable[[], Tensor]
    inputs: list[Tensor]


@dataclass(frozen=True)
class Contender:
    """One line of the tables.

    Attributes:
        label: What tables call it.
        text: What is measured.
        build: Makes it ready, outside the clock.
        skip: Why it can't take some work, or None.
        trains: Whether forward and backward is measured as well.
    """

    label: str
    text: str
    build: Callable[[Work], Run]
    skip: Callable[[Work, Limits], str | None] = lambda work, limits: None
    trains: bool = True


def _leaf(x: Tensor) -> Tensor:
    return x.detach().requires_grad_()


def _ours(backend: str) -> Callable[[Work], Run]:
    def build(work: Work) -> Run:
        inputs = [_leaf(x) for x in (work.q, work.k, work.v)]
        pos = None if work.pos is None else _leaf(work.pos)
        inputs += [] if pos is None else [pos]
        q, k, v = inputs[:3]
        return Run(lambda: hsa_attention(q, k, v, work.plan, pos=pos, backend=backend), inputs)

    return build


def _flat(work: Work) -> Run:
    trees, length = work.plan.num_trees, work.length
    inputs = [  # [B, H, L, D], contiguous: made outside the clock
        _leaf(x.view(trees, length, *x.shape[1:]).transpose(1, 2).contiguous())
        for x in (work.q, work.k, work.v)
    ]
    return Run(lambda: scaled_dot_product_attention(*inputs), inputs)


def _gps(kind: str) -> Callable[[Work], Run]:
    def build(work: Work) -> Run:
        heads, dim = work.q.shape[1:]
        options = {} if kind == "multihead" else {"attn_kwargs": {"head_channels": dim}}
        conv = GPSConv(heads * dim, None, heads=heads, attn_type=kind, **options)
        attn = conv.attn.to(work.x.device, work.x.dtype)
        x, batch = _leaf(work.x), work.plan.leaf_tree
        size = {"batch_size": work.plan.num_trees, "max_num_nodes": work.length}

        def forward() -> Tensor:  # as GPSConv.forward does, between its local part and its norms
            h, mask = to_dense_batch(x, batch, **size)
            if kind == "multihead":
                h = attn(h, h, h, key_padding_mask=~mask, need_weights=False)[0]
            else:
                h = attn(h, mask=mask)
            return h[mask]

        return Run(forward, [x, *attn.parameters()])

    return build


def _edges(plan: TreePlan) -> Tensor:
    """The ordered sibling pairs as messages between tree nodes, ``[2, P]``, source first."""
    return plan.pair_nodes.flip(0)


def _transformer_conv(work: Work) -> Run:
    heads, dim = work.q.shape[1:]
    conv = TransformerConv(heads * dim, dim, heads=heads).to(work.x.device, work.x.dtype)
    x = _leaf(torch.randn(work.plan.num_nodes, heads * dim).to(work.x))
    edges = _edges(work.plan)
    return Run(lambda: conv(x, edges), [x, *conv.parameters()])


def _propagate(work: Work) -> Run:
    heads, dim = work.q.shape[1:]
    conv = TransformerConv(heads * dim, dim, heads=heads).to(work.x.device, work.x.dtype)
    inputs = [_leaf(torch.randn(work.plan.num_nodes, heads, dim).to(work.x)) for _ in range(3)]
    edges, (q, k, v) = _edges(work.plan), inputs
    return Run(lambda: conv.propagate(edges, query=q, key=k, value=v, edge_attr=None), inputs)


def _h_transformer(bare: bool) -> Callable[[Work], Run]:
    def build(work: Work) -> Run:
        from h_transformer_1d.h_transformer_1d import HAttention1D

        heads, dim = work.q.shape[1:]
        layer = HAttention1D(heads * dim, heads=heads, dim_head=dim)
        x = work.x
        if bare:
            layer.to_qkv = layer.to_out = torch.nn.Identity()
            x = torch.cat([work.q, work.k, work.v], 1)
        x = _leaf(x.reshape(work.plan.num_trees, work.length, -1))
        layer.to(x.device, x.dtype)
        return Run(lambda: layer(x), [x, *layer.parameters()])

    return build


def _projection(work: Work) -> Run:
    layer = torch.nn.Linear(work.x.size(1), work.x.size(1), bias=False)
    x = _leaf(work.x)
    layer.to(x.device, x.dtype)
    return Run(lambda: layer(x), [x, layer.weight])


def _copy(work: Work) -> Run:
    tensors = [work.q, work.k, work.v, work.x.view_as(work.q)]

    def forward() -> Tensor:
        clones = [t.clone() for t in tensors]
        return clones[0]

    return Run(forward, [])


def _plan(work: Work) -> Run:
    index, level = work.tree.tree_index, work.tree.tree_level
    return Run(lambda: TreePlan.from_index(index, level).packed, [])


CONTENDERS: dict[str, Contender] = {
    "numba": Contender(
        "HSA numba", 'hsa_attention(backend="numba"), the default', _ours("numba"), skip_numba
    ),
    "block": Contender("HSA block", 'hsa_attention(backend="block")', _ours("block"), skip_block),
    "edge": Contender("HSA edge", 'hsa_attention(backend="edge")', _ours("edge"), skip_edge),
    "flat": Contender(
        "flat SDPA",
        "scaled_dot_product_attention on [trees, H, L, D], contiguous; trees of one batch are "
        "equally long, so its padding costs nothing",
        _flat,
        skip_flat,
    ),
    "gps": Contender(
        "GPSConv multihead",
        "GPSConv's attention: to_dense_batch, MultiheadAttention with its projections in and out, "
        "and back; no norms, no feed-forward part",
        _gps("multihead"),
        skip_projected,
    ),
    "performer": Contender(
        "GPSConv performer",
        "the same with attn_type='performer': random features, with its projections in and out",
        _gps("performer"),
        skip_many,
    ),
    "transformer_conv": Contender(
        "TransformerConv",
        "TransformerConv over the ordered sibling pairs of all tree nodes, inner ones too, with "
        "its four projections",
        _transformer_conv,
        skip_pairs,
    ),
    "propagate": Contender(
        "TransformerConv, propagate",
        "its propagate alone, given query, key and value of all tree nodes",
        _propagate,
        skip_pairs,
    ),
    "h_transformer": Contender(
        "h-transformer-1d",
        "HAttention1D (blocks of 16) over the sequence of leaves, padded to a power of two by "
        "itself, with its projections in and out",
        _h_transformer(False),
        skip_h_transformer,
    ),
    "h_transformer_bare": Contender(
        "h-transformer-1d, bare",
        "the same with both projections replaced by the identity",
        _h_transformer(True),
        skip_h_transformer,
    ),
    "projection": Contender(
        "one projection", "yardstick: Linear(H*D, H*D, bias=False) of the leaves", _projection
    ),
    "copy": Contender(
        "copy of q, k, v, out", "yardstick: four clones of [N, H, D]", _copy, trains=False
    ),
    "plan": Contender(
        "plan",
        "TreePlan.from_index and .packed, which a batch of trees needs once",
        _plan,
        trains=False,
    ),
}

#: Our own backends.
OURS = ("numba", "block", "edge")
