"""Pictures of trees.

Example:
    >>> from hsa_geo.data import SignalTree
    >>> axes = plot_tree(SignalTree.from_parents([2, 2, -1]))
    >>> axes.get_legend().get_texts()[0].get_text()
    'SET'
"""

from hsa_geo.explain.plot import plot_tree

__all__ = ["plot_tree"]
