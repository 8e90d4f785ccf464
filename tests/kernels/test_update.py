"""Moving weights: any kind of step size, and sums that nothing has reached."""

import pytest
import torch

from einet.kernels.update import RELATIVE_FLOOR, step_


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("of_step", [torch.float32, torch.float64])
def test_a_step_size_in_a_tensor(dtype: torch.dtype, of_step: torch.dtype):
    weight = torch.tensor([[0.25, 0.75], [0.5, 0.5]], dtype=dtype)
    counts = torch.tensor([[3.0, 1.0], [0.0, 0.0]], dtype=dtype)
    given, written = weight.clone(), weight.clone()
    step_(given, counts.clone(), torch.tensor(0.25, dtype=of_step), axis=-1)
    step_(written, counts.clone(), 0.25, axis=-1)
    assert given.equal(written)
    torch.testing.assert_close(given[0], torch.tensor([0.375, 0.625], dtype=dtype))
    assert given[1].equal(weight[1])


def test_no_weight_falls_below_the_floor():
    weight = torch.full((1, 4), 0.25, dtype=torch.float64)
    step_(weight, torch.tensor([[5.0, 0.0, 0.0, 1.0]], dtype=torch.float64), 1.0, axis=-1)
    torch.testing.assert_close(weight.sum(), torch.ones((), dtype=torch.float64))
    assert weight.min() >= RELATIVE_FLOOR / 4 * (1 - 1e-9)


class TestPseudoCounts:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("axis", [1, -1])
    def test_they_join_the_counts(self, dtype: torch.dtype, axis: int):
        generator = torch.Generator().manual_seed(0)
        weight = torch.rand(2, 5, 3, generator=generator, dtype=dtype).softmax(axis)
        counts = torch.rand(2, 5, 3, generator=generator, dtype=dtype)
        expected = counts + 2.0 / counts.shape[axis]
        expected = 0.75 * weight + 0.25 * expected / expected.sum(axis, keepdim=True)
        given, written = weight.clone(), weight.clone()
        step_(given, counts.clone(), 0.25, axis, torch.tensor(2.0, dtype=torch.float64))
        step_(written, counts.clone(), 0.25, axis, 2.0)
        assert given.equal(written)
        torch.testing.assert_close(given, expected)

    def test_sums_that_nothing_has_reached_become_even(self):
        weight = torch.tensor([[0.25, 0.75], [0.5, 0.5]])
        step_(weight, torch.zeros(2, 2), 0.5, -1, 1e-3)
        torch.testing.assert_close(weight, torch.tensor([[0.375, 0.625], [0.5, 0.5]]))

    def test_none_at_all(self):
        """Not even rounding: a mini-batch may have no weight."""
        weight = torch.tensor([[0.25, 0.7500001]])
        before = weight.clone()
        step_(weight, torch.zeros(1, 2), 0.5, -1, torch.zeros(()))
        assert weight.equal(before)

    def test_the_floor_holds(self):
        """Karush–Kuhn–Tucker: (n + α/4)/w is one number off the floor, and at most that on it."""
        weight = torch.full((1, 4), 0.25, dtype=torch.float64)
        counts = torch.tensor([[5e6, 0.0, 1e-3, 1e6]], dtype=torch.float64)
        step_(weight, counts.clone(), 1.0, -1, 0.4)
        torch.testing.assert_close(weight.sum(), torch.ones((), dtype=torch.float64))
        assert weight[0, 1] == weight[0, 2]
        torch.testing.assert_close(weight[0, 1].item(), RELATIVE_FLOOR / 4)
        tau = ((counts + 0.1) / weight)[0]
        torch.testing.assert_close(tau[0], tau[3])
        assert (tau[1:3] <= tau[0]).all()
