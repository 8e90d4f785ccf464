"""Numbers that no model has are told from those that one may have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import einet
from einet.clusters.side_by_side import SideBySide
from einet.models.soundness import check_values
from tests.oracle import random_rows

GRAPH = einet.random_trees(4, depth=1, replicas=2, seed=0)
FAMILIES: dict[str, Any] = {
    "Bernoulli": einet.Bernoulli(),
    "Beta": einet.Beta(),
    "Binomial": einet.Binomial(4),
    "Categorical": einet.Categorical([2, 3, 3, 2]),
    "Exponential": einet.Exponential(),
    "Gamma": einet.Gamma(),
    "Gaussian": einet.Gaussian(),
    "Poisson": einet.Poisson(),
}
# What none of the parameters of a family can be, wherever it is put.
IMPOSSIBLE = {
    "Bernoulli": [-0.1, 1.1],
    "Beta": [-0.5, 0.0],
    "Binomial": [-0.1, 1.1],
    "Categorical": [-0.1, 2.0],
    "Exponential": [-1.0, 0.0],
    "Gamma": [-0.5, 0.0],
    "Gaussian": [],
    "Poisson": [-1.0, 0.0],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", FAMILIES)
def test_models_are_sound_before_and_after_learning(name: str, dtype: torch.dtype):
    for sums in ("einsum", "linear"):
        model = einet.Einet(GRAPH, FAMILIES[name], 3, sums=sums, num_classes=2, dtype=dtype)
        check_values(model)
        x = random_rows(model, 30)
        model.initialize(x)
        check_values(model)
        for step_size in (1.0, 0.01):
            model.em_step(x, step_size=step_size)
            check_values(model)
        check_values(model, model.state_dict())


@pytest.mark.parametrize("name", FAMILIES)
def test_impossible_leaves(name: str, tmp_path: Path):
    model = einet.Einet(GRAPH, FAMILIES[name], 2)
    stored = model.leaf.leaf_blocks[0].stored
    before = stored.clone()
    for value in [*IMPOSSIBLE[name], float("nan"), float("inf")]:
        for place in range(stored.shape[-1]):
            stored.copy_(before)
            stored[1, 0, place] = value
            with pytest.raises(ValueError, match=r"leaf\.blocks\.0\.stored must hold"):
                model.save(tmp_path / "model.einet")
    assert list(tmp_path.iterdir()) == []
    stored.copy_(before)
    model.save(tmp_path / "model.einet")


def test_a_variance_of_a_gaussian():
    model = einet.Einet(GRAPH, einet.Gaussian(), 2)
    for variance in (0.0, -1.0):
        model.leaf.leaf_blocks[0].stored[0, 0, 1] = variance
        with pytest.raises(ValueError, match=r"of a Gaussian density, got \["):
            check_values(model)
    # Below the floor that learning keeps to, but a density all the same.
    model.leaf.leaf_blocks[0].stored[0, 0, 1] = 1e-9
    check_values(model)


@pytest.mark.parametrize("name", ["location", "scale"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_impossible_units(name: str, value: float):
    model = einet.Einet(GRAPH, einet.Gaussian(), 2)
    getattr(model.leaf.family_groups[0], name)[1] = value
    with pytest.raises(ValueError, match="Gaussian density"):
        check_values(model)


@given(st.data())
def test_weights(data: st.DataObject):
    graph = einet.random_trees(4, depth=2, replicas=2, seed=data.draw(st.integers(0, 3)))
    sums = data.draw(st.sampled_from(["einsum", "linear"]))
    model = einet.Einet(graph, einet.Bernoulli(), 2, sums=sums, num_classes=2)
    number = data.draw(st.integers(0, len(model.circuit.sum_layers) - 1))
    weight = model.circuit.sum_layers[number].weight.view(-1)
    place = data.draw(st.integers(0, len(weight) - 1))
    weight[place] += data.draw(st.sampled_from([-2.0, -0.01, 0.01, float("inf"), float("nan")]))
    with pytest.raises(ValueError, match=rf"circuit\.layers\.{number}\.weight must "):
        check_values(model)


def test_logarithms():
    parts = [einet.Einet(GRAPH, einet.Bernoulli(), 2, num_classes=2) for _ in range(2)]
    model = einet.Mixture([parts[0], einet.Einet(GRAPH, einet.Bernoulli(), 2)], [1.0, 0.0])
    # A component of weight 0 is nothing wrong.
    check_values(model)
    model.log_weights[1] = -1.0
    with pytest.raises(ValueError, match="log_weights must hold .* a sum of 1.36"):
        check_values(model)
    model.log_weights.copy_(torch.tensor([0.5, 0.5]).log())
    parts[0].log_class_prior[0] = float("nan")
    with pytest.raises(ValueError, match=r"components\.0\.log_class_prior must hold log prob"):
        check_values(model)


def test_tensors_that_are_not_yet_in_the_model():
    model = einet.Einet(GRAPH, einet.Gaussian(), 2)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    check_values(model, state)
    check_values(model, {})
    state["leaf.groups.0.scale"][2] = -1.0
    with pytest.raises(ValueError, match="Gaussian density"):
        check_values(model, state)
    check_values(model)
    with einet.unconstrained(model):
        free = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
        check_values(model, free)
        check_values(model)
        free["circuit.layers.0.parametrizations.weight.original"][0] = float("nan")
        with pytest.raises(ValueError, match=r"weight\.original must hold finite numbers"):
            check_values(model, free)


def test_models_side_by_side():
    model = SideBySide(einet.Einet(GRAPH, einet.Gaussian(), 2), count=3)
    check_values(model, model.state_dict())
    model.circuit.sum_layers[0].weight[0] *= 3
    with pytest.raises(ValueError, match="add up to 1"):
        check_values(model)
