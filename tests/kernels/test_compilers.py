"""Kernels are compiled by copies of this process, and by whoever launches them otherwise."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from einet.kernels import compilers
from einet.kernels.compilers import compile_all


class Kernel:
    """One that takes a while, and leaves word of who compiled it."""

    def __init__(self, folder: Path, seconds: float = 0.0, fails: bool = False) -> None:
        self.folder, self.seconds, self.fails = folder, seconds, fails

    def preload(self, how: str) -> Any:
        time.sleep(self.seconds)
        if self.fails:
            raise RuntimeError(how)
        (self.folder / how).write_text(str(os.getpid()))
        return SimpleNamespace(src=how, metadata=self.folder)


def launcher(how: str, folder: Path) -> None:
    """What calls the kernel, made beside it."""
    (folder / f"{how}.so").touch()


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    monkeypatch.setattr(compilers, "_FOUND", 0.02)
    monkeypatch.setattr(compilers, "_gpu", lambda: ("some GPU", launcher))
    monkeypatch.setattr(compilers, "_become", lambda target: None)
    monkeypatch.setattr(compilers, "cores", lambda: 2)
    return []


def compiled_by(folder: Path) -> dict[str, int]:
    return {path.name: int(path.read_text()) for path in folder.iterdir() if not path.suffix}


def test_what_lies_in_the_cache_needs_no_others(tmp_path: Path, told: list[int]) -> None:
    compile_all([(Kernel(tmp_path), str(n)) for n in range(9)], told.append)
    assert compiled_by(tmp_path) == {str(n): os.getpid() for n in range(9)}
    assert told == []


def test_the_rest_is_compiled_side_by_side(tmp_path: Path, told: list[int]) -> None:
    kernels = [(Kernel(tmp_path, 0.05 if n == 2 else 0.0), str(n)) for n in range(7)]
    kernels[5] = (Kernel(tmp_path, fails=True), "5")
    compile_all(kernels, told.append)
    by = compiled_by(tmp_path)
    assert sorted(by) == ["0", "1", "2", "3", "4", "6"]
    assert {by["0"], by["1"], by["2"]} == {os.getpid()}
    assert os.getpid() not in {by["3"], by["4"], by["6"]}
    assert sorted(path.stem for path in tmp_path.glob("*.so")) == ["3", "4", "6"]
    assert told == [5]


def test_a_few_are_compiled_here(tmp_path: Path, told: list[int]) -> None:
    compile_all([(Kernel(tmp_path, 0.05), str(n)) for n in range(2)], told.append)
    assert set(compiled_by(tmp_path).values()) == {os.getpid()}
    assert told == []


def test_a_single_core_does_all(
    tmp_path: Path, told: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilers, "cores", lambda: 1)
    compile_all([(Kernel(tmp_path, 0.03), str(n)) for n in range(5)], told.append)
    assert set(compiled_by(tmp_path).values()) == {os.getpid()}
    assert told == [5]


def test_copies_that_hang_are_given_up(
    tmp_path: Path, told: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilers, "_LONGEST", 0.3)
    kernels = [(Kernel(tmp_path, 0.05), "first")]
    kernels += [(Kernel(tmp_path, 60.0), str(n)) for n in range(4)]
    began = time.perf_counter()
    compile_all(kernels, told.append)
    assert compiled_by(tmp_path) == {"first": os.getpid()}
    # No time is promised, but they were not waited for.
    assert time.perf_counter() - began < 30


def test_cores() -> None:
    assert compilers.cores() >= 1
