"""Checkpoints are files of one run: no other goes on from them, and nothing else is replaced."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

import einet
from einet import EM, Einet, Gaussian, Gradient, Prior, StochasticEM, fit
from einet.data.files import read_tensors, write_tensors
from einet.learning.checkpoint_file import checkpoints_in
from einet.models.base import Model

GRAPH = einet.random_trees(4, depth=1, replicas=2, seed=1)
KEY = "einet.checkpoint"
OPTIONS: dict[str, Any] = {"epochs": 2, "batch_size": 20, "progress": False}


@pytest.fixture
def x() -> Tensor:
    return torch.randn(60, 4, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.checkpoint"


def numbers(model: Model) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(one: Model, two: dict[str, Tensor]) -> bool:
    mine = one.state_dict()
    return all(torch.equal(mine[name].nan_to_num(), two[name].nan_to_num()) for name in mine)


def make(**options: Any) -> Einet:
    return Einet(GRAPH, Gaussian(), **{"num_sums": 2, **options})


def newest(folder: Path) -> Path:
    return list(checkpoints_in(folder).values())[-1]


# -- files of other kinds --------------------------------------------------------------------------


@pytest.mark.parametrize("resume", [True, False])
def test_files_of_other_kinds_are_not_replaced(x: Tensor, tmp_path: Path, resume: bool):
    make().save(tmp_path / "model.einet")
    (tmp_path / "notes.txt").write_text("mine")
    os.mkfifo(tmp_path / "pipe")
    for name in ("model.einet", "notes.txt", "pipe"):
        file = tmp_path / name
        before = file.read_bytes() if file.is_file() else None
        with pytest.raises(ValueError, match=f"{name} is no "):
            fit(make(), x, checkpoint=file, resume=resume, **OPTIONS)
        assert before is None or file.read_bytes() == before
    # A folder may hold other files, which are none of a run's business.
    (tmp_path / "checkpoint-000007.safetensors").write_text("mine, too")
    fit(make(), x, checkpoint=tmp_path, **OPTIONS)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (tmp_path / "checkpoint-000007.safetensors").read_text() == "mine, too"


def test_a_damaged_file_can_be_replaced_but_not_resumed(x: Tensor, tmp_path: Path, path: Path):
    """One file in place of a folder, as earlier releases wrote them, goes on to be one."""
    fit(make(), x, checkpoint=tmp_path / "folder", **OPTIONS)
    whole = newest(tmp_path / "folder").read_bytes()
    for damaged in (whole[:-1], whole[:2000], b""):
        path.write_bytes(damaged)
        model = make()
        before = numbers(model)
        with pytest.raises(ValueError, match=r"run\.checkpoint is no checkpoint that can be resum"):
            fit(model, x, checkpoint=path, resume=True, **OPTIONS)
        assert same(model, before)
        fit(make(), x, checkpoint=path, **OPTIONS)
        fit(make(), x, checkpoint=path, resume=True, **OPTIONS)
        assert path.is_file()


def test_files_of_other_releases(x: Tensor, tmp_path: Path, path: Path):
    whole = make()
    fit(whole, x, checkpoint=tmp_path / "folder", **OPTIONS)
    header, tensors = read_tensors(newest(tmp_path / "folder"), KEY)
    del header["checksum"]
    # The first version knew of no places within an epoch.
    del header["state"]["within"]
    write_tensors(path, tensors, KEY, {**header, "version": 1})
    model = make()
    fit(model, x, checkpoint=path, resume=True, **OPTIONS)
    assert same(model, numbers(whole))
    save_file(tensors, path, {KEY: json.dumps(header)})
    with pytest.raises(ValueError, match="it has no checksum, as an earlier release of einet"):
        fit(make(), x, checkpoint=path, resume=True, **OPTIONS)
    write_tensors(path, tensors, KEY, {**header, "version": 3})
    with pytest.raises(ValueError, match="version must be a whole number from 1 to 2, got 3"):
        fit(make(), x, checkpoint=path, resume=True, **OPTIONS)


# -- the same run ----------------------------------------------------------------------------------


def until(where: float) -> Any:
    """A schedule that falls at some point of the training."""
    return lambda progress: 0.5 if progress < where else 0.1


class Falling:
    """A schedule that is an object."""

    def __init__(self, end: float) -> None:
        self.end = end

    def __call__(self, progress: float) -> float:
        return 0.5 + (self.end - 0.5) * progress


def groups(rate: float) -> Any:
    """What makes an optimiser with two groups of parameters, the second with this rate."""

    def make(parameters: Any) -> torch.optim.Optimizer:
        some = list(parameters)
        parts = [{"params": some[:1]}, {"params": some[1:], "lr": rate}]
        return torch.optim.SGD(parts, lr=0.1, momentum=0.9)

    return Gradient(make)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda: StochasticEM(until(0.45)), lambda: StochasticEM(until(0.55))),
        (lambda: StochasticEM(Falling(0.1)), lambda: StochasticEM(Falling(0.11))),
        (lambda: StochasticEM(0.5, Prior(leaves=1)), lambda: StochasticEM(0.5, Prior(leaves=2))),
        (EM, StochasticEM),
        (EM, lambda: EM(Prior(sums=1))),
        (lambda: groups(0.1), lambda: groups(0.2)),
        (lambda: Gradient(lambda p: torch.optim.Adam(p, lr=0.1)),
         lambda: Gradient(lambda p: torch.optim.Adam(p, lr=0.2))),
        (lambda: Gradient(lambda p: torch.optim.Adam(p, lr=0.1)),
         lambda: Gradient(lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0))),
        (lambda: Gradient(torch.optim.Adam, lr=0.1, weight_decay=0.1),
         lambda: Gradient(torch.optim.Adam, lr=0.1)),
    ],
)  # fmt: skip
def test_other_learners_are_refused(x: Tensor, path: Path, one: Any, other: Any):
    whole = make()
    fit(whole, x, checkpoint=path, optimizer=one(), **OPTIONS)
    model = make()
    before = numbers(model)
    with pytest.raises(ValueError, match=r"run\.checkpoint/.* is .*of another training run"):
        fit(model, x, checkpoint=path, resume=True, optimizer=other(), **OPTIONS)
    assert same(model, before)
    assert not model.initialized
    # One that was made the same way goes on.
    fit(model, x, checkpoint=path, resume=True, optimizer=one(), **OPTIONS)
    assert same(model, numbers(whole))


def test_other_models_and_rows_are_refused(x: Tensor, path: Path):
    labels = [0, 1] * 30
    rows: dict[str, Any] = {
        "labels": labels, "weights": torch.ones(60), "valid": x[:9], "valid_labels": labels[:9],
        "transform": lambda x: x.clone(), "observed": torch.ones(60, 4, dtype=torch.bool),
    }  # fmt: skip
    fit(make(num_classes=2), x, checkpoint=path, **rows, **OPTIONS)
    swapped = x[:, [1, 0, 2, 3]]
    flipped, masked = labels[::-1], torch.ones(60, 4, dtype=torch.bool)
    masked[59, 3] = False
    for changed, told in (
        ({"labels": flipped}, "data"), ({"weights": torch.full((60,), 2.0)}, "data"),
        ({"observed": masked}, "data"), ({"transform": lambda x: x[:, [1, 0, 2, 3]]}, "data"),
        ({"valid_labels": flipped[:9]}, "valid"), ({"valid": x[1:10]}, "valid"),
        ({"transform": None}, "data"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"another training run .*{told} was"):
            fit(make(num_classes=2), x, checkpoint=path, resume=True,
                **{**rows, **changed}, **OPTIONS)  # fmt: skip
    with pytest.raises(ValueError, match="data was"):
        fit(make(num_classes=2), swapped, checkpoint=path, resume=True, **rows, **OPTIONS)
    adam = Gradient(torch.optim.Adam, lr=0.1)
    with pytest.raises(ValueError, match="objective was 'generative' and is 'discriminative'"):
        fit(make(num_classes=2), x, checkpoint=path, resume=True, optimizer=adam,
            objective="discriminative", **rows, **OPTIONS)  # fmt: skip
    gamma = [einet.Gaussian(min_variance=0.1), *[einet.Gaussian()] * 3]
    for model in (
        make(num_classes=2, num_sums=3),
        make(num_classes=2, dtype=torch.float64),
        Einet(GRAPH, gamma, 2, num_classes=2),
        make(num_classes=2, sums="linear"),
    ):
        with pytest.raises(ValueError, match="structure was"):
            fit(model, x, checkpoint=path, resume=True, **rows, **OPTIONS)


def test_what_is_not_compared(x: Tensor, path: Path):
    whole = make()
    fit(whole, x, checkpoint=path, **OPTIONS)
    seen: list[int] = []
    model = make(precision="high", seed=5)
    fit(
        model, x, checkpoint=path, resume=True, device="cpu", initialize=False,
        callbacks=lambda report: seen.append(report.epoch), **OPTIONS,
    )  # fmt: skip
    assert same(model, numbers(whole))
    # The run was over.
    assert seen == []


def test_a_finished_run(x: Tensor, path: Path):
    """It is given back as it ended; more epochs are another run, whose schedule differs."""
    whole = make()
    expected = fit(whole, x, valid=x[:10], checkpoint=path, **OPTIONS)
    model = make(seed=3)
    history = fit(model, x, valid=x[:10], checkpoint=path, resume=True, **OPTIONS)
    assert history == expected
    assert same(model, numbers(whole))
    with pytest.raises(ValueError, match="epochs was 2 and is 4"):
        fit(model, x, valid=x[:10], checkpoint=path, resume=True, **{**OPTIONS, "epochs": 4})
    assert same(model, numbers(whole))
