"""What a model looks at and what for, as numbers, pictures and pages.

Example:
    >>> from hsa_geo.data import SignalTree
    >>> axes = plot_tree(SignalTree.from_parents([2, 2, -1]))
    >>> axes.get_legend().get_texts()[0].get_text()
    'SET'
"""

from hsa_geo.explain.deletion import deletion_curve
from hsa_geo.explain.gradients import attribute_leaves
from hsa_geo.explain.plot import plot_tree
from hsa_geo.explain.plot_attention import plot_attention
from hsa_geo.explain.plot_scaling import plot_scaling
from hsa_geo.explain.pyg import LeafExplainer
from hsa_geo.explain.report import Report, write_report
from hsa_geo.explain.rollout import attention_rollout
from hsa_geo.explain.scores import LeafScores, subtree_sum
from hsa_geo.explain.watch import layer_weights

__all__ = [
    "LeafExplainer",
    "LeafScores",
    "Report",
    "attention_rollout",
    "attribute_leaves",
    "deletion_curve",
    "layer_weights",
    "plot_attention",
    "plot_scaling",
    "plot_tree",
    "subtree_sum",
    "write_report",
]
