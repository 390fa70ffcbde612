"""GraphGym, PyG's platform of experiments from configuration files, with hierarchies.

Importing this module registers (extra ``graphgym``):

- ``gnn.stage_type: hsa``, a transformer encoder over the hierarchy (:class:`HSAStage`);
- ``gnn.layer_type: hsaconv``, one attention layer, for the other stages (:class:`HSALayer`);
- ``gnn.head: hsa_graph``, a readout that sees the hierarchy (:class:`HSAGraphHead`);
- ``dataset.format: HSA``, graphs that are given a hierarchy (:func:`load_trees`);
- the group ``hsa`` of settings (:func:`add_settings`).

Source: You, Ying and Leskovec, "Design Space for Graph Neural Networks", NeurIPS 2020, and
``torch_geometric.graphgym``.

Example:
    >>> from torch_geometric.graphgym.register import layer_dict, stage_dict
    >>> layer_dict["hsaconv"].__name__, stage_dict["hsa"].__name__
    ('HSALayer', 'HSAStage')
"""

from hsa_geo.graphgym.config import add_settings  # the first, for it says what is missing
from hsa_geo.graphgym.loader import load_trees
from hsa_geo.graphgym.modules import HSAGraphHead, HSALayer, HSAStage

__all__ = ["HSAGraphHead", "HSALayer", "HSAStage", "add_settings", "load_trees"]
