"""EM of a whole mixture, component by component."""

from __future__ import annotations

import copy
import os
import signal
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import einet
from einet import EM, ClusteredEinet, StochasticEM
from einet.clusters import mixture_trainee as module
from tests.budgets import limit

GRAPH = einet.random_trees(4, depth=1, replicas=2, seed=1)
NAN = float("nan")


def rows(count: int = 80, seed: int = 0) -> Tensor:
    """Three kinds of rows that overlap."""
    generator = torch.Generator().manual_seed(seed)
    kind = torch.randint(3, (count, 1), generator=generator)
    return 2 * kind + torch.randn(count, 4, generator=generator)


def trained(dtype: torch.dtype = torch.float64) -> ClusteredEinet:
    return copy.deepcopy(_trained(dtype))


@cache
def _trained(dtype: torch.dtype) -> ClusteredEinet:
    model = ClusteredEinet(GRAPH, einet.Gaussian(), 3, 3, dtype=dtype)
    model.fit(rows(), epochs=1, batch_size=20, progress=False)
    return model


def state(model: einet.Model) -> list[Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def same(one: einet.Model, two: einet.Model) -> bool:
    return all(a.equal(b) for a, b in zip(state(one), state(two), strict=True))


def test_an_epoch_is_a_step_of_em_of_the_mixture(monkeypatch):
    monkeypatch.setattr(module, "_LEAST_SHARE", 0.0)
    limit(monkeypatch, "rows", 4 * 4 * 30)
    x = rows()
    x[::7, 1] = NAN
    model, other = trained(), trained()
    for _ in range(2):
        history = model.refine(x, epochs=1, batch_size=25, progress=False)
        statistics = other.e_step(x)
        other.m_step(statistics)
        mean = (statistics.log_likelihood / statistics.rows).item()
        assert history.train == [pytest.approx(mean, rel=1e-12)]
        for mine, theirs in zip(state(model), state(other), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-12)


def test_em_never_lowers_the_likelihood():
    x, model = rows(), trained()
    history = model.refine(x, epochs=8, batch_size=30, progress=False)
    values = [*history.train, model.log_prob(x).mean().item()]
    assert all(later >= earlier - 1e-9 for earlier, later in pairwise(values))
    assert values[-1] > values[0] + 0.01
    assert abs(model.log_normalizer().item()) < 1e-9
    assert (history.stopped, history.best_epoch, history.valid) == ("finished", None, [])


def test_stochastic_em():
    x, model = rows(200), trained()
    before = model.log_prob(x).mean().item()
    learner = StochasticEM(einet.linear(0.3, 0.05))
    history = model.refine(x, epochs=4, batch_size=40, optimizer=learner, progress=False)
    assert model.log_prob(x).mean().item() > before
    assert history.step_size[-1] == pytest.approx(0.05)


def test_priors_hold_the_parameters():
    x = rows()
    free, held = trained(), trained()
    free.refine(x, epochs=3, progress=False)
    held.refine(x, epochs=3, optimizer=EM(einet.Prior(sums=50.0, leaves=50.0)), progress=False)
    assert held.log_prob(x).mean() < free.log_prob(x).mean()


def test_the_best_epoch_on_validation_rows():
    x, valid = rows(), rows(60, seed=1)
    model = trained()
    before = model.log_prob(valid).mean().item()
    history = model.refine(x, valid, epochs=6, progress=False)
    assert len(history.valid) == 6
    best = max(before, *history.valid)
    assert model.log_prob(valid).mean().item() == pytest.approx(best, rel=1e-9)
    if history.best_epoch is None:
        assert best == before
    else:
        assert history.valid[history.best_epoch] == best


def test_no_epoch_was_better():
    """Rows to learn from that tell nothing of those for validation."""
    model, valid = trained(), rows(60, seed=1)
    before = state(model)
    history = model.refine(rows() + 50, valid, epochs=2, progress=False)
    assert history.best_epoch is None
    assert all(a.equal(b) for a, b in zip(state(model), before, strict=True))


def test_bytes_with_a_transform_and_masks():
    pixels = ((rows() + 5) * 12).clamp(0, 255).to(torch.uint8)
    seen = torch.rand(pixels.shape, generator=torch.Generator().manual_seed(3)) > 0.2
    one, two = trained(), trained()
    options: dict[str, Any] = dict(epochs=2, progress=False)
    one.refine(
        pixels, pixels, observed=seen, valid_observed=seen, transform=lambda x: x / 60, **options
    )
    plain = (pixels / 60).masked_fill(~seen, NAN)
    two.refine(plain, plain, **options)
    assert same(one, two)


def test_a_component_without_rows_keeps_its_parameters():
    model = trained()
    x = rows()
    model.fit(x, clusters=[0, 1] * 40, epochs=1, progress=False)
    unused = state(model.einets[2])
    model.refine(x, epochs=1, progress=False)
    assert all(a.equal(b) for a, b in zip(state(model.einets[2]), unused, strict=True))
    assert model.weights[2] < 1e-3


def test_twice():
    one, two = trained(), trained()
    for model in (one, two):
        model.refine(
            rows(), epochs=3, batch_size=20, optimizer=StochasticEM(0.2), seed=4, progress=False
        )
    assert same(one, two)


# -- going on --------------------------------------------------------------------------------------


class Probe(StochasticEM):
    """Calls ``act(step)`` in the midst of each step."""

    def __init__(self, act=lambda step: None) -> None:
        super().__init__(0.2)
        self.act, self.steps = act, 0

    def step(self, model, batch, progress: float = 0.0) -> Tensor:
        self.steps += 1
        self.act(self.steps)
        return super().step(model, batch, progress)


# Checkpoints know learners by their name.
Probe.__name__ = "StochasticEM"


@pytest.mark.parametrize("crash", [False, True], ids=["Ctrl-C", "crash"])
@pytest.mark.parametrize("step", [2, 20])
@pytest.mark.parametrize("validated", [False, True])
def test_resume(tmp_path: Path, crash: bool, step: int, validated: bool):
    path = tmp_path / "refinement.checkpoint"
    options: dict[str, Any] = dict(epochs=4, batch_size=20, progress=False)
    options["valid"] = rows(30, seed=1) if validated else None
    whole = trained()
    expected = whole.refine(rows(), optimizer=StochasticEM(0.2), **options)

    def stop(now: int) -> None:
        if now == step and crash:
            raise RuntimeError("out of memory")
        if now == step:
            os.kill(os.getpid(), signal.SIGINT)

    model, before = trained(), state(trained())
    if crash:
        with pytest.raises(RuntimeError, match="out of memory"):
            model.refine(rows(), optimizer=Probe(stop), checkpoint=path, every=0, **options)
    else:
        history = model.refine(rows(), optimizer=Probe(stop), checkpoint=path, every=0, **options)
        assert history.stopped == "interrupted"
        assert (len(history) > 0) == (step > 2)
    if step == 2:
        # Half of an epoch is none.
        assert all(a.equal(b) for a, b in zip(state(model), before, strict=True))
    again, probe = trained(), Probe()
    found = again.refine(rows(), optimizer=probe, checkpoint=path, resume=True, **options)
    assert same(again, whole)
    assert (found.train, found.valid) == (expected.train, expected.valid)
    assert (found.best_epoch, found.stopped) == (expected.best_epoch, "finished")
    assert probe.steps > 0
    last, idle = trained(), Probe()
    last.refine(rows(), optimizer=idle, checkpoint=path, resume=True, **options)
    assert same(last, whole)
    assert idle.steps == 0


def test_nan_is_noticed(monkeypatch):
    class Broken(EM):
        def end_epoch(self, model, progress) -> None:
            with torch.no_grad():
                next(model.parameters()).fill_(NAN)

    model = trained()
    before = state(model)
    with pytest.raises(FloatingPointError, match="NaN at step 3 of the training.*before training"):
        model.refine(rows(), optimizer=Broken(), progress=False)
    assert all(a.equal(b) for a, b in zip(state(model), before, strict=True))


def test_bad_arguments():
    model = trained()
    with pytest.raises(TypeError, match="optimizer"):
        model.refine(rows(), optimizer=einet.Gradient(torch.optim.Adam))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="valid_observed is given"):
        model.refine(rows(), valid_observed=rows() > 0)
    with pytest.raises(ValueError, match=r"valid must have shape \[rows, 4\]"):
        model.refine(rows(), rows()[:, :2])
    with pytest.raises(ValueError, match="epochs"):
        model.refine(rows(), epochs=0)
