"""Rows that break training are named, or left out of it."""

from __future__ import annotations

import os
import signal
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pandas
import pytest
import torch
from torch import Tensor

import einet
from einet import EM, Einet, Gaussian, Gradient, StochasticEM, fit
from einet.data.batch import Batch
from einet.learning.trouble import breaks, broken_rows, name_rows
from einet.models.base import Model

GRAPH = einet.random_trees(4, depth=1, replicas=1, seed=1)
SOUND = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
OPTIONS: dict[str, Any] = {
    "epochs": 3, "batch_size": 10, "progress": False, "initialize": False,
}  # fmt: skip


@pytest.fixture
def x() -> Tensor:
    """Two cells that gradients in float32 cannot bear, and EM can."""
    x = SOUND.clone()
    x[7, 2], x[21, 0] = 1e20, -1e22
    return x


def made() -> Einet:
    return Einet(GRAPH, Gaussian(), 2).initialize(SOUND)


def adam() -> Gradient:
    return Gradient(torch.optim.Adam, lr=0.01)


def numbers(model: Model) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def test_rows_are_those_that_break_it_alone(x: Tensor):
    model, batch = made(), Batch(x)
    assert broken_rows(model, batch, "generative").tolist() == []
    with einet.unconstrained(model):
        before = numbers(model)
        alone = [r for r in range(30) if breaks(model, batch[r : r + 1], "generative")]
        assert alone == [7, 21]
        assert broken_rows(model, batch, "generative").tolist() == alone
        assert all(map(torch.equal, numbers(model), before))
        assert all(parameter.grad is None for parameter in model.parameters())
    # What is infinite is too much for EM, too; rows that count for nothing break nothing.
    weights = torch.ones(30, dtype=torch.float64)
    weights[7] = 0
    weighted = Batch(torch.where(x.abs() > 1e19, torch.inf, x), weights=weights)
    assert broken_rows(model, weighted, "generative").tolist() == [21]


def test_cells_are_named(x: Tensor):
    model = made()
    with einet.unconstrained(model):
        words = name_rows(model, [Batch(x[:15]), Batch(x[15:])], "generative", 10, "train")
        assert words == "train[7, 2] is 1e+20 and train[21, 0] is -1e+22"
        assert name_rows(model, [Batch(SOUND)], "generative", 10, "train") == ""
        many = torch.cat([torch.full((9, 4), 1e20), SOUND])
        words = name_rows(model, [Batch(many)], "generative", 10, "valid")
        assert words.startswith("valid[0, 0] is 1e+20, valid[0, 1] is 1e+20, valid[0, 2] is")
        assert words.endswith("valid[2, 2] is 1e+20 and others")
        # Where all rows break it, it is not the rows.
        assert name_rows(model, [Batch(many[:9])], "generative", 9, "valid") == ""


@pytest.mark.parametrize("validated", [False, True])
def test_they_are_named_where_training_fails(x: Tensor, validated: bool):
    frame = pandas.DataFrame(x.numpy(), columns=["a", "b", "c", "d"])
    model = made()
    before = numbers(model)
    valid = frame[:5] if validated else None
    with pytest.raises(FloatingPointError, match=r"train\[7, 'c'\] is 1e\+20 and train\[21, 'a'\]"):
        fit(model, frame, valid, optimizer=adam(), **OPTIONS)
    for mine, earlier in zip(numbers(model), before, strict=True):
        torch.testing.assert_close(mine, earlier)
    # EM is none the worse for them.
    assert fit(model, frame, optimizer=EM(), **OPTIONS).skipped == []


def test_rows_that_cannot_be_read_again(x: Tensor):
    class Once(torch.utils.data.IterableDataset):
        """Gives its rows a single time."""

        given = False

        def __iter__(self) -> Any:
            if self.given:
                raise OSError("the source is gone")
            self.given = True
            return iter(x)

    loader = torch.utils.data.DataLoader(Once(), batch_size=10)
    with pytest.raises(FloatingPointError, match="NaN at step") as caught:
        fit(made(), loader, optimizer=adam(), epochs=1, progress=False, initialize=False)
    assert isinstance(caught.value.__cause__, OSError)


def test_nobody_is_blamed_for_too_large_a_step():
    wild = Gradient(torch.optim.SGD, lr=1e30)
    for on_error in ("raise", "skip"):
        with pytest.raises(FloatingPointError, match="too large a step") as caught:
            fit(made(), SOUND, optimizer=wild, on_error=on_error, **OPTIONS)
        assert "Rows that" not in str(caught.value)


def test_they_are_left_out(x: Tensor):
    model = made()
    with pytest.warns(RuntimeWarning, match=r"3 of 3 epochs, up to 2 in one, such as train\[7, 2"):
        history = fit(model, x, optimizer=adam(), on_error="skip", **OPTIONS)
    assert history.skipped == [2, 2, 2]
    assert len(history) == 3
    assert history.train[-1] > history.train[0]
    assert all(bool(parameter.isfinite().all()) for parameter in numbers(model))
    # Where nothing breaks, nothing is different.
    one, two = made(), made()
    assert fit(one, SOUND, optimizer=adam(), on_error="skip", **OPTIONS).skipped == []
    fit(two, SOUND, optimizer=adam(), **OPTIONS)
    assert all(map(torch.equal, numbers(one), numbers(two)))


def test_batches_of_nothing_else_are_passed_over(x: Tensor):
    options: dict[str, Any] = {**OPTIONS, "batch_size": 1, "epochs": 1}
    with pytest.warns(RuntimeWarning, match="up to 1 in one"):
        history = fit(made(), x[4:9], optimizer=adam(), on_error="skip", **options)
    assert history.skipped == [1]
    with pytest.raises(FloatingPointError, match="NaN"):
        fit(made(), x[[7, 21]], optimizer=adam(), on_error="skip", **OPTIONS)


@pytest.mark.parametrize("step", [2, 5])
def test_a_run_that_leaves_out_rows_can_be_resumed(x: Tensor, tmp_path: Path, step: int):
    options: dict[str, Any] = {**OPTIONS, "on_error": "skip", "hide": 0.1}
    whole = made()
    with pytest.warns(RuntimeWarning, match="rows were left out"):
        expected = fit(whole, x, optimizer=adam(), **options)
    stopped, count = adam(), [0]
    real = stopped.step

    def stopping(model: Model, batch: Any, progress: float = 0.0) -> Tensor:
        count[0] += 1
        # Three steps of the first epoch are made in vain.
        if count[0] == 3 + step:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(model, batch, progress)

    stopped.step = stopping  # type: ignore[method-assign]
    with pytest.warns(RuntimeWarning) if step > 3 else nullcontext():
        begun = fit(made(), x, optimizer=stopped, checkpoint=tmp_path / "run", **options)
    assert begun.stopped == "interrupted"
    model = made()
    with pytest.raises(ValueError, match="on_error was 'skip' and is None"):
        fit(model, x, optimizer=adam(), checkpoint=tmp_path / "run", resume=True,
            **{**options, "on_error": "raise"})  # fmt: skip
    with pytest.warns(RuntimeWarning, match="rows were left out"):
        history = fit(
            model, x, optimizer=adam(), checkpoint=tmp_path / "run", resume=True, **options
        )
    assert (history.train, history.skipped) == (expected.train, expected.skipped)
    assert all(map(torch.equal, numbers(model), numbers(whole)))


def test_learners_that_cannot_go_back():
    class Own(StochasticEM):
        def end_epoch(self, model: Model, progress: float) -> None:
            pass

    with pytest.raises(ValueError, match=r"on_error 'skip' .* Own does not define state_within"):
        fit(made(), SOUND, optimizer=Own(0.5), on_error="skip", **OPTIONS)
