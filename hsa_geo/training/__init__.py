"""Training."""

from hsa_geo.training.samplers import LeafBudgetBatchSampler, leaf_counts

__all__ = ["LeafBudgetBatchSampler", "leaf_counts"]
