"""The einsum layer backwards: gradients from sums to their children, flows to leaves."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from einet.kernels.triton import flows, flows_halves
from tests.kernels.triton.inner_check import (
    EinsumCase,
    close,
    on_devices,
    on_precisions,
    on_sizes,
    poisoned,
)

# numpy, in which kernels are interpreted, warns where a GPU computes inf or NaN without a word.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

BEFORE = 0.25


class Backward:
    """Gradients of a case's children, in rows of a buffer with NaN wherever they are not added."""

    def __init__(self, case: EinsumCase, precision: str = "highest", seed: int = 0) -> None:
        L, (_, I, J, batch), device = case.L, case.size, case.device  # noqa: E741
        self.case, self.precision = case, precision
        generator = torch.Generator().manual_seed(seed)
        rows = torch.randperm(2 * L + 2, generator=generator).to(device)
        add = torch.randint(0, 2, (2, L), generator=generator, dtype=torch.int32).to(device)
        self.rows, self.add = (rows[:L], rows[L : 2 * L]), (add[0], add[1])
        self.into = poisoned(2 * L + 2, max(I, J) + 2, batch, device=device)
        for row, adds in zip(self.rows, self.add, strict=True):
            self.into[row[adds == 1]] = BEFORE
        self.before = self.into.clone()
        sums, gradient = case.sums(), case.wide(case.gradient)
        self.totals = flows.backward(
            case.weight, case.nodes, case.edges, sums, gradient, self.into,
            self.rows, self.add, precision,
        )  # fmt: skip
        assert sums.v.equal(case.sums().v)
        assert gradient.equal(case.gradient)

    def check(self) -> None:
        case = self.case
        K, I, J, _ = case.size  # noqa: E741
        assert self.totals.shape == (case.L, self.totals.shape[1], K)
        close(self.totals.sum(1), case.flow.sum(-1))
        sides = zip(self.rows, self.add, (I, J), strict=True)
        for exact, (row, adds, entries) in zip(case.of_children(), sides, strict=False):
            before = torch.where(adds == 1, BEFORE, 0.0)[:, None, None]
            close(self.into[row, :entries], before + exact, self.precision)
            self.before[row, :entries] = self.into[row, :entries]
        # All else is as it was.
        assert _same(self.into, self.before)


def _same(one: Tensor, two: Tensor) -> bool:
    return one.nan_to_num(-1.0).equal(two.nan_to_num(-1.0))


@on_sizes
def test_sizes(device: str, size: tuple[int, ...], unary: bool) -> None:
    Backward(EinsumCase(size, unary, device)).check()


@pytest.mark.parametrize("room", [100 << 10, 164 << 10, 227 << 10])
def test_halves_fit_shared_memory(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 64 outputs' u twice, and of weights on their way; smaller GPUs take another kernel."""
    monkeypatch.setattr(flows_halves, "_shared_memory", lambda device: room)
    tiles = flows_halves.halves_tiles(128, 128, torch.empty(0))
    if tiles is None:
        assert room == 100 << 10
        return
    u = 4 * 2 * 2 * tiles["HALF"] * tiles["B_BLOCK"]
    weights = 4 * tiles["HALF"] * tiles["J_BLOCK"] * 2 * (tiles["STAGES"] - 1)
    assert u + weights + 4096 <= room


@on_precisions
@pytest.mark.parametrize("size", [(10, 10, 10, 33), (2, 16, 10, 7), (40, 3, 20, 7)], ids=str)
def test_precisions(size: tuple[int, ...], precision: str, device: str) -> None:
    Backward(EinsumCase(size, False, device), precision).check()


@on_devices
@pytest.mark.parametrize("size", [(3, 4, 5, 7), (1, 4, 5, 7)], ids=["wide", "narrow"])
def test_flow_is_neither_lost_nor_made(size: tuple[int, ...], device: str) -> None:
    """What flows into a sum flows on to its left child, and to its right child too."""
    case = EinsumCase(size, False, device)
    found = Backward(case)
    into = case.flow.sum(1)
    assert (into[:, 2] == 0).all()
    sides = zip(found.rows, found.add, (case.left, case.right), case.factors(), strict=True)
    for row, adds, v, factor in sides:
        # A flow is a gradient times a value.
        flow = found.into[row, : v.shape[1]].double() * torch.where(factor == v, 1.0, v)
        fresh = adds == 0
        close(flow.sum(1)[fresh], into[fresh])


@on_devices
@pytest.mark.parametrize("size", [(3, 4, 5, 7), (1, 4, 5, 7)], ids=["wide", "narrow"])
def test_impossible_sums_pass_nothing_on(size: tuple[int, ...], device: str) -> None:
    """Not even where a gradient has gone astray."""
    case = EinsumCase(size, False, device)
    assert (case.peak[:, 2] == 0).all()
    case.gradient[:, :, 2] = 0.5
    found = Backward(case)
    assert (found.totals.isfinite()).all()
    for row, adds, entries in zip(found.rows, found.add, size[1:3], strict=True):
        assert (found.into[row[adds == 0], :entries, 2] == 0).all()


@on_devices
@pytest.mark.parametrize(("K", "batch"), [(1, 1), (5, 7), (3, 300)])
def test_add_up(K: int, batch: int, device: str) -> None:
    """Children 4, 0 and 2 have three edges, one and two; that of 0 adds to one from above."""
    generator = torch.Generator().manual_seed(0)
    parts = poisoned(6, K + 2, batch, device=device)
    parts[:, :K] = torch.rand(6, K, batch, generator=generator).to(device)
    whole = torch.tensor([[5, 0, 3, 1, 4, 2], [4, 0, 2, 0, 0, 0]], device=device)
    order, children = whole[0], whole[1, :3]
    ends = torch.tensor([0, 3, 4, 6], device=device)
    add = torch.tensor([0, 1, 0], device=device, dtype=torch.int32)
    flow = poisoned(6, K + 3, batch, device=device)
    flow[0] = BEFORE
    expected = flow.clone()
    some = parts.double()[:, :K]
    expected[4, :K] = (some[5] + some[0] + some[3]).float()
    expected[0, :K] = (some[1] + BEFORE).float()
    expected[2, :K] = (some[4] + some[2]).float()
    flows.add_up(parts, order, ends, children, add, K, flow)
    torch.testing.assert_close(flow, expected, rtol=1e-6, atol=0.0, equal_nan=True)


@on_devices
def test_the_same_twice(device: str) -> None:
    case = EinsumCase((10, 10, 10, 33), False, device)
    first, second = Backward(case), Backward(case)
    assert _same(first.into, second.into)
    assert first.totals.equal(second.totals)
