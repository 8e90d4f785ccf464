"""State dictionaries fit the models they are of, and no others."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

import einet
from einet import Einet, Gaussian, Mixture, fit
from einet.models.base import Model

GRAPH = einet.random_trees(4, depth=1, replicas=2, seed=0)
OPTIONS: dict[str, Any] = {"epochs": 1, "progress": False}
State = dict[str, Tensor]


def rows(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))


def make(seed: int = 0, **options: Any) -> Einet:
    return Einet(GRAPH, Gaussian(), 3, seed=seed, **options)


def clustered(seed: int = 0) -> einet.ClusteredEinet:
    return einet.ClusteredEinet(GRAPH, Gaussian(), 2, num_clusters=2, seed=seed)


MODELS: dict[str, Callable[[int], Model]] = {
    "Einet": make,
    "classes": lambda seed: make(seed, num_classes=2),
    "linear": lambda seed: make(seed, sums="linear"),
    "mixture": lambda seed: Mixture([make(seed), make(seed + 1)], [0.3, 0.7]),
    "mixtures in a mixture": lambda seed: Mixture([make(seed), Mixture([make(seed + 1)])]),
    "clusters": clustered,
}


def numbers(model: nn.Module) -> State:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def unchanged(model: nn.Module, before: State) -> bool:
    after = model.state_dict()
    return all(torch.equal(after[n].nan_to_num(), before[n].nan_to_num()) for n in before)


def saved(state: State) -> State:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


JOURNEYS: dict[str, Callable[[State], State]] = {
    "as it is": lambda state: state,
    "torch.save": saved,
    "safetensors": lambda state: load_tensors(save_tensors(state)),
    "deepcopy": copy.deepcopy,
    "another type": lambda state: {name: tensor.double() for name, tensor in state.items()},
}


@pytest.mark.parametrize("journey", JOURNEYS)
@pytest.mark.parametrize("name", MODELS)
def test_a_state_gives_the_same_answers_and_fit_goes_on(name: str, journey: str):
    model, other = MODELS[name](0), MODELS[name](7)
    x = rows(40, seed=1)
    fit(model, x, **OPTIONS)
    other.load_state_dict(JOURNEYS[journey](numbers(model)))
    assert torch.equal(other.log_prob(x), model.log_prob(x))
    assert other.initialized
    histories = [fit(each, x, **OPTIONS) for each in (model, other)]
    # Each mini-batch is measured before it is learnt from: the leaves were not drawn anew.
    assert histories[0].train == histories[1].train


@pytest.mark.parametrize("name", MODELS)
def test_a_new_model_has_a_state_that_says_so(name: str):
    model, other = MODELS[name](0), MODELS[name](7)
    other.initialize(rows(20))
    assert other.initialized
    other.load_state_dict(model.state_dict())
    assert not other.initialized


@pytest.mark.parametrize("name", MODELS)
def test_states_of_earlier_releases(name: str):
    model, other = MODELS[name](0), MODELS[name](7)
    old = {n: t for n, t in numbers(model).items() if not n.endswith("_extra_state")}
    assert other.load_state_dict(old, strict=True).missing_keys == []
    assert other.initialized
    x = rows(5)
    assert torch.equal(other.log_prob(x), model.log_prob(x))
    # A part of a state without leaves says nothing of them.
    other = MODELS[name](7)
    sums = {n: t for n, t in old.items() if "leaf." not in n}
    other.load_state_dict(sums, strict=False)
    assert not other.initialized
    with pytest.raises(RuntimeError, match="Missing key"):
        MODELS[name](7).load_state_dict(sums)


def test_a_state_within_a_larger_module():
    class Larger(nn.Module):
        def __init__(self, seed: int, graph: einet.RegionGraph = GRAPH) -> None:
            super().__init__()
            self.encoder = nn.Linear(4, 4)
            self.module = Mixture([Einet(graph, Gaussian(), 3, seed=seed), make(seed + 1)])

    larger, other = Larger(0), Larger(5)
    x = rows(20)
    larger.module.initialize(x)
    other.load_state_dict(larger.state_dict())
    assert torch.equal(other.module.log_prob(x), larger.module.log_prob(x))
    assert other.module.initialized
    before = numbers(other.module)
    foreign = Larger(0, einet.random_trees(4, depth=1, replicas=2, seed=3))
    with pytest.raises(RuntimeError, match=r"module\.components\.0\..* differs, and so does the g"):
        other.load_state_dict(foreign.state_dict())
    assert unchanged(other.module, before)


def others() -> dict[str, tuple[Model, str]]:
    """Models whose states do not fit ``make()``, and what is said of them."""
    graph = einet.random_trees(4, depth=1, replicas=2, seed=3)
    return {
        "graph": (Einet(graph, Gaussian(), 3), "differs, and so does the graph"),
        "sums": (Einet(GRAPH, Gaussian(), 3, sums="linear"), "sums 'linear' there and 'einsum'"),
        "num_sums": (Einet(GRAPH, Gaussian(), 2), "num_sums 2 there and 3 here"),
        "num_leaves": (Einet(GRAPH, Gaussian(), 3, num_leaves=2), "num_leaves 2 there and 3 here"),
        "num_classes": (make(num_classes=2), "num_classes 2 there and 1 here"),
        "family": (Einet(GRAPH, einet.Gamma(), 3), r"families \[\['Gamma', {}\]\] there"),
        "depth": (Einet(einet.random_trees(4, 2, 2), Gaussian(), 3), "of another model"),
    }


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("name", others())
def test_states_of_other_models_are_refused(name: str, recorded: bool):
    other, told = others()[name]
    state = {n: t for n, t in numbers(other).items() if recorded or n != "_extra_state"}
    model = make()
    before = numbers(model)
    # Without a record a difference may show in the names alone, which torch speaks of at last.
    with pytest.raises(RuntimeError, match=told if recorded else "of another model|state_dict"):
        model.load_state_dict(state)
    if recorded:
        with pytest.raises(RuntimeError, match=told):
            model.load_state_dict(state, strict=False)
        assert unchanged(model, before)
        assert not model.initialized


@pytest.mark.parametrize("name", MODELS)
def test_a_mixture_refuses_before_any_component_is_changed(name: str):
    model = MODELS[name](0)
    state = numbers(MODELS[name](7))
    # The last one, so that all others could have been changed before.
    weight = [each for each in state if each.endswith(".weight")][-1]
    state[weight] *= 2
    before = numbers(model)
    with pytest.raises(RuntimeError, match=f"what no model has: {weight} must hold weights"):
        model.load_state_dict(state)
    assert unchanged(model, before)


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        ("circuit.layers.0.weight", lambda t: t * float("nan"), "must hold finite numbers"),
        ("circuit.layers.0.weight", lambda t: -t, "must not be negative"),
        ("leaf.blocks.0.stored", lambda t: -t.abs(), "of a Gaussian density"),
        ("leaf.groups.0.scale", lambda t: -t, "of a Gaussian density"),
        ("log_class_prior", lambda t: t + 1, "add up to 1"),
        ("_extra_state", lambda t: t[:-3], "must be the record"),
        ("_extra_state", lambda t: None, "must be the record"),
        ("_extra_state", lambda t: torch.zeros(2, dtype=torch.uint8), "must be the record"),
        ("log_class_prior", lambda t: "zero", "must be a tensor, got str"),
    ],
)
def test_damaged_states_are_refused(name: str, change: Callable, told: str):
    model = make()
    before, state = numbers(model), numbers(make(7))
    state[name] = change(state[name])
    with pytest.raises(RuntimeError, match=told):
        model.load_state_dict(state)
    assert unchanged(model, before)


@pytest.mark.parametrize("name", MODELS)
def test_states_within_unconstrained(name: str):
    model, other = MODELS[name](0), MODELS[name](7)
    x = rows(20)
    model.initialize(x)
    with einet.unconstrained(model), einet.unconstrained(other):
        other.load_state_dict(model.state_dict())
        assert torch.equal(other.log_prob(x), model.log_prob(x))
        state = numbers(model)
        free = next(n for n in state if n.endswith("weight.original"))
        state[free][0] = float("nan")
        with pytest.raises(RuntimeError, match="must hold finite numbers"):
            other.load_state_dict(state)
    assert other.initialized


def test_a_state_does_not_change_what_files_hold(tmp_path):
    """The record is of states alone: files say the same in their description."""
    model = make().initialize(rows(20))
    model.save(tmp_path / "a.einet")
    other = make(9)
    other.load_state_dict(model.state_dict())
    other.save(tmp_path / "b.einet")
    assert (tmp_path / "a.einet").read_bytes() == (tmp_path / "b.einet").read_bytes()
    assert einet.load(tmp_path / "b.einet").initialized
    make().save(tmp_path / "c.einet")
    assert not einet.load(tmp_path / "c.einet").initialized
