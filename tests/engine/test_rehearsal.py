"""Calls are rehearsed on copies without memory, and their kernels compiled ahead."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
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
        command, cwd=ROOT, env=settings, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "rehearsed"


def test_copies_have_shapes_and_no_memory() -> None:
    model = einet.Einet(einet.random_trees(4, depth=1, replicas=2), einet.Gaussian(), 3)
    batch = Batch(torch.ones(5, 4).T.contiguous().T, weights=torch.ones(5))
    twin, rows, shared = rehearsal._without_memory((model, batch, batch.x))
    assert twin.graph is model.graph
    for copied, own in zip(twin.parameters(), model.parameters(), strict=True):
        assert copied.device.type == "meta"
        assert (type(copied), copied.shape, copied.stride()) == (type(own), own.shape, own.stride())
    assert all(buffer.device.type == "meta" for buffer in twin.buffers())
    assert rows.x.stride() == batch.x.stride()
    assert rows.x is shared
    assert all(parameter.device.type == "cpu" for parameter in model.parameters())


def test_what_cannot_be_rehearsed_is_left_alone() -> None:
    def call(x: torch.Tensor) -> None:
        float(x)  # which a tensor without memory does not have

    assert rehearsal.rehearse(call, torch.ones(())) == 0


def test_a_kernel_that_cannot_be_compiled_is_left_to_its_launch() -> None:
    class Broken:
        def preload(self, how: str) -> None:
            raise RuntimeError(how)

    rehearsal._compile([(Broken(), "no"), (Broken(), "way")])
    rehearsal._compile([])


def test_whoever_waits_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Slow:
        def preload(self, how: str) -> None:
            told.wait(10)

    told = threading.Event()
    counts: list[int] = []
    tell = rehearsal._tell

    def watched(count: int) -> None:
        counts.append(count)
        tell(count)
        told.set()

    monkeypatch.setattr(rehearsal, "_tell", watched)
    monkeypatch.setattr(rehearsal, "_PATIENCE", 0.01)
    rehearsal._compile([(Slow(), ""), (Slow(), "")])
    assert counts == [2]
    assert capsys.readouterr().err == ""  # nobody sits before this

    monkeypatch.setattr(rehearsal, "Console", _Screen)
    tell(39)
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

    def watched(*arguments: Any) -> int:
        rehearsed.append(rehearsal.rehearse(*arguments))
        monkeypatch.setattr(
            knobs.runtime, "jit_post_compile_hook", lambda **of: late.append(of["repr"])
        )
        return rehearsed[-1]

    monkeypatch.setattr(replay, "rehearse", watched)
    for number in range(4):
        x = twins.rows(48, number)
        twins.step(x, 0.4)
        twins.follow()
    assert rehearsed
    assert late == []
