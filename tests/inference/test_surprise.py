"""Surprises against the log densities of rows with and without each cell."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import einet
from einet.inference import leave_one_out as module
from tests.budgets import limit
from tests.oracle import CONTINUOUS, DISCRETE, NAN, Oracle, close, random_model, random_rows

FAMILIES = DISCRETE | CONTINUOUS
MIXED = [
    einet.Gaussian(), einet.Categorical(3), einet.Gamma(), einet.Gaussian(),
    einet.Bernoulli(), einet.Poisson(),
]  # fmt: skip
INF = math.inf


def expected(models: list[einet.Einet], x: Tensor, weights: list[float] | None = None) -> Tensor:
    """By log p of all rows with and without each cell, which the oracle computes in log space."""
    logs = np.log(np.ones(1) if weights is None else np.array(weights))
    oracles = [Oracle(model) for model in models]

    def log_prob(rows: Tensor) -> Tensor:
        each = np.stack([log + o.log_prob(rows) for log, o in zip(logs, oracles, strict=True)])
        return torch.from_numpy(each).logsumexp(0)

    answer = torch.full(x.shape, NAN, dtype=torch.float64)
    whole = log_prob(x)
    for variable in range(x.shape[1]):
        without = x.clone()
        without[:, variable] = NAN
        known = ~x[:, variable].isnan()
        answer[known, variable] = (log_prob(without) - whole)[known]
    return answer


@pytest.fixture
def passes_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail where the two passes do not answer by themselves."""

    def one_by_one(passes, batch, row, cell):
        assert not len(row), f"{len(row)} cells were asked by themselves"
        return torch.empty(0, dtype=torch.float64)

    monkeypatch.setattr(module, "_one_by_one", one_by_one)


@pytest.mark.parametrize("sums", ["einsum", "linear"])
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family(name: str, sums: str, passes_only: None):
    # Leaves with one variable and with two.
    model = random_model(einet.random_trees(5, 2, 2), FAMILIES[name], 3, sums=sums)
    x = random_rows(model, 7, missing=0.3)
    x[0] = NAN
    x[1, 1:] = NAN
    found = model.surprise(x)
    assert found.dtype == torch.float64
    close(found, expected([model], x))
    close(model.float().surprise(x), expected([model], x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("sums", ["einsum", "linear"])
def test_several_families(depth: int, sums: str, passes_only: None):
    model = random_model(einet.random_trees(6, depth, 3), MIXED, 3, sums=sums)
    x = random_rows(model, 9, missing=0.2)
    close(model.surprise(x), expected([model], x))


def narrow_and_wide(sums: str, dtype: torch.dtype) -> einet.Einet:
    """A chain whose first state is narrow, and its second wide."""
    if sums == "linear":
        rows = torch.randn(50, 4, generator=torch.manual_seed(0)).cumsum(1)
        graph = einet.chow_liu(rows, information="gaussian")
    else:
        graph = einet.random_trees(4, 2, 2)
    model = random_model(graph, einet.Gaussian(), 2, sums=sums)
    with torch.no_grad():
        for block in model.leaf.leaf_blocks:
            block.stored[..., 0] = 0.1 * torch.randn(block.stored.shape[:2]).double()
            block.stored[0, :, 1] = 1.0
            block.stored[1, :, 1] = 30.0**2
        for layer in model.circuit.sum_layers:
            layer.align(0.999)
    return model.to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("sums", ["einsum", "linear"])
def test_an_outlier_is_exact(sums: str, dtype: torch.dtype, passes_only: None):
    """The state that all others speak for has e⁻⁸⁰⁰ of the outlier's density, and less."""
    model = narrow_and_wide(sums, dtype)
    x = torch.zeros(6, 4, dtype=dtype)
    x[1, 2] = 40.0
    x[2, 0], x[2, 3] = 40.0, -40.0
    x[3, 1] = 1e4
    x[4] = 40.0
    x[5] = torch.tensor([3.0, NAN, 3e4, NAN])
    found = model.surprise(x)
    tolerance = 1e-9 if dtype == torch.float64 else 2e-6
    close(found, expected([model], x.double()), rtol=tolerance, atol=tolerance)
    # A flow of 0 would leave no more than what the wide state says.
    assert found[1].argmax() == 2
    assert found[1, 2] > found[4, 2]


@settings(max_examples=12)
@given(st.lists(st.floats(-1e5, 1e5), min_size=4, max_size=4), st.integers(0, 15))
def test_any_values(row: list[float], hidden: int):
    model = narrow_and_wide("linear", torch.float64)
    x = torch.tensor([row], dtype=torch.float64)
    x[0, [bool(hidden >> place & 1) for place in range(4)]] = NAN
    close(model.surprise(x), expected([model], x), rtol=1e-8, atol=1e-8)


def test_many_variables_in_a_leaf(passes_only: None):
    """Components that differ by far more than a float, and one cell that speaks against them."""
    graph = einet.RegionGraph(30, [(1 << 30) - 1], [])
    model = random_model(graph, einet.Gaussian(), 3)
    with torch.no_grad():
        block = model.leaf.leaf_blocks[0]
        block.stored[..., 0] = torch.tensor([-3.0, 0.0, 3.0]).double()[:, None]
        block.stored[..., 1] = 0.1
    x = torch.full((2, 30), 3.0, dtype=torch.float64)
    x[1, 7], x[1, 8] = -3.0, NAN
    close(model.surprise(x), expected([model], x))


@pytest.mark.parametrize("labels", [None, [0, 1, -1, 1]], ids=["unknown", "known"])
def test_classes(labels: list[int] | None, passes_only: None):
    model = random_model(einet.random_trees(4, 2, 2), einet.Categorical(3), 3, num_classes=2)
    x = random_rows(model, 4, missing=0.0)
    found = model.surprise(x, labels=labels)
    with torch.no_grad():
        for variable in range(4):
            without = x.clone()
            without[:, variable] = NAN
            whole = model.log_prob(x, labels=labels)
            close(found[:, variable], model.log_prob(without, labels=labels) - whole)


def test_a_mixture():
    graph = einet.random_trees(4, 2, 2)
    parts = [random_model(graph, einet.Gaussian(), 2, seed=seed) for seed in range(3)]
    # The last component explains the other cells of some rows, and an outlier not at all.
    with torch.no_grad():
        parts[2].leaf.leaf_blocks[0].stored[..., 1] = 1e-4
    model = einet.Mixture([einet.Mixture(parts[:2], [0.3, 0.7]), parts[2]], [0.4, 0.6])
    x = random_rows(parts[0], 6, missing=0.2)
    x[0] = torch.tensor([0.0, 0.0, 60.0, 0.0])
    close(model.surprise(x), expected(parts, x, [0.12, 0.28, 0.6]))


def test_components_of_other_support():
    graph = einet.random_trees(2, 1, 1)
    parts = [random_model(graph, family, 2) for family in (einet.Gaussian(), einet.Gamma())]
    model = einet.Mixture(parts, [0.5, 0.5])
    x = torch.tensor([[1.0, 2.0], [1.0, -0.1], [-1.0, -2.0]]).double()
    close(model.surprise(x), expected(parts, x, [0.5, 0.5]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_rows_of_probability_0(dtype: torch.dtype):
    families = [einet.Gamma(), einet.Categorical(3), einet.Gaussian()]
    model = random_model(einet.random_trees(3, 2, 2), families, 3).to(dtype)
    x = torch.tensor([[1.0, 5.0, 0.0], [-1.0, 3.0, 0.0], [1.0, 2.0, 0.0], [-1.0, NAN, NAN]])
    found = model.surprise(x)
    close(found[0], [NAN, INF, NAN])
    close(found[1], [NAN, NAN, NAN])
    assert found[2].isfinite().all()
    close(found[3], [INF, NAN, NAN])


def test_weights_of_0_take_the_plain_way():
    model = narrow_and_wide("linear", torch.float64)
    with torch.no_grad():
        weight = model.circuit.sum_layers[-2].weight
        weight[:, 0], weight[:, 1] = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    x = torch.zeros(3, 4).double()
    x[1, 2] = 40.0
    x[2] = 300.0
    close(model.surprise(x), expected([model], x))


def test_rows_in_pieces(monkeypatch: pytest.MonkeyPatch):
    model = random_model(einet.random_trees(5, 2, 2), MIXED[:5], 3)
    x = random_rows(model, 40, missing=0.2)
    x[3, 1] = 7.0
    whole = model.surprise(x)
    limit(monkeypatch, "values")
    limit(monkeypatch, "block")
    monkeypatch.setattr("einet.kernels.memory._FEWEST_COLUMNS", 2)
    close(model.surprise(x), whole)


def test_masks_integers_and_no_rows():
    model = random_model(einet.random_trees(3, 1, 1), einet.Categorical(3), 2)
    x, mask = torch.tensor([[0, 1, 2], [2, 2, 0]]), torch.tensor([[True] * 3, [True, False, True]])
    rows = torch.where(mask, x.double(), NAN)
    close(model.surprise(x, mask), expected([model], rows))
    assert model.surprise(torch.empty(0, 3)).shape == (0, 3)
    with pytest.raises(ValueError, match="labels"):
        einet.Mixture([model]).surprise(x, labels=[0, 0])


def test_independent_cells_surprise_by_themselves():
    model = random_model(einet.random_trees(4, 2, 1), einet.Gaussian(), 1)
    x = random_rows(model, 5, missing=0.0)
    close(model.surprise(x), -model.given(torch.full_like(x, NAN)).log_marginals(x))
