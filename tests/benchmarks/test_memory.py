"""The task that measures memory on a GPU, as far as a CPU can tell; and what pages say of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from benchmarks import memory_text
from benchmarks.scale_tasks import memory
from einet.models.einet import Einet

CPU = torch.device("cpu")


@contextmanager
def room_for(most: int) -> Iterator[None]:
    """A device that has room for so many rows."""
    upward = Einet.fill

    def fill(self: Einet, batch: Any, *arguments: Any, **options: Any) -> Any:
        if len(batch) > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return upward(self, batch, *arguments, **options)

    Einet.fill = fill  # type: ignore[method-assign]
    try:
        yield
    finally:
        Einet.fill = upward  # type: ignore[method-assign]


def test_learning_within_a_limit_arrives_where_it_would_have():
    fit = memory._learner("float64", 2, 300, CPU)
    told = memory.halved(fit, lambda: room_for(100), epochs=1)
    assert told["rows_at_a_time"] == [150, 80]
    assert told["difference"] < 1e-10
    assert told["log_likelihood"] == pytest.approx(told["with_room"], rel=1e-12)
    row = {"task": "memory", "device": "G", "model": "m", "dtype": "float64", "batch": 300}
    text = memory_text.halved([row | {"with_room_mib": 2000, "limit_mib": 800} | told])
    assert "| m | float64 | 300 | 2,000 MiB | 800 MiB | 150, 80 |" in text


def test_what_is_said_adds_up(monkeypatch: pytest.MonkeyPatch):
    small = {"a": ("random", 32, 2), "b": ("hidden", 8, 4), "c": ("mixture", 32, 2)}
    monkeypatch.setattr(memory, "MODELS", small)
    for name in small:
        row = memory.said(name, memory.made(name, CPU)[0], full=name == "b")
        parts = ("parameters", "copies", "values", "statistics", "work")
        assert row["total_mib"] == pytest.approx(sum(row[f"{p}_mib"] for p in parts), abs=0.3)
        stored = {"task": "memory", "device": "G", **row, "total_mib": 1500.0}
        text = memory_text.said([stored | {"measured_mib": 1000.0, "said_of_measured": 1.5}])
        assert f"| {name} | `{row['learner']}` | 1,500 MiB | 1,000 MiB | 1.50× |" in text


def test_nothing_is_said_before_it_is_measured():
    assert memory_text.said([]) == memory_text.halved([]) == ""
    if not torch.cuda.is_available():
        assert list(memory.measure(quick=True)) == []
