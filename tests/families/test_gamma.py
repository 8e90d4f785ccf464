import pytest
import torch

from einet.families import Exponential, Gamma


def test_every_shape_is_solved():
    family = Gamma(1e-4, 1e7)
    shapes = torch.logspace(-4, 7, 200, dtype=torch.float64)
    means = torch.tensor([1e-9, 1.0, 1e9], dtype=torch.float64)
    stored = torch.cartesian_prod(shapes, means)
    again = family.store(family.phi_of(stored))
    # log α − ψ(α) ≈ 1/(2α) is a difference of numbers of size log α.
    tolerance = 1e-9 + 1e-13 * stored
    tolerance[:, 1] = 1e-12
    assert ((again / stored).log().abs() <= tolerance * 10).all()


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_data_of_any_scale(scale: float):
    generator = torch.Generator().manual_seed(0)
    truth = torch.tensor([[0.5, 1.0], [50.0, 3.0]], dtype=torch.float64).expand(4000, 2, 2)
    x = scale * Gamma().sample(truth, generator)
    family = Gamma().adapt(x, torch.ones_like(x, dtype=torch.bool))
    stored = family.store(family.T(x).mean(0))
    torch.testing.assert_close(family.mean(stored), x.mean(0), rtol=1e-9, atol=0)
    torch.testing.assert_close(stored[:, 0], truth[0, :, 0], rtol=0.1, atol=0)
    # Units are a matter of taste: the density follows.
    unit = Gamma().adapt(x / scale, torch.ones_like(x, dtype=torch.bool))
    same = unit.store(unit.T(x / scale).mean(0))
    log_prob = unit.log_prob(x / scale, same) - torch.tensor(scale).double().log()
    torch.testing.assert_close(family.log_prob(x, stored), log_prob, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("value", [1e-6, 1.0, 1e6])
def test_constant_columns_reach_the_largest_shape(value: float):
    x = torch.full((20, 1), value, dtype=torch.float64)
    family = Gamma(max_shape=1e4).adapt(x, torch.ones_like(x, dtype=torch.bool))
    stored = family.project(family.store(family.T(x).mean(0)))
    assert stored[0, 0] == 1e4
    torch.testing.assert_close(family.mean(stored), x[0], rtol=1e-9, atol=0)


def test_bounding_the_shape_is_the_constrained_optimum():
    generator = torch.Generator().manual_seed(0)
    x = Gamma().sample(torch.tensor([50.0, 2.0]).double().expand(500, 2), generator)
    family = Gamma(max_shape=5.0)
    best = family.project(family.store(family.T(x).mean(0)))
    assert best[0] == 5.0
    top = family.log_prob(x, best).sum()
    for _ in range(200):
        shift = 0.3 * torch.randn(2, generator=generator, dtype=torch.float64)
        other = family.project(best * shift.exp())
        assert family.log_prob(x, other).sum() <= top + 1e-9


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_samples_of_a_small_shape_are_positive(dtype: torch.dtype):
    x = Gamma().sample(torch.tensor([0.01, 1.0], dtype=dtype).expand(1000, 2))
    assert (x > 0).all()


def test_exponential_bounds_follow_the_column():
    x = torch.tensor([[1e-3, 0.0], [3e-3, 0.0]], dtype=torch.float64)
    family = Exponential().adapt(x, torch.ones_like(x, dtype=torch.bool))
    stored = family.project(family.store(family.T(x).mean(0)))
    torch.testing.assert_close(family.mean(stored)[0], torch.tensor(2e-3).double())
    assert (family.log_prob(x, stored).isfinite()).all()
    lowest = family.mean(family.project(0 * stored))
    torch.testing.assert_close(lowest[0], torch.tensor(2e-7).double())
    given = Exponential(min_mean=1e-2).adapt(x, torch.ones_like(x, dtype=torch.bool))
    torch.testing.assert_close(
        given.mean(given.project(0 * stored)), torch.full((2,), 1e-2).double()
    )


def test_the_best_shape_for_a_mean_that_is_bounded():
    """Whatever φ is: where the mean is out of reach, the shape has to make the best of it."""
    family = Gamma(1e-4, 1e8)
    mean = torch.tensor([1e-300, 1e-20, 1.0, 1e20, 1e100, 1e280], dtype=torch.float64)
    spread = torch.tensor([0.0, 1e-9, 1.0, 50.0, 1300.0], dtype=torch.float64)
    means, spreads = (t.reshape(-1) for t in torch.meshgrid(mean, spread, indexing="ij"))
    phi = torch.stack([means.log() - spreads, means], -1)
    best = family.project(family.store(phi))
    assert best.isfinite().all()

    def likelihood(stored: torch.Tensor) -> torch.Tensor:
        theta = family.theta_of(stored)
        return (theta * phi).sum(-1) - family.A(theta)

    top = likelihood(best)
    generator = torch.Generator().manual_seed(0)
    for size in (1e-3, 0.1, 1.0, 5.0) * 5:
        step = size * torch.randn(best.shape, generator=generator, dtype=torch.float64)
        other = likelihood(family.project(best * step.exp()))
        assert (other <= top + 1e-9 * (1 + top.abs())).all()
