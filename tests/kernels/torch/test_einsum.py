"""The kernels of the inner layers against plain formulas, whole and in blocks.

They are called through the layers, whose contract outlives changes of the kernels' arguments.
"""

import math

import pytest
import torch
from torch import Tensor

from einet.kernels.nodes import Nodes, scaled
from einet.layers import EinsumLayer, MixingLayer, SumLayer, Values
from tests.budgets import limit

INF, NAN = math.inf, math.nan

double = torch.float64
both_types = pytest.mark.parametrize("dtype", [torch.float32, double], ids=str)
both_sizes = pytest.mark.parametrize("batch", [1, 70])
both_reductions = pytest.mark.parametrize("maximise", [False, True], ids=["sum", "max"])

L, K, I, J = 3, 2, 4, 5  # noqa: E741 - the letters of equation (5)
LEFT, RIGHT = [0, 4, 1], [2, 3, 2]
MIXED = [[0, 2], [1, 4, 6], [7, 5, 3]]


@pytest.fixture(autouse=True, params=[None, 1], ids=["whole", "in blocks"])
def _budget(request, monkeypatch):
    """With a budget of one byte every block is as small as it gets."""
    if request.param is not None:
        limit(monkeypatch, "block", request.param)


def rand(*shape: int, seed: int = 0, dtype: torch.dtype = double) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=double).to(dtype)


def close(actual: Tensor, expected: Tensor, dtype: torch.dtype = double) -> None:
    """Equal up to rounding in ``dtype``, in which the values were computed."""
    tolerance = 1e-12 if dtype == double else 1e-5
    torch.testing.assert_close(actual.double(), expected.double(), rtol=tolerance, atol=tolerance)


def prepared(layer: SumLayer, log_values: Tensor, dtype: torch.dtype = double) -> Values:
    """Room for a layer's nodes above given ones; NaN wherever nothing has been written yet."""
    given, width, batch = log_values.shape
    entries = max(width, layer.num_outputs)
    body = Nodes.empty(given + layer.num_nodes, entries, batch, torch.empty(0, dtype=dtype))
    for tensor in (body.v, body.m, body.peak):
        tensor.fill_(NAN)
    body.v[:given, :width], body.m[:given] = scaled(log_values, dtype)
    return Values(body, body[:0])


def backwards(layer: SumLayer, weight: Tensor, values: Values, above: Tensor):
    """The flows of all nodes, and the gradient of the weights with ones added beforehand."""
    flow = {"body": torch.zeros_like(values.body.v)}
    flow["body"][layer.slots, : layer.num_outputs] = above
    statistic = torch.ones_like(weight)
    layer.backpropagate(weight, values, flow, statistic)
    again = {"body": torch.zeros_like(values.body.v)}
    again["body"][layer.slots, : layer.num_outputs] = above
    layer.backpropagate(weight, values, again, None)
    assert again["body"].equal(flow["body"])
    return flow["body"], statistic


def sums(layer: SumLayer, values: Values) -> Tensor:
    """The layer's sums as they were before their maximum was taken out."""
    written = layer.written(values)
    return written.v.double() * written.peak.double().unsqueeze(1)


@both_types
def test_scaled(dtype: torch.dtype):
    log_values = 50 * rand(3, 4, 5) - 1e4
    v, m = scaled(log_values, dtype)
    assert (v.dtype, m.dtype) == (dtype, double)
    assert (v.amax(1) == 1).all()
    close(v, (log_values - log_values.amax(1, keepdim=True)).exp(), dtype)
    close(m, log_values.amax(1))


def test_scaled_impossible_values():
    log_values = torch.tensor([[[-INF, -INF, -1e308], [-INF, 0.0, -INF]]], dtype=double)
    v, m = scaled(log_values, torch.float32)
    assert v.tolist() == [[[0, 0, 1], [0, 1, 0]]]
    assert m.tolist() == [[-INF, 0, -1e308]]


# -- the einsum layer ------------------------------------------------------------------------------


def einsum_case(dtype: torch.dtype, batch: int) -> tuple[EinsumLayer, Tensor, Values, Tensor]:
    layer = EinsumLayer(LEFT, RIGHT, I, J, K, start=5)
    log_values = 10 * rand(5, J, batch, seed=1) + 1000 * rand(5, 1, batch, seed=2)
    log_values[LEFT, I:] = -INF  # a left child has fewer entries than there is room for
    weight = rand(L, K, I * J, seed=3, dtype=dtype)
    return layer, weight, prepared(layer, log_values, dtype), log_values


@both_types
@both_sizes
@both_reductions
def test_einsum_forward(dtype: torch.dtype, batch: int, maximise: bool):
    layer, weight, values, log_values = einsum_case(dtype, batch)
    layer.propagate(weight, values, maximise)
    pairs = log_values[LEFT, None, :I, None] + log_values[RIGHT, None, None, :]
    terms = pairs + weight.double().log().view(L, K, I, J, 1)
    terms = terms.flatten(2, 3)
    S = terms.amax(2) if maximise else terms.logsumexp(2)
    written = layer.written(values)
    close(written.v, (S - S.amax(1, keepdim=True)).exp(), dtype)
    close(written.m, S.amax(1), dtype)
    assert not written.peak.isnan().any()


@both_types
@both_sizes
def test_einsum_backward(dtype: torch.dtype, batch: int):
    layer, weight, values, _ = einsum_case(dtype, batch)
    layer.propagate(weight, values)
    above = rand(L, K, batch, seed=5, dtype=dtype)
    found, statistic = backwards(layer, weight, values, above)

    W, v = weight.double().view(L, K, I, J), values.body.v.double()
    N, M = v[LEFT, :I], v[RIGHT, :J]
    G = above.double() / sums(layer, values)
    expected = torch.zeros(5, J, batch, dtype=double)
    # Node 2 is a child twice, and gathers both.
    to_left = torch.einsum("lkb,lkij,ljb,lib->lib", G, W, M, N)
    to_right = torch.einsum("lkb,lkij,lib,ljb->ljb", G, W, N, M)
    expected[:, :I].index_add_(0, torch.tensor(LEFT), to_left)
    expected.index_add_(0, torch.tensor(RIGHT), to_right)
    close(found[:5, :J], expected, dtype)
    close(statistic, 1 + torch.einsum("lkb,lib,ljb->lkij", G, N, M).flatten(2, 3), dtype)


def test_einsum_of_one_child():
    layer = EinsumLayer([0, 1], [-1, -1], 3, 1, 2, start=2)
    log_values, weight = 10 * rand(2, 3, 7), rand(2, 2, 3, seed=1)
    values = prepared(layer, log_values)
    layer.propagate(weight, values)
    written = layer.written(values)
    S = (log_values.unsqueeze(1) + weight.log().unsqueeze(-1)).logsumexp(2)
    close(written.v.log() + written.m.unsqueeze(1), S)
    above = rand(2, 2, 7, seed=2)
    found, statistic = backwards(layer, weight, values, above)
    G = above / sums(layer, values)
    close(found[:2], torch.einsum("lkb,lki,lib->lib", G, weight, values.body.v[:2]))
    close(statistic, 1 + torch.einsum("lkb,lib->lki", G, values.body.v[:2]))


# -- the mixing layer ------------------------------------------------------------------------------


def mixing_case(dtype: torch.dtype, batch: int) -> tuple[MixingLayer, Tensor, Values, Tensor]:
    layer = MixingLayer(MIXED, K, start=9)
    log_values = torch.full((9, K + 3, batch), NAN, dtype=double)
    log_values[:, :K] = 20 * rand(9, K, batch, seed=1) - 5000
    log_values[:, K:] = -INF  # room for the larger leaves of the same circuit
    weight = rand(8, K, seed=2, dtype=dtype)
    return layer, weight, prepared(layer, log_values, dtype), log_values[:, :K]


@both_types
@both_sizes
@both_reductions
def test_mixing_forward(dtype: torch.dtype, batch: int, maximise: bool):
    layer, weight, values, log_values = mixing_case(dtype, batch)
    layer.propagate(weight, values, maximise)
    written = layer.written(values)
    edge = 0
    for region, children in enumerate(MIXED):
        w = weight.double()[edge : edge + len(children)]
        terms = log_values[children] + w.log().unsqueeze(-1)
        S = terms.amax(0) if maximise else terms.logsumexp(0)
        close(written.v[region], (S - S.amax(0)).exp(), dtype)
        close(written.m[region], S.amax(0), dtype)
        edge += len(children)


@both_types
@both_sizes
def test_mixing_backward(dtype: torch.dtype, batch: int):
    layer, weight, values, _ = mixing_case(dtype, batch)
    layer.propagate(weight, values)
    above = rand(3, K, batch, seed=5, dtype=dtype)
    found, statistic = backwards(layer, weight, values, above)
    edge = 0
    for region, children in enumerate(MIXED):
        w = weight.double()[edge : edge + len(children)]
        m = values.body.m[children]
        relative = (m - m.amax(0)).exp().unsqueeze(1)
        G = above[region].double() / sums(layer, values)[region]
        terms = G * relative * values.body.v[children, :K].double()
        close(found[children, :K], terms * w.unsqueeze(-1), dtype)
        close(statistic[edge : edge + len(children)], 1 + terms.sum(-1), dtype)
        edge += len(children)
    assert (found[8] == 0).all()


# -- impossible rows -------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [einsum_case, mixing_case])
def test_impossible_rows_leave_no_trace(case):
    layer, weight, _, log_values = case(torch.float32, 4)
    log_values[:, :, 1] = -INF
    log_values[:, :, 2] *= 1e300
    values = prepared(layer, log_values, torch.float32)
    layer.propagate(weight, values)
    written = layer.written(values)
    assert (written.v[:, :, 1] == 0).all()
    assert (written.m[:, 1] == -INF).all()
    assert written.m[:, [0, 2, 3]].isfinite().all()
    assert not written.v.isnan().any()
    above = torch.ones(layer.num_nodes, K, 4)
    found, statistic = backwards(layer, weight, values, above)
    assert not found.isnan().any()
    possible = [0, 2, 3]
    fewer = prepared(layer, log_values[..., possible], torch.float32)
    layer.propagate(weight, fewer)
    _, expected = backwards(layer, weight, fewer, above[..., possible])
    close(statistic, expected, torch.float32)
