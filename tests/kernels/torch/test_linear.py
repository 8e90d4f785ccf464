"""The kernels of the linear layer against plain formulas, whole and in blocks."""

import math

import pytest
import torch
from torch import Tensor

from einet.kernels.nodes import Nodes, scaled
from einet.kernels.torch.linear import multiply_, scale_down_
from einet.kernels.update import Step, step_
from einet.layers import LinearLayer, Values
from tests.budgets import limit

INF, NAN = math.inf, math.nan

double = torch.float64
both_types = pytest.mark.parametrize("dtype", [torch.float32, double], ids=str)
both_sizes = pytest.mark.parametrize("batch", [1, 70])
both_reductions = pytest.mark.parametrize("maximise", [False, True], ids=["sum", "max"])

K, I = 2, 5  # noqa: E741 - the letters of the formula
# Node 4 has two parents in this layer; one sum has a single child.
CHILDREN = [[4, 0, 2, 6, 1], [4, 3, 5], [7]]
NODES = 9


@pytest.fixture(autouse=True, params=[None, 1], ids=["whole", "in blocks"])
def _budget(request, monkeypatch):
    """With a budget of one byte every block is as small as it gets."""
    if request.param is not None:
        limit(monkeypatch, "block", request.param)


def rand(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=double)


def close(actual: Tensor, expected: Tensor, dtype: torch.dtype = double) -> None:
    tolerance = 1e-12 if dtype == double else 1e-5
    torch.testing.assert_close(actual.double(), expected.double(), rtol=tolerance, atol=tolerance)


class Case:
    """A layer over given log values, and what the formula says of it."""

    def __init__(
        self, log_values: Tensor, children: list[list[int]] = CHILDREN, dtype: torch.dtype = double
    ) -> None:
        nodes, width, batch = log_values.shape
        self.layer = LinearLayer(children, width, K, nodes)
        weight = rand(len(children), K, width, seed=3) ** 3
        self.W = weight / weight.sum(-1, keepdim=True)
        self.weight = self.W.to(dtype)
        body = Nodes.empty(nodes + len(children), width, batch, torch.empty(0, dtype=dtype))
        for tensor in (body.v, body.m, body.peak):
            tensor.fill_(NAN)
        body.v[:nodes], body.m[:nodes] = scaled(log_values, dtype)
        self.values = Values(body, body[:0])
        self.log_values = body.v[:nodes].double().log() + body.m[:nodes].unsqueeze(1)
        self.products = torch.stack([self.log_values[c].sum(0) for c in children])
        self.children = children

    def terms(self) -> Tensor:
        """log W_ki Π_c N_ci, as ``[l, k, i, batch]``."""
        return self.W.log().unsqueeze(-1) + self.products.unsqueeze(1)

    def forward(self, maximise: bool = False) -> Nodes:
        self.layer.propagate(self.weight, self.values, maximise)
        return self.layer.written(self.values)


@both_types
@both_sizes
@both_reductions
def test_forward(dtype: torch.dtype, batch: int, maximise: bool):
    case = Case(20 * rand(NODES, I, batch) - 30, dtype=dtype)
    out = case.forward(maximise)
    terms = case.terms()
    close(
        out.v.log() + out.m.unsqueeze(1), terms.amax(2) if maximise else terms.logsumexp(2), dtype
    )
    assert (out.v.amax(1) == 1).all()


@both_types
def test_many_factors_that_disagree(dtype: torch.dtype):
    """Far below the least number there is; and entries that fall behind may catch up."""
    log_values = -80 * rand(60, I, 8)
    log_values[:30, 0] -= 60
    log_values[30:, 1] -= 60
    # The first entry is far ahead half of the way, and at the end it is not.
    case = Case(log_values, [list(range(60))], dtype)
    assert case.products.max() < -1000
    out = case.forward()
    close(out.v.log() + out.m.unsqueeze(1), case.terms().logsumexp(2), dtype)


@both_types
def test_some_samples_far_below_others(dtype: torch.dtype):
    """Each is computed in its own way, forwards and backwards."""
    log_values = -2 * rand(12, I, 9)
    log_values[:6, 0, ::3] -= 70
    log_values[6:, 1:, ::3] -= 70
    children = [list(range(12)), [0, 6]]
    case = Case(log_values, children, dtype)
    largest = case.products.amax(1) - torch.stack([log_values[c].amax(1).sum(0) for c in children])
    assert (largest[:, ::3] < -60).all()
    assert (largest[1, 1::3] > -7).all()
    out = case.forward()
    close(out.v.log() + out.m.unsqueeze(1), case.terms().logsumexp(2), dtype)
    flow = {"body": torch.zeros_like(case.values.body.v)}
    above = flow["body"][case.layer.slots, :K] = rand(2, K, 9, seed=5).to(dtype)
    case.layer.backpropagate(case.weight, case.values, flow, None)
    into = (case.terms().softmax(2) * above.double().unsqueeze(2)).sum(1)
    close(flow["body"][1], into[0], dtype)
    close(flow["body"][6], into.sum(0), dtype)


@both_types
@both_sizes
def test_backward(dtype: torch.dtype, batch: int):
    log_values = 20 * rand(NODES, I, batch) - 30
    # Entries of 0: in one child only, and in all that a node has.
    log_values[0, 1, ::2] = log_values[7, :2] = -INF
    case = Case(log_values, dtype=dtype)
    out = case.forward()
    above = rand(len(CHILDREN), K, batch, seed=5)
    flow = {"body": torch.zeros_like(case.values.body.v)}
    flow["body"][case.layer.slots, :K] = above.to(dtype)
    statistic = torch.ones_like(case.weight)
    assert case.layer.backpropagate(case.weight, case.values, flow, statistic) is None
    # P(i | k) of every sum says where its flow comes from.
    into = (case.terms().softmax(2) * above.unsqueeze(2)).sum(1)
    expected = torch.zeros(NODES, I, batch, dtype=double)
    for row, children in enumerate(CHILDREN):
        for child in children:
            expected[child] += into[row]
    close(flow["body"][:NODES], expected, dtype)
    counts = (case.terms().softmax(2) * above.unsqueeze(2)).sum(-1)
    close((statistic - 1) * case.weight, counts, dtype)
    assert out.v.isfinite().all()

    # The same as a step of EM.
    flow["body"][:NODES] = 0
    step_(expected_weight := case.W.clone(), counts.clone(), 0.3, axis=-1)
    case.layer.backpropagate(case.weight, case.values, flow, Step(0.3))
    close(case.weight, expected_weight, dtype)


@both_types
@both_reductions
def test_impossible_children(dtype: torch.dtype, maximise: bool):
    log_values = rand(NODES, I, 4) - 5
    log_values[4, :, 1] = -INF
    # No single child is impossible here, but their product is.
    log_values[0, :2, 2] = log_values[2, 2:, 2] = -INF
    case = Case(log_values, dtype=dtype)
    out = case.forward(maximise)
    expected = torch.tensor([[0, 1, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]], dtype=torch.bool)
    assert ((out.m == -INF) == expected).all()
    assert ((out.v == 0).all(1) == expected).all()
    assert not out.v.isnan().any()
    flow = {"body": torch.zeros_like(case.values.body.v)}
    flow["body"][case.layer.slots, :K] = 1.0
    statistic = torch.zeros_like(case.weight)
    case.layer.backpropagate(case.weight, case.values, flow, statistic)
    assert statistic.isfinite().all()
    assert (flow["body"][[4, 0, 6, 1], :, 1] == 0).all()
    assert (flow["body"][[0, 2, 6, 1], :, 2] == 0).all()


@both_types
def test_products_with_exponents(dtype: torch.dtype):
    factors = torch.tensor([[1.0, 0.3, 1e-30, 0.0], [1e-30, 0.3, 1e-30, 1.0]], dtype=dtype)
    p, exponent = torch.ones(1, 4, dtype=dtype), torch.zeros(1, 4, dtype=torch.int64)
    exact = torch.zeros(4, dtype=double)
    for factor in [*factors] * 40:
        multiply_(p, exponent, factor)
        exact += factor.double().log()
        assert ((p == 0) | ((p >= 1) & (p < 2))).all()
    close((p.double().log() + exponent.double() * math.log(2))[0, :3], exact[:3], dtype)
    power = scale_down_(p, exponent)
    assert power.tolist() == [math.floor(80 * math.log2(0.3))]
    assert 1 <= p[0, 1] < 2
    assert p[0, [0, 2, 3]].tolist() == [0, 0, 0]
