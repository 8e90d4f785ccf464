"""Probabilities of bins: they add up to 1 and are integrals of the density."""

import math

import pytest
import torch
from torch import Tensor

import einet
from einet.inference import bins
from einet.inference.bins import bin_log_prob
from einet.kernels.dispatch import backend
from tests.budgets import limit

INF = torch.inf


def edges(*inner: float) -> Tensor:
    return torch.tensor([-INF, *inner, INF], dtype=torch.float64)


def trained(num_variables: int, dtype: torch.dtype = torch.float64, **options) -> einet.Einet:
    graph = einet.random_trees(num_variables, depth=min(2, num_variables - 1), replicas=2)
    model = einet.Einet(graph, einet.Gaussian(), num_sums=3, dtype=dtype, **options)
    data = 10 * torch.randn(50, num_variables, generator=torch.manual_seed(0)).cumsum(1)
    model.initialize(data)
    return model


def boxes(num_variables: int, count: int) -> Tensor:
    every = torch.cartesian_prod(*[torch.arange(count)] * num_variables)
    return every.view(-1, num_variables)


@pytest.mark.parametrize("options", [{}, {"num_classes": 3}, {"sums": "linear"}], ids=str)
def test_all_boxes_add_up_to_one(options: dict):
    model = trained(3, **options)
    found = bin_log_prob(model, boxes(3, 5), edges(-10.0, -1.0, 2.5, 8.0))
    assert found.dtype == torch.float64
    assert found.exp().sum().item() == pytest.approx(1, abs=1e-12)


def test_a_mixture_is_the_sum_of_its_components():
    parts = [trained(2, seed=seed) for seed in range(3)]
    # A component that nothing is left of is passed over.
    model = einet.Mixture([parts[0], einet.Mixture(parts[1:], [0.0, 1.0])], [0.3, 0.7])
    every, bounds = boxes(2, 3), edges(-5.0, 1.0)
    expected = 0.3 * bin_log_prob(parts[0], every, bounds).exp()
    expected += 0.7 * bin_log_prob(parts[2], every, bounds).exp()
    torch.testing.assert_close(bin_log_prob(model, every, bounds).exp(), expected)


def far_apart(count: int, num_variables: int) -> einet.Mixture:
    """Components that hardly meet, with deviations from a fraction of a bin to many bins."""
    parts = []
    for number in range(count):
        part = trained(num_variables, seed=number)
        generator = torch.Generator().manual_seed(number)
        spread = 4.0 ** (number % 5 - 2)
        centre = 40 * torch.randn(num_variables, generator=generator, dtype=torch.float64)
        noise = torch.randn(60, num_variables, generator=generator, dtype=torch.float64)
        part.initialize(centre + spread * noise)
        parts.append(part)
    return einet.Mixture(parts, torch.arange(1.0, count + 1) / (count * (count + 1) / 2))


@pytest.mark.parametrize("rows", [1, 30, 400])
def test_components_that_are_left_out_do_not_matter(rows: int, monkeypatch: pytest.MonkeyPatch):
    model, bounds = far_apart(8, 6), edges(*(torch.arange(-120.0, 121.0)).tolist())
    values = torch.cat([model.sample(rows, seed=0).double(), 200 * torch.rand(rows, 6) - 100])
    places = torch.bucketize(values, bounds[1:-1])
    each = [bin_log_prob(part, places, bounds) for part in model.models]
    expected = torch.logsumexp(torch.stack(each) + model.log_weights.double().unsqueeze(1), 0)
    integrated, real = [], bins._log_prob
    monkeypatch.setattr(
        bins, "_log_prob", lambda *given: integrated.append(len(given[1])) or real(*given)
    )
    found = bin_log_prob(model, places, bounds)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert 2 * rows <= sum(integrated) < 0.6 * len(model.models) * 2 * rows


def test_few_rows_need_no_tables(monkeypatch: pytest.MonkeyPatch):
    model, bounds = trained(5), edges(*torch.arange(-20.0, 21.0).tolist())
    rows = torch.randint(0, 42, (100, 5), generator=torch.manual_seed(0))
    by_tables = bin_log_prob(model, rows, bounds)
    torch.testing.assert_close(bin_log_prob(model, rows[:41], bounds), by_tables[:41])
    # Some leaves and entries at a time.
    limit(monkeypatch, "block")
    torch.testing.assert_close(bin_log_prob(model, rows[:41], bounds), by_tables[:41])


def test_it_is_the_integral_of_the_density():
    model = trained(2)
    low, high = torch.tensor([-4.0, 1.0]), torch.tensor([2.0, 9.0])
    bounds = torch.tensor([-4.0, 1.0, 2.0, 9.0], dtype=torch.float64)
    steps = 400
    middle = (torch.arange(steps, dtype=torch.float64) + 0.5) / steps
    x, y = (low[d] + middle * (high[d] - low[d]) for d in (0, 1))
    with torch.no_grad():
        density = model.log_prob(torch.cartesian_prod(x, y)).exp()
    area = float((high - low).prod()) / steps**2
    inside = bin_log_prob(model, torch.tensor([[0, 1], [0, 2], [1, 1], [1, 2]]), bounds)
    assert inside.exp().sum().item() == pytest.approx(density.sum().item() * area, rel=1e-5)


def test_narrow_bins_have_the_density_times_their_width():
    model = trained(4)
    x = torch.linspace(-3, 3, 4, dtype=torch.float64).view(1, 4)
    width = 1e-4
    bounds = torch.stack([x[0] - width / 2, x[0] + width / 2], 1).flatten()
    found = bin_log_prob(model, torch.tensor([[0, 2, 4, 6]]), bounds)
    with torch.no_grad():
        expected = model.log_prob(x) + 4 * math.log(width)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-7)


def test_far_from_everything_it_stays_finite():
    model = trained(2)
    bounds = torch.tensor([-1e6, -1e6 + 1, 1e6, 1e6 + 1], dtype=torch.float64)
    found = bin_log_prob(model, torch.tensor([[0, 0], [2, 2]]), bounds)
    assert found.isfinite().all()
    assert (found < -1e6).all()


def test_tables_in_parts_give_the_same(monkeypatch: pytest.MonkeyPatch):
    model, every, bounds = trained(5), boxes(5, 3), edges(-2.0, 2.0)
    whole = bin_log_prob(model, every, bounds)
    limit(monkeypatch, "table")
    torch.testing.assert_close(bin_log_prob(model, every, bounds), whole)
    limit(monkeypatch, "kept tables")
    monkeypatch.setattr(model, "pieces", lambda rows: [slice(0, 100), slice(100, rows)])
    torch.testing.assert_close(bin_log_prob(model, every, bounds), whole)


def test_fused_kernels_give_the_same():
    model = trained(3, dtype=torch.float32)
    every, bounds = boxes(3, 2), edges(0.5)
    expected = bin_log_prob(model, every, bounds)
    with backend("triton"):
        torch.testing.assert_close(bin_log_prob(model, every, bounds), expected)


def test_bytes_and_no_rows():
    model = trained(2)
    rows = torch.tensor([[0, 255]], dtype=torch.uint8)
    bounds = edges(*(torch.arange(255) + 0.5).tolist())
    assert bin_log_prob(model, rows, bounds).shape == (1,)
    assert bin_log_prob(model, rows[:0], bounds).shape == (0,)


def test_wrong_arguments():
    model, bounds = trained(2), edges(0.0)
    with pytest.raises(ValueError, match="bins must lie between 0 and 1, got 0 to 2"):
        bin_log_prob(model, torch.tensor([[0, 2]]), bounds)
    with pytest.raises(ValueError, match=r"bins must have shape \[rows, 2\], got \[1, 3\]"):
        bin_log_prob(model, torch.tensor([[0, 1, 0]]), bounds)
    with pytest.raises(ValueError, match="edges must be at least two ascending numbers"):
        bin_log_prob(model, torch.tensor([[0, 0]]), bounds.flip(0))
    counts = einet.Einet(einet.random_trees(2, 1, 1), einet.Binomial(3), num_sums=2)
    with pytest.raises(ValueError, match="bins are for densities, but a variable is Binomial"):
        bin_log_prob(counts, torch.tensor([[0, 0]]), bounds)
