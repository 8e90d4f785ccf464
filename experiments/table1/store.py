"""The files: results of finished data sets, and what is done of unfinished ones."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

__all__ = ["Store", "read_json", "write_json"]


class Store:
    """``results.json`` and, while a data set is unfinished, ``unfinished/NAME-KIND.json``.

    Beside the latter, a folder of the same name has the trained members of a mixture that is not
    complete yet; or, of final models that are no mixtures, the log-likelihood of every row, of
    which their mixture is made. Every unfinished entry has files of its own, so that several
    processes can work on different ones.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.results_path = folder / "results.json"

    def results(self) -> dict[str, dict[str, Any]]:
        return read_json(self.results_path, {})

    def is_finished(self, name: str, kind: str) -> bool:
        return kind in self.results().get(name, {})

    def finish(self, name: str, kind: str, result: dict[str, Any], order: list[str]) -> None:
        """Add a finished entry, with the data sets in the order of the table."""
        results = self.results()
        results.setdefault(name, {})[kind] = result
        ordered = {n: results.pop(n) for n in order if n in results}
        write_json(self.results_path, ordered | results)
        self.forget(name, kind)

    def unfinished(self, name: str, kind: str) -> dict[str, list[dict[str, Any]]]:
        return read_json(self._path(name, kind), {"tried": [], "models": []})

    def save(self, name: str, kind: str, state: dict[str, list[dict[str, Any]]]) -> None:
        write_json(self._path(name, kind), state)

    def members(self, name: str, kind: str) -> Path:
        """The folder for members of unfinished mixtures."""
        return self._path(name, kind).with_suffix("")

    def save_rows(self, name: str, kind: str, seed: int, rows: dict[str, list[float]]) -> None:
        """Keep what a final model says of every row, until the entry is finished."""
        write_json(self._rows_path(name, kind, seed), rows)

    def rows(self, name: str, kind: str, seed: int) -> dict[str, list[float]] | None:
        """The rows of a final model that were kept."""
        return read_json(self._rows_path(name, kind, seed), None)

    def forget(self, name: str, kind: str) -> None:
        path = self._path(name, kind)
        path.unlink(missing_ok=True)
        shutil.rmtree(self.members(name, kind), ignore_errors=True)
        if path.parent.is_dir() and not any(path.parent.iterdir()):
            path.parent.rmdir()

    def _rows_path(self, name: str, kind: str, seed: int) -> Path:
        return self.members(name, kind) / f"rows-{seed}.json"

    def _path(self, name: str, kind: str) -> Path:
        return self.folder / "unfinished" / f"{name}-{kind}.json"


def read_json(path: Path, default: Any) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else default


def write_json(path: Path, value: Any) -> None:
    """Write all or nothing: whoever reads meanwhile sees the old file."""
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
