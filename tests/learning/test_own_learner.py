"""The worked example of a learner: one class with ``step``, and what its traits bring it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import einet
from einet import ClusteredEinet, Einet, Gaussian, Learner, Model, fit, random_trees

GRAPH = random_trees(4, depth=2, replicas=2, seed=1)


class Momentum(Learner):
    """Stochastic EM that goes on in the direction of its last steps, in the simplest way.

    The statistics of the last mini-batch join those of the present one. They are gone after every
    epoch, so that nothing but the model is carried on.
    """

    stateless = True

    def __init__(self, step_size: float) -> None:
        self.step_size, self._before = step_size, None

    def step(self, model: Model, batch: Any, progress: float = 0.0) -> Tensor:
        statistics = model.e_step(batch)
        mean = statistics.log_likelihood / statistics.rows
        both = statistics if self._before is None else statistics.add_(self._before)
        model.m_step(both, self.step_size)
        self._before = model.e_step(batch)
        return mean

    def end_epoch(self, model: Model, progress: float) -> None:
        self._before = None

    def step_size_at(self, progress: float) -> float:
        return self.step_size


class Counting(Learner):
    """The least there can be, with a state that it does not tell."""

    def __init__(self) -> None:
        self.steps = 0

    def step(self, model: Model, batch: Any, progress: float = 0.0) -> Tensor:
        self.steps += 1
        return model.em_step(batch, step_size=1 / (1 + self.steps))


@pytest.fixture
def x() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    kind = torch.randint(3, (90, 1), generator=generator)
    return kind + 0.3 * torch.randn(90, 4, generator=generator)


def test_it_learns_with_all_that_the_loop_offers(x: Tensor):
    model = Einet(GRAPH, Gaussian(), 3)
    history = fit(
        model, x[:60], x[60:], epochs=9, batch_size=20, optimizer=Momentum(0.3), patience=5,
        hide=0.1, progress=False,
    )  # fmt: skip
    assert history.train[-1] > history.train[0]
    assert history.step_size[0] == 0.3
    assert abs(model.log_normalizer().item()) < 1e-5


def test_clusters_learn_by_it_one_after_the_other(x: Tensor):
    model = ClusteredEinet(GRAPH, Gaussian(), 3, 2)
    history = model.fit(x, optimizer=Momentum(0.3), epochs=4, progress=False)
    assert all(train[-1] > train[0] for train in history.train)
    with pytest.raises(ValueError, match="together must be 1 or None with Momentum"):
        model.fit(x, optimizer=Momentum(0.3), together=2, progress=False)
    model.refine(x, optimizer=Momentum(0.1), epochs=1, progress=False)


def test_a_stateless_one_can_be_resumed(x: Tensor, tmp_path: Path):
    path = tmp_path / "run"
    whole = Einet(GRAPH, Gaussian(), 3)
    fit(whole, x, epochs=4, optimizer=Momentum(0.3), progress=False)
    begun = Einet(GRAPH, Gaussian(), 3)
    fit(
        begun, x, epochs=4, optimizer=Momentum(0.3), checkpoint=path,
        callbacks=lambda report: report.epoch == 1 and report.stop(), progress=False,
    )  # fmt: skip
    again = Einet(GRAPH, Gaussian(), 3)
    history = fit(
        again, x, epochs=4, optimizer=Momentum(0.3), checkpoint=path, resume=True, progress=False
    )
    assert len(history) == 4
    for one, two in zip(again.parameters(), whole.parameters(), strict=True):
        assert one.equal(two)
    with pytest.raises(ValueError, match="optimizer.learner was .Momentum. and is .StochasticEM"):
        fit(again, x, epochs=4, checkpoint=path, resume=True, progress=False)


def test_one_with_a_hidden_state_is_refused_where_it_matters(x: Tensor, tmp_path: Path):
    model = Einet(GRAPH, Gaussian(), 3)
    learner = Counting()
    history = fit(model, x, epochs=3, optimizer=learner, progress=False)
    assert learner.steps == 3
    assert history.step_size == []
    with pytest.raises(ValueError, match=r"Counting has one.*does not define state\(\)"):
        fit(model, x, optimizer=Counting(), checkpoint=tmp_path / "run", progress=False)
    with pytest.raises(ValueError, match="finish takes a StochasticEM to its end.*Counting"):
        fit(model, x, optimizer=Counting(), finish=2, progress=False)
    with pytest.raises(ValueError, match="'discriminative' cannot be learnt by Counting"):
        fit(model, x, optimizer=Counting(), objective="discriminative", progress=False)
    with pytest.raises(TypeError, match="carry nothing from epoch to epoch.*Counting"):
        ClusteredEinet(GRAPH, Gaussian(), 3, 2).refine(x, optimizer=Counting())


def test_a_subclass_with_a_step_of_its_own_is_not_stacked():
    class Own(einet.StochasticEM):
        def step(self, model: Model, batch: Any, progress: float = 0.0) -> Tensor:
            return super().step(model, batch, progress)

    assert einet.StochasticEM(0.5).stackable
    assert not Own(0.5).stackable
