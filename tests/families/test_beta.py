import math

import pytest
import torch

from einet.families import Beta


@pytest.mark.parametrize("bounds", [(1e-3, 1e6), (1e-2, 1e5)])
def test_every_corner_of_the_box_is_solved(bounds: tuple[float, float]):
    family = Beta(*bounds)
    low, high = (math.log10(bound) for bound in bounds)
    grid = torch.logspace(low, high, 40, dtype=torch.float64)
    stored = family.project(torch.cartesian_prod(grid, grid))
    again = family.store(family.phi_of(stored))
    # φ itself loses digits where one concentration is a millionth of the other.
    torch.testing.assert_close(again, stored, rtol=5e-6, atol=0)
    torch.testing.assert_close(family.theta(family.phi_of(stored)), stored, rtol=5e-6, atol=0)


@pytest.mark.parametrize("bounds", [(1e-2, 1e5), (0.5, 10.0), (1.0, 1.0)])
def test_extreme_data_give_the_best_within_the_bounds(bounds: tuple[float, float]):
    """Constant data, and data of two values: their φ are all there are."""
    family = Beta(*bounds)
    x = [1e-300, 1e-30, 1e-10, 1e-3, 0.1, 0.3, 0.5, 0.9, 1 - 1e-3, 1 - 1e-10, 1 - 1e-15]
    x = torch.tensor(x, dtype=torch.float64)
    share = torch.tensor([0.0, 1e-9, 1e-3, 0.1, 0.5], dtype=torch.float64)
    first, second, share = (t.reshape(-1) for t in torch.meshgrid(x, x, share, indexing="ij"))
    phi = torch.lerp(family.T(first), family.T(second), share.unsqueeze(-1))
    stored = family.store(phi)
    torch.testing.assert_close(family.project(stored), stored, rtol=1e-15, atol=0)

    def likelihood(stored: torch.Tensor) -> torch.Tensor:
        return (phi * stored).sum(-1) - family.A(stored)

    best = likelihood(stored)
    generator = torch.Generator().manual_seed(0)
    for size in (1e-6, 1e-4, 1e-2, 0.1, 1.0) * 5:
        step = size * torch.randn(stored.shape, generator=generator, dtype=torch.float64)
        # Along the valley as well as across it.
        for other in (stored * step.exp(), stored * step[..., :1].exp()):
            worse = likelihood(other.clamp(*bounds))
            assert (worse <= best + 1e-9 * (1 + best.abs())).all()


def test_constant_data_keep_their_mean():
    x = torch.tensor([0.01, 0.3, 0.5, 0.999], dtype=torch.float64)
    stored = Beta().store(Beta().T(x))
    torch.testing.assert_close(Beta().mean(stored), x, rtol=1e-2, atol=0)
    torch.testing.assert_close(stored.amax(-1), torch.full_like(x, 1e5))


def test_projection_keeps_the_mean():
    family = Beta(max_concentration=100.0)
    stored = torch.tensor([[1e4, 1e6], [30.0, 10.0], [1e-5, 2.0]])
    expected = torch.tensor([[1.0, 100.0], [30.0, 10.0], [0.01, 2.0]])
    torch.testing.assert_close(family.project(stored), expected)


@pytest.mark.parametrize(
    ("stored", "mode"),
    [
        ([1.0, 1.0], 0.5),
        ([2.0, 2.0], 0.5),
        ([0.5, 0.6], 1e-6),
        ([0.6, 0.5], 1 - 1e-6),
        ([1.0, 3.0], 1e-6),
        ([3.0, 1.0], 1 - 1e-6),
        ([0.5, 3.0], 1e-6),
    ],
)
def test_modes_at_the_ends(stored: list[float], mode: float):
    for dtype in (torch.float32, torch.float64):
        found = Beta().mode(torch.tensor(stored, dtype=dtype))
        torch.testing.assert_close(found, torch.tensor(mode, dtype=dtype))
        assert 0 < found < 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_samples_of_a_steep_u(dtype: torch.dtype):
    """Both gamma variates underflow in float32 here; their ratio must not become 1/2."""
    stored = torch.tensor([0.01, 0.01], dtype=dtype).expand(4000, 2)
    x = Beta().sample(stored, torch.Generator().manual_seed(0))
    assert ((x > 0) & (x < 1)).all()
    assert ((x > 0.05) & (x < 0.95)).double().mean() < 0.05
    assert abs((x < 0.5).double().mean() - 0.5) < 0.04
