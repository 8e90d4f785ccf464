"""What is open in the studio: a table, a model, and a training that is under way.

Whatever is asked looks at what is open once, and goes on with that: a model that takes its place in
the meantime disturbs nobody. Locks are held for the change alone, never while a model computes.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from einet._checks import as_int, as_number
from einet._version import __version__
from einet.data.images import Images
from einet.studio.answers import ApiError
from einet.studio.files import Data, Opened, open_model, read_data
from einet.studio.images import ImageModel, open_tests
from einet.studio.limits import Limits
from einet.studio.panels import Panels
from einet.studio.schema import corrections, describe_schema
from einet.studio.training import Training

__all__ = ["Session"]

_IDLE = {"state": "idle", "epoch": 0, "epochs": None, "train": [], "valid": [], "seconds": 0.0,
         "message": None}  # fmt: skip

# Answers that took long and are kept.
_MOST_KEPT = 32


class Session:
    """All that a running studio knows; :meth:`close` leaves nothing behind.

    Args:
        limits: How much it takes on.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        #: Another one at every start: a page that was left open sees that.
        self.instance = secrets.token_hex(8)
        self._folder = Path(tempfile.mkdtemp(prefix="einet-studio-"))
        self._lock, self._start_lock = threading.Lock(), threading.Lock()
        self._data: Data | None = None
        self._opened: Opened | None = None
        self._panels: tuple[int, Panels] | None = None
        self._training: Training | None = None
        #: The columns and options of the last training.
        self.trained: tuple[Mapping[Any, str], Mapping[str, Any]] = {}, {}
        self._tests: Images | None = None
        self._information: dict[Any, dict[str, Any]] = {}
        self._count = 0
        self._is_closed = False

    # -- what is open ----------------------------------------------------------------------------

    @property
    def data(self) -> Data:
        """The table."""
        if self._data is None:
            raise ApiError(409, "there is no table yet; open a csv or Parquet file first")
        return self._data

    @property
    def has_data(self) -> bool:
        """Whether there is one."""
        return self._data is not None

    @property
    def opened(self) -> Opened:
        """The model."""
        if self._opened is None:
            raise ApiError(409, "there is no model yet; train one, or open a saved one")
        return self._opened

    @property
    def panels(self) -> Panels:
        """The columns of a model of a table."""
        opened = self.opened
        if opened.table_model is None:
            raise ApiError(409, "the model that is open is not one of a table")
        kept = self._panels
        if kept is None or kept[0] != opened.number:
            # No lock: threads may make them at the same time, and either serves.
            kept = self._panels = opened.number, Panels(opened.table_model)
        return kept[1]

    @property
    def images(self) -> ImageModel:
        """A model of images."""
        opened = self.opened
        if opened.pixels is None:
            raise ApiError(409, "the model that is open is not one of images")
        return ImageModel(opened.model, opened.pixels, self.limits, self._tests)

    def open_images(self, path: Path) -> None:
        """Images to try a model of images with."""
        self._tests = open_tests(path, self.limits)
        opened = self._opened
        if opened is not None and opened.pixels is not None:
            shape = self._tests.image_shape
            if shape != opened.pixels.shape:
                raise ValueError(
                    f"the images in {path} are of shape {shape}, but those of the model of "
                    f"{opened.pixels.shape}"
                )

    def information(self, evidence: Any) -> dict[str, Any]:
        """How much columns tell of one another; what was found before is kept."""
        panels, number = self.panels, self.opened.number
        known = panels.known(evidence)
        key = number, repr(sorted((str(name), str(pieces)) for name, pieces in known.items()))
        found = self._information.get(key)
        if found is None:
            found = panels.information(known)
            with self._lock:
                self._information[key] = found
                while len(self._information) > _MOST_KEPT:
                    self._information.pop(next(iter(self._information)))
        return found

    def state(self) -> dict[str, Any]:
        """What the page has to know first of all."""
        data, opened, training = self._data, self._opened, self._training
        name = opened.name if opened else data.name if data else None
        return {
            "instance": self.instance,
            "version": __version__,
            "kind": opened.kind if opened else "empty",
            "name": name,
            "model_number": opened.number if opened else None,
            "data_name": data.name if data else None,
            "has_data": data is not None,
            "rows": len(data.frame) if data else None,
            "training": {"state": training.shown()["state"] if training else "idle"},
            "limits": self.limits.shown(),
        }

    def frame_for(self, opened: Opened) -> Any:
        """The rows of the table where the model has columns of it; None elsewhere."""
        data = self._data
        if data is None or opened.table_model is None:
            return None
        table = opened.table_model.table
        fits = all(name in data.frame.columns for name in table.modelled)
        return data.frame if fits else None

    # -- opening ---------------------------------------------------------------------------------

    def open_data(self, content: bytes | None, path: str) -> dict[str, Any]:
        """Take a table, and tell of its columns."""
        self._check_idle("is being learnt of another table; wait for it, or stop it")
        data = read_data(content, path, self.limits)
        with self._lock:
            self._data = data
            opened = self._opened
            if opened is not None and (opened.kind != "table" or self.frame_for(opened) is None):
                # What was asked of another table would be drawn beside this one's rows.
                self._opened = self._panels = None
        return self.schema()

    def schema(self) -> dict[str, Any]:
        """The columns of the table."""
        return describe_schema(self.data)

    def open_model(self, content: bytes | None, path: str) -> dict[str, Any]:
        """Take a saved model."""
        self._check_idle("is being learnt; wait for it, or stop it")
        if content is None:
            self._open(Path(path), path)
            return self.state()
        file = self._new_file()
        file.write_bytes(content)
        try:
            self._open(file, Path(path).name or "model.einet")
        except BaseException:
            file.unlink(missing_ok=True)
            raise
        return self.state()

    def _open(self, file: Path, path: str) -> None:
        if not file.is_file():
            raise FileNotFoundError(f"there is no model {path}")
        with self._lock:
            self._count += 1
            number = self._count
        try:
            opened = open_model(file, path, number)
        except (OSError, ValueError) as error:
            # The name that the user knows it under, not where the studio put it.
            raise ApiError(422, str(error).replace(str(file), path)) from error
        with self._lock:
            before, self._opened = self._opened, opened
            data = self._data
            if data is not None and self.frame_for(opened) is None:
                self._data = None
        if before is not None and before.file.parent == self._folder and before.file != file:
            before.file.unlink(missing_ok=True)

    def _new_file(self) -> Path:
        return self._folder / f"{secrets.token_hex(8)}.einet"

    # -- training --------------------------------------------------------------------------------

    def train(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Begin to learn a model of the table."""
        data = self.data
        columns = corrections(data, asked.get("columns") or {})
        options: dict[str, Any] = {}
        for name in ("num_sums", "epochs"):
            if asked.get(name) is not None:
                options[name] = min(as_int(name, asked[name], minimum=1), 100_000)
        most = self.limits.max_seconds
        seconds = asked.get("seconds")
        seconds = most if seconds is None else as_number("seconds", seconds, above=0)
        seconds = min(seconds, most)
        name = f"{Path(data.name.removesuffix('.gz')).stem}.einet"
        with self._start_lock:
            if self._is_closed:
                raise ApiError(409, "the studio is closing")
            self._check_idle("is being learnt already; wait for it, or stop it")
            self._training = Training(
                self._new_file(), data.frame, columns, options, seconds,
                finish=lambda file: self._open(file, name),
            )  # fmt: skip
            self.trained = columns, options
        return self.training()

    def _check_idle(self, why: str) -> None:
        if self._training is not None and self._training.is_running:
            raise ApiError(409, f"a model {why}")

    def training(self) -> dict[str, Any]:
        """How far it is."""
        training = self._training
        return dict(_IDLE) if training is None else training.shown()

    def stop_training(self) -> dict[str, Any]:
        """End it; the best model so far is kept."""
        training = self._training
        if training is not None:
            training.stop()
        return self.training()

    def wait_for_training(self, seconds: float | int | None = None) -> dict[str, Any]:
        """Wait until it is over, or so long."""
        if self._training is not None:
            self._training.wait(seconds)
        return self.training()

    # -- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """End the training, and remove all files of the session."""
        with self._start_lock:
            self._is_closed, training = True, self._training
        if training is not None:
            training.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
