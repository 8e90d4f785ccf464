import pytest

import einet
from benchmarks.points import GOALS, Point, is_on_sweep, parameter_count, sweep_points

# The ends of the ranges that the paper states.
PAPER = {
    "K": (10_400, 9_385_610),
    "D": (103_410, 5_203_410),
    "R": (24_341, 973_640),
}


@pytest.mark.parametrize("name", PAPER)
def test_parameter_counts_are_the_papers(name: str):
    counts = [parameter_count(point) for point in sweep_points([name], 100, ["highest"])]
    assert (min(counts), max(counts)) == PAPER[name]


@pytest.mark.parametrize(
    "point", [Point(), Point(1), Point(40), Point(depth=1), Point(replicas=1)], ids=str
)
def test_our_networks_have_these_parameters(point: Point):
    graph = einet.random_trees(point.num_variables, point.depth, point.replicas, seed=0)
    model = einet.Einet(graph, einet.Gaussian(), point.num_sums)
    # One tree has nothing to mix, but the paper counts its weight.
    assert model.num_parameters == parameter_count(point) - (point.replicas == 1)


def test_the_default_point_is_measured_once():
    points = sweep_points(["K", "D", "R"], 100, ["highest"])
    assert len(points) == len(set(points)) == 3 * 9 - 2
    assert [is_on_sweep(Point(), name) for name in ("K", "D", "R")] == [True] * 3
    assert not is_on_sweep(Point(depth=3), "K")


def test_points_survive_the_result_file():
    for goal in GOALS:
        assert Point.from_row(goal.point.as_row()) == goal.point
