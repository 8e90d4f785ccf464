"""One Einet in the place of many."""

import pytest
import torch

import einet
from einet.clusters.stand_in import StandIn, copy_parameters, twin
from einet.engine.replay import _places

GRAPH = einet.poon_domingos((2, 2), delta=1)
FAMILIES = [einet.Gaussian(), einet.Categorical(3), einet.Gamma(), einet.Bernoulli()]
X = torch.tensor([[0.0, 1.0, 0.5, 1.0], [1.0, 2.0, 1.5, 0.0], [2.0, 0.0, 2.5, 0.0]])


def make(seed: int, **options) -> einet.Einet:
    model = einet.Einet(GRAPH, FAMILIES, 3, num_classes=2, seed=seed, **options)
    return model.initialize((seed + 1) * X % torch.tensor([99.0, 3.0, 99.0, 2.0]), seed=seed)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_answers_as_the_others_do(dtype: torch.dtype):
    others = [make(seed, dtype=dtype) for seed in range(3)]
    stand_in = StandIn(others[0])
    places = _places(stand_in.model)
    for other in others * 2:
        assert stand_in.serves(other)
        assert stand_in.become(other).log_prob(X).equal(other.log_prob(X))
        assert stand_in.model.initialized
    # Where it was: what has been recorded of it is still right.
    assert _places(stand_in.model) == places


def test_it_learns_for_others():
    one, two = make(1), make(1)
    stand_in = StandIn(make(0))
    stand_in.become(one).em_step(X, step_size=0.5)
    stand_in.give(one)
    two.em_step(X, step_size=0.5)
    assert one.log_prob(X).equal(two.log_prob(X))


def test_precision_and_types():
    stand_in = StandIn(make(0))
    assert stand_in.become(make(1, precision="medium")).precision == "medium"
    assert not stand_in.serves(make(0, dtype=torch.float64))


def test_made_in_inference_mode():
    like = make(0)
    with torch.inference_mode():
        stand_in = StandIn(like)
    stand_in.become(make(1)).em_step(X, step_size=0.5)


def test_twins_share_their_graph_only():
    model = make(0)
    other = twin(model)
    assert other.graph is model.graph
    assert other.log_prob(X).equal(model.log_prob(X))
    before = model.log_prob(X)
    other.em_step(X, step_size=0.5)
    assert model.log_prob(X).equal(before)
    copy_parameters(model, other)
    assert other.log_prob(X).equal(before)
