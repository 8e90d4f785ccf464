"""Folders of checkpoints: what goes wrong is said, and the last good state is still there."""

from __future__ import annotations

import errno
import os
import resource
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import einet
from einet import EM, Einet, Gaussian, fit
from einet.data import files
from einet.learning.checkpoint import Checkpoint
from einet.learning.checkpoint_file import checkpoints_in
from einet.learning.run_lock import RunLock
from einet.models.base import Model

GRAPH = einet.random_trees(4, depth=1, replicas=2, seed=1)
X = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
OPTIONS: dict[str, Any] = {"epochs": 3, "batch_size": 20, "progress": False}


def make() -> Einet:
    return Einet(GRAPH, Gaussian(), 2)


def numbers(model: Model) -> list[Tensor]:
    return [tensor.clone().nan_to_num() for tensor in model.state_dict().values()]


def same(one: Model, two: Model) -> bool:
    return all(map(torch.equal, numbers(one), numbers(two)))


def newest(folder: Path) -> Path:
    return list(checkpoints_in(folder).values())[-1]


class Crash(Exception):
    pass


def begun(folder: Path, after: int = 1, **options: Any) -> None:
    """Leave a run behind that was broken off in an epoch."""

    def crash(report: einet.EpochReport) -> None:
        if report.epoch == after:
            raise Crash

    with pytest.raises(Crash):
        fit(make(), X, checkpoint=folder, every=0, callbacks=crash, **OPTIONS, **options)


@pytest.fixture(scope="module")
def whole() -> Einet:
    model = make()
    fit(model, X, **OPTIONS)
    return model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


# -- what is kept ----------------------------------------------------------------------------------


def test_two_states_are_kept_and_those_of_another_run_replaced(folder: Path, whole: Einet):
    begun(folder)
    first = set(checkpoints_in(folder))
    assert len(first) == 2
    model = make()
    fit(model, X, checkpoint=folder, **OPTIONS)
    # One at the beginning, one at the end.
    assert not first & set(checkpoints_in(folder))
    assert len(checkpoints_in(folder)) == 2
    assert same(model, whole)


def test_steps_of_an_epoch_are_not_made_again(folder: Path, whole: Einet):
    begun(folder)
    header, tensors = files.read_tensors(newest(folder), "einet.checkpoint")
    # All three steps of the second epoch were made, which had not been noted yet.
    assert header["state"]["loop"]["done"] == 1
    assert tensors["now.place.at"].tolist() == [3, 0]
    counted: list[int] = []

    class Counting(einet.StochasticEM):
        def step(self, *arguments: Any, **options: Any) -> Tensor:
            counted.append(1)
            return super().step(*arguments, **options)

    Counting.__name__ = "StochasticEM"
    model = make()
    default = einet.linear(0.5, 0.05)
    history = fit(model, X, optimizer=Counting(default), checkpoint=folder, resume=True, **OPTIONS)
    assert len(counted) == 3
    assert len(history) == 3
    assert same(model, whole)


def test_how_often(folder: Path, monkeypatch: pytest.MonkeyPatch):
    now = [0.0]
    monkeypatch.setattr("einet.learning.checkpoint.time.perf_counter", lambda: now[0])
    for every, long in ((None, 30.0), (5.0, 5.0), (0, 0.0)):
        file = Checkpoint(folder, every)
        assert file.due
        with file:
            file.write({}, {})
            now[0] += max(0.0, long - 0.1)
            assert file.due is (every == 0)
            now[0] += 0.1
            assert file.due
    # Where writing takes long, it is done less often.
    slow = Checkpoint(folder)
    with slow, monkeypatch.context() as patch:

        def write(*arguments: Any) -> None:
            now[0] += 2.0

        patch.setattr("einet.learning.checkpoint.write_tensors", write)
        slow.write({}, {})
        now[0] += 197.0
        assert not slow.due
        now[0] += 1.1
        assert slow.due
    for wrong in (-1.0, float("nan"), True):
        with pytest.raises((ValueError, TypeError), match="every must be a number"):
            Checkpoint(folder, wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="every is given"):
        Checkpoint(None, 3.0)


# -- damage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["cut", "flipped", "empty"])
def test_a_damaged_one_gives_way_to_the_one_before(folder: Path, whole: Einet, kind: str):
    begun(folder)
    before, last = checkpoints_in(folder).values()
    content = bytearray(last.read_bytes())
    content[-50] ^= 4
    half = bytes(content[: len(content) // 2])
    last.write_bytes({"cut": half, "flipped": bytes(content), "empty": b""}[kind])
    model = make()
    with pytest.warns(RuntimeWarning, match=f"{last.name} is damaged .*{before.name}"):
        fit(model, X, checkpoint=folder, resume=True, **OPTIONS)
    assert same(model, whole)
    # Where both are, there is nothing to go on from; the model stays what it was.
    for file in checkpoints_in(folder).values():
        file.write_bytes(file.read_bytes()[:-1])
    model = make()
    expected = numbers(model)
    with pytest.raises(ValueError, match=rf"{newest(folder).name} is no checkpoint that can be re"):
        fit(model, X, checkpoint=folder, resume=True, **OPTIONS)
    assert all(map(torch.equal, numbers(model), expected))


def test_a_state_with_nan_is_never_written(folder: Path):
    class Broken(einet.StochasticEM):
        def step(self, model: Model, batch: Any, progress: float = 0.0) -> Tensor:
            mean = super().step(model, batch, progress)
            if progress > 0.6:
                next(model.parameters()).detach().fill_(float("nan"))
            return mean

    with pytest.raises(FloatingPointError, match="NaN at step"):
        fit(make(), X, optimizer=Broken(0.5), checkpoint=folder, every=0, **OPTIONS)
    _, tensors = files.read_tensors(newest(folder), "einet.checkpoint")
    assert all(bool(t.isfinite().all()) for name, t in tensors.items() if "weight" in name)


# -- disks -----------------------------------------------------------------------------------------


def test_a_full_disk_ends_no_training(folder: Path, whole: Einet):
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    good: list[bytes] = []

    def fill(report: einet.EpochReport) -> None:
        # Files may not grow beyond this from here on: what a quota does.
        good.append(newest(folder).read_bytes())
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, limit[1]))

    model = make()
    try:
        with pytest.warns(RuntimeWarning, match="could not be written .*the last good one is"):
            fit(model, X, checkpoint=folder, every=0, callbacks=fill, **OPTIONS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert same(model, whole)
    assert newest(folder).read_bytes() == good[0]
    assert sorted(os.listdir(folder))[-1] == "lock"
    model = make()
    fit(model, X, checkpoint=folder, resume=True, **OPTIONS)
    assert same(model, whole)


def test_a_disk_that_is_full_from_the_beginning(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def full(tensor: Tensor) -> memoryview:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "octets", full)
    with pytest.raises(OSError, match=r"No space left on device.*checkpoint-000001"):
        fit(make(), X, checkpoint=folder, **OPTIONS)
    # Nothing is left behind, not even the folder.
    assert not folder.exists()


def test_a_folder_that_cannot_be_written_to(folder: Path, monkeypatch: pytest.MonkeyPatch):
    folder.mkdir()
    if os.geteuid():
        folder.chmod(0o500)
    else:  # Nothing is forbidden to root.
        real = os.open

        def denied(path: Any, *arguments: Any, **options: Any) -> int:
            if Path(path).parent == folder:
                raise PermissionError(errno.EACCES, "Permission denied", path)
            return real(path, *arguments, **options)

        monkeypatch.setattr(os, "open", denied)
    with pytest.raises(PermissionError, match="nothing can be written to this folder"):
        fit(make(), X, checkpoint=folder, **OPTIONS)
    folder.chmod(0o700)
    assert list(folder.iterdir()) == []


def test_two_runs_in_one_folder(folder: Path, whole: Einet):
    begun(folder)
    left = {file: file.read_bytes() for file in checkpoints_in(folder).values()}
    model = make()
    before = numbers(model)
    for resume in (False, True):
        with RunLock(folder), pytest.raises(BlockingIOError, match="another run, process"):
            fit(model, X, checkpoint=folder, resume=resume, **OPTIONS)
    assert all(map(torch.equal, numbers(model), before))
    assert {file: file.read_bytes() for file in checkpoints_in(folder).values()} == left
    fit(model, X, checkpoint=folder, resume=True, **OPTIONS)
    assert same(model, whole)


# -- signals ---------------------------------------------------------------------------------------


def ending(learner: einet.Learner, at: int) -> Any:
    """The learner with a SIGTERM in one of its steps."""
    real, count = learner.step, [0]

    def step(model: Model, batch: Any, progress: float = 0.0) -> Tensor:
        count[0] += 1
        if count[0] == at:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(model, batch, progress)

    learner.step = step  # type: ignore[method-assign]
    return learner


@pytest.mark.parametrize("at", [1, 5])
def test_sigterm_ends_like_ctrl_c(folder: Path, at: int):
    before = signal.getsignal(signal.SIGTERM)
    expected = make()
    fit(expected, X, optimizer=EM(), **OPTIONS)
    history = fit(make(), X, optimizer=ending(EM(), at), checkpoint=folder, **OPTIONS)
    assert history.stopped == "interrupted"
    assert signal.getsignal(signal.SIGTERM) == before
    model = make()
    assert fit(model, X, optimizer=EM(), checkpoint=folder, resume=True, **OPTIONS).stopped
    assert same(model, expected)


def test_signals_in_a_thread_are_left_alone(folder: Path, whole: Einet):
    model, before = make(), signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=fit, args=(model, X), kwargs={"checkpoint": folder, **OPTIONS})
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) == before
    assert same(model, whole)
