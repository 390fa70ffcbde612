"""Pictures of times."""

from __future__ import annotations

import pytest

from hsa_geo.errors import ShapeError
from hsa_geo.explain import plot_scaling

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def closed():
    yield
    matplotlib.pyplot.close("all")


def test_points_ranges_and_powers():
    table = {
        "linear": {4096: 0.4, 256: 0.025, 1024: (0.09, 0.1, 0.11)},
        "square": {n: n**2 * 1e-6 for n in (256, 1024, 4096, 16384)},
        "short": {256: 1.0, 4096: 1.0},
    }
    ax = plot_scaling(table, ylabel="s")
    first = ax.get_lines()[0]
    assert first.get_xdata().tolist() == [256, 1024, 4096]
    assert first.get_ydata().tolist() == [0.025, 0.1, 0.4]
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["linear, $N^{1.0}$", "square, $N^{2.0}$", "short"]
    assert (ax.get_xscale(), ax.get_yscale(), ax.get_ylabel()) == ("log", "log", "s")
    ax.figure.canvas.draw()
    assert [t.get_text() for t in ax.get_xticklabels()] == ["256", "1,024", "4,096", "16,384"]


def test_many_lines_can_be_told_apart():
    ax = plot_scaling({f"${k}": {1: 1, 2: 2} for k in range(20)}, slopes=False)
    looks = {(line.get_color(), line.get_marker(), line.get_linestyle()) for line in ax.lines}
    assert len(looks) == 20
    ax.figure.canvas.draw()  # a name with a dollar is no formula


def test_axes_of_ones_own():
    _, ax = matplotlib.pyplot.subplots()
    assert plot_scaling({"a": {1: 1}}, ax) is ax


@pytest.mark.parametrize(
    "table",
    [
        *({}, [], {"a": {}}, {"a": 1}, {"a": {1: 0}}, {"a": {1: (1, 2)}}, {"a": {1: (3, 2, 1)}}),
        *({"a": {1: "x"}}, {"a": {1: float("nan")}}, {"a": {0: 1}}),
    ],
)
def test_wrong_tables_are_refused(table):
    with pytest.raises(ShapeError):
        plot_scaling(table)
