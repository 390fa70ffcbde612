import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsa_geo.builders._grids import GridNodes, grid_nodes, integer, window_levels
from hsa_geo.data.canonical import canonical_order
from hsa_geo.errors import BuilderError

SIDES = st.one_of(st.integers(2, 5), st.sampled_from([(1, 3), (3, 1), (2, 4), (100, 2)]))
WINDOWS = st.one_of(SIDES, st.lists(SIDES, max_size=3))


def nested(cells: list[list[object]], windows: object) -> object:
    """Windows of windows, written as one thinks of them: lists of lists, row by row."""
    levels = windows if isinstance(windows, list) else [windows] * 100
    for level in levels:
        h, w = level if isinstance(level, tuple) else (level, level)
        if len(cells) == len(cells[0]) == 1 or (
            (h == 1 or len(cells) == 1) and (w == 1 or len(cells[0]) == 1)
        ):
            continue
        cells = [
            [
                [
                    (row - top, col - left, cells[row][col])
                    for row in range(top, min(top + h, len(cells)))
                    for col in range(left, min(left + w, len(cells[0])))
                ]
                for left in range(0, len(cells[0]), w)
            ]
            for top in range(0, len(cells), h)
        ]
    if len(cells) == len(cells[0]) == 1:
        return cells[0][0]
    return [(r, c, cell) for r, row in enumerate(cells) for c, cell in enumerate(row)]


def as_nested(nodes: GridNodes) -> object:
    """The same of arrays of nodes."""
    what: list[object] = [*nodes.cell.tolist(), *([] for _ in nodes.parent[len(nodes.cell) :])]
    for node, (above, (row, col)) in enumerate(zip(nodes.parent.tolist(), nodes.pos.tolist())):
        if above >= 0:
            what[above].append((int(row), int(col), what[node]))  # type: ignore[attr-defined]
    return what[-1]


@given(st.integers(1, 12), st.integers(1, 12), WINDOWS)
def test_windows_of_windows(rows: int, cols: int, windows: object) -> None:
    nodes = grid_nodes(rows, cols, window_levels("window", windows))
    cells: list[list[object]] = [[r * cols + c for c in range(cols)] for r in range(rows)]
    assert as_nested(nodes) == nested(cells, windows)
    canonical = canonical_order(nodes.parent)
    assert canonical.order.tolist() == list(range(len(nodes.parent)))
    assert not any(a.flags.writeable for a in (nodes.parent, nodes.pos, nodes.cell))


@given(st.integers(1, 40), st.one_of(st.integers(2, 5), st.lists(st.integers(2, 5), max_size=3)))
def test_windows_over_a_line(count: int, windows: object) -> None:
    nodes = grid_nodes(count, 1, window_levels("window", windows, line=True))
    assert nodes.cell.tolist() == list(range(count))
    assert not nodes.pos[:, 1].any()


def test_large_grids_are_not_kept() -> None:
    quadtree = window_levels("window", 2)
    assert grid_nodes(256, 256, quadtree) is grid_nodes(256, 256, quadtree)
    assert grid_nodes(257, 256, quadtree) is not grid_nodes(257, 256, quadtree)
    assert len(grid_nodes(1024, 1024, quadtree).parent) == (4**11 - 1) // 3


def test_extreme_sides() -> None:
    nodes = grid_nodes(1, 2**17, window_levels("window", 2))
    assert (len(nodes.parent), nodes.cell[-1]) == (2**18 - 1, 2**17 - 1)
    nodes = grid_nodes(3, 500, window_levels("window", 10**18))
    assert nodes.parent[:-1].tolist() == [1500] * 1500


@pytest.mark.parametrize(
    ("window", "match"),
    [
        (0, "window=0 is out of range"),
        (1, "one cell"),
        ((1, 1), "one cell"),
        ([2, 1], "one cell"),
        ((2, 0), "out of range"),
        ((2, 2, 2), "pair"),
        ((), "pair"),
        (2.0, r"window=2\.0 is no integer"),
        ("2", "no integer"),
        (None, "no integer"),
        (True, "no integer"),
        ([[2]], "no integer"),
        (np.array([2, 2]), "no integer"),
    ],
)
def test_no_window(window: object, match: str) -> None:
    with pytest.raises(BuilderError, match=match):
        window_levels("window", window)


def test_a_line_has_no_pairs() -> None:
    with pytest.raises(BuilderError, match="no integer"):
        window_levels("frames_per_window", (2, 2), line=True)


def test_integers() -> None:
    assert integer("a", np.uint8(3), 0, 3) == 3
    with pytest.raises(BuilderError, match="a=4 is out of range: give 0 to 3"):
        integer("a", 4, 0, 3)
    with pytest.raises(BuilderError, match="give 1 or more"):
        integer("a", -1, 1)
