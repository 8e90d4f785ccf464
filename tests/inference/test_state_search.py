"""The search for the most probable count, against a look at every one."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import einet
from einet.inference import imputation
from einet.inference.state_search import most_probable_by_search, range_of_modes
from tests.oracle import NAN


def counts(rates: list[float], weights: list[float]) -> einet.Einet:
    """One variable, a mixture of Poissons."""
    graph = einet.RegionGraph(1, [1], [])
    model = einet.Einet(graph, einet.Poisson(), len(rates), dtype=torch.float64)
    with torch.no_grad():
        model.leaf.leaf_blocks[0].stored.copy_(torch.tensor(rates).view(-1, 1, 1))
        share = torch.tensor(weights, dtype=torch.float64)
        model.circuit.weights[0].copy_((share / share.sum()).view(1, 1, -1))
    return model


def by_hand(rates: list[float], weights: list[float]) -> np.ndarray:
    # One more than the rate: at a whole rate its count and the one below are equally likely.
    states = np.arange(int(max(rates)) + 2)
    share = np.array(weights) / np.sum(weights)
    return share @ np.stack([stats.poisson.pmf(states, rate) for rate in rates])


@given(
    mixture=st.lists(st.tuples(st.floats(0.01, 3000), st.floats(0.01, 1)), min_size=1, max_size=6)
)
def test_it_finds_the_best_of_all(mixture: list[tuple[float, float]]):
    rates, weights = map(list, zip(*mixture, strict=True))
    model = counts(rates, weights)
    lowest, highest, one_peak = range_of_modes(model)
    assert one_peak.all()
    found = most_probable_by_search(model.prior(), 0, float(lowest), float(highest))
    p = by_hand(rates, weights)
    assert p[int(found)] >= p.max() * (1 - 1e-9)


@pytest.mark.parametrize("rate", [1e4 + 0.5, 1e9 + 0.5])
def test_far_apart(rate: float):
    """Two rates between which no table would fit."""
    model = counts([3.5, rate], [0.5, 0.5])
    assert model.prior().impute().item() == 3
    few = counts([3.5, rate], [1e-12, 1.0])
    # The sum of terms of size rate·log(rate) has no more digits than this.
    assert few.prior().impute().item() == pytest.approx(rate, abs=1 + 1e-7 * rate)


def test_rows_and_columns(monkeypatch: pytest.MonkeyPatch):
    """Searched or tabulated, in parts or not."""
    graph = einet.random_trees(4, depth=2, replicas=2)
    families = [einet.Poisson(), einet.Binomial(9), einet.Poisson(), einet.Categorical(3)]
    model = einet.Einet(graph, families, 3, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    data = torch.rand(80, 4, generator=generator, dtype=torch.float64)
    data = (data * torch.tensor([40.0, 9, 300, 3])).floor()
    model.initialize(data)
    evidence = torch.where(torch.rand(80, 4, generator=generator) < 0.5, NAN, data)
    tabulated = model.given(evidence).impute()
    for setting in ("_MOST_TABULATED", "_CPU_TABLE_BYTES"):
        monkeypatch.setattr(imputation, setting, 1)
        assert model.given(evidence).impute().equal(tabulated)
    posterior = model.given(evidence)
    for variable in range(4):
        missing = evidence[:, variable].isnan()
        best = tabulated[missing, variable]
        marginals = []
        for state in range(301 if variable == 2 else 41):
            query = torch.full((80, 4), NAN).double()
            query[:, variable] = state
            marginals.append(posterior.log_marginals(query)[missing, variable])
        table = torch.stack(marginals)
        chosen = table.gather(0, best.long().unsqueeze(0))[0]
        assert (chosen >= table.amax(0) - 1e-9).all()
