"""Rows of a stream that lie on the disk are those that were read."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch

from einet.data.batch import Batch
from einet.data.file_rows import FileRows
from einet.data.spooling import spooled


def test_rows_with_all_that_belongs_to_them():
    x = torch.randn(5, 3)
    known = torch.tensor([[True, False, True]] * 2)
    weights = torch.arange(5, dtype=torch.float64)
    parts = [
        Batch(x[:3], None, torch.arange(3), weights[:3], ("a", "b", "c")),
        Batch(x[3:], known, torch.arange(2), weights[3:], ("a", "b", "c")),
    ]
    batch = spooled(lambda: parts, "train")
    assert batch.x.equal(x)
    assert batch.mask.tolist() == [[True] * 3] * 3 + known.tolist()
    assert batch.labels is not None
    assert batch.labels.tolist() == [0, 1, 2, 0, 1]
    assert batch.weights is not None
    assert batch.weights.equal(weights)
    assert batch.columns == ("a", "b", "c")


def test_types_that_change_midway_become_one_that_holds_all():
    parts = [Batch(torch.ones(2, 1, dtype=torch.int8)), Batch(torch.full((1, 1), 0.5))]
    assert spooled(lambda: parts, "train").x.flatten().tolist() == [1.0, 1.0, 0.5]


def test_a_full_disk_is_told_of(monkeypatch: pytest.MonkeyPatch):
    class Full:
        def __enter__(self) -> Full:
            return self

        def __exit__(self, *error: object) -> None: ...

        def write(self, some: bytes) -> None:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", Full)
    with pytest.raises(OSError, match="train has to be laid down .* No space left .* TMPDIR"):
        spooled(lambda: [Batch(torch.ones(1, 1))], "train")


def test_files_with_a_transform(tmp_path: Path):
    pyarrow = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    x = np.arange(12, dtype=np.uint8).reshape(6, 2)
    columns = {name: x[:, place] for place, name in enumerate("ab")}
    pq.write_table(pyarrow.table(columns), tmp_path / "x.parquet", row_group_size=4)
    options = {"transform": lambda x: x / 2, "check": lambda part, name: seen.append(part.x.sum())}
    seen: list[torch.Tensor] = []
    rows = FileRows(tmp_path / "x.parquet", 2, 1, torch.device("cpu"), **options).spooled()
    assert rows.given.x.dtype == torch.uint8
    assert torch.cat([part.x for part in rows]).tolist() == (x / 2).tolist()
    # The checks are of what the transform makes of the rows.
    assert sum(seen) == x.sum() / 2
