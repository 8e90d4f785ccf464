"""The E-step and M-step in one go: the same parameters as one after the other."""

import copy

import pytest
import torch
from torch import Tensor

import einet
from einet import Einet
from tests.budgets import limit
from tests.families.cases import CASES, Case
from tests.learning.test_em import STRUCTURES, draws, holes


def assert_same(one: Einet, two: Einet) -> None:
    for (name, first), second in zip(one.named_parameters(), two.parameters(), strict=True):
        torch.testing.assert_close(
            first, second, rtol=1e-9, atol=1e-12, msg=lambda m, n=name: f"{n}: {m}"
        )


def both_ways(model: Einet, x: Tensor, step_size: float, **rows) -> None:
    other = copy.deepcopy(model)
    for _ in range(3):
        mean = model.em_step(x, step_size=step_size, **rows)
        statistics = other.e_step(x, **rows)
        other.m_step(statistics, step_size)
        torch.testing.assert_close(mean, statistics.log_likelihood / statistics.rows)
        assert_same(model, other)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_equals_the_two_steps(structure: str, case: Case):
    x = holes(draws(case))
    model = Einet(
        STRUCTURES[structure], case.family, 4, num_leaves=3, num_classes=2, dtype=torch.float64
    )
    labels = torch.arange(len(x)) % 3 - 1
    both_ways(model.initialize(x), x, 0.3, labels=labels, weights=torch.rand(len(x)))


def test_in_small_blocks(monkeypatch):
    """Statistics of one sum may come in several pieces of the batch."""
    limit(monkeypatch, "block")
    limit(monkeypatch, "rows at once", 0)
    model = Einet(STRUCTURES["Poon-Domingos"], einet.Gaussian(), 3, dtype=torch.float64)
    both_ways(model, torch.randn(200, 4, dtype=torch.float64), 1.0)


def test_a_large_batch_is_learnt_from_as_a_whole(monkeypatch):
    limit(monkeypatch, "values")
    model = Einet(STRUCTURES["random trees"], einet.Gaussian(), 3, dtype=torch.float64)
    x = torch.randn(150, 4, dtype=torch.float64)
    assert len(model.pieces(len(x))) == 3
    both_ways(model, x, 0.5)


def test_sums_that_no_row_reaches_keep_their_weights():
    model = Einet(STRUCTURES["Poon-Domingos"], einet.Bernoulli(), 3, num_classes=2)
    before = copy.deepcopy(model)
    model.em_step(torch.ones(5, 4), labels=torch.zeros(5, dtype=torch.long), step_size=1.0)
    top = model.circuit.sum_layers[-2].weight
    assert top[:, 1].equal(before.circuit.sum_layers[-2].weight[:, 1])
    assert not top[:, 0].equal(before.circuit.sum_layers[-2].weight[:, 0])


def test_not_inside_unconstrained():
    model = Einet(STRUCTURES["random trees"], einet.Gaussian(), 2)
    x = torch.randn(5, 4)
    statistics = model.e_step(x)
    with einet.unconstrained(model):
        with pytest.raises(RuntimeError, match="inside einet.unconstrained"):
            model.em_step(x)
        with pytest.raises(RuntimeError, match="inside einet.unconstrained"):
            model.m_step(statistics)


def test_mixtures_have_it_too():
    parts = [Einet(STRUCTURES["random trees"], einet.Gaussian(), 2, seed=s) for s in (0, 1)]
    model = einet.Mixture(parts)
    x = torch.randn(30, 4)
    results = [model.em_step(x).item() for _ in range(5)]
    assert results == sorted(results)
