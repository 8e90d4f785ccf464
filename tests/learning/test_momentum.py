"""Momentum: the M-step of recent mini-batches together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import einet
from einet.learning.momentum import Fading

GRAPH = einet.random_trees(4, depth=2, replicas=2, seed=1)


@pytest.fixture
def x() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    kind = torch.randint(3, (90, 1), generator=generator)
    return (kind + 0.3 * torch.randn(90, 4, generator=generator)).double()


def model(x: Tensor, sums: str = "einsum") -> einet.Einet:
    made = einet.Einet(GRAPH, einet.Gaussian(), 3, sums=sums, dtype=torch.float64)
    return made.initialize(x)


@pytest.mark.parametrize("sums", ["einsum", "linear"])
def test_it_is_a_step_with_weights_of_rows(x: Tensor, sums: str):
    """While parameters stand still, two batches count as one with weighted rows."""
    ours, theirs = model(x, sums), model(x, sums)
    fading = Fading(ours, momentum=0.5)
    # A step of next to nothing leaves the parameters, but not the sums, as they were.
    fading.step(ours.e_step(x[:40]), 1e-13)
    fading.step(ours.e_step(x[40:]), 0.7)
    weights = torch.ones(90, dtype=torch.float64)
    weights[:40] = 0.5
    theirs.m_step(theirs.e_step(x, weights=weights), 0.7)
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_counts_are_those_of_the_weights_of_their_time(x: Tensor):
    """The expected counts of the first batch, before the model moved, join those of the second."""
    ours = model(x, "linear")
    first = ours.e_step(x[:45])
    counts = [w.detach() * n for w, n in zip(ours.circuit.weights, first.weights, strict=True)]
    fading = Fading(ours, momentum=0.9)
    fading.step(first, 0.4)
    second = ours.e_step(x[45:])
    expected = [
        0.9 * before + w.detach() * n
        for before, w, n in zip(counts, ours.circuit.weights, second.weights, strict=True)
    ]
    fading.step(second, 1.0)
    for layer, n in zip(ours.circuit.sum_layers, expected, strict=True):
        parts = zip(layer.simplices(layer.weight), layer.simplices(n), strict=True)
        for weight, counted in parts:
            new = counted / counted.sum(-1, keepdim=True)
            torch.testing.assert_close(weight.detach(), new, rtol=1e-6, atol=1e-6)
    assert abs(float(ours.log_normalizer())) < 1e-9


def test_without_momentum_nothing_changes(x: Tensor):
    ours, theirs = model(x), model(x)
    for each, optimizer in (
        (ours, einet.StochasticEM(0.3, momentum=0.0)),
        (theirs, einet.StochasticEM(0.3)),
    ):
        einet.fit(each, x, epochs=2, batch_size=30, optimizer=optimizer, progress=False)
    assert all(map(torch.equal, ours.parameters(), theirs.parameters()))


def test_it_learns_with_a_prior_and_in_mixtures(x: Tensor):
    mixture = einet.Mixture([model(x), model(x, "linear")])
    optimizer = einet.StochasticEM(0.5, einet.Prior(sums=0.1, leaves=0.1), momentum=0.8)
    history = einet.fit(mixture, x, epochs=6, batch_size=15, optimizer=optimizer, progress=False)
    assert history.train[-1] > history.train[0]
    assert abs(float(mixture.log_normalizer())) < 1e-9


def test_a_run_goes_on_with_its_sums(x: Tensor, tmp_path: Path):
    def learn(each: einet.Einet, epochs: int, **more: Any) -> None:
        optimizer = einet.StochasticEM(0.3, momentum=0.9)
        einet.fit(
            each, x, epochs=epochs, batch_size=20, optimizer=optimizer, progress=False, **more
        )

    class Stop(Exception):
        pass

    def stop(report: einet.EpochReport) -> None:
        if report.epoch == 1:
            raise Stop

    whole, parts = model(x), model(x)
    learn(whole, 4)
    with pytest.raises(Stop):
        learn(parts, 4, checkpoint=tmp_path / "run", every=0, callbacks=[stop])
    again = model(x)
    learn(again, 4, checkpoint=tmp_path / "run", resume=True)
    assert all(map(torch.equal, whole.parameters(), again.parameters()))
    with pytest.raises(ValueError, match="momentum"):
        einet.fit(
            model(x), x, epochs=4, batch_size=20, checkpoint=tmp_path / "run", resume=True,
            optimizer=einet.StochasticEM(0.3, momentum=0.5), progress=False,
        )  # fmt: skip


@pytest.mark.parametrize("momentum", [-0.1, 1.0, 1.5, float("nan")])
def test_bad_momentum(momentum: float):
    with pytest.raises(ValueError, match="momentum must be at least 0 and below 1"):
        einet.StochasticEM(0.3, momentum=momentum)
