"""Whole numbers between bounds, and differences of logarithms."""

import math

import torch

from einet.families import Binomial
from einet.families.counting import log_difference, whole_bounds

INF = math.inf


def test_whole_bounds():
    lower, upper = torch.tensor([-INF, 0.5, 3.0, INF]), torch.tensor([INF, 2.5, 3.0, INF])
    first, last = whole_bounds(lower, upper, 9.0)
    assert first.tolist() == [0, 1, 3, INF]
    assert last.tolist() == [9, 2, 3, 9]
    assert whole_bounds(lower, upper, torch.tensor([5, 1, 7, 7]))[1].tolist() == [5, 1, 3, 7]


def test_differences_of_logarithms():
    larger = torch.tensor([0.0, -INF, -1000.0, 2.0]).double()
    smaller = torch.tensor([-INF, -INF, -1001.0, 2.0]).double()
    expected = torch.tensor([0.0, -INF, -1000 + math.log1p(-math.exp(-1)), -INF]).double()
    torch.testing.assert_close(log_difference(larger, smaller), expected)


def test_draws_of_all_counts():
    stored = torch.full((4000, 1), 0.3, dtype=torch.float64)
    ends = torch.tensor([-INF]).double(), torch.tensor([INF]).double()
    generator = torch.Generator().manual_seed(0)
    drawn = Binomial(10).sample_between(*ends, stored, generator)
    assert abs(drawn.mean().item() - 3) < 5 * math.sqrt(2.1 / 4000)
    assert abs(drawn.var().item() - 2.1) < 0.3
