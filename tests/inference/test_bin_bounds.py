"""Bounds of the probabilities of bins lie above them, and not far."""

import pytest
import torch
from torch import Tensor

import einet
from einet.inference import bin_bounds
from einet.inference.bin_bounds import bin_log_bounds
from einet.inference.bins import bin_log_prob

INF = torch.inf


def trained(deviation: float, **options) -> einet.Einet:
    graph = einet.random_trees(5, depth=2, replicas=2)
    model = einet.Einet(graph, einet.Gaussian(), num_sums=3, dtype=torch.float64, **options)
    data = torch.randn(50, 5, generator=torch.manual_seed(0), dtype=torch.float64).cumsum(1)
    model.initialize(3 + deviation * data)
    return model


def some_rows(bounds: Tensor) -> Tensor:
    return torch.randint(0, len(bounds) - 1, (200, 5), generator=torch.manual_seed(1))


@pytest.mark.parametrize("deviation", [0.2, 2.0, 20.0])
@pytest.mark.parametrize(
    "bounds",
    [
        [-INF, *range(-20, 21), INF],
        [-INF, *range(-20, 21)],
        [*range(-20, 21)],
        [-INF, -3.0, 2.5, 3.5, 9.0, INF],
        [-INF, 1.0, INF],
        [-INF, INF],
    ],
    ids=["both", "first", "none", "uneven", "two", "one"],
)
def test_bounds_lie_above(deviation: float, bounds: list[float]):
    edges = torch.tensor(bounds, dtype=torch.float64)
    models = [trained(deviation), trained(deviation, num_classes=2), trained(2 * deviation, seed=1)]
    rows = some_rows(edges)
    found = bin_log_bounds(models, rows, edges)
    exact = torch.stack([bin_log_prob(model, rows, edges) for model in models])
    assert (found >= exact - 1e-9 * exact.abs()).all()


def test_bounds_are_close_where_leaves_are_wider_than_bins():
    model, edges = trained(20.0), torch.tensor([-INF, *range(-20, 21), INF], dtype=torch.float64)
    rows = some_rows(edges)
    found = bin_log_bounds([model], rows, edges)[0]
    assert (found - bin_log_prob(model, rows, edges)).max() < 0.1


def test_outer_bins_are_exact():
    model, edges = trained(2.0), torch.tensor([-INF, 1.0, INF], dtype=torch.float64)
    rows = some_rows(edges)
    torch.testing.assert_close(
        bin_log_bounds([model], rows, edges)[0], bin_log_prob(model, rows, edges)
    )


def test_some_rows_at_a_time(monkeypatch: pytest.MonkeyPatch):
    edges = torch.tensor([-INF, *range(-20, 21), INF], dtype=torch.float64)
    rows, models = some_rows(edges), [trained(2.0), trained(2.0, seed=1)]
    whole = bin_log_bounds(models, rows, edges)
    monkeypatch.setattr(bin_bounds, "_CPU_CELLS", 5 * 30)
    torch.testing.assert_close(bin_log_bounds(models, rows, edges), whole)


def test_variables_of_several_families_in_any_order():
    wide, narrow = einet.Gaussian(min_variance=4.0), einet.Gaussian(max_variance=4.0)
    graph, edges = einet.random_trees(5, 2, 2), torch.arange(-20.0, 21.0, dtype=torch.float64)
    families = [wide, narrow, wide, wide, narrow]
    model = einet.Einet(graph, families, num_sums=2, dtype=torch.float64)
    model.initialize(5 * torch.randn(50, 5, generator=torch.manual_seed(0)).double())
    rows = some_rows(edges)
    found, exact = bin_log_bounds([model], rows, edges)[0], bin_log_prob(model, rows, edges)
    assert (found >= exact - 1e-9 * exact.abs()).all()
    assert (found - exact).min() < 1
