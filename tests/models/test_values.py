"""The numbers of a model are those of a distribution: honest ones pass, others are named."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import einet
from einet import Einet, Mixture
from einet.clusters.side_by_side import SideBySide
from einet.models.values import check_values
from tests.families.cases import CASES, Case

GRAPH = einet.random_trees(6, depth=2, replicas=2)
NAN, INF = math.nan, math.inf


def rows(count: int = 150) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    centres = torch.randint(0, 3, (count, 1), generator=generator)
    return centres + torch.randn(count, 6, generator=generator)


# -- honest ones -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sums", ["einsum", "linear"])
@pytest.mark.parametrize(
    "optimizer",
    [
        einet.EM(),
        einet.StochasticEM(step_size=0.3),
        einet.Gradient(torch.optim.Adam, lr=0.1),
        einet.StochasticEM(step_size=0.5, prior=einet.Prior(0.1)),
    ],
    ids=["EM", "stochastic EM", "gradients", "prior"],
)
def test_learning_stays_within_rounding(optimizer: einet.Learner, sums: str, dtype: torch.dtype):
    model = Einet(GRAPH, einet.Gaussian(), 6, sums=sums, dtype=dtype)
    einet.fit(model, rows(), epochs=3, batch_size=50, optimizer=optimizer, progress=False)
    check_values(model)
    # Casting rounds, and cannot take back that it did.
    for kind in (torch.float32, torch.float64, torch.float32):
        check_values(model.to(kind))
    with einet.unconstrained(model):
        check_values(model)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_family_fresh_and_at_its_bounds(case: Case):
    graph = einet.random_trees(3, depth=1, replicas=2)
    for dtype in (torch.float32, torch.float64):
        model = Einet(graph, case.several, 2, dtype=dtype)
        check_values(model)
        with torch.no_grad():
            for value in (-1e9, 0.0, 1e9):
                for block in model.leaf.leaf_blocks:
                    extreme = torch.full_like(block.stored, value).double()
                    block.stored.copy_(block.family.project(extreme))
                check_values(model)
                check_values(model.to(torch.float32))
        model.to(dtype)


@settings(max_examples=20)
@given(st.integers(1, 3000), st.integers(0, 2**32 - 1))
def test_sums_over_many_entries(count: int, seed: int):
    model = Einet(einet.RegionGraph(1, [1], []), einet.Bernoulli(), 1, num_leaves=count, seed=seed)
    check_values(model)
    # The roundest errors that float32 has: every weight rounded to the same side.
    with torch.no_grad():
        weight = model.circuit.sum_layers[0].weight
        weight.copy_(weight.nextafter(torch.tensor(2.0)))
    check_values(model)


@pytest.mark.parametrize("step_size", [1e-2, 1e-3, 1e-4])
def test_many_small_steps_add_up(step_size: float):
    """Rounding that nothing takes back: such models can be saved, and their files be loaded."""
    generator = torch.Generator().manual_seed(0)
    model = Einet(einet.random_trees(2, depth=1, replicas=1), einet.Bernoulli(), 2)
    weight = model.circuit.sum_layers[0].weight
    draws = torch.empty(16, *weight.shape).exponential_(generator=generator)
    targets = draws / draws.sum(-1, keepdim=True)
    for number in range(4000):
        weight.lerp_(targets[number % 16], step_size)
    check_values(model)


def test_weights_of_nothing():
    parts = [Einet(GRAPH, einet.Bernoulli(), 2, seed=seed) for seed in range(3)]
    check_values(Mixture(parts, weights=[0.0, 0.25, 0.75]))


# -- others ----------------------------------------------------------------------------------------


def _model() -> Mixture:
    parts = [
        Einet(GRAPH, [einet.Gaussian(), einet.Categorical(3)] * 3, 2, num_classes=2, seed=seed)
        for seed in range(2)
    ]
    return Mixture(parts)


def _first(name: str, value: float) -> Callable[[Mixture], None]:
    def change(model: Mixture) -> None:
        model.state_dict()[name].view(-1)[0] = value

    return change


def _times(name: str, factor: float) -> Callable[[Mixture], None]:
    return lambda model: model.state_dict()[name].mul_(factor)


WRONG: dict[str, tuple[Callable[[Mixture], object], str]] = {
    "a flipped bit": (_first("components.1.circuit.layers.0.weight", 1e38), "must hold probabili"),
    "a negative weight": (_first("components.0.circuit.layers.1.weight", -0.1), "smallest one of"),
    "a weight of NaN": (_first("components.0.circuit.layers.0.weight", NAN), "a sum of nan"),
    "weights of 1.001": (_times("components.0.circuit.layers.0.weight", 1.001), "a sum of 1.001"),
    "mixing": (_times("components.0.circuit.layers.2.weight", 0.5), "layers.2.weight must"),
    "a prior": (_first("components.1.log_class_prior", 0.1), "1.log_class_prior must hold"),
    "a prior of NaN": (_first("components.1.log_class_prior", NAN), "sum nan"),
    "nothing": (lambda model: model.log_weights.fill_(-INF), "^log_weights must hold .* sum -inf"),
    "a mean of NaN": (_first("components.0.leaf.blocks.0.stored", NAN), "Gaussian, got nan"),
    "a mean of ∞": (_first("components.0.leaf.blocks.0.stored", INF), "Gaussian, got inf"),
    "a table": (_times("components.0.leaf.blocks.1.stored", 1.01), "bounds of Categorical"),
    "a scale": (_first("components.0.leaf.groups.0.scale", 0.0), "groups.0: scale must be greater"),
    "categories": (
        _first("components.0.leaf.groups.1.num_categories", 2.5),
        "num_categories must be a whole number",
    ),
    "more categories": (_first("components.0.leaf.groups.1.num_categories", 4.0), "width must be"),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named(change: Callable, message: str, tmp_path: Path):
    model = _model()
    check_values(model)
    model.save(tmp_path / "model.einet")
    before = (tmp_path / "model.einet").read_bytes()
    with torch.no_grad():
        change(model)
    with pytest.raises(ValueError, match=message):
        check_values(model)
    # What could not be loaded is not saved, and what was there stays.
    with pytest.raises(ValueError, match=message):
        model.save(tmp_path / "model.einet")
    assert (tmp_path / "model.einet").read_bytes() == before


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_parameter_may_be_infinite_or_missing(case: Case):
    model = Einet(einet.random_trees(3, depth=1, replicas=2), case.several, 2)
    block = model.leaf.leaf_blocks[0]
    for value in (NAN, INF, -INF):
        for position in range(block.stored.shape[-1]):
            old = block.stored[0, 0, position].item()
            with torch.no_grad():
                block.stored[0, 0, position] = value
            with pytest.raises(ValueError, match="leaf.blocks.0.stored must hold parameters"):
                check_values(model)
            with torch.no_grad():
                block.stored[0, 0, position] = old
    check_values(model)


# What none of the parameters of a family can be, wherever it is put.
IMPOSSIBLE = {
    "Bernoulli": (einet.Bernoulli(), [-0.1, 1.1]),
    "Beta": (einet.Beta(), [-0.5, 0.0]),
    "Binomial": (einet.Binomial(4), [-0.1, 1.1]),
    "Categorical": (einet.Categorical(3), [-0.1, 2.0]),
    "Exponential": (einet.Exponential(), [-1.0, 0.0]),
    "Gamma": (einet.Gamma(), [-0.5, 0.0]),
    "Poisson": (einet.Poisson(), [-1.0, 0.0]),
}


@pytest.mark.parametrize(("family", "values"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_impossible_leaves(family: einet.ExponentialFamily, values: list[float], tmp_path: Path):
    model = Einet(GRAPH, family, 2)
    stored = model.leaf.leaf_blocks[0].stored
    before = stored.clone()
    for value in values:
        for place in range(stored.shape[-1]):
            stored.copy_(before)
            stored[1, 0, place] = value
            with pytest.raises(ValueError, match=r"leaf\.blocks\.0\.stored must hold"):
                model.save(tmp_path / "model.einet")
    assert list(tmp_path.iterdir()) == []


@given(st.data())
def test_one_weight_that_is_off(data: st.DataObject):
    graph = einet.random_trees(4, depth=2, replicas=2, seed=data.draw(st.integers(0, 3)))
    sums = data.draw(st.sampled_from(["einsum", "linear"]))
    model = Einet(graph, einet.Bernoulli(), 2, sums=sums, num_classes=2)
    number = data.draw(st.integers(0, len(model.circuit.sum_layers) - 1))
    weight = model.circuit.sum_layers[number].weight.view(-1)
    place = data.draw(st.integers(0, len(weight) - 1))
    weight[place] += data.draw(st.sampled_from([-2.0, -0.01, 0.01, INF, NAN]))
    with pytest.raises(ValueError, match=rf"circuit\.layers\.{number}\.weight must "):
        check_values(model)


# -- numbers that are not yet in a model -----------------------------------------------------------


def test_tensors_that_are_to_be_put_into_a_model():
    model = Einet(GRAPH, einet.Gaussian(), 2)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    check_values(model, state)
    check_values(model, {})
    state["leaf.groups.0.scale"][2] = -1.0
    with pytest.raises(ValueError, match=r"leaf\.groups\.0: scale must be greater"):
        check_values(model, state)
    check_values(model)


def test_free_reals():
    model = Einet(GRAPH, einet.Gaussian(), 2)
    with einet.unconstrained(model):
        free = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
        check_values(model, free)
        free["circuit.layers.0.parametrizations.weight.original"][0] = NAN
        with pytest.raises(ValueError, match=r"weight\.original must hold finite numbers"):
            check_values(model, free)


def test_models_side_by_side():
    model = SideBySide(Einet(GRAPH, einet.Gaussian(), 2), count=3)
    check_values(model, model.state_dict())
    model.circuit.sum_layers[0].weight[0] *= 3
    with pytest.raises(ValueError, match="add up to 1"):
        check_values(model)
