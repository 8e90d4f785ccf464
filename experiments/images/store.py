"""The files: results of finished models, their pictures, and checkpoints of unfinished ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from einet.learning.checkpoint_file import remove_checkpoints
from experiments.images.panels import PANELS
from experiments.images.settings import Settings
from experiments.table1.store import read_json, write_json

__all__ = ["SEARCH", "Store"]

#: What the files of a search begin with.
SEARCH = "search-"


class Store:
    """``DATASET.json``, ``DATASET/NAME/*.png`` and, meanwhile, ``unfinished/DATASET-NAME.*``.

    Args:
        folder: Where they are.
        dataset: The data set.
        search: Whether it is a search on validation images, ``search-DATASET.json``.
    """

    def __init__(self, folder: Path, dataset: str, search: bool = False) -> None:
        self.folder, self.dataset = folder, f"{SEARCH}{dataset}" if search else dataset
        self.results_path = folder / f"{self.dataset}.json"

    def results(self) -> dict[str, dict[str, Any]]:
        """The record of each finished model by its name."""
        return read_json(self.results_path, {})

    def is_finished(self, name: str, settings: Settings, device: str, pictures: bool) -> bool:
        """Whether there are results of exactly this model, and the pictures that are wanted."""
        record = self.results().get(name)
        if record is None or Settings.from_dict(record["settings"]) != settings:
            return False
        # A trial on a CPU does not stand in for what is to be measured on a GPU.
        if (record["device"] == "cpu") != (device == "cpu"):
            return False
        return not pictures or all((self.pictures(name) / f"{p}.png").is_file() for p in PANELS)

    def finish(self, name: str, record: dict[str, Any], order: list[str]) -> None:
        """Add a finished model, in the order of the variants, and drop its checkpoints."""
        results = self.results()
        results[name] = record
        ordered = {known: results.pop(known) for known in order if known in results}
        write_json(self.results_path, ordered | results)
        self.forget(name)

    def pictures(self, name: str) -> Path:
        return self.folder / self.dataset / _file_name(name)

    def checkpoint(self, name: str) -> Path:
        return self.folder / "unfinished" / f"{self.dataset}-{_file_name(name)}.checkpoint"

    def forget(self, name: str) -> None:
        """Drop the checkpoints of a model."""
        path = self.checkpoint(name)
        for place in (path, path.with_name(f"{path.name}.refine")):
            remove_checkpoints(place)
        if path.parent.is_dir() and not any(path.parent.iterdir()):
            path.parent.rmdir()


def _file_name(name: str) -> str:
    return name.replace(" ", "_").replace("=", "-")
