"""Transforms: PyG ``BaseTransform`` s that give graphs a hierarchy, or change the one they have.

All of them work as ``transform`` or ``pre_transform`` of a dataset, in ``T.Compose`` and in workers
of a data loader; none changes the data it is given.

Example:
    >>> import torch
    >>> from torch_geometric.data import Data
    >>> from hsa_geo.transforms import AttributeHierarchy
    >>> data = Data(x=torch.rand(4, 2), floor=torch.tensor([0, 0, 1, 1]))
    >>> AttributeHierarchy("floor")(data)
    SignalTree(leaves=4, nodes=7, depth=2, x=[4, 2], floor=[4])
"""

from hsa_geo.transforms.attach import DropHierarchy, attach_hierarchy
from hsa_geo.transforms.chains import ContractChains
from hsa_geo.transforms.clusters import ClusterHierarchy
from hsa_geo.transforms.communities import CommunityHierarchy
from hsa_geo.transforms.given import AttributeHierarchy, GivenHierarchy
from hsa_geo.transforms.leaves import DropLeaves, MaskLeaves
from hsa_geo.transforms.metis import MetisHierarchy
from hsa_geo.transforms.multiplicity import MergeEqualLeaves, RepeatLeaves
from hsa_geo.transforms.restrict import RestrictHierarchy
from hsa_geo.transforms.shuffle import ShuffleHierarchy
from hsa_geo.transforms.tree_pe import AddTreePE
from hsa_geo.transforms.windows import Rewindow

__all__ = [
    "AddTreePE",
    "AttributeHierarchy",
    "ClusterHierarchy",
    "CommunityHierarchy",
    "ContractChains",
    "DropHierarchy",
    "DropLeaves",
    "GivenHierarchy",
    "MaskLeaves",
    "MergeEqualLeaves",
    "MetisHierarchy",
    "RepeatLeaves",
    "RestrictHierarchy",
    "Rewindow",
    "ShuffleHierarchy",
    "attach_hierarchy",
]
