"""Tables in files: csv and Parquet, read so that no cell ends up in the wrong place unnoticed.

A csv file is first looked at as text, line by line (:mod:`einet.tables.csv_text`). Only then is it
read, by pandas.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from einet._checks import missing_package
from einet._memory import check_room
from einet.data.replace import replacing
from einet.tables.csv_text import check_lines, check_names, decode_text

if TYPE_CHECKING:
    import pandas

__all__ = ["MISSING_WORDS", "STANDARD", "read_table", "table_format", "write_table"]

#: The name of what is piped in or out.
STANDARD = "-"

#: What an empty cell may be written as, apart from nothing.
MISSING_WORDS = ("NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "<NA>")

_SUFFIXES = {".csv": "csv", ".tsv": "csv", ".txt": "csv", ".parquet": "parquet", ".pq": "parquet"}
_PARQUET, _GZIP = b"PAR1", b"\x1f\x8b"
# What a byte of a file becomes, at most, on its way into a frame.
_BYTES_A_BYTE = 12
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?")


def table_format(path: str | os.PathLike[str]) -> str:
    """``csv`` or ``parquet``, by the name of a file; a csv may end in ``.gz`` too.

    >>> table_format("people.csv.gz"), table_format("people.parquet"), table_format("-")
    ('csv', 'parquet', 'csv')
    """
    if str(path) == STANDARD:
        return "csv"
    name = Path(path).name.lower()
    suffix = Path(name.removesuffix(".gz")).suffix
    kind = _SUFFIXES.get(suffix)
    if kind is None or (kind == "parquet" and name.endswith(".gz")):
        raise ValueError(f"{path}: the name of a table ends in .csv, .csv.gz, .tsv or .parquet")
    return kind


def read_table(
    path: str | os.PathLike[str],
    missing: Sequence[str] = (),
    stream: Any = None,
    most: int | None = None,
    most_rows: int | None = None,
) -> pandas.DataFrame:
    """A table from a file.

    Text has to be UTF-8, or UTF-16 with its mark. Cells are separated by commas, semicolons, tabs
    or bars, whichever the header has most of. Columns of dates such as 2020-01-31 become dates. A
    first column without a name that only counts the rows, as pandas writes it, is left out.

    Args:
        path: A csv file, which may be compressed by gzip, or a Parquet file; ``-`` is what is piped
            in.
        missing: Words that stand for an empty cell, apart from the usual ones, such as ``?``.
        stream: A binary file to read instead of the one at ``path``, which then only names it; by
            default standard input for ``-``.
        most: The most bytes that the file may have once it is unpacked.
        most_rows: The most rows.

    Example:
        >>> frame = read_table("-", stream=io.BytesIO(b"age,sex\\n31,f\\n,m\\n"))
        >>> frame["sex"].tolist(), frame["age"].isna().tolist()
        (['f', 'm'], [False, True])
    """
    pandas = _pandas()
    name = "standard input" if str(path) == STANDARD else str(path)
    content = _content(path, name, stream, most)
    if content[:4] == _PARQUET:
        return _read_parquet(content, name, most, most_rows)
    if str(path) != STANDARD and table_format(path) == "parquet":
        raise ValueError(f"{name} is no Parquet file, which begins with PAR1")
    text = decode_text(content, name)
    delimiter, shape, unnamed = check_lines(text, name)
    _check_rows(shape[0], name, most_rows)
    words = [*MISSING_WORDS, *missing]
    try:
        frame = pandas.read_csv(
            io.StringIO(text.lstrip("\r\n")),
            sep=delimiter,
            keep_default_na=False,
            na_values=["", *words],
            skip_blank_lines=shape[1] > 1,
            low_memory=False,
            quotechar='"',
            index_col=False,
        )
    except (ValueError, OverflowError, pandas.errors.ParserError) as error:
        raise ValueError(f"{name} cannot be read: {' '.join(str(error).split())}") from error
    if frame.shape != shape:
        # Two readers that disagree: better no table than one with cells in the wrong place.
        raise ValueError(f"{name} cannot be read: its quotes or line ends can be taken in two ways")
    frame.columns = [str(column) for column in frame.columns]
    if unnamed:
        frame = _without_row_numbers(frame, name)
    _check_finite(frame, name)
    return _with_dates(frame)


def write_table(frame: pandas.DataFrame, path: str | os.PathLike[str], stream: Any = None) -> None:
    """Write a table to a file in one step: it is there whole, or not at all.

    Args:
        frame: The table.
        path: A file that ends in ``.csv``, ``.csv.gz``, ``.tsv`` or ``.parquet``; ``-`` writes csv
            to ``stream``.
        stream: A binary file; by default standard output.
    """
    kind, name = table_format(path), str(path).lower()
    if kind == "parquet":
        content = io.BytesIO()
        frame.to_parquet(content, index=False)
        data = content.getvalue()
    else:
        delimiter = "\t" if name.removesuffix(".gz").endswith(".tsv") else ","
        data = frame.to_csv(index=False, sep=delimiter, lineterminator="\n").encode()
        if name.endswith(".gz"):
            # The same table makes the same file, whenever it is written.
            data = gzip.compress(data, mtime=0)
    if str(path) == STANDARD:
        output = sys.stdout.buffer if stream is None else stream
        output.write(data)
        output.flush()
        return
    with replacing(path) as file:
        file.write(data)


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise missing_package("pandas", "reading tables", "tables") from None
    return pandas


def _content(path: str | os.PathLike[str], name: str, stream: Any, most: int | None) -> bytes:
    """All bytes of a file, as they are before they were compressed."""
    if str(path) == STANDARD or stream is not None:
        table_format(path)
        content = (sys.stdin.buffer if stream is None else stream).read()
    else:
        if not os.path.exists(path):
            raise FileNotFoundError(f"there is no table {path}")
        if not os.path.isfile(path):
            raise ValueError(f"{path} is no file; a folder, a pipe or a device cannot be read")
        table_format(path)
        check_room(name, os.path.getsize(path) * _BYTES_A_BYTE)
        content = Path(path).read_bytes()
    if content[:2] == _GZIP:
        content = _decompressed(content, name, most)
    if most is not None and len(content) > most:
        raise ValueError(_too_long(name, most))
    return content


def _too_long(name: str, most: int) -> str:
    return f"{name} has more than {most:,} bytes once it is unpacked, the most that are read"


def _check_rows(rows: int, name: str, most: int | None) -> None:
    if most is not None and rows > most:
        raise ValueError(f"{name} has {rows:,} rows, more than the {most:,} that are read")


def _decompressed(content: bytes, name: str, most: int | None) -> bytes:
    """In parts: a small file may hold more than there is memory for."""
    parts, size = [], 0
    try:
        with gzip.open(io.BytesIO(content)) as file:
            while part := file.read(1 << 24):
                parts.append(part)
                size += len(part)
                if most is not None and size > most:
                    raise ValueError(_too_long(name, most))
                check_room(name, size * _BYTES_A_BYTE)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{name} is damaged: {error}") from error
    return b"".join(parts)


def _read_parquet(
    content: bytes, name: str, most: int | None, most_rows: int | None
) -> pandas.DataFrame:
    pandas = _pandas()
    try:
        import pyarrow
        from pyarrow.parquet import read_metadata
    except ImportError:
        raise missing_package("pyarrow", "reading Parquet files", "tables") from None
    try:
        # What it declares is looked at before anything is unpacked.
        declared = read_metadata(io.BytesIO(content))
        groups = [declared.row_group(number) for number in range(declared.num_row_groups)]
        is_fine = most_rows is None or declared.num_rows <= most_rows
        is_short = most is None or sum(group.total_byte_size for group in groups) <= most
        if not is_fine or not is_short:
            frame = pandas.DataFrame()
        else:
            frame = pandas.read_parquet(io.BytesIO(content))
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{name} cannot be read as Parquet: {line}") from error
    _check_rows(declared.num_rows, name, most_rows)
    if most is not None and not is_short:
        raise ValueError(_too_long(name, most))
    frame.columns = [str(column) for column in frame.columns]
    check_names(list(frame.columns), name, "the table")
    if not len(frame):
        raise ValueError(f"{name} has the names of {frame.shape[1]} columns but no rows")
    _check_finite(frame, name)
    return frame


def _without_row_numbers(frame: pandas.DataFrame, name: str) -> pandas.DataFrame:
    """A table without its first column, which has no name; it must count the rows."""
    first = frame.iloc[:, 0]
    if first.tolist() not in (list(range(len(frame))), list(range(1, len(frame) + 1))):
        raise ValueError(f"{name}: the first column has no name, and does not count the rows")
    return frame.iloc[:, 1:]


def _check_finite(frame: pandas.DataFrame, name: str) -> None:
    """Numbers such as 1e999 are read as infinity, and no model knows what to do with that."""
    floats = [column for column, dtype in frame.dtypes.items() if dtype.kind == "f"]
    numbers = frame[floats].to_numpy(dtype=np.float64, na_value=np.nan)
    infinite = np.argwhere(np.isinf(numbers))
    if len(infinite):
        row, place = infinite[0].tolist()
        raise ValueError(
            f"{name}: row {row + 1} has a number in column {floats[place]!r} that is infinite, or "
            "too large to be held"
        )


def _with_dates(frame: pandas.DataFrame) -> pandas.DataFrame:
    """A table whose columns of dates are dates."""
    pandas = _pandas()
    for column in frame.columns:
        cells = frame[column]
        if cells.dtype.kind in "biufMm":
            continue
        known = cells.dropna()
        if not len(known) or not all(
            isinstance(cell, str) and _DATE.fullmatch(cell) for cell in known
        ):
            continue
        try:
            frame[column] = pandas.to_datetime(cells, format="ISO8601")
        except (ValueError, TypeError, OverflowError):
            # It looks like dates, but some are none, such as 2020-02-30, or time zones differ.
            continue
    return frame
