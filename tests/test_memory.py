"""Budgets of memory, and what fits them."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from einet import _memory
from einet._memory import (
    BUDGETS,
    Budget,
    available,
    budget,
    check_memory,
    check_room,
    chunks,
    fitting,
)
from tests.budgets import limit

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


@given(
    count=st.integers(0, 300),
    bytes_each=st.integers(0, 1 << 21),
    least=st.integers(1, 70),
    name=st.sampled_from(["block", "update", "rows at once"]),
)
def test_chunks_cover_everything_once(count: int, bytes_each: int, least: int, name: str):
    parts = list(chunks(count, name, bytes_each, CPU, least))
    assert [i for part in parts for i in range(part.start, part.stop)] == list(range(count))
    for part in parts:
        size = part.stop - part.start
        assert size <= least or size * bytes_each <= budget(name)
    if len(parts) > 1:
        # One more would have been too much.
        assert (fitting(name, bytes_each, CPU, least) + 1) * bytes_each > budget(name)


@pytest.mark.parametrize("name", BUDGETS)
def test_a_gpu_has_no_less(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_memory, "_memory_of", lambda device: 80 << 30)
    assert 0 < budget(name) <= budget(name, GPU)


@pytest.mark.parametrize(("memory", "expected"), [(8, 1.0), (32, 2.0), (141, 4.0)])
def test_a_share_of_the_memory(memory: int, expected: float, monkeypatch: pytest.MonkeyPatch):
    properties = SimpleNamespace(total_memory=memory << 30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    _memory._memory_of.cache_clear()
    assert Budget(7, 1 << 30, gpu_most=1 << 32).on(GPU) == expected * 2**30
    assert Budget(7, 1 << 30, gpu_most=1 << 32).on(CPU) == 7
    _memory._memory_of.cache_clear()


def test_the_budgets_of_tests(monkeypatch: pytest.MonkeyPatch):
    limit(monkeypatch, "block")
    assert fitting("block", 100) == 1
    assert fitting("block", 100, least=5) == 5
    with pytest.raises(KeyError, match="nothing"):
        budget("nothing")


def test_memory_that_is_free_is_what_the_system_and_a_container_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_memory, "_MEMORY", tmp_path / "meminfo")
    monkeypatch.setattr(_memory, "_CONTAINER", tmp_path)
    # The machine's memory, or nothing where it does not tell.
    assert (available() or 1) > 0
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:    500 kB\n")
    assert available() == 500 * 1024
    for name, text in (("max", "300000"), ("current", "250000"), ("stat", "anon 7\nfile 100000\n")):
        (tmp_path / f"memory.{name}").write_text(text)
    assert available() == 150_000
    (tmp_path / "memory.max").write_text("max\n")
    assert available() == 500 * 1024


def test_what_does_not_fit_is_not_begun(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_memory, "available", lambda: 3 * 10**9)
    check_room("images", 3 * 10**9)
    with pytest.raises(MemoryError, match=r"images take 3\.1 GB of memory, but 3\.0 GB are free"):
        check_room("images", 31 * 10**8)
    monkeypatch.setattr(_memory, "available", lambda: None)
    check_room("images", 1 << 60)


def test_what_no_machine_has_is_refused():
    check_memory("n", 1 << 20)
    for nbytes in (1 << 60, 10**400):
        with pytest.raises(ValueError, match="^n would take .* GiB of memory or more, and cpu has"):
            check_memory("n", nbytes)


def test_systems_that_do_not_tell_their_memory(monkeypatch):
    monkeypatch.delattr(_memory.os, "sysconf")
    _memory._memory_of.cache_clear()
    try:
        check_memory("n", 1 << 43)
        with pytest.raises(ValueError, match="n would take"):
            check_memory("n", 1 << 45)
    finally:
        _memory._memory_of.cache_clear()
