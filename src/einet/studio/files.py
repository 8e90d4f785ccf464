"""Files of the user, parsed as data and nothing else: tables and models, within limits."""

from __future__ import annotations

import io
import threading
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from einet.imaging.pixels import Pixels, load_with_pixels
from einet.models.base import Model
from einet.storage import load, load_metadata
from einet.studio.answers import ApiError
from einet.studio.limits import Limits
from einet.tables import Table, TableModel, TableWarning
from einet.tables.reading import read_table

__all__ = ["Data", "Opened", "open_model", "read_data"]

# Python's filters of warnings are the same for all threads.
_one_at_a_time = threading.Lock()


@dataclass(frozen=True)
class Data:
    """A table of the user's.

    Attributes:
        name: The name of its file.
        path: Where it lies, as code would name it.
        frame: Its rows.
        table: What its columns look like.
        warnings: What is to be said of them.
    """

    name: str
    path: str
    frame: Any
    table: Table
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Opened:
    """A model that can be asked.

    Attributes:
        name: The name of its file.
        path: Where it lies, as code would name it.
        file: Where it lies for the studio.
        kind: ``table``, ``images`` or ``other``.
        model: The model itself.
        table_model: The same as one of a table.
        pixels: What images its variables are.
        metadata: What the file says beside it.
        number: Counts the models of a session.
    """

    name: str
    path: str
    file: Path
    kind: str
    model: Model
    table_model: TableModel | None
    pixels: Pixels | None
    metadata: Mapping[str, Any]
    number: int = 0

    @property
    def history(self) -> Mapping[str, Any] | None:
        """How it was learnt, where the file says so."""
        history = self.metadata.get("history")
        return history if isinstance(history, Mapping) else None


def read_data(content: bytes | None, path: str, limits: Limits) -> Data:
    """A table from the bytes of a csv or Parquet file.

    Args:
        content: The bytes; None reads the file.
        path: The name of the file.
        limits: How large it may be.
    """
    name = Path(path).name or "table.csv"
    if content is None:
        size = Path(path).stat().st_size if Path(path).is_file() else 0
        if size > limits.max_bytes:
            raise ApiError(413, f"{name} has {size:,} bytes, more than the {limits.max_bytes:,} "
                           "that are taken")  # fmt: skip
        frame = read_table(path, most=limits.max_bytes, most_rows=limits.max_rows)
    else:
        stream = io.BytesIO(content)
        frame = read_table(name, stream=stream, most=limits.max_bytes, most_rows=limits.max_rows)
    check_size(frame, name, limits)
    with _one_at_a_time, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TableWarning)
        table = Table.of(frame)
    said = [str(w.message) for w in caught if issubclass(w.category, TableWarning)]
    return Data(name, path, frame, table, tuple(said))


def check_size(frame: Any, name: str, limits: Limits) -> None:
    """Refuse a table with more rows or cells than are taken."""
    rows, columns = frame.shape
    if rows > limits.max_rows:
        raise ApiError(
            413, f"{name} has {rows:,} rows, more than the {limits.max_rows:,} that are taken"
        )
    if rows * columns > limits.max_cells:
        raise ApiError(
            413,
            f"{name} has {rows * columns:,} cells, more than the {limits.max_cells:,} that are "
            "taken",
        )


def open_model(file: Path, path: str, number: int = 0) -> Opened:
    """A saved model of any kind.

    Args:
        file: The file.
        path: What code would call it.
        number: Which model of the session it is.
    """
    metadata = load_metadata(file)
    name = Path(path).name
    if "table" in metadata:
        table_model = TableModel.load(file)
        return Opened(name, path, file, "table", table_model.model, table_model, None, metadata,
                      number)  # fmt: skip
    if "pixels" in metadata:
        model, pixels = load_with_pixels(file)
        return Opened(name, path, file, "images", model, None, pixels, metadata, number)
    return Opened(name, path, file, "other", load(file), None, None, metadata, number)
