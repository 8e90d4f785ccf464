"""The linear layer on fused kernels: values, gradients of children, statistics and steps of EM."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from einet.kernels.nodes import Nodes
from einet.kernels.triton import linear, linear_weights
from einet.kernels.triton.linear import LinearEdges
from einet.kernels.update import RELATIVE_FLOOR, step_
from tests.kernels.triton.inner_check import (
    ERROR,
    INF,
    around,
    close,
    on_devices,
    on_precisions,
    poisoned,
    random_nodes,
    random_weights,
)
from tests.kernels.triton.leaf_check import interpreted

# numpy, in which kernels are interpreted, warns where a GPU computes inf or NaN without a word.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

BEFORE = 0.25

Size = tuple[int, int, int, list[int]]
# K, I, batch and the number of children of each sum.
_ON_CPU: list[Size] = [
    (1, 1, 1, [1]), (3, 3, 7, [6, 2, 1]), (10, 10, 33, [3, 2, 2]), (16, 16, 7, [2, 1]),
    (40, 40, 7, [2, 2]),
    # As at the root; more entries than one block holds; more outputs.
    (1, 20, 33, [4]), (2, 70, 7, [3, 1]), (70, 5, 1, [2]), (130, 150, 1, [2]),
]  # fmt: skip
_ON_GPU: list[Size] = [
    *((K, K, batch, [5, 3, 2, 1]) for K in (1, 3, 16, 40, 64, 128, 200, 256) for batch in (1, 500)),
    *((*size[:2], 100, size[3]) for size in _ON_CPU if size[0] != size[1]),
    (32, 32, 500, [50, *[2] * 99]), (1, 256, 500, [3]), (256, 1, 33, [2]), (64, 64, 2000, [2] * 50),
]  # fmt: skip
on_sizes = pytest.mark.parametrize(
    ("device", "size"),
    [
        *(pytest.param("cpu", size, marks=interpreted) for size in _ON_CPU),
        *(pytest.param("cuda", size, marks=pytest.mark.gpu) for size in _ON_GPU),
    ],
    ids=lambda value: str(value)[:40],
)
SMALL: Size = (3, 4, 7, [3, 2, 1])


class Case:
    """Sums over products of random nodes, and what float64 makes of them.

    Gradients of the sums' values are random: 0 for impossible ones, and for the first output of the
    last sum. The first half of the nodes are leaves; the last sum shares a child with the first.
    """

    def __init__(self, size: Size, device: str, nodes: Nodes | None = None) -> None:
        self.K, self.I, self.batch, counts = size
        self.L, self.device = len(counts), device
        generator = torch.Generator().manual_seed(0)
        num = sum(counts) + 1
        # Buffers are as wide as the widest node of a circuit: wider than these.
        self.nodes = nodes or random_nodes(num, self.I, self.batch, device, generator, self.I + 3)
        order = torch.randperm(num, generator=generator)[: num - 1]
        order[-1] = order[0]
        self.children = [part.tolist() for part in order.split(counts)]
        ends = torch.tensor([0, *counts]).cumsum(0).to(device)
        self.edges = LinearEdges(
            order.to(device), ends, self.I, num // 2, at_once=2 + 2 * (self.L % 2)
        )
        self.weight = random_weights(self.L, self.K, self.I, generator=generator).to(device)
        self.evaluate()
        gradient = 2 * torch.rand(self.L, self.K, self.batch, generator=generator).to(device)
        self.gradient = torch.where((self.m > -INF).unsqueeze(1), gradient, 0.0)
        self.gradient[-1, 0] = 0.0
        self.differentiate()

    def evaluate(self) -> None:
        log_v = self.nodes.v[:, : self.I].double().log()
        products = torch.stack([log_v[c].sum(0) for c in self.children])
        self.highest = highest = products.amax(1).clamp(min=-1e300)
        self.p = (products - highest.unsqueeze(1)).exp()
        S = torch.einsum("lki,lib->lkb", self.weight.double(), self.p)
        self.largest = S.amax(1)
        self.v = torch.where(S > 0, S / self.largest.unsqueeze(1), 0.0)
        scales = torch.stack([self.nodes.m[c].sum(0) for c in self.children])
        self.m = scales + highest + self.largest.log()

    def differentiate(self) -> None:
        largest = self.largest.unsqueeze(1)
        self.u = torch.where(largest > 0, self.gradient.double() / largest, 0.0)
        self.statistics = torch.einsum("lkb,lib->lki", self.u, self.p)
        #: Into every entry of the products, and so of each child.
        self.flow = torch.einsum("lki,lkb->lib", self.weight.double(), self.u) * self.p

    def forward(self, precision: str = "highest") -> Nodes:
        """What the kernel makes of it, in a part of a wider buffer that holds NaN."""
        rows, device = self.L + 2, self.device
        out = Nodes(
            poisoned(rows, self.K + 2, self.batch, device=device)[1:-1, : self.K],
            poisoned(rows, self.batch, device=device, dtype=torch.float64)[1:-1],
            poisoned(rows, self.batch, device=device)[1:-1],
        )
        self.exponents = torch.full((self.L, self.batch), 99, dtype=torch.int32, device=device)
        linear.forward(self.weight, self.nodes, self.edges, out, self.exponents, precision)
        return out

    def above(self) -> Tensor:
        """The gradients, as a part of a wider buffer."""
        wide = poisoned(self.L + 2, self.K + 2, self.batch, device=self.device)[1:-1, : self.K]
        return wide.copy_(self.gradient)

    def counted(self, into: Tensor, precision: str = "highest") -> Tensor:
        peak = self.forward().peak
        linear_weights.statistics(
            self.nodes, self.edges, self.above(), peak, self.exponents, into, precision
        )
        return into

    def stepped(self, size: float, precision: str = "highest", pseudo: float | None = None):
        weight, peak = self.weight.clone(), self.forward().peak
        by = torch.tensor(size, dtype=torch.float64, device=self.device)
        prior = None if pseudo is None else torch.full_like(by, pseudo)
        above, edges = self.above(), self.edges
        linear_weights.step(
            weight, self.nodes, edges, above, peak, self.exponents, by, precision, prior
        )
        return weight

    def exact_step(self, size: float, **prior: Any) -> Tensor:
        weight = self.weight.double()
        step_(weight, weight * self.statistics, size, axis=-1, **prior)
        return weight


def check_forward(case: Case, precision: str = "highest") -> None:
    out = case.forward(precision)
    close(out.v, case.v, precision)
    # A relative error of a value is an absolute one of its logarithm.
    torch.testing.assert_close(out.m, case.m, rtol=1e-12, atol=ERROR[precision])
    for written in (out.v, out.m, out.peak):
        assert around(written).isnan().all()
    possible = case.m > -INF
    close(out.v.amax(1), possible)
    assert ((out.peak > 0) == possible).all()
    mantissa = torch.exp2(case.highest / math.log(2) - case.exponents)[case.highest > -1e300]
    assert ((mantissa > 1 - 1e-6) & (mantissa < 2 + 1e-6)).all()


def check_backward(case: Case, precision: str = "highest") -> None:
    """Every edge has a row of its own, in some of which there is something before."""
    count = len(case.edges.children)
    generator = torch.Generator().manual_seed(1)
    rows = torch.randperm(count + 1, generator=generator)[:count].to(case.device)
    add = torch.randint(0, 2, (count,), generator=generator, dtype=torch.int32).to(case.device)
    into = poisoned(count + 1, case.I + 2, case.batch, device=case.device)
    into[rows[add == 1]] = BEFORE
    expected = into.clone()
    peak, above = case.forward().peak, case.above()
    linear.backward(
        case.weight, case.nodes, case.edges, above, peak, case.exponents, into, rows, add, precision
    )  # fmt: skip
    edge = 0
    for row, children in enumerate(case.children):
        for child in children:
            # A gradient is a flow divided by a value; flows may be as small as float32 allows.
            exact, least = case.flow[row], torch.tensor(1e-36).double()
            if child >= case.edges.num_leaf_nodes:
                value = case.nodes.v[child, : case.I].double()
                exact, least = (torch.where(value > 0, x / value, 0.0) for x in (exact, least))
            exact = exact + (BEFORE if add[edge] else 0.0)
            found = into[rows[edge], : case.I]
            error = (found.double() - exact).abs()
            assert (error <= ERROR[precision] * exact + least).all(), f"{found} is not {exact}"
            expected[rows[edge], : case.I] = found
            edge += 1
    # All else is as it was.
    assert into.nan_to_num(-1.0).equal(expected.nan_to_num(-1.0))


def check_sums(weight: Tensor) -> None:
    sums = weight.double().sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=1e-6)


@on_sizes
def test_sizes(device: str, size: Size) -> None:
    case = Case(size, device)
    check_forward(case)
    check_backward(case)
    close(case.counted((3 * case.statistics).float()), 4 * case.statistics)
    found = case.stepped(0.3)
    close(found, case.exact_step(0.3))
    check_sums(found)


@on_precisions
@pytest.mark.parametrize("size", [(10, 10, 33, [3, 1]), (5, 40, 7, [2])], ids=str)
def test_precisions(size: Size, precision: str, device: str) -> None:
    case = Case(size, device)
    check_forward(case, precision)
    check_backward(case, precision)
    close(case.counted(torch.zeros_like(case.weight), precision), case.statistics, precision)
    found = case.stepped(0.5, precision)
    close(found, case.exact_step(0.5), precision)
    check_sums(found)


@on_devices
@pytest.mark.parametrize("entries", [5, 70])
def test_many_factors_that_disagree(entries: int, device: str) -> None:
    """Products far below the least float32, in which entries fall behind and catch up."""
    generator = torch.Generator().manual_seed(0)
    log_v = -60 * torch.rand(61, entries, 3, generator=generator)
    log_v -= log_v.amax(1, keepdim=True)
    log_v[:30, 0], log_v[30:, 1] = -80.0, -80.0
    v = log_v.exp().to(device)
    m = torch.zeros(61, 3, dtype=torch.float64, device=device)
    case = Case((3, entries, 3, [60]), device, Nodes(v, m, m.float()))
    assert case.m.max() < -500
    check_forward(case)
    check_backward(case)
    close(case.counted(torch.zeros_like(case.weight)), case.statistics)


@on_devices
def test_zeros_in_some_children(device: str) -> None:
    """A product is 0 where one factor is; an entry of 0 gets no gradient, and none is NaN."""
    case = Case(SMALL, device)
    first, second, third = case.children[0]
    case.nodes.v[first, 0], case.nodes.v[second, 1], case.nodes.v[third, 2, ::2] = 0.0, 0.0, 0.0
    case.evaluate()
    case.differentiate()
    check_forward(case)
    check_backward(case)
    close(case.stepped(0.5), case.exact_step(0.5))
    # Together they leave nothing over, though each of them is possible.
    case.nodes.v[first, 2:] = 0.0
    case.nodes.v[third, 1] = 0.0
    case.evaluate()
    case.gradient[0] = 0.0
    case.differentiate()
    assert (case.m[0] == -INF).all()
    check_forward(case)
    # Not even where a gradient has gone astray.
    case.gradient[0] = 0.5
    check_backward(case)
    assert case.stepped(1.0)[0].equal(case.weight[0])


@on_devices
def test_sums_without_flow_keep_their_weights(device: str) -> None:
    """Bit for bit, even where they do not add up to 1 to the last."""
    case = Case((10, 10, 7, [2, 2]), device)
    found = case.stepped(0.7)
    assert found[-1, 0].equal(case.weight[-1, 0])
    assert not found[-1, 1].equal(case.weight[-1, 1])
    case.gradient.zero_()
    assert case.stepped(1.0).equal(case.weight)


@on_devices
def test_no_weight_falls_below_the_floor(device: str) -> None:
    case = Case((3, 10, 7, [2, 2]), device)
    case.nodes.v[:, 1:] *= 1e-20
    case.evaluate()
    case.differentiate()
    found = case.stepped(1.0)
    floor = RELATIVE_FLOOR / 10
    assert found.min() >= floor * (1 - 1e-5)
    assert (found < 2 * floor).float().mean() > 0.5
    close(found, case.exact_step(1.0))


@on_devices
def test_steps_with_a_prior(device: str) -> None:
    case = Case(SMALL, device)
    found = case.stepped(0.5, pseudo=2.0)
    close(found, case.exact_step(0.5, pseudo=2.0))
    check_sums(found)
    # What no row has reached moves towards equal weights.
    assert not found[-1, 0].equal(case.weight[-1, 0])


@on_devices
def test_the_same_twice(device: str) -> None:
    case = Case((10, 10, 33, [3, 2]), device)
    assert case.forward().v.equal(case.forward().v)
    assert case.stepped(0.5).equal(case.stepped(0.5))
    assert not math.isnan(float(case.stepped(0.5).sum()))
