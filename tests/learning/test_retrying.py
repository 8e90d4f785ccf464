"""Running out of memory on the way changes nothing but the size of pieces."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import einet
from einet.learning.learner import Learner
from einet.models.einet import Einet

ROWS, MOST = 300, 100


def data() -> Tensor:
    return torch.randn(ROWS, 4, generator=torch.Generator().manual_seed(0)).double().cumsum(1)


def model() -> einet.Einet:
    graph = einet.random_trees(4, depth=2, replicas=2, seed=0)
    return einet.Einet(graph, einet.Gaussian(), 3, dtype=torch.float64)


def fitted(learner: Learner, **options: Any) -> tuple[list[Tensor], einet.History]:
    of = model()
    options = {"epochs": 3, "batch_size": 150, "optimizer": learner, "progress": False, **options}
    history = einet.fit(of, data(), data()[:50], **options)
    return [parameter.detach().clone() for parameter in of.parameters()], history


def run_short(monkeypatch: pytest.MonkeyPatch, calls_before: int = 3) -> list[int]:
    """A device that, after some calls, has room for so many rows; it fails halfway through."""
    seen: list[int] = []
    upward = Einet.fill

    def fill(self: Einet, batch: Any, *arguments: Any, **options: Any) -> Any:
        seen.append(len(batch))
        if len(seen) > calls_before and len(batch) > MOST:
            # As a step that has moved some weights already.
            with torch.no_grad():
                for layer in self.circuit.sum_layers[:1]:
                    layer.weight.mul_(0.5)
            raise torch.OutOfMemoryError("CUDA out of memory")
        return upward(self, batch, *arguments, **options)

    monkeypatch.setattr(Einet, "fill", fill)
    return seen


@pytest.mark.parametrize(
    "learner", [einet.StochasticEM(0.3, einet.Prior(sums=1.0)), einet.EM()], ids=["some", "all"]
)
def test_an_epoch_is_made_again(learner: Learner, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, before = fitted(learner)
    seen = run_short(monkeypatch)
    with pytest.warns(UserWarning, match="goes on with at most 75 rows at a time; results stay"):
        got, after = fitted(learner)
    assert max(seen[:3]) > MOST >= max(seen[-10:])
    assert [len(after), after.stopped] == [len(before), before.stopped]
    assert after.train == pytest.approx(before.train, rel=1e-12)
    assert after.valid == pytest.approx(before.valid, rel=1e-12)
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_a_gradient_step_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = einet.Gradient(torch.optim.SGD, lr=0.01)
    expected, _ = fitted(learner, epochs=1)
    backward, calls = einet.Gradient._backward, []

    def short(self: Any, model: Any, batch: Any) -> Tensor:
        calls.append(len(batch))
        if model.most_rows is None:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return backward(self, model, batch)

    monkeypatch.setattr(einet.Gradient, "_backward", short)
    with pytest.warns(UserWarning, match="at most 75 rows at a time"):
        got, _ = fitted(learner, epochs=1)
    assert len(calls) == 3
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_where_fewer_rows_do_not_help_it_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(self: Einet, *arguments: Any, **options: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Einet, "fill", never)
    with (
        pytest.warns(UserWarning, match="at most (75|64) rows"),
        pytest.raises(torch.OutOfMemoryError),
    ):
        fitted(einet.StochasticEM(0.3))
