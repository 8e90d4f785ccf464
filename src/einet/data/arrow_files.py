"""Parquet and Arrow files: what rows are in them, and how to read these part by part."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from einet._memory import fitting
from einet.data.columns import names_of

__all__ = ["ArrowFiles", "Unit"]

#: The formats, by the ends of files' names.
FORMATS = {".parquet": "parquet", ".pq": "parquet", ".arrow": "ipc", ".feather": "ipc"}
# The first and the last bytes of a file that tell it from others: statistics of all columns are in
# its footer.
_BYTES_TO_TELL = 1 << 16


@dataclass(frozen=True)
class Unit:
    """Rows ``start`` to ``stop`` of one fragment: a row group, or a file that has none.

    The fragment itself begins with row ``first`` of its file.
    """

    fragment: Any
    start: int
    stop: int
    first: int = 0

    @property
    def name(self) -> str:
        """The name of the file, for errors."""
        return repr(Path(self.fragment.path).name)

    def __len__(self) -> int:
        return self.stop - self.start


class ArrowFiles:
    """A Parquet or Arrow file, or a folder of such files of the same columns.

    Args:
        path: The file or folder.
        name: What errors call the data.

    Raises:
        FileNotFoundError: There is nothing.
        ValueError: It is none of these, has no rows, or files differ in their columns.
        ImportError: pyarrow is not installed.
    """

    def __init__(self, path: str | os.PathLike[str], name: str) -> None:
        try:
            import pyarrow.dataset
        except ImportError as error:
            raise ImportError(
                f"{name} is a path, and reading it needs pyarrow: pip install 'einet[tables]'"
            ) from error
        self._name, self._root = name, Path(path)
        files = self._files(self._root, name)
        kind = self._kind(files, name)
        try:
            dataset = pyarrow.dataset.dataset([str(file) for file in files], format=_format(kind))
            fragments = list(dataset.get_fragments())
            self._check_columns(files, fragments, name)
            self.units = [unit for fragment in fragments for unit in _units_of(fragment, kind)]
        except (pyarrow.ArrowException, OSError) as error:
            raise ValueError(f"{name} cannot be read as {kind} from {path}: {error}") from error
        self._error = (pyarrow.ArrowException, OSError)
        # Arrow's own pools take memory in large pieces, which are long to clear.
        self._pool = pyarrow.system_memory_pool()
        self.schema = dataset.schema
        self.columns, _ = names_of(self.schema.names, name)
        self._stamps = {file: _stamp(file) for file in files}
        self.num_rows = sum(map(len, self.units))
        if not self.num_rows:
            raise ValueError(f"{name} must have at least one row, got none in {path}")

    @staticmethod
    def _files(root: Path, name: str) -> list[Path]:
        if not root.exists():
            raise FileNotFoundError(f"{name}: there is no file or folder {str(root)!r}")
        if not root.is_dir():
            return [root]
        # Names that begin with a dot or an underscore are of those who wrote the others.
        files = sorted(
            file
            for file in root.rglob("*")
            if file.is_file() and not any(part[0] in "._" for part in file.relative_to(root).parts)
        )
        if not files:
            raise ValueError(f"{name}: the folder {str(root)!r} has no files")
        return files

    @staticmethod
    def _kind(files: Sequence[Path], name: str) -> str:
        for file in files:
            if file.suffix.lower() not in FORMATS:
                raise ValueError(
                    f"{name} must be a path to {', '.join(FORMATS)} files, .npy, or a folder of "
                    f"the former, got {file.name!r}"
                )
        kinds = sorted({FORMATS[file.suffix.lower()] for file in files})
        if len(kinds) > 1:
            raise ValueError(f"{name} must have files of one format, got {' and '.join(kinds)}")
        return kinds[0]

    @staticmethod
    def _check_columns(files: Sequence[Path], fragments: Sequence[Any], name: str) -> None:
        """Raise unless all files have the same columns of the same types."""
        first = fragments[0].physical_schema
        for file, fragment in zip(files, fragments, strict=True):
            schema = fragment.physical_schema
            if schema.names != first.names:
                other = sorted(set(schema.names) ^ set(first.names))
                what = (
                    f"differ in {', '.join(map(repr, other[:5]))}" if other else "are in disorder"
                )
                raise ValueError(f"{name}: the columns of {file.name!r} {what}")
            for column in schema.names:
                if schema.field(column).type != first.field(column).type:
                    raise ValueError(
                        f"{name}: column {column!r} of {file.name!r} is of "
                        f"{schema.field(column).type}, that of {files[0].name!r} of "
                        f"{first.field(column).type}"
                    )

    def check_unchanged(self) -> None:
        """Raise where a file is not what it was when it was first looked at."""
        for file, stamp in self._stamps.items():
            try:
                same = _stamp(file) == stamp
            except OSError:
                same = False
            if not same:
                raise ValueError(f"{self._name}: the file {file.name!r} has changed or gone")

    def no_rows(self) -> Any:
        """A table of the columns, without rows."""
        return self.schema.empty_table()

    def read(self, unit: Unit) -> Iterator[Any]:
        """The rows of a unit as record batches of a bounded size."""
        width = 8 * max(1, len(self.schema))
        rows, at = fitting("read rows", width), 0
        try:
            batches = unit.fragment.to_batches(
                batch_size=rows, batch_readahead=1, fragment_readahead=1, use_threads=False,
                memory_pool=self._pool,
            )  # fmt: skip
            for batch in batches:
                begin, end = max(unit.start - at, 0), min(unit.stop - at, batch.num_rows)
                at += batch.num_rows
                if begin < end:
                    yield batch.slice(begin, end - begin)
                if at >= unit.stop:
                    return
        except self._error as error:
            raise OSError(f"{self._name}: reading {unit.name} failed: {error}") from error
        if at < unit.stop:
            raise OSError(f"{self._name}: {unit.name} has fewer rows than it said")

    def digest(self) -> bytes:
        """What tells these files from others: names, sizes, their beginnings and their ends."""
        digest = hashlib.sha256()
        for file in self._stamps:
            size = file.stat().st_size
            inside = file.relative_to(self._root) if self._root.is_dir() else file.name
            digest.update(f"{inside}:{size};".encode())
            with file.open("rb") as stream:
                digest.update(stream.read(_BYTES_TO_TELL))
                stream.seek(max(0, size - _BYTES_TO_TELL))
                digest.update(stream.read(_BYTES_TO_TELL))
        return digest.digest()


def _format(kind: str) -> Any:
    """How files of a kind are read: from disks, column by column when their turn comes.

    To fetch all bytes of a row group before, as is meant for files far away, takes longer here,
    and more memory.
    """
    if kind != "parquet":
        return kind
    from pyarrow.dataset import ParquetFileFormat, ParquetFragmentScanOptions

    options = ParquetFragmentScanOptions(pre_buffer=False)
    return ParquetFileFormat(default_fragment_scan_options=options)


def _units_of(fragment: Any, kind: str) -> Iterator[Unit]:
    """Row groups of a Parquet file, which can be read in any order; other files as a whole."""
    if kind != "parquet":
        parts = [(fragment, fragment.count_rows())]
    else:
        # Of a part of a file, count_rows would tell those of the whole.
        parts = [
            (part, sum(group.num_rows for group in part.row_groups))
            for part in fragment.split_by_row_group()
        ]
    first = 0
    for part, rows in parts:
        if rows:
            yield Unit(part, 0, rows, first)
        first += rows


def _stamp(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_size, status.st_mtime_ns
