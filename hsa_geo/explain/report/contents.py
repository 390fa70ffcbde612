"""What a report shows: what is found out about a tree, and the page that says it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hsa_geo.data.signal_tree import SignalTree
from hsa_geo.errors import LimitError, UnsupportedError
from hsa_geo.explain.report.blocks import block_shares, group_matrices, top_blocks
from hsa_geo.explain.report.document import document, packed, table_html
from hsa_geo.explain.report.outline import Outline
from hsa_geo.explain.report.reading import as_text, escaped, names_of, read, signed
from hsa_geo.explain.rollout import attention_rollout
from hsa_geo.explain.scores import LeafScores
from hsa_geo.explain.watch import Run, answer, evaluating, layer_weights, watched
from hsa_geo.nn.conv.hsa_conv import HSAConv
from hsa_geo.ops.flops import attention_cost, flat_cost

__all__ = ["Contents", "Page", "excerpt"]


@dataclass(frozen=True)
class Page:
    """A report in some detail.

    Attributes:
        text: The file.
        scores: Explanations that it shows.
        parts: Of each of these the ids of the nodes that matter most.
        notes: What is not in it, or not exact.

    Example:
        >>> Page("", [], [], []).notes
        []
    """

    text: str
    scores: list[LeafScores]
    parts: list[list[int]]
    notes: list[str]


class Contents:
    """What there is to show of one tree.

    Args:
        tree: The tree.
        labels: Names of all outputs.
        out: The outputs ``[C]``.
        scores: Explanations of the largest, in this order.
        multi_label: Whether each output is answered for itself.
        node: Id of the node that is answered for. (default: the root)
        remarks: Sentences about the source. (default: none)

    Example:
        >>> tree = SignalTree.from_parents([2, 2, -1])
        >>> scores = [LeafScores.of(torch.ones(2), tree, "given", target=0)]
        >>> Contents(tree, ["a"], torch.ones(1), scores, False).page("title", (1, 0, 0)).parts
        [[0, 1]]
    """

    def __init__(
        self,
        tree: SignalTree,
        labels: list[str],
        out: Tensor,
        scores: list[LeafScores],
        multi_label: bool,
        node: int | None = None,
        remarks: Sequence[str] = (),
    ) -> None:
        self.remarks = remarks
        self.tree, self.labels, self.out, self.scores = tree, labels, out, scores
        self.multi_label, self.node = multi_label, node
        self.outline, self.names = Outline.of(tree), names_of(tree)
        self.rollout: LeafScores | None = None
        self.layers: list[tuple[np.ndarray, np.ndarray]] = []
        self.cost: list[list[Any]] = []
        self.notes: list[str] = []

    def look(self, model: nn.Module, run: Run | None) -> None:
        """Rollout, attention among blocks, and cost, where the model has them."""
        try:
            self.rollout = attention_rollout(model, self.tree, node=self.node, run=run)
        except UnsupportedError as error:
            self.notes.append(f"No attention rollout: {error}")
        with torch.no_grad(), evaluating(model), watched(model) as seen:
            answer(model, self.tree, self.node, run)
        convs = [conv for conv, _, _ in seen.layers if isinstance(conv, HSAConv)]
        try:
            weights = layer_weights(model, self.tree, run=run)
            if len({one.leaf.size(1) for one in weights}) > 1:
                raise UnsupportedError("layers of several numbers of heads are not shown together.")
            self.layers = [
                (share.cpu().double().numpy(), stays.cpu().double().numpy())
                for share, stays in map(block_shares, weights)
            ]
        except (LimitError, UnsupportedError) as error:
            self.notes.append(f"No attention among blocks: {error}")
        if convs:
            ours = [attention_cost(self.tree, c.heads, c.out_channels, tie=c.tie) for c in convs]
            flat = [flat_cost(self.tree, c.heads, c.out_channels) for c in convs]
            for name, costs in (("hierarchical", ours), ("flat", flat)):
                pairs, total = sum(c.pairs for c in costs), sum(c.total for c in costs)
                self.cost.append([name, pairs, total])

    def page(self, title: str, detail: tuple[int, int, int]) -> Page:
        """The file, with so many labels and bytes of matrices and of pictures."""
        count, matrix_bytes, picture_bytes = detail
        outline, tree, notes = self.outline, self.tree, list(self.notes)
        scores = self.scores[:count]
        shown = [*scores, self.rollout] if self.rollout is not None else list(scores)
        views = [self._view(one) for one in shown]
        importance = scores[0].node.detach().cpu().double().numpy()
        reading = read(tree, outline, self.names, views[0]["leaf"], picture_bytes)
        groups, matrices = group_matrices(tree, outline, self.layers, importance, matrix_bytes)
        parts = [
            top_blocks(tree, one.node.detach().cpu().double().numpy(), 8, self.node)
            for one in scores
        ]
        if len(self.scores) > count:
            notes.append(f"Labels beyond the first {count} are left out, to keep the file small.")
        elif len(self.labels) > count:
            notes.append(f"Only the {count} largest of {len(self.labels)} outputs are explained.")
        if reading.left_out:
            notes.append(f"{reading.left_out} pictures are left out, to keep the file small.")
        if self.layers and len(groups) < tree.plan.num_groups:
            notes.append(
                f"The attention of {tree.plan.num_groups - len(groups)} of "
                f"{tree.plan.num_groups} groups of siblings is left out, to keep the file small."
            )
        for one in scores:
            size = float(one.leaf.double().abs().sum())
            if one.gap is not None and abs(one.gap) > 0.05 * size and one.method[:4] == "inte":
                notes.append(
                    f"The scores of “{self.labels[one.target or 0]}” lack {one.gap:.3g} of what "
                    f"they should add up to: raise max_steps."
                )
        inner = outline.size > 1
        unique: dict[str, int] = {}
        name_at = np.zeros(len(outline.node), dtype=np.int64)
        for at in np.flatnonzero(inner).tolist():
            name = self.names[outline.node[at]]
            name_at[at] = unique.setdefault(name, len(unique))
        for first, length, *_ in reading.pictures:  # patches are told by their number
            patches = np.flatnonzero(~inner)[first : first + length]
            name_at[patches] = np.arange(length)
        data = {
            "start": 0 if self.node is None else int(outline.place[self.node]),
            "level": packed(np.minimum(outline.level, 65535), "uint16"),
            "size": packed(outline.size, "uint32"),
            "first": packed(outline.first, "uint32"),
            "leaves": packed(outline.leaves, "uint32"),
            "name": packed(name_at, "uint32"),
            "names": list(unique),
            "views": [
                {
                    "top": view["top"],
                    "sums": packed(view["sums"], "int16"),
                    "shades": packed(view["leaf"], "int8"),
                }
                for view in views
            ],
            "layers": len(self.layers),
            "heads": self.layers[0][0].shape[1] if self.layers else 0,
            "groups": groups,
            "matrices": packed(np.frombuffer(matrices, dtype=np.uint8), "uint8"),
            "pictures": reading.pictures,
            "boxes": [packed(box, "uint16") for box in reading.boxes],
        }
        text = document(
            title,
            data,
            summary=self._summary(),
            remarks="".join(f'<p class="note">{escaped(remark)}</p>' for remark in self.remarks),
            answers=self._answers(),
            cost=self._cost(),
            views="".join(
                f'<option value="{k}">{escaped(self._name(one))}</option>'
                for k, one in enumerate(shown)
            ),
            page=reading.body,
            attention=self._attention(),
            parts=self._parts(scores, parts),
            notes="".join(f'<p class="note">{escaped(note)}</p>' for note in notes),
        )
        return Page(text, scores, parts, notes)

    def _view(self, scores: LeafScores) -> dict[str, Any]:
        """Shades of the leaves in reading order, and sums by place in the outline."""
        leaf = scores.leaf.detach().cpu().double().numpy()
        node = scores.node.detach().cpu().double().numpy()
        leaf, node = np.nan_to_num(leaf), np.nan_to_num(node)
        sizes = np.abs(leaf)
        high = float(np.quantile(sizes, 0.995)) if sizes.any() else 1.0
        high = high or float(sizes.max())
        level = np.rint(9 * np.clip(leaf / high, -1, 1)).astype(np.int8)
        ordered = np.empty_like(level)
        ordered[self.outline.leaf_place] = level
        top = float(np.abs(node).max()) or 1.0
        sums = np.rint(32767 * node[self.outline.node] / top).astype(np.int16)
        return {"leaf": ordered, "sums": sums, "top": top}

    def _name(self, scores: LeafScores) -> str:
        if scores.target is None:
            return "where attention looks (rollout)"
        return f"what adds to “{self.labels[scores.target]}” ({scores.method})"

    def _summary(self) -> str:
        best = int(self.out.argmax())
        tree, text = self.tree, f"The largest output is “{self.labels[best]}”"
        size = f"{tree.num_leaves:,} leaves, {tree.num_tree_nodes:,} nodes, depth {tree.depth}. "
        if self.node is None:
            return escaped(f"{size}{text}.")
        place = int(self.outline.place[self.node])
        part = escaped(excerpt(self.tree, self.node))
        button = f'<button class="link" data-go="{place}">{part}</button>'
        return f"{escaped(size + text)} for the part {button}"

    def _answers(self) -> str:
        alone = self.multi_label or len(self.out) == 1  # of one answer, softmax is always 1
        chance = self.out.sigmoid() if alone else self.out.softmax(0)
        known = {one.target: one for one in self.scores}
        top = float(self.out.abs().max())
        rows: list[list[Any]] = []
        for k in torch.argsort(self.out, descending=True, stable=True).tolist()[:20]:
            base = known[k].baseline if k in known else None
            rows.append(
                [
                    self.labels[k],
                    f"{100 * float(chance[k]):.1f} %",
                    signed(float(self.out[k]), top),
                    "" if base is None else signed(float(base), top),
                ]
            )
        kind = "sigmoid" if alone else "softmax"
        table = table_html(["label", kind, "output", "output if all were blank"], rows)
        return (
            f'{table}<p class="note">The last column is the output for a tree of the same shape '
            "whose leaves say nothing; what they add is the difference.</p>"
        )

    def _cost(self) -> str:
        if not self.cost:
            return "<p>The model has no hierarchical layer.</p>"
        total, flat_total = (row[2] for row in self.cost)
        saved = f"Flat attention takes {as_text(flat_total / max(total, 1))} times the operations."
        table = table_html(["attention of all layers", "query-key pairs", "operations"], self.cost)
        return f"{table}<p>{escaped(saved)}</p>"

    def _attention(self) -> str:
        if not self.layers:
            return ""

        def options(count: int) -> str:
            return "".join(f'<option value="{k}">{k + 1}</option>' for k in range(count))

        heads = self.layers[0][0].shape[1]
        return (
            '<h2>Attention among siblings</h2><p><label>layer <select id="layer">'
            f"{options(len(self.layers))}</select></label><label>head "
            f'<select id="head">{options(heads)}</select></label></p>'
            '<div id="matrix" tabindex="0" role="region" aria-label="Attention among siblings">'
            "</div>"
        )

    def _parts(self, scores: list[LeafScores], parts: list[list[int]]) -> str:
        out = []
        for one, nodes in zip(scores, parts):
            label = self.labels[one.target or 0]
            top = float(one.node.abs().max())
            rows: list[list[Any]] = [
                [
                    (excerpt(self.tree, node), int(self.outline.place[node])),
                    signed(float(one.node[node]), top),
                ]
                for node in nodes
            ]
            table = table_html(["part", "adds"], rows) if rows else "<p>No part adds to it.</p>"
            out.append(f"<h3>{escaped(label)}</h3>{table}")
        return "".join(out)


def excerpt(tree: SignalTree, node: int, most: int = 100) -> str:
    """The name of a node and the first words below it.

    Args:
        tree: One tree.
        node: Id of the node.
        most: Most characters of the words.

    Returns:
        One line.

    Example:
        >>> excerpt(SignalTree.from_parents([2, 2, -1], name=["to", "be", "p"]), 2)
        'p: to be'
    """
    names, plan = names_of(tree), tree.plan
    if node < tree.num_leaves:
        return names[node]
    slot = plan.node_slot[node]
    first = int(plan.leaf_start[slot])
    below = plan.leaf_order[first : first + min(int(plan.count[slot]), 60)]
    words = " ".join(names[leaf] for leaf in below.tolist())
    return f"{names[node]}: {words if len(words) <= most else words[: most - 1] + '…'}"
