"""The kernels of wide trees, one by one, against the formulas in float64."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from einet.kernels.nodes import Nodes
from einet.kernels.triton import wide_tree, wide_weights
from einet.kernels.triton.tree_parts import TreeEdges, Weights
from einet.kernels.triton.wide_parts import Gradients, WideProducts
from einet.kernels.update import RELATIVE_FLOOR
from tests.kernels.triton.leaf_check import interpreted

# numpy, in which kernels are interpreted, warns where a GPU computes inf or NaN without a word.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

# Six leaves; three sums, each of them a child of the next.
CHILDREN = [[0, 1, 2], [3, 6], [4, 5, 7]]
LEAVES = 6
# Of other sizes are those of tests/layers/test_tree.py.
ON_GPU = [
    pytest.param("cuda", K, batch, few, marks=pytest.mark.gpu)
    for K, batch, few in ((101, 37, 512), (300, 128, 64), (1024, 500, 512))
]
NAMES = ("device", "K", "batch", "few")


@dataclass
class Case:
    """Values, weights and gradients of the little tree; ``values`` are true ones, in float64."""

    K: int
    batch: int
    device: str

    def __post_init__(self) -> None:
        draw = torch.Generator().manual_seed(self.K)
        sums = len(CHILDREN)
        self.w = torch.rand(sums, self.K, self.K, generator=draw) ** 4 + 1e-6
        self.w = (self.w / self.w.sum(-1, keepdim=True)).to(self.device)
        leaves = torch.exp(-60 * torch.rand(LEAVES, self.K, self.batch, generator=draw))
        self.nodes = Nodes.empty(LEAVES + sums, self.K, self.batch, self.w)
        self.nodes.v[:LEAVES] = leaves.to(self.device)
        self.nodes.m[:LEAVES] = 0.0
        # One sample is impossible.
        self.nodes.v[1, :, 3] = 0.0
        ends = torch.tensor([0, *(len(row) for row in CHILDREN)]).cumsum(0)
        parents = (1, 2, -1)
        integers = [torch.tensor([c for row in CHILDREN for c in row]), ends,
                    torch.tensor(parents), torch.arange(sums)]  # fmt: skip
        children, ends, parent, order = (numbers.to(self.device) for numbers in integers)
        self.edges = TreeEdges(
            children, ends, parent, order, LEAVES, LEAVES, 2, order[2:], parents, {}
        )
        offsets = order * self.K**2
        self.weights = Weights(self.w, offsets, self.K, self.K, [self.w], self.K % 4 == 0)

    def forward(self, precision: str = "highest") -> WideProducts:
        products = WideProducts.empty(len(CHILDREN), self.K, self.batch, self.nodes.v, precision)
        wide_tree.forward(self.weights, self.nodes, self.edges, products, precision)
        return products

    def values(self) -> list[Tensor]:
        """v·exp(m) of all nodes."""
        values = list(self.nodes.v[:LEAVES].double())
        for row, children in enumerate(CHILDREN):
            values.append(self.w[row].double() @ self.product(values, children))
        return values

    def product(self, values: list[Tensor], children: list[int]) -> Tensor:
        return torch.stack([values[child] for child in children]).prod(0)

    def gradients(self, top: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Flows into all nodes, and statistics of all sums, if the topmost sum gets ``top``."""
        values = self.values()
        flows: list[Tensor] = [torch.zeros(0)] * len(values)
        counts: list[Tensor] = [torch.zeros(0)] * len(CHILDREN)
        flows[-1] = top
        for row in reversed(range(len(CHILDREN))):
            v = values[LEAVES + row]
            u = torch.where(v > 0, flows[LEAVES + row] / v.clamp(min=1e-300), 0.0)
            p = self.product(values, CHILDREN[row])
            for child in CHILDREN[row]:
                flows[child] = p * (self.w[row].double().T @ u)
            counts[row] = self.w[row].double() * (u @ p.T)
        return flows, counts


def close(found: Tensor, expected: Tensor, tolerance: float, least: float = 0.0) -> None:
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=least)


@pytest.mark.parametrize(NAMES, [pytest.param("cpu", 70, 20, 512, marks=interpreted), *ON_GPU])
def test_values(device, K, batch, few, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(wide_tree, "_FEW", few)
    case = Case(K, batch, device)
    for precision, tolerance in (("highest", 1e-5), ("high", 2**-11)):
        products = case.forward(precision)
        expected = torch.stack(case.values()[LEAVES:])
        found = case.nodes.v[LEAVES:].double() * case.nodes.m[LEAVES:].exp().unsqueeze(1)
        close(found, expected, tolerance)
        assert (case.nodes.m[LEAVES:, 3] == -torch.inf).all()
        largest = products.p.double().sum(0).amax(1)[:, :batch]
        assert (largest[:, torch.arange(batch) != 3] >= 1 - 1e-3).all()


# Several groups of entries, and large tiles; the smaller ones are in tests/layers/test_tree.py.
@pytest.mark.parametrize(NAMES, [pytest.param("cpu", 130, 65, 64, marks=interpreted), *ON_GPU])
def test_flows_and_a_step(device, K, batch, few, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(wide_tree, "_FEW", few)
    case = Case(K, batch, device)
    products = case.forward()
    values = case.values()
    posterior = torch.where(values[-1].sum(0) > 0, values[-1] / values[-1].sum(0), 0.0)
    flow = torch.zeros_like(case.nodes.v)
    v = case.nodes.v[-1].double()
    flow[-1] = torch.where(v > 0, posterior / v.clamp(min=1e-300), 0.0).float()
    flows, counts = case.gradients(posterior)
    found = Gradients.of_top(flow, case.nodes, case.edges, K, "highest")
    wide_tree.backward(case.weights, case.nodes, case.edges, products, found, flow, "highest")
    for leaf in range(LEAVES):
        close(flow[leaf], flows[leaf], 3e-5, 1e-30)
    for row in range(len(CHILDREN)):
        close(found.totals[row, :, :K].sum(0), flows[LEAVES + row].sum(1), 3e-5)
    if device == "cuda":
        statistics_are_added(case, products, found, counts)
    # The counts of a sum's weights divided by its flow, bounded below, and half way there.
    expected = [
        0.5 * w + 0.5 * (n / n.sum(1, keepdim=True)).clamp(min=RELATIVE_FLOOR / K)
        for w, n in zip(case.w.double(), counts, strict=True)
    ]
    size = torch.tensor(0.5, dtype=torch.float64, device=device)
    wide_weights.step(case.weights, products, found, size, "highest")
    for row, w in enumerate(expected):
        close(case.w[row], w / w.sum(1, keepdim=True), 3e-5)
        close(case.w[row].double().sum(1), torch.ones_like(w[:, 0]), 1e-6)


def statistics_are_added(
    case: Case, products: WideProducts, gradients: Gradients, counts: list[Tensor]
) -> None:
    """Σ_b u_k p_i comes on top of what is there: times the weights it is the counts."""
    into, K = [torch.ones_like(case.w)], case.K
    added = Weights(into[0], case.weights.offsets, K, K, into, case.weights.aligned)
    wide_weights.statistics(products, gradients, added, "highest")
    for row, n in enumerate(counts):
        close((into[0][row] - 1) * case.w[row].double(), n, 1e-4, 1e-6)


@pytest.mark.gpu
def test_bits_repeat():
    results = []
    for _ in range(2):
        case = Case(300, 200, "cuda")
        products = case.forward()
        flow = torch.full_like(case.nodes.v, 0.01)
        found = Gradients.of_top(flow, case.nodes, case.edges, 300, "highest")
        wide_tree.backward(case.weights, case.nodes, case.edges, products, found, flow, "highest")
        size = torch.tensor(0.5, dtype=torch.float64, device="cuda")
        wide_weights.step(case.weights, products, found, size, "highest")
        results.append((case.nodes.v.clone(), flow, case.w))
    assert all(torch.equal(one, two) for one, two in zip(*results, strict=True))
