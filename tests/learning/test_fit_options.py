"""Objectives, callbacks, transforms and checkpoints of ``fit``."""

from __future__ import annotations

import inspect
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import einet
from einet import (
    EM,
    Bernoulli,
    Categorical,
    Einet,
    EpochReport,
    Gaussian,
    Gradient,
    Mixture,
    Model,
    Prior,
    StochasticEM,
    fit,
    random_trees,
)
from einet.learning.objective import check_objective

GRAPH = random_trees(4, depth=2, replicas=2, seed=1)
OPTIONS: dict[str, Any] = {"batch_size": 20, "progress": False}
# Without the checks of types, which users do not have.
unchecked = inspect.unwrap(fit)


@pytest.fixture
def x() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    kind = torch.randint(3, (90, 1), generator=generator)
    return kind + 0.3 * torch.randn(90, 4, generator=generator)


def same(one: Model, two: Model) -> bool:
    mine, theirs = one.state_dict(), two.state_dict()
    return all(torch.equal(mine[name].nan_to_num(), theirs[name].nan_to_num()) for name in mine)


# -- mini-batches ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "learner", [StochasticEM(0.5), Gradient(torch.optim.SGD, lr=0.5)], ids=["EM", "SGD"]
)
def test_one_row_more_than_full_batches(learner: Any):
    """A last mini-batch of one row would move everything towards that row."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(101, 1, generator=generator) + 0.3 * torch.randn(101, 4, generator=generator)
    x[100] = 8.0
    results = []
    for count in (100, 101):
        model = Einet(GRAPH, Gaussian(), 3, dtype=torch.float64).initialize(x[:100])
        fit(model, x[:count], epochs=10, batch_size=50, optimizer=learner, progress=False)
        results.append(model.log_prob(x[:100]).mean().item())
    assert results[1] > results[0] - 0.5


@given(st.integers(1, 60), st.integers(1, 25))
def test_mini_batches_are_equal_in_every_learner(count: int, size: int):
    sizes = []

    class Noting(StochasticEM):
        def step(self, model: Model, batch: Any, progress: float = 0.0) -> Tensor:
            sizes.append(len(batch))
            return torch.zeros((), dtype=torch.float64)

    model = Einet(GRAPH, Gaussian(), 2)
    fit(model, torch.zeros(count, 4), epochs=1, batch_size=size, optimizer=Noting(), progress=False)
    assert sum(sizes) == count
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) <= size


def test_whole_numbers_of_other_libraries(x: Tensor):
    model = Einet(GRAPH, Gaussian(), 3)
    history = fit(
        model, x, x, epochs=np.int64(2), batch_size=np.int32(30), patience=np.uint8(3),
        finish=np.int64(1), seed=np.int64(4), progress=False,
    )  # fmt: skip
    assert len(history) == 3
    for name in ("epochs", "batch_size", "patience", "finish", "seed"):
        for wrong in (2.0, True, "2"):
            with pytest.raises(TypeError, match=f"{name} must be an integer"):
                unchecked(model, x, x, progress=False, **{name: wrong})


# -- the objective ---------------------------------------------------------------------------------


def labelled(count: int = 200) -> tuple[Tensor, Tensor]:
    """Classes that differ in one of four columns, the least variable one."""
    generator = torch.Generator().manual_seed(0)
    kind = torch.randint(2, (count,), generator=generator)
    x = 3 * torch.randn(count, 4, generator=generator)
    x[:, 2] = kind + 0.7 * torch.randn(count, generator=generator)
    return x, kind


def cross_entropy(model: Einet, x: Tensor, labels: Tensor) -> float:
    return model.class_posterior(x).log()[torch.arange(len(x)), labels].mean().item()


def test_discriminative_learning_learns_the_classes():
    x, labels = labelled()
    model = Einet(GRAPH, Gaussian(), 2, num_classes=2)
    fit(model, x, labels=labels, epochs=5, **OPTIONS)
    before = cross_entropy(model, x, labels)
    density = model.log_prob(x).mean().item()
    history = fit(
        model, x, x, labels=labels, valid_labels=labels, epochs=15, objective="discriminative",
        **OPTIONS,
    )  # fmt: skip
    assert cross_entropy(model, x, labels) > before + 0.02
    assert max(history.valid) == pytest.approx(cross_entropy(model, x, labels), abs=1e-5)
    assert history.train[0] == pytest.approx(before, abs=0.1)
    assert model.log_prob(x).mean().item() < density + 1.0
    assert abs(model.log_normalizer().item()) < 1e-5


def test_rows_without_a_label_do_not_count():
    x, labels = labelled(60)
    hidden = torch.where(torch.arange(60) % 3 == 0, -1, labels)
    known = hidden >= 0
    models = [Einet(GRAPH, Gaussian(), 2, num_classes=2, dtype=torch.float64) for _ in range(2)]
    learner = Gradient(torch.optim.SGD, lr=0.1)
    options: dict[str, Any] = {
        "epochs": 3, "optimizer": learner, "objective": "discriminative", "progress": False
    }  # fmt: skip
    for model in models:
        model.initialize(x)
    histories = [
        fit(models[0], x, labels=hidden, **options),
        fit(models[1], x[known], labels=labels[known], **options),
    ]
    assert histories[0].train == pytest.approx(histories[1].train, rel=1e-9)
    for one, two in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(one, two)


def test_what_a_discriminative_objective_needs(x: Tensor):
    plain, classes = Einet(GRAPH, Gaussian(), 2), Einet(GRAPH, Gaussian(), 2, num_classes=2)
    options: dict[str, Any] = {"objective": "discriminative", "progress": False}
    with pytest.raises(ValueError, match="num_classes > 1, which has 1"):
        fit(plain, x, labels=[0] * 90, **options)
    with pytest.raises(ValueError, match="labels, which are not given"):
        fit(classes, x, **options)
    with pytest.raises(ValueError, match="labels, which are not given"):
        fit(classes, x, x, labels=[0] * 90, **options)
    with pytest.raises(ValueError, match="'discriminative' cannot be learnt by StochasticEM"):
        fit(classes, x, labels=[0] * 90, optimizer=StochasticEM(0.5), **options)
    with pytest.raises(ValueError, match="objective must be 'generative' or 'discriminative'"):
        inspect.unwrap(check_objective)("both", plain, StochasticEM(0.5), True)


# -- callbacks -------------------------------------------------------------------------------------


def test_callbacks_are_told_of_every_epoch(x: Tensor):
    reports: list[EpochReport] = []
    model = Einet(GRAPH, Gaussian(), 3)
    history = fit(model, x, x[:20], epochs=3, callbacks=[reports.append, print], **OPTIONS)
    assert [report.epoch for report in reports] == [0, 1, 2]
    assert [report.train for report in reports] == history.train
    assert [report.valid for report in reports] == history.valid
    assert [report.step_size for report in reports] == history.step_size
    assert all(report.model is model for report in reports)
    assert reports[0].cluster is None


def test_a_callback_can_end_the_training(x: Tensor):
    def enough(report: EpochReport) -> None:
        if report.epoch == 1:
            report.stop()

    model = Einet(GRAPH, Gaussian(), 3)
    history = fit(model, x, epochs=9, finish=3, callbacks=enough, **OPTIONS)
    assert len(history) == 2
    assert history.stopped == "callback"
    with pytest.raises(TypeError, match="callbacks must be functions"):
        unchecked(model, x, callbacks=[3], **OPTIONS)


def test_an_error_in_a_callback_leaves_the_last_epoch(x: Tensor):
    scores = []

    def fail(report: EpochReport) -> None:
        scores.append(report.model.log_prob(x).mean().item())
        if report.epoch == 1:
            raise RuntimeError("no more")

    model = Einet(GRAPH, Gaussian(), 3)
    with pytest.raises(RuntimeError, match="no more"):
        fit(model, x, epochs=9, callbacks=fail, **OPTIONS)
    assert model.log_prob(x).mean().item() == scores[-1]


# -- transforms and checkpoints --------------------------------------------------------------------


def test_a_transform(x: Tensor):
    pixels = ((x + 2) * 40).clamp(0, 255).to(torch.uint8)
    one, two = Einet(GRAPH, Gaussian(), 3), Einet(GRAPH, Gaussian(), 3)
    options = {**OPTIONS, "epochs": 3, "optimizer": StochasticEM(0.5, Prior(leaves=1.0))}
    fit(one, pixels, pixels[:10], transform=lambda x: x / 255, **options)
    fit(two, pixels / 255, pixels[:10] / 255, **options)
    assert same(one, two)


LEARNERS = {
    "EM": lambda: EM(Prior(sums=1.0)),
    "stochastic EM": lambda: StochasticEM(einet.linear(0.5, 0.1), Prior(leaves=1.0)),
    "Adam": lambda: Gradient(torch.optim.Adam, lr=0.03),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.checkpoint"


def stopping(learner: Any, at: int) -> Any:
    """The learner with a Ctrl-C in one of its steps."""
    real, count = learner.step, [0]

    def step(model: Model, batch: Any, progress: float = 0.0) -> Tensor:
        count[0] += 1
        if count[0] == at:
            os.kill(os.getpid(), signal.SIGINT)
        return real(model, batch, progress)

    learner.step = step
    return learner


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("validated", [False, True])
@pytest.mark.parametrize("step", [1, 7, 12])
def test_ctrl_c_and_resume(x: Tensor, path: Path, name: str, validated: bool, step: int):
    options: dict[str, Any] = {**OPTIONS, "epochs": 3, "hide": 0.1}
    options["valid"] = x[:15] if validated else None
    whole = Einet(GRAPH, Gaussian(), 3)
    expected = fit(whole, x, optimizer=LEARNERS[name](), **options)
    begun = Einet(GRAPH, Gaussian(), 3)
    history = fit(begun, x, optimizer=stopping(LEARNERS[name](), step), checkpoint=path, **options)
    assert history.stopped == "interrupted"
    assert len(history) == (step - 1) // 5
    again = Einet(GRAPH, Gaussian(), 3, seed=9)
    finished = fit(again, x, optimizer=LEARNERS[name](), checkpoint=path, resume=True, **options)
    assert (finished.train, finished.valid) == (expected.train, expected.valid)
    assert (finished.best_epoch, finished.stopped) == (expected.best_epoch, "finished")
    assert same(again, whole)
    assert again.initialized
    # Once it is finished there is nothing left to do.
    idle = Einet(GRAPH, Gaussian(), 3, seed=9)
    nothing = stopping(LEARNERS[name](), 1)
    fit(idle, x, optimizer=nothing, checkpoint=path, resume=True, **options)
    assert same(idle, whole)


@pytest.mark.parametrize("epoch", [1, 3, 4])
def test_resume_in_the_finish(x: Tensor, path: Path, epoch: int):
    options: dict[str, Any] = {**OPTIONS, "epochs": 3, "finish": 3, "valid": x[:20]}
    whole = Einet(GRAPH, Gaussian(), 3)
    expected = fit(whole, x, **options)

    def crash(report: EpochReport) -> None:
        if report.epoch == epoch:
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        fit(Einet(GRAPH, Gaussian(), 3), x, checkpoint=path, every=0, callbacks=crash, **options)
    again = Einet(GRAPH, Gaussian(), 3)
    finished = fit(again, x, checkpoint=path, resume=True, **options)
    assert finished.train == expected.train
    assert same(again, whole)


def test_a_mixture_and_classes_can_be_resumed(x: Tensor, path: Path):
    def mixture() -> Model:
        return Mixture([Einet(GRAPH, Gaussian(), 2, seed=seed) for seed in range(2)])

    def classes() -> Model:
        return Einet(GRAPH, Gaussian(), 2, num_classes=2)

    for make, labels in ((mixture, None), (classes, [0, 1] * 45)):
        options: dict[str, Any] = {**OPTIONS, "epochs": 4, "labels": labels}
        whole, begun, again = make(), make(), make()
        fit(whole, x, **options)
        fit(begun, x, optimizer=stopping(StochasticEM(einet.linear(0.5, 0.05)), 8),
            checkpoint=path, **options)  # fmt: skip
        fit(again, x, checkpoint=path, resume=True, **options)
        assert same(again, whole)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epochs": 5}, "epochs was 3 and is 5"),
        ({"seed": 4}, "seed was 0 and is 4"),
        ({"batch_size": 10}, "batch_size was 20 and is 10"),
        ({"hide": 0.1}, "hide was 0.0 and is 0.1"),
        ({"finish": 1}, "finish was 0 and is 1"),
        ({"optimizer": StochasticEM(0.4)}, "optimizer.step_size was"),
        ({"optimizer": StochasticEM(0.5, Prior(sums=1.0))}, "optimizer.prior was None and is"),
        ({"optimizer": Gradient(torch.optim.Adam, lr=0.1)}, "optimizer was"),
        ({"transform": lambda x: 2 * x}, "data was"),
        ({"weights": torch.ones(90)}, "data was"),
        ({"valid": torch.zeros(3, 4)}, "valid was"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_settings_are_refused(x: Tensor, path: Path, change: dict, message: str):
    options = {**OPTIONS, "epochs": 3, "optimizer": StochasticEM(0.5), "checkpoint": path}
    fit(Einet(GRAPH, Gaussian(), 3), x, **options)
    model = Einet(GRAPH, Gaussian(), 3)
    with pytest.raises(ValueError, match=rf"another training run \(.*{message}"):
        fit(model, x, resume=True, **{**options, **change})
    assert not model.initialized


@pytest.mark.parametrize(
    "options", [{"lr": 0.02}, {"lr": 0.01, "betas": (0.8, 0.9)}, {"lr": 0.01, "weight_decay": 0.1}]
)
def test_other_options_of_an_optimiser_are_refused(x: Tensor, path: Path, options: dict):
    settings: dict[str, Any] = {**OPTIONS, "epochs": 2, "checkpoint": path}
    fit(Einet(GRAPH, Gaussian(), 3), x, optimizer=Gradient(torch.optim.Adam, lr=0.01), **settings)
    for other in (Gradient(torch.optim.Adam, **options), Gradient(torch.optim.SGD, lr=0.01)):
        with pytest.raises(ValueError, match=r"optimizer\..* was .* and is "):
            fit(Einet(GRAPH, Gaussian(), 3), x, optimizer=other, resume=True, **settings)


def test_swapped_rows_and_another_graph_are_refused(x: Tensor, path: Path):
    x = torch.cat([x] * 12)
    options: dict[str, Any] = {"epochs": 1, "checkpoint": path, "progress": False}
    fit(Einet(GRAPH, Gaussian(), 2), x, **options)
    swapped = x.clone()
    swapped[[0, 1009]] = swapped[[1009, 0]]
    with pytest.raises(ValueError, match="data was"):
        fit(Einet(GRAPH, Gaussian(), 2), swapped, resume=True, **options)
    other = random_trees(4, depth=2, replicas=2, seed=2)
    with pytest.raises(ValueError, match="structure was"):
        fit(Einet(other, Gaussian(), 2), x, resume=True, **options)


def test_an_optimiser_whose_state_cannot_be_written(x: Tensor, path: Path):
    model = Einet(GRAPH, Bernoulli(), 2)
    bits = (x > 1).int()
    with pytest.raises(ValueError, match="state of LBFGS cannot be written"):
        fit(
            model, bits, epochs=2, optimizer=Gradient(torch.optim.LBFGS), checkpoint=path, **OPTIONS
        )
    assert all(bool(p.detach().isfinite().all()) for p in model.parameters())


def test_bytes_of_categories(x: Tensor):
    """Integers reach the leaves as they are, whatever the loop does with them."""
    bins = x.clamp(0, 2).round().to(torch.uint8)
    model = Einet(GRAPH, Categorical(3), 2)
    history = fit(model, bins, bins, epochs=3, **OPTIONS)
    assert history.train[-1] > history.train[0]


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("content", [b"precious", bytes(9), "model", "pipe"])
def test_a_file_that_is_no_checkpoint_is_not_replaced(
    x: Tensor, tmp_path: Path, content: Any, resume: bool
):
    path = tmp_path / "mine"
    model = Einet(einet.random_trees(4, 1, 2), einet.Gaussian(), num_sums=2)
    before = [value.clone() for value in model.parameters()]
    if content == "model":
        model.save(path)
    elif content == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes(content)
    kept = None if content == "pipe" else path.read_bytes()
    with pytest.raises(ValueError, match="checkpoint: .*mine (is no checkpoint|is no plain file)"):
        einet.fit(model, x[:, :4], epochs=1, checkpoint=path, resume=resume, progress=False)
    assert path.exists()
    assert kept is None or path.read_bytes() == kept
    assert all(map(torch.equal, model.parameters(), before))
    assert not model.initialized
