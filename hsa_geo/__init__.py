"""hsa_geo: Hierarchical Self-Attention (HSA) on PyTorch Geometric.

Builders turn real things into :class:`~hsa_geo.data.SignalTree`; a
:class:`~hsa_geo.data.TreePlan` turns a batch of trees into index tensors once;
:mod:`hsa_geo.ops` computes HSA from queries, keys, values and a plan; :mod:`hsa_geo.nn` wraps
it in PyG layers and models.

Source: "Hierarchical Self-Attention: Generalizing Neural Attention Mechanics to Multi-Scale
Problems", NeurIPS 2025, `arXiv 2509.15448 <https://arxiv.org/abs/2509.15448>`_.
"""

__version__ = "0.1.0"
