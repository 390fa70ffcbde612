"""Training: batches by leaf budget, a loop that goes on exactly where a kill stopped it.

Plain PyTorch: :func:`fit` wants a module and a function that gives the loss of every item, and
nothing of either has to know about it.
"""

from hsa_geo.training.checkpoint import Checkpoints
from hsa_geo.training.distributed import World, connected
from hsa_geo.training.loading import Batches
from hsa_geo.training.loop import FitResult, accuracy, fit
from hsa_geo.training.options import Options
from hsa_geo.training.samplers import LeafBudgetBatchSampler, leaf_counts

__all__ = [
    "Batches",
    "Checkpoints",
    "FitResult",
    "LeafBudgetBatchSampler",
    "Options",
    "World",
    "accuracy",
    "connected",
    "fit",
    "leaf_counts",
]
