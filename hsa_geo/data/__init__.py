"""Nested signals as PyG data: :class:`SignalTree`, :class:`TreePlan`, :class:`Domain`."""

from hsa_geo.data.domain import LEAF, Domain
from hsa_geo.data.plan import TreePlan
from hsa_geo.data.signal_tree import SignalTree

__all__ = ["LEAF", "Domain", "SignalTree", "TreePlan"]
