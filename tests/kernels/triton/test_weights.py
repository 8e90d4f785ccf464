"""Statistics of the weights of an einsum layer, and the step of EM that they make."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from einet.kernels.triton import weights
from einet.kernels.update import RELATIVE_FLOOR, step_
from tests.kernels.triton.inner_check import (
    EinsumCase,
    close,
    on_devices,
    on_precisions,
    on_sizes,
    random_weights,
)

# numpy, in which kernels are interpreted, warns where a GPU computes inf or NaN without a word.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def totals_of(case: EinsumCase) -> Tensor:
    """The flows into each sum, as those of two parts of the batch."""
    half = case.size[3] // 2
    return torch.stack([case.flow[..., :half].sum(-1), case.flow[..., half:].sum(-1)], 1).float()


def counted(case: EinsumCase, into: Tensor, precision: str = "highest") -> Tensor:
    """Statistics added to ``into``."""
    gradient, peak = case.wide(case.gradient), case.sums().peak
    weights.statistics(case.nodes, case.edges, gradient, peak, into, precision)
    return into


def stepped(case: EinsumCase, step_size: float | Tensor, precision: str = "highest") -> Tensor:
    """The weights after a step."""
    weight = case.weight.clone()
    if not isinstance(step_size, Tensor):
        step_size = torch.tensor(step_size, dtype=torch.float64, device=case.device)
    gradient, peak, totals = case.wide(case.gradient), case.sums().peak, totals_of(case)
    weights.step(weight, case.nodes, case.edges, gradient, peak, totals, step_size, precision)
    return weight


def exact_step(case: EinsumCase, step_size: float) -> Tensor:
    weight = case.weight.double()
    step_(weight, weight * case.statistics, step_size, axis=-1)
    return weight


@on_sizes
def test_statistics(device: str, size: tuple[int, ...], unary: bool) -> None:
    """They are added to what is there."""
    case = EinsumCase(size, unary, device)
    into = (3 * case.statistics).float().contiguous()
    close(counted(case, into), 4 * case.statistics)


@on_sizes
def test_step(device: str, size: tuple[int, ...], unary: bool) -> None:
    case = EinsumCase(size, unary, device)
    found = stepped(case, 0.3)
    close(found, exact_step(case, 0.3))
    sums = found.double().sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=1e-6)


@on_precisions
@pytest.mark.parametrize("size", [(10, 10, 10, 33), (2, 16, 10, 7), (40, 3, 20, 7)], ids=str)
def test_precisions(size: tuple[int, ...], precision: str, device: str) -> None:
    case = EinsumCase(size, False, device)
    into = counted(case, torch.zeros_like(case.weight), precision)
    close(into, case.statistics, precision)
    found = stepped(case, 0.5, precision)
    close(found, exact_step(case, 0.5), precision)
    sums = found.double().sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=1e-6)


@on_devices
def test_sums_without_flow_keep_their_weights(device: str) -> None:
    """Bit for bit, even where they do not add up to 1 to the last."""
    case = EinsumCase((10, 10, 10, 7), False, device)
    found = stepped(case, 0.7)
    assert found[-1, 0].equal(case.weight[-1, 0])
    assert not found[-1, 1].equal(case.weight[-1, 1])
    case.gradient.zero_()
    case.differentiate()
    assert stepped(case, 1.0).equal(case.weight)


@on_devices
def test_a_batch_of_impossible_rows_changes_nothing(device: str) -> None:
    """Not even where a gradient has gone astray."""
    case = EinsumCase((3, 4, 5, 7), False, device)
    case.nodes.v[:, :5] = 0.0
    for exact in (case.peak, case.v, case.flow, case.left, case.right):
        exact.zero_()
    assert stepped(case, 0.5).equal(case.weight)
    assert (counted(case, torch.zeros_like(case.weight)) == 0).all()


@on_devices
@pytest.mark.parametrize("size", [(3, 10, 10, 7), (40, 3, 20, 7)], ids=str)
def test_no_weight_falls_below_the_floor(size: tuple[int, ...], device: str) -> None:
    """Where most entries of the children are next to 0, so are the counts of their weights."""
    case = EinsumCase(size, False, device)
    case.nodes.v[:, 1:] *= 1e-20
    case.evaluate()
    case.differentiate()
    found = stepped(case, 1.0)
    floor = RELATIVE_FLOOR / (size[1] * size[2])
    assert found.min() >= floor * (1 - 1e-5)
    assert (found < 2 * floor).float().mean() > 0.5
    close(found, exact_step(case, 1.0))


@on_devices
@pytest.mark.parametrize("step_size", [0.0, 0.05, 1.0])
def test_step_sizes(step_size: float, device: str) -> None:
    case = EinsumCase((3, 4, 5, 7), False, device)
    for dtype in (torch.float32, torch.float64):
        found = stepped(case, torch.tensor(step_size, dtype=dtype, device=device))
        close(found, exact_step(case, step_size))


@on_devices
@pytest.mark.parametrize("options", [1, 9, 5000, 17_000])
def test_normalize(options: int, device: str) -> None:
    generator = torch.Generator().manual_seed(0)
    weight = random_weights(2, 3, options, generator=generator).to(device)
    scaled = weight * torch.tensor([[0.5], [1.0], [40.0]], device=device)
    weights.normalize(scaled)
    close(scaled, weight.double() / weight.double().sum(-1, keepdim=True))
    torch.testing.assert_close(scaled.double().sum(-1), torch.ones(2, 3).to(scaled).double())


@on_devices
def test_the_same_twice(device: str) -> None:
    case = EinsumCase((10, 10, 10, 33), False, device)
    assert stepped(case, 0.5).equal(stepped(case, 0.5))
