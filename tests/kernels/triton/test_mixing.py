"""The mixing layer: element-wise mixtures of the simple sums of a region (appendix B)."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from einet.kernels.nodes import Nodes
from einet.kernels.triton import mixing
from einet.kernels.update import RELATIVE_FLOOR, step_
from tests.kernels.triton.inner_check import (
    INF,
    around,
    close,
    interpreted,
    on_devices,
    poisoned,
    random_nodes,
)

# numpy, in which kernels are interpreted, warns where a GPU computes inf or NaN without a word.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

FEW, MANY = (2, 3, 5), (2, 17, 40)
_CPU = [(1, 1, FEW), (3, 7, FEW), (10, 33, FEW), (40, 7, FEW), (64, 1, FEW), (200, 1, FEW),
        (3, 7, MANY)]  # fmt: skip
_GPU = [
    *((K, batch, FEW) for K, batch in itertools.product((1, 3, 10, 16, 40, 64), (1, 7, 100, 500))),
    (100, 33, FEW), (200, 100, FEW), (256, 7, MANY), (3, 500, MANY), (40, 500, MANY),
]  # fmt: skip
on_sizes = pytest.mark.parametrize(
    ("device", "K", "batch", "counts"),
    [
        *(pytest.param("cpu", *size, marks=interpreted) for size in _CPU),
        *(pytest.param("cuda", *size, marks=pytest.mark.gpu) for size in _GPU),
    ],
)


class Case:
    """Regions with numbers of children ``counts``, and what float64 makes of them."""

    def __init__(self, K: int, batch: int, counts: tuple[int, ...], device: str) -> None:
        generator = torch.Generator().manual_seed(0)
        edges, self.regions, self.K, self.device = sum(counts), len(counts), K, device
        self.most = max(counts)
        num = edges + 2
        self.nodes = random_nodes(num, K, batch, device, generator, K + 2)
        # Children whose scales lie so far apart that only the largest one counts.
        self.nodes.m[:, 4:5] *= 100
        self.children = torch.randperm(num, generator=generator)[:edges].to(device)
        self.ends = torch.tensor([0, *itertools.accumulate(counts)], device=device)
        self.parts = [slice(a, b) for a, b in itertools.pairwise(self.ends.tolist())]
        weight = torch.rand(edges, K, generator=generator, dtype=torch.float64) ** 3 + 1e-6
        for part in self.parts:
            weight[part] /= weight[part].sum(0)
        self.weight = weight.float().to(device)
        self.child_v, m = self.nodes.v.double()[self.children, :K], self.nodes.m[self.children]
        #: Weights on the scale of the largest child of each region.
        self.share = torch.zeros_like(self.child_v)
        scale = m.new_empty(self.regions, batch)
        for r, part in enumerate(self.parts):
            scale[r] = m[part].amax(0)
            relative = (m[part] - scale[r].clamp(min=-1e300)).exp().unsqueeze(1)
            self.share[part] = self.weight[part].double().unsqueeze(-1) * relative
        terms = self.share * self.child_v
        S = torch.stack([terms[part].sum(0) for part in self.parts])
        self.peak = S.amax(1)
        self.v = torch.where(S > 0, S / self.peak.unsqueeze(1), 0.0)
        self.m = scale + self.peak.log()
        gradient = 2 * torch.rand(self.regions, K, batch, generator=generator).to(device)
        self.gradient = torch.where(self.peak.unsqueeze(1) > 0, gradient, 0.0)
        self.gradient[0, 0] = 0.0
        u = self.gradient.double() / self.peak.unsqueeze(1)
        u = torch.where(self.peak.unsqueeze(1) > 0, u, 0.0)
        self.of_children = torch.cat([self.share[p] * u[r] for r, p in enumerate(self.parts)])

    @property
    def counts(self) -> Tensor:
        """What flows into each child."""
        return (self.of_children * self.child_v).sum(-1)

    def room(self) -> Nodes:
        """Where values go: a part of a wider buffer, all of it NaN."""
        n, K, batch, device = self.regions + 2, self.K + 2, self.gradient.shape[-1], self.device
        return Nodes(
            poisoned(n, K, batch, device=device)[1:-1, : self.K],
            poisoned(n, batch, device=device, dtype=torch.float64)[1:-1],
            poisoned(n, batch, device=device)[1:-1],
        )

    def wide(self) -> Tensor:
        """The right gradients of the children, where a backward pass leaves them."""
        gradient = poisoned(*self.nodes.v.shape, device=self.device)
        gradient[self.children, : self.K] = self.of_children.float()
        return gradient

    def exact_step(self, step_size: float) -> Tensor:
        weight = self.weight.double()
        for part in self.parts:
            # A layer's own view of a region: [1, children, K].
            step_(weight[None, part], self.counts[None, part], step_size, axis=1)
        return weight

    def stepped(self, step_size: float) -> Tensor:
        weight = self.weight.clone()
        size = torch.tensor(step_size, dtype=torch.float64, device=self.device)
        mixing.step(weight, self.nodes, self.children, self.ends, self.wide(), size)
        return weight


@on_sizes
def test_forward(K: int, batch: int, counts: tuple[int, ...], device: str) -> None:
    case = Case(K, batch, counts, device)
    out = case.room()
    mixing.forward(case.weight, case.nodes, case.children, case.ends, out, case.most)
    close(out.peak, case.peak)
    close(out.v, case.v)
    torch.testing.assert_close(out.m, case.m, rtol=1e-14, atol=1e-5)
    close(out.v.amax(1), case.m > -INF)
    for tensor in (out.v, out.m, out.peak):
        assert around(tensor).isnan().all()


@on_sizes
def test_backward(K: int, batch: int, counts: tuple[int, ...], device: str) -> None:
    case = Case(K, batch, counts, device)
    sums = case.room()
    sums.v.copy_(case.v)
    sums.m.copy_(case.m)
    sums.peak.copy_(case.peak)
    above = case.room().v
    above.copy_(case.gradient)
    below = poisoned(*case.nodes.v.shape, device=device)
    mixing.backward(
        case.weight, case.nodes, case.children, case.ends, sums, above, below, case.most
    )
    close(below[case.children, :K], case.of_children)
    assert above.equal(case.gradient)
    below[case.children, :K] = torch.nan
    assert below.isnan().all()


@on_sizes
def test_statistics(K: int, batch: int, counts: tuple[int, ...], device: str) -> None:
    """They are added to what is there."""
    case = Case(K, batch, counts, device)
    exact = case.counts / case.weight.double()
    into = (3 * exact).float()
    mixing.statistics(case.weight, case.nodes, case.children, case.wide(), into)
    close(into, 4 * exact)


@on_sizes
def test_step(K: int, batch: int, counts: tuple[int, ...], device: str) -> None:
    case = Case(K, batch, counts, device)
    found = case.stepped(0.3)
    close(found, case.exact_step(0.3))
    for part in case.parts:
        sums = found[part].double().sum(0)
        torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=1e-6)
    # Nothing flows into the first entry of the first region.
    assert found[case.parts[0], 0].equal(case.weight[case.parts[0], 0])


@on_devices
@pytest.mark.parametrize("step_size", [0.0, 0.05, 1.0])
def test_step_sizes(step_size: float, device: str) -> None:
    case = Case(3, 7, FEW, device)
    close(case.stepped(step_size), case.exact_step(step_size))


@on_devices
def test_no_weight_falls_below_the_floor(device: str) -> None:
    case = Case(3, 7, FEW, device)
    lost = torch.tensor([1, 2, 6], device=device)
    case.of_children[lost] *= 1e-20
    found = case.stepped(1.0)
    close(found, case.exact_step(1.0))
    for part in case.parts:
        assert found[part].min() >= RELATIVE_FLOOR / (part.stop - part.start) * (1 - 1e-5)


@on_devices
def test_impossible_children(device: str) -> None:
    case = Case(3, 7, FEW, device)
    out = case.room()
    mixing.forward(case.weight, case.nodes, case.children, case.ends, out, case.most)
    assert (out.m[:, 2] == -INF).all()
    assert (out.v[:, :, 2] == 0).all()
    assert (out.peak[:, 2] == 0).all()
    # In sample 3 every other child is impossible, which leaves something to each region.
    assert (out.m[:, 3] > -INF).any()
    assert not out.v.isnan().any()


@on_devices
def test_a_batch_without_flows_changes_nothing(device: str) -> None:
    case = Case(3, 7, FEW, device)
    case.of_children.zero_()
    assert case.stepped(0.5).equal(case.weight)


@on_devices
def test_the_same_twice(device: str) -> None:
    case = Case(10, 33, MANY, device)
    assert case.stepped(0.5).equal(case.stepped(0.5))
