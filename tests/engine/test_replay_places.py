"""When a recording of a model must be dropped: whenever something it reads lies elsewhere."""

from __future__ import annotations

import copy

import pytest
import torch

import einet
from einet.engine import replay
from einet.engine.replay import Replays


@pytest.fixture
def model() -> einet.Einet:
    graph = einet.poon_domingos((2, 2), delta=1)
    family = [einet.Gaussian(), einet.Categorical(3), einet.Gaussian(), einet.Bernoulli()]
    return einet.Einet(graph, family, 3, num_classes=2)


def taken(model: einet.Einet) -> Replays:
    """As after a recording."""
    replays = Replays()
    assert not replays._in_place()
    replays._places = replay._places(model)
    assert replays._in_place()
    return replays


def test_updates_in_place_keep_recordings(model: einet.Einet):
    replays = taken(model)
    x = torch.tensor([[0.0, 1.0, 0.5, 1.0], [1.0, 2.0, -0.5, 0.0]])
    model.em_step(x, step_size=0.5)
    model.m_step(model.e_step(x), 0.5)
    model.load_state_dict(copy.deepcopy(model).state_dict())
    with torch.no_grad():
        model.log_prob(x)
        for parameter in model.parameters():
            parameter.mul_(1.0)
    assert replays._in_place()


def test_moved_parameters(model: einet.Einet):
    replays = taken(model)
    model.double()
    assert not replays._in_place()
    replays = taken(model)
    layer = model.circuit.sum_layers[0]
    layer.weight.data = layer.weight.data.clone()
    assert not replays._in_place()
    replays = taken(model)
    block = model.leaf.leaf_blocks[-1]
    block.stored = torch.nn.Parameter(block.stored.detach().clone())
    assert not replays._in_place()
    replays = taken(model)
    model.load_state_dict(copy.deepcopy(model).state_dict(), assign=True)
    assert not replays._in_place()


def test_moved_hyper_parameters(model: einet.Einet):
    replays = taken(model)
    group = next(g for g in model.leaf.family_groups if isinstance(g.family, einet.Gaussian))
    before = group.get_buffer("location")
    group.register_buffer("location", before + 1)
    assert not replays._in_place()


def test_unconstrained(model: einet.Einet):
    """Inside, parameters are computed anew at every call: nothing can be recorded."""
    outside = taken(model)
    with einet.unconstrained(model):
        assert not outside._in_place()
        assert replay._places(model) is None
    places = replay._places(model)
    assert places is not None
    assert outside._in_place() == (places == outside._places)
    assert taken(model)._in_place()


def test_copies_have_recordings_of_their_own(model: einet.Einet):
    replays = taken(model)
    twin = copy.deepcopy(model)
    twin.double()
    assert replays._in_place()
    assert twin not in replay._of_models
