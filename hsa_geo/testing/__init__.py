"""Public checkers: random trees and inputs, and the properties that HSA must have.

For the tests of hsa_geo and for those of code that builds on it; hypothesis is needed only to
draw from its strategies, such as :func:`trees`.
"""

from hsa_geo.testing.builders import (
    assert_builds_or_refuses,
    assert_reading_order,
    assert_trees_equal,
    assert_valid_builder,
)
from hsa_geo.testing.checks import (
    assert_batch_invariant,
    assert_block_tied,
    assert_forest_equals_trees,
    assert_key_tied,
    assert_row_stochastic,
    assert_sibling_order_invariant,
)
from hsa_geo.testing.kl import assert_kl_optimal, closest_block_tied, closest_key_tied, kl_to_flat
from hsa_geo.testing.strategies import (
    html_pages,
    image_arrays,
    nested_signals,
    networkx_graphs,
    texts,
)
from hsa_geo.testing.trees import (
    SHAPES,
    random_parents,
    random_pos,
    random_qkv,
    random_tree,
    shuffle_siblings,
    trees,
)

__all__ = [
    "SHAPES",
    "assert_batch_invariant",
    "assert_block_tied",
    "assert_builds_or_refuses",
    "assert_forest_equals_trees",
    "assert_key_tied",
    "assert_kl_optimal",
    "assert_reading_order",
    "assert_row_stochastic",
    "assert_sibling_order_invariant",
    "assert_trees_equal",
    "assert_valid_builder",
    "closest_block_tied",
    "closest_key_tied",
    "html_pages",
    "image_arrays",
    "kl_to_flat",
    "nested_signals",
    "networkx_graphs",
    "random_parents",
    "random_pos",
    "random_qkv",
    "random_tree",
    "shuffle_siblings",
    "texts",
    "trees",
]
