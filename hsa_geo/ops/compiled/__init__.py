"""Kernels compiled by numba: what ``backend="numba"`` runs, on the CPU.

From the outside in: :mod:`~hsa_geo.ops.compiled.attention` and
:mod:`~hsa_geo.ops.compiled.gradient` are the two passes,
:mod:`~hsa_geo.ops.compiled.frame` turns tensors into arrays and work into pieces,
:mod:`~hsa_geo.ops.compiled.threads` runs the pieces,
:mod:`~hsa_geo.ops.compiled.memory` makes large tensors, and the kernels themselves are in
:mod:`~hsa_geo.ops.compiled.groups` (attention within sibling groups) and
:mod:`~hsa_geo.ops.compiled.recursion` (the dynamic program above them).
"""

__all__: list[str] = []
