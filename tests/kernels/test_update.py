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
