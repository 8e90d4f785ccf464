"""What ``fit`` does where nothing is said."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from einet import (
    EM,
    Bernoulli,
    Einet,
    Gaussian,
    Mixture,
    Prior,
    StochasticEM,
    fit,
    linear,
    random_trees,
)
from einet.learning.defaults import Defaults, defaults_for, is_binary_einsum

GRAPH = random_trees(6, depth=2, replicas=2, seed=1)


def binary(seed: int = 0) -> Einet:
    return Einet(GRAPH, Bernoulli(), 3, seed=seed)


@pytest.fixture
def x() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    kind = torch.randint(2, (120, 1), generator=generator).bool()
    return (kind ^ (torch.rand(120, 6, generator=generator) < 0.1)).float()


def weights(model: Einet) -> Tensor:
    return torch.cat([weight.flatten() for weight in model.circuit.weights])


# -- the rule --------------------------------------------------------------------------------------


def test_other_data_are_learnt_as_ever():
    model = Einet(GRAPH, Gaussian(), 2)
    assert defaults_for(model, 1000, validated=True) == Defaults(25, None, 0.5, 0.05, None, False)
    assert defaults_for(model, None, epochs=3) == Defaults(3)
    mixed = Einet(GRAPH, [Bernoulli()] * 5 + [Gaussian()], 2)
    assert not is_binary_einsum(mixed)
    assert not is_binary_einsum(Mixture([binary(), mixed]))
    assert is_binary_einsum(Mixture([binary(), binary(1)]))
    # Classes are learnt from a model that has learnt to generate.
    assert defaults_for(binary(), 1000, objective="discriminative") == Defaults()


@pytest.mark.parametrize(
    ("rows", "options", "expected"),
    [
        (100_000, {}, (25, None, 0.1)),
        (100_000, {"validated": True}, (25, 5, 0.1)),
        (1600, {}, (25, None, 0.5)),
        (1600, {"validated": True}, (125, 5, 0.1)),
        (1600, {"validated": True, "batch_size": 100}, (32, 5, 50 / 512)),
        (1600, {"validated": True, "epochs": 50}, (50, None, 0.25)),
        (1600, {"validated": True, "has_patience": True}, (125, None, 0.1)),
        (1, {"validated": True}, (500, 5, 0.1)),
        (0, {}, (25, None, 0.5)),
        (None, {"validated": True}, (25, 5, 0.5)),
    ],
)
def test_the_rule(rows: int | None, options: dict[str, Any], expected: tuple):
    found = defaults_for(binary(), rows, **options)
    assert found.epochs == expected[0]
    assert found.patience == expected[1]
    assert found.first_step == pytest.approx(max(0.1, expected[2]))
    assert found.last_step == pytest.approx(found.first_step / 10)
    assert found.clusters
    assert found.prior == (None if rows is None else Prior(sums=0.1, leaves=1.0))


# -- what fit makes of it --------------------------------------------------------------------------


def test_said_or_not_is_the_same(x: Tensor):
    """The defaults, spelled out."""
    plain, said = binary(), binary()
    # Whatever is learnt, these become less likely.
    noise = 1 - x[:20].flip(1) * (torch.arange(6) % 2)
    one = fit(plain, x, noise, batch_size=20, progress=False)
    learner = StochasticEM(linear(0.1, 0.01), Prior(sums=0.1, leaves=1.0))
    options: dict[str, Any] = {"epochs": 84, "patience": 5, "optimizer": learner}
    two = fit(said, x, noise, batch_size=20, **options, progress=False)
    assert one.valid == two.valid
    assert one.stopped == "early"
    assert torch.equal(weights(plain), weights(said))


def test_what_is_given_counts(x: Tensor):
    history = fit(binary(), x[:100], x[100:], epochs=40, optimizer=EM(), progress=False)
    assert len(history) == 40
    assert history.step_size == []
    assert all(later >= earlier - 1e-6 for earlier, later in pairwise(history.train))
    before = binary().initialize(x)
    leaves = before.leaf.leaf_blocks[0].stored.clone()
    fit(before, x, epochs=1, optimizer=StochasticEM(1e-9), progress=False)
    assert torch.allclose(before.leaf.leaf_blocks[0].stored, leaves, atol=1e-5)
    assert len(fit(binary(), x[:100], x[100:], patience=2, epochs=3, progress=False)) <= 3


def test_the_start(x: Tensor):
    """By clusters, from the weights that a model's own seed has drawn."""
    still = {"epochs": 1, "optimizer": StochasticEM(1e-9), "progress": False}
    at_random, one, again, other = binary().initialize(x), binary(), binary(), binary(1)
    for model in (at_random, one, again, other):
        fit(model, x, **still)
    assert one.log_prob(x).mean() > at_random.log_prob(x).mean()
    assert torch.equal(weights(one), weights(again))
    assert not torch.equal(weights(one), weights(other))
    parts = Mixture([binary(0), binary(1)])
    fit(parts, x, **still)
    assert parts.initialized


def test_a_loader_is_gone_through_no_more_often(x: Tensor):
    """A prior would look through its rows before the first epoch."""

    class Counted(IterableDataset):
        times = 0

        def __iter__(self) -> Iterator[Tensor]:
            self.times += 1
            return iter(x)

    plain, said = Counted(), Counted()
    history = fit(binary(), DataLoader(plain, batch_size=30), epochs=2, progress=False)
    learner = StochasticEM(linear(0.5, 0.05))
    fit(binary(), DataLoader(said, batch_size=30), epochs=2, optimizer=learner, progress=False)
    assert plain.times == said.times
    assert history.step_size[0] > 0.25
