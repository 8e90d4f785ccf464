"""A small folder of data sets, and settings to match."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from einet.data import debd
from experiments.table1 import entry
from experiments.table1.settings import Kind, Settings, Stage


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """nltcs and msnbc with a few rows of two clusters."""
    folder = tmp_path / "debd"
    folder.mkdir()
    for name in ("nltcs", "msnbc"):
        generator = np.random.default_rng(0)
        for split, rows in (("train", 60), ("valid", 30), ("test", 20)):
            cluster = generator.integers(0, 2, (rows, 1))
            flips = generator.random((rows, debd.num_variables(name))) < 0.2
            lines = (",".join(map(str, row)) for row in (cluster ^ flips).astype(int).tolist())
            (folder / f"{name}.{split}.data").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(autouse=True)
def tiny_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sizes, then a longer training of the better one."""

    def plan(kind: Kind, num_variables: int, rows: int, quick: bool = False):
        start = Settings(kind, num_sums=2, depth=1, replicas=2, trees=1, batch_size=30)

        def sizes(settings: Settings) -> list[Settings]:
            return [replace(settings, num_sums=num_sums) for num_sums in (1, 3)]

        stages = [
            Stage("size", 6, 3, 1, sizes),
            Stage("length", 12, 6, 1, lambda settings: [settings]),
        ]
        return start, stages, 1 if kind == "einsum" else 2

    monkeypatch.setattr(entry, "plan", plan)
