"""Calls are rehearsed on copies, and their kernels compiled ahead."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

import einet
from einet.data.batch import Batch
from einet.engine import rehearsal, replay
from tests.twins import Twins

ROOT = Path(__file__).parents[2]


def test_launches_are_those_of_the_call(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    settings = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    settings |= {
        "TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "CUDA_VISIBLE_DEVICES": "",
    }  # fmt: skip
    command = [sys.executable, "-m", "tests.engine.rehearsed"]
    done = subprocess.run(
        command, cwd=ROOT, env=settings, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "rehearsed"


def test_copies_have_shapes_and_places_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal, "_SMALL", 8)
    model = einet.Einet(einet.random_trees(4, depth=1, replicas=2), einet.Gaussian(), 3)
    batch = Batch(torch.ones(5, 4).T.contiguous().T, weights=torch.ones(5))
    twin, rows, shared = rehearsal._copied((model, batch, batch.x))
    assert twin.graph is model.graph
    own = {parameter.data_ptr() for parameter in model.parameters()}
    for copied, before in zip(twin.parameters(), model.parameters(), strict=True):
        assert copied.data_ptr() not in own
        assert (type(copied), copied.shape) == (type(before), before.shape)
        assert copied.stride() == before.stride()
    for copied, before in zip(twin.buffers(), model.buffers(), strict=True):
        assert copied.is_floating_point() or copied.equal(before)
    # No more memory than the largest takes.
    storages = {parameter.untyped_storage().data_ptr() for parameter in twin.parameters()}
    assert len(storages) < len(own)
    assert rows.x.stride() == batch.x.stride()
    assert rows.x is shared


def test_what_cannot_be_rehearsed_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def call(x: torch.Tensor) -> None:
        calls.append(x)
        raise IndexError("astray")

    calls: list[torch.Tensor] = []
    monkeypatch.setattr(pytest.importorskip("triton").knobs.runtime, "interpret", False)
    assert rehearsal.rehearse(call, torch.ones(())) == 0
    assert len(calls) == 1


def test_nothing_is_compiled_for_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    knobs = pytest.importorskip("triton").knobs
    monkeypatch.setattr(knobs.runtime, "interpret", True)
    made = []
    assert rehearsal.rehearse(made.append, torch.ones(3)) == 0
    assert made == []


def test_whoever_waits_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rehearsal._tell(39)
    assert capsys.readouterr().err == ""  # nobody sits before this
    monkeypatch.setattr(rehearsal, "Console", _Screen)
    rehearsal._tell(39)
    assert "compiling 39 kernels" in _Screen.lines[0]


class _Screen:
    """A console that somebody sits before."""

    lines: ClassVar[list[str]] = []
    is_jupyter = True
    file = sys.stderr

    def __init__(self, stderr: bool) -> None:
        assert stderr

    def print(self, line: str, highlight: bool) -> None:
        self.lines.append(line)


@pytest.mark.gpu
@pytest.mark.parametrize("sums", ["einsum", "linear"])
def test_a_rehearsed_step_is_the_same(sums: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And it finds its kernels compiled."""
    from triton import knobs

    twins = Twins(
        einet.random_trees(9, depth=2, replicas=3, seed=0), einet.Gaussian(), 6, "cuda", sums=sums
    )
    late: list[str] = []
    rehearsed: list[int] = []

    def watched(**of: Any) -> None:
        if not of["cache_hit"]:
            late.append(of["src"].name)

    def rehearse(*arguments: Any) -> int:
        monkeypatch.setattr(knobs.compilation, "listener", None)
        rehearsed.append(rehearsal.rehearse(*arguments))
        monkeypatch.setattr(knobs.compilation, "listener", watched)
        return rehearsed[-1]

    monkeypatch.setattr(replay, "rehearse", rehearse)
    for number in range(4):
        x = twins.rows(48, number)
        twins.step(x, 0.4)
        twins.follow()
    assert rehearsed
    assert late == []
