"""The domains that the children of a node can lie in."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["LEAF", "Domain"]

#: ``tree_domain`` of a leaf, which has no children and so no domain.
LEAF = -1


class Domain(IntEnum):
    """Domain of a node's children: what their positions mean (paper, Section 3).

    ============  =====================================================================
    ``SET``       unordered; children have no position
    ``SEQUENCE``  one coordinate, ``tree_pos[:, 0]``
    ``GRID2D``    two coordinates, row ``tree_pos[:, 0]`` and column ``tree_pos[:, 1]``
    ``GRAPH``     vertices of a graph; coordinates or encodings given by the builder
    ============  =====================================================================

    Example:
        >>> Domain.SEQUENCE.value, Domain(2).name
        (1, 'GRID2D')
    """

    SET = 0
    SEQUENCE = 1
    GRID2D = 2
    GRAPH = 3
