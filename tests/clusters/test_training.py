"""Training clusters one after the other, and going on after an interruption."""

from __future__ import annotations

import io
import math
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import einet
from einet import ClusteredEinet, Einet, StochasticEM
from einet.clusters import training as module

GRAPH = einet.random_trees(4, depth=1, replicas=2, seed=1)
NAN = float("nan")
OPTIONS: dict[str, Any] = dict(epochs=3, batch_size=20, seed=3, progress=False)


@pytest.fixture
def x() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    kind = torch.randint(3, (90, 1), generator=generator)
    return 4 * kind + torch.randn(90, 4, generator=generator)


def make(**options: Any) -> ClusteredEinet:
    return ClusteredEinet(GRAPH, einet.Gaussian(), 3, 3, **options)


def same(one: einet.Model, two: einet.Model) -> bool:
    mine, theirs = one.state_dict(), two.state_dict()
    return all(torch.equal(mine[name].nan_to_num(), theirs[name].nan_to_num()) for name in mine)


class Probe(StochasticEM):
    """Calls ``act(step)`` in the midst of each step."""

    def __init__(self, act=lambda step: None, step_size: float = 0.5) -> None:
        super().__init__(step_size)
        self.act, self.rows, self.progress, self.models = act, [], [], []

    def step(self, model, batch, progress: float = 0.0) -> Tensor:
        self.rows.append(len(batch))
        self.progress.append(progress)
        self.models.append(model)
        self.act(len(self.rows))
        return super().step(model, batch, progress)


# Checkpoints know learners by their name.
Probe.__name__ = "StochasticEM"


# -- training --------------------------------------------------------------------------------------


def test_every_component_learns_its_cluster(x: Tensor):
    model = make()
    history = model.fit(x, **OPTIONS)
    assert history.stopped == "finished"
    assert sum(history.sizes) == 90
    assert all(len(train) == 3 and train[-1] > train[0] for train in history.train)
    assert history.inertia[-1] < history.inertia[0]
    assert model.initialized
    # A row is likeliest under the component of its cluster.
    best = model.responsibilities(x).argmax(1)
    assert best.bincount(minlength=3).tolist() == history.sizes
    assert model.log_prob(x).mean() > -8
    assert "3 of 3 clusters" in repr(history)
    assert einet.ClusterHistory(**history.to_dict()) == history


def test_a_component_learns_by_steps_of_em(x: Tensor):
    clusters = torch.arange(90) % 3
    options = {**OPTIONS, "batch_size": 40, "clusters": clusters}
    model, probe = make(dtype=torch.float64), Probe()
    history = model.fit(x, optimizer=probe, **options)
    # 30 rows of each, in one batch each epoch: nothing depends on their order.
    assert probe.rows == [30] * 9
    assert probe.progress == [0.0, 0.5, 1.0] * 3
    assert len(set(map(id, probe.models))) == 1
    begun = make(dtype=torch.float64)
    begun.fit(x, optimizer=StochasticEM(0.5), **{**options, "epochs": 1})
    for number, component in enumerate(begun.einets):
        mine = x[clusters == number]
        means = [component.em_step(mine, step_size=0.5).item() for _ in range(2)]
        assert means == pytest.approx(history.train[number][1:], rel=1e-9)
        for mine, theirs in zip(
            component.parameters(), model.einets[number].parameters(), strict=True
        ):
            torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-12)


def test_batches_are_of_equal_size(x: Tensor):
    probe = Probe()
    clusters = torch.zeros(90, dtype=torch.long)
    clusters[:41], clusters[41:44] = 1, 2
    make().fit(x, clusters=clusters, optimizer=probe, **{**OPTIONS, "epochs": 1})
    assert probe.rows == [16, 15, 15, 14, 14, 13, 3]


def test_twice_from_one_seed(x: Tensor):
    one, two, other = make(seed=1), make(seed=2), make()
    one.fit(x, **OPTIONS)
    # Whatever it was before.
    two.fit(x + 100, **{**OPTIONS, "seed": 9})
    two.fit(x, **OPTIONS)
    other.fit(x, **{**OPTIONS, "seed": 4})
    assert same(one, two)
    assert not same(one, other)


def test_missing_cells(x: Tensor):
    holes = torch.rand(x.shape, generator=torch.Generator().manual_seed(1)) < 0.2
    x = x.masked_fill(holes, NAN)
    x[5] = NAN
    model = make()
    history = model.fit(x, **OPTIONS)
    assert sum(history.sizes) == 90
    assert all(map(math.isfinite, history.train[-1]))
    assert model.log_prob(x).isfinite().all()
    # The same by a mask.
    masked = make()
    masked.fit(x.nan_to_num(0.0), observed=~x.isnan(), **OPTIONS)
    assert same(model, masked)


def test_a_variable_that_a_cluster_never_observes(x: Tensor):
    """It is left with the leaves of all rows."""
    clusters = (x[:, 0] > 2).long()
    x[clusters == 1, 3] = NAN
    model = make()
    model.fit(x, clusters=clusters, **OPTIONS)
    mean, variance = model.einets[1].mean()[3], model.einets[1].variance()[3]
    seen = x[clusters == 0, 3]
    assert abs(mean - seen.mean()) < 2 * seen.std()
    assert variance < 20 * seen.var()


def test_bytes_with_a_transform(x: Tensor):
    pixels = ((x + 5) * 12).clamp(0, 255).to(torch.uint8)
    one, two = make(), make()
    one.fit(pixels, transform=lambda x: x / 255, **OPTIONS)
    two.fit(pixels / 255, **OPTIONS)
    assert same(one, two)


def test_empty_clusters(x: Tensor):
    model = make()
    history = model.fit(x, clusters=[0, 2] * 45, **OPTIONS)
    assert history.sizes == [45, 0, 45]
    assert history.train[1] == []
    assert model.initialized
    assert model.weights.tolist() == [0.5, 0.0, 0.5]
    assert model.log_prob(x).isfinite().all()
    assert model.given(x[:2]).mean().isfinite().all()


def test_one_cluster_and_other_learners(x: Tensor):
    alone = ClusteredEinet(GRAPH, einet.Gaussian(), 3, 1)
    history = alone.fit(x, **OPTIONS)
    assert history.sizes == [90]
    for optimizer in (einet.EM(), einet.Gradient(torch.optim.Adam, lr=0.05)):
        model = make()
        history = model.fit(x, optimizer=optimizer, **OPTIONS)
        assert all(train[-1] > train[0] for train in history.train)
        assert abs(model.log_normalizer().item()) < 1e-5


def test_states_that_start_as_clusters(x: Tensor):
    """Within one cluster of rows there are three kinds, which the states then are."""

    def first_epoch(**options: Any) -> float:
        tree = einet.chow_liu((x > 4).int())
        model = ClusteredEinet(tree, einet.Gaussian(), 3, 1, sums="linear")
        return model.fit(x, **{**OPTIONS, "epochs": 1}, **options).train[0][0]

    assert first_epoch(from_clusters=True) > first_epoch() + 0.5
    assert first_epoch(from_clusters=True) == first_epoch(from_clusters=True)
    missing = torch.where(torch.arange(90)[:, None] % 4 == torch.arange(4), NAN, x)
    missing[:30, 2] = NAN
    model = make()
    clusters = torch.arange(90) // 30
    model.fit(missing, from_clusters=True, clusters=clusters, **OPTIONS)
    assert model.log_prob(missing).isfinite().all()


def test_priors(x: Tensor):
    free, held = make(), make()
    optimizer = StochasticEM(0.5, einet.Prior(sums=5.0, leaves=1e6))
    free.fit(x, **OPTIONS)
    held.fit(x, optimizer=optimizer, **OPTIONS)
    # Each cluster's leaves are pulled towards that cluster.
    centres = torch.stack([part.mean() for part in free.einets])
    torch.testing.assert_close(
        torch.stack([part.mean() for part in held.einets]), centres, rtol=0.05, atol=0.3
    )
    assert held.log_prob(x).mean() < free.log_prob(x).mean()


def test_a_terminal_shows_what_happens(x: Tensor, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    monkeypatch.setattr("einet.learning.watch.SECONDS_BETWEEN_LOOKS", -1.0)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    model = make()
    history = model.fit(x, **{**OPTIONS, "progress": True})
    model.refine(x, epochs=2)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    assert f"train {history.train[-1][-1]:.6g}" in plain
    assert "cluster 1/3" in plain
    assert "cluster 3/3" in plain
    assert "epoch 2/2" in plain


def test_nan_is_noticed(x: Tensor):
    class Broken(StochasticEM):
        def step(self, model, batch, progress: float = 0.0) -> Tensor:
            return super().step(model, batch, progress) * NAN

    with pytest.raises(FloatingPointError, match=r"cluster 0, of \d+ rows.*it was 0.5"):
        make().fit(x, optimizer=Broken(0.5), **OPTIONS)


# -- going on --------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "training.checkpoint"


@pytest.fixture
def whole(x: Tensor) -> ClusteredEinet:
    """What comes out where nothing happens."""
    model = make()
    model.fit(x, optimizer=StochasticEM(0.5), **OPTIONS)
    return model


@pytest.mark.parametrize("by_epochs", [False, True], ids=["by clusters", "by epochs"])
@pytest.mark.parametrize("step", [1, 2, 8, 11, 17])
def test_ctrl_c_and_resume(
    x: Tensor, path: Path, whole: ClusteredEinet, step: int, by_epochs: bool, monkeypatch
):
    monkeypatch.setattr(module, "_SECONDS_BETWEEN_COPIES", -1.0 if by_epochs else 1e9)

    def stop(now: int) -> None:
        if now == step:
            os.kill(os.getpid(), signal.SIGINT)

    model, probe = make(), Probe(stop)
    history = model.fit(x, optimizer=probe, checkpoint=path, **OPTIONS)
    assert len(probe.rows) == step
    assert history.stopped == "interrupted"
    if any(history.train):
        # What there is can be used.
        assert model.weights.sum().item() == pytest.approx(1.0)
        assert model.log_prob(x).isfinite().all()
    again, rest = make(seed=5), Probe()
    finished = again.fit(x, optimizer=rest, checkpoint=path, resume=True, **OPTIONS)
    assert finished.stopped == "finished"
    assert same(again, whole)
    total = sum(math.ceil(size / 20) * 3 for size in finished.sizes)
    assert len(rest.rows) < total or step < 3
    uninterrupted = make().fit(x, optimizer=StochasticEM(0.5), **OPTIONS)
    assert finished.train == uninterrupted.train
    assert finished.inertia == uninterrupted.inertia


def test_resume_after_a_crash(x: Tensor, path: Path, whole: ClusteredEinet):
    def crash(now: int) -> None:
        if now == 13:
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        make().fit(x, optimizer=Probe(crash), checkpoint=path, every=0, **OPTIONS)
    probe, model = Probe(), make()
    model.fit(x, optimizer=probe, checkpoint=path, resume=True, **OPTIONS)
    assert same(model, whole)
    assert len(probe.rows) < 15
    # And once it is finished there is nothing left to do.
    probe, model = Probe(), make()
    model.fit(x, optimizer=probe, checkpoint=path, resume=True, **OPTIONS)
    assert same(model, whole)
    assert probe.rows == []


def test_without_a_file_resume_begins_anew(x: Tensor, path: Path, whole: ClusteredEinet):
    model = make()
    model.fit(x, optimizer=StochasticEM(0.5), checkpoint=path, resume=True, **OPTIONS)
    assert same(model, whole)
    assert path.exists()
    # A file that is not asked for is replaced.
    other = make()
    other.fit(x + 1, checkpoint=path, **OPTIONS)
    assert not same(other, whole)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"seed": 4}, "seed was 3 and is 4"),
        ({"epochs": 5}, "epochs was 3 and is 5"),
        ({"batch_size": 10}, "batch_size was 20 and is 10"),
        ({"optimizer": StochasticEM(0.4)}, "optimizer.step_size was"),
        ({"optimizer": StochasticEM(einet.linear(0.5, 0.1))}, "optimizer.step_size was"),
        (
            {"optimizer": StochasticEM(0.5, einet.Prior(sums=1.0))},
            "optimizer.prior was None and is",
        ),
        ({"kmeans_iterations": 7}, "clusters was"),
        ({"from_clusters": True}, "from_clusters was False and is True"),
        ({"clusters": [0, 1, 2] * 30}, "clusters was"),
        ({"transform": lambda x: 2 * x}, "data was"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_settings(x: Tensor, path: Path, change: dict, told: str):
    options = {**OPTIONS, "optimizer": StochasticEM(0.5), "checkpoint": path}
    make().fit(x, **options)
    with pytest.raises(ValueError, match=rf"checkpoint: .*another training run \({told}"):
        make().fit(x, resume=True, **{**options, **change})


def test_other_models_and_data(x: Tensor, path: Path):
    options = {**OPTIONS, "checkpoint": path, "resume": True}
    make().fit(x, **options)
    with pytest.raises(ValueError, match="data was"):
        make().fit(x[torch.randperm(90)], **options)
    with pytest.raises(ValueError, match="rows was 90 and is 80"):
        make().fit(x[:80], **options)
    with pytest.raises(ValueError, match="models was 3 and is 2"):
        ClusteredEinet(GRAPH, einet.Gaussian(), 3, 2).fit(x, **options)
    for family, K in ((einet.Gaussian(min_variance=0.1), 3), (einet.Gaussian(), 4)):
        with pytest.raises(ValueError, match="structure was"):
            ClusteredEinet(GRAPH, family, K, 3).fit(x, **options)
    with pytest.raises(ValueError, match="task was 'fit' and is 'refine'"):
        make().refine(x, **options)
    # A model that was trained before is of the same structure as a new one.
    model = make()
    model.fit(x, **OPTIONS)
    model.fit(x, **options)


def test_bad_arguments(x: Tensor, tmp_path: Path):
    model = make()
    with pytest.raises(ValueError, match="num_clusters must not exceed the number of rows, 2"):
        model.fit(x[:2], **OPTIONS)
    for name in ("epochs", "batch_size", "kmeans_iterations"):
        with pytest.raises(ValueError, match=name):
            model.fit(x, **{**OPTIONS, name: 0})
    with pytest.raises(ValueError, match="seed"):
        model.fit(x, **{**OPTIONS, "seed": -1})
    with pytest.raises(TypeError, match="optimizer"):
        model.fit(x, optimizer=StochasticEM, **OPTIONS)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="from_clusters"):
        model.fit(x, from_clusters="rows", **OPTIONS)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"train must have shape \[rows, 4\]"):
        model.fit(x[:, :3], **OPTIONS)
    with pytest.raises(ValueError, match="clusters must lie between 0 and 2"):
        model.fit(x, clusters=[3] * 90, **OPTIONS)
    with pytest.raises(ValueError, match="clusters must not be negative"):
        model.fit(x, clusters=[-1] * 90, **OPTIONS)
    with pytest.raises(ValueError, match=r"clusters must have shape \[90\]"):
        model.fit(x, clusters=[0], **OPTIONS)
    with pytest.raises(ValueError, match="outside the support"):
        ClusteredEinet(GRAPH, einet.Bernoulli(), 2, 2).fit(x, **OPTIONS)
    with pytest.raises(FileNotFoundError, match="checkpoint"):
        model.fit(x, checkpoint=tmp_path / "nowhere" / "file", **OPTIONS)
    with pytest.raises(ValueError, match="every is given"):
        model.fit(x, every=3, **OPTIONS)
    with einet.unconstrained(model), pytest.raises(ValueError, match="unconstrained"):
        model.fit(x, **OPTIONS)
    with pytest.raises(ValueError, match="num_clusters"):
        ClusteredEinet(GRAPH, einet.Gaussian(), 3, 0)
    assert not model.initialized


def test_files_that_are_no_checkpoints(x: Tensor, path: Path):
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(ValueError, match="is no checkpoint"):
        make().fit(x, checkpoint=path, resume=True, **OPTIONS)
    Einet(GRAPH, einet.Gaussian(), 2).save(path)
    with pytest.raises(ValueError, match="is no checkpoint"):
        make().fit(x, checkpoint=path, resume=True, **OPTIONS)


# -- what clusters share with fit ------------------------------------------------------------------


@pytest.mark.parametrize("together", [1, 2])
def test_the_best_epoch_of_each_cluster(x: Tensor, together: int):
    """Few rows and many parameters: each cluster's best epoch is not its last."""
    train, valid, clusters = x[:45], x[45:], (x[:45].mean(1) > 3).long()
    centres = torch.stack([train[clusters == number].mean(0) for number in range(2)])
    nearest = torch.cdist(valid, centres).argmin(1)
    model = ClusteredEinet(GRAPH, einet.Gaussian(), 6, 2, dtype=torch.float64)
    history = model.fit(
        train, valid, clusters=clusters, epochs=40, batch_size=10, patience=4, together=together,
        progress=False,
    )  # fmt: skip
    assert sum(map(len, history.valid)) < 80
    for number, (scores, best) in enumerate(zip(history.valid, history.best_epochs, strict=True)):
        assert best is not None
        assert scores[best] == max(scores)
        assert len(scores) == min(40, best + 5)
        score = model.einets[number].log_prob(valid[nearest == number]).mean().item()
        assert score == pytest.approx(max(scores), rel=1e-6)
    assert einet.ClusterHistory(**history.to_dict()) == history


@pytest.mark.parametrize("together", [1, 4])
def test_a_cluster_without_validation_rows_keeps_its_last_epoch(x: Tensor, together: int):
    kind = (x.mean(1) > 2).long() + (x.mean(1) > 6).long()
    some = x[kind == 0]
    one, two = make(), make()
    history = one.fit(x, some, clusters=kind, together=together, **OPTIONS)
    two.fit(x, clusters=kind, together=together, **OPTIONS)
    assert [bool(scores) for scores in history.valid] == [True, False, False]
    assert history.best_epochs[1:] == [None, None]
    for number in (1, 2):
        assert same(one.einets[number], two.einets[number])


@pytest.mark.parametrize("together", [2, 4])
def test_hidden_cells_and_a_finish_together_as_alone(x: Tensor, together: int):
    models = []
    for count in (1, together):
        model = make(dtype=torch.float64)
        history = model.fit(
            x.double(), x[:30].double(), hide=0.2, finish=2, together=count, **OPTIONS
        )
        assert all(len(train) == 5 for train in history.train)
        models.append((model, history))
    for one, two in zip(models[0][1].train, models[1][1].train, strict=True):
        assert one == pytest.approx(two, rel=1e-9)
    for p, q in zip(models[0][0].parameters(), models[1][0].parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("together", [1, 2])
def test_weights_of_rows(x: Tensor, together: int):
    """Weights of 2 and 0 are rows twice and not at all, in one mini-batch of each cluster."""
    clusters = torch.arange(90) % 3
    weights = torch.arange(90) // 3 % 3
    options = {**OPTIONS, "batch_size": 500, "together": together}
    one, two = make(dtype=torch.float64), make(dtype=torch.float64)
    padded = torch.where(weights.unsqueeze(1) > 0, x.double(), math.inf)
    begun = [model.fit(x, clusters=clusters, **options) for model in (one, two)]
    assert begun[0].train == begun[1].train
    first = one.fit(padded, weights=weights, clusters=clusters, **options)
    index = torch.arange(90).repeat_interleave(weights)
    second = two.fit(x[index].double(), clusters=clusters[index], **options)
    assert first.sizes == [20, 20, 20]
    assert second.sizes == [30, 30, 30]
    torch.testing.assert_close(one.weights, two.weights)
    # Initial leaves are drawn from rows, of which there are more in one than in the other.
    for mine, theirs in zip(first.train, second.train, strict=True):
        assert mine[-1] == pytest.approx(theirs[-1], abs=1.0)
    history = one.refine(x, weights=weights, epochs=1, progress=False)
    expected = (one.log_prob(x[index].double())).mean().item()
    assert history.train[0] <= expected + 1e-9


@pytest.mark.parametrize("together", [1, 2])
@pytest.mark.parametrize("step", [3, 9, 14])
def test_resume_with_validation_and_a_finish(x: Tensor, path: Path, together: int, step: int):
    options: dict[str, Any] = {**OPTIONS, "valid": x[:30], "finish": 2, "together": together}
    options["optimizer"] = StochasticEM(0.5, einet.Prior(sums=1.0, leaves=3.0))
    whole = make()
    expected = whole.fit(x, **options)
    epochs = [0]

    def crash(report: einet.EpochReport) -> None:
        epochs[0] += 1
        if epochs[0] == step:
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        make().fit(x, checkpoint=path, every=0, callbacks=crash, **options)
    again = make()
    finished = again.fit(x, checkpoint=path, resume=True, **options)
    assert (finished.train, finished.valid) == (expected.train, expected.valid)
    assert finished.best_epochs == expected.best_epochs
    assert same(again, whole)


def test_callbacks_know_the_cluster_and_can_stop(x: Tensor):
    reports: list[einet.EpochReport] = []

    def note(report: einet.EpochReport) -> None:
        reports.append(report)
        if report.cluster == 1 and report.epoch == 1:
            report.stop()

    model = make()
    history = model.fit(x, callbacks=note, **OPTIONS)
    assert [(r.cluster, r.epoch) for r in reports] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    assert history.stopped == "callback"
    assert [len(train) for train in history.train] == [3, 2, 0]
    assert (model.weights > 0).tolist() == [True, True, False]


def test_gradients_can_be_resumed_in_the_midst_of_a_cluster(x: Tensor, path: Path, monkeypatch):
    monkeypatch.setattr(module, "_SECONDS_BETWEEN_COPIES", -1.0)
    options: dict[str, Any] = {**OPTIONS, "epochs": 4}

    def adam() -> einet.Gradient:
        return einet.Gradient(torch.optim.Adam, lr=0.05)

    whole = make()
    whole.fit(x, optimizer=adam(), **options)

    def crash(report: einet.EpochReport) -> None:
        if report.cluster == 1 and report.epoch == 2:
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        make().fit(x, optimizer=adam(), checkpoint=path, every=0, callbacks=crash, **options)
    again, epochs = make(), []
    again.fit(
        x, optimizer=adam(), checkpoint=path, resume=True,
        callbacks=lambda report: epochs.append((report.cluster, report.epoch)), **options,
    )  # fmt: skip
    assert epochs[0] == (1, 2)
    assert same(again, whole)
