"""Statistics of a part of an epoch come back as they were, or not at all."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import einet
from einet.learning.em_state import load_statistics, no_rows, statistics_state
from einet.models.base import Model

GRAPH = einet.random_trees(3, depth=1, replicas=2, seed=0)
X = torch.randint(0, 2, (20, 3), generator=torch.Generator().manual_seed(0)).float()


def mixed(dtype: torch.dtype = torch.float32) -> einet.Einet:
    families = [einet.Gaussian(), einet.Bernoulli(), einet.Gaussian()]
    return einet.Einet(GRAPH, families, 2, dtype=dtype).initialize(X)


def nested() -> einet.Mixture:
    return einet.Mixture([einet.Mixture([mixed(), mixed()]), mixed()])


MODELS = {"einet": mixed, "float64": lambda: mixed(torch.float64), "mixture": nested}


@pytest.mark.parametrize("name", MODELS)
def test_they_go_on_as_if_nothing_had_happened(name: str):
    model: Model = MODELS[name]()
    whole = model.e_step(X[:8])
    again = load_statistics(model, *statistics_state(whole))
    assert again is not None
    for each in (whole, again):
        model.e_step(X[8:], into=each)
    assert all(map(torch.equal, whole.tensors(), again.tensors()))
    one, two = MODELS[name](), MODELS[name]()
    one.m_step(whole)
    two.m_step(again)
    assert all(map(torch.equal, one.parameters(), two.parameters()))


def test_none_and_those_of_no_rows():
    model = nested()
    assert load_statistics(model, *statistics_state(None)) is None
    empty = load_statistics(model, *statistics_state(no_rows(model)))
    assert empty is not None
    assert all(leaf.empty for leaf in empty.leaf_statistics())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("sums.2"), "sums.2 is missing"),
        (lambda t: t.update(more=torch.ones(1)), "more is too much"),
        (lambda t: t.update({"sums.3": torch.ones(1)}), r"sums\.3 must be torch.float32 of shape"),
        (lambda t: t["sums.4"].fill_(torch.inf), "sums.4 must hold finite numbers"),
        (lambda t: t["sums.0"].fill_(torch.nan), "sums.0 must hold finite numbers"),
        (lambda t: t["origins.0"].fill_(torch.nan), "origins.0 must hold finite numbers"),
    ],
)
def test_others_are_refused(change: Any, message: str):
    model = mixed()
    values, tensors = statistics_state(model.e_step(X))
    change(tensors)
    with pytest.raises(ValueError, match=message):
        load_statistics(model, values, tensors)
    with pytest.raises(ValueError, match="learner must have the fields"):
        load_statistics(model, {"begun": True}, tensors)


def test_impossible_rows_leave_the_rest_finite():
    model = mixed()
    values, tensors = statistics_state(model.e_step(X))
    minus: Tensor = tensors["sums.0"].fill_(-torch.inf)
    again = load_statistics(model, values, tensors)
    assert again is not None
    assert again.log_likelihood == minus
