"""The state of a training run in files, to go on from after an interruption."""

from __future__ import annotations

import errno
import math
import os
import time
import warnings
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from torch import Tensor

from einet._checks import as_number
from einet.data.files import CHECKSUM, FormatError, read_tensors, write_tensors
from einet.distributed.stopping import Stopping
from einet.learning.checkpoint_file import (
    CHECKPOINT,
    checkpoint_name,
    checkpoints_in,
    looks_like_checkpoint,
)
from einet.learning.loop import Loop
from einet.learning.plain import as_count, as_fields
from einet.learning.run_lock import LOCK, RunLock
from einet.learning.run_settings import differences
from einet.learning.saver import Saver

__all__ = ["Checkpoint"]

# The first had no states within an epoch.
_VERSION = 2
# Unless somebody asks for another pause, a file is written this often, except at the end.
_SECONDS_BETWEEN_WRITES = 30.0
# Or less often, so that writing takes no more than this share of the time.
_MOST_OF_THE_TIME = 0.01
# So many of the newest files are kept: one that is damaged has another before it.
_KEPT = 2


class Checkpoint:
    """A folder of the last states of a run, with the settings of the run that they belong to.

    Every state is a file of its own, which appears whole or not at all; the last two are kept.
    While the object is used as a context no other run can write to the folder. Earlier releases
    wrote one file in place of a folder: such a file is gone on with, and replaced as a whole.

    Args:
        path: The folder, made where there is none; its parent must exist. None for none, in which
            case nothing is ever written or read.
        every: So many seconds pass between two states; 0 for one after every step. None for half a
            minute, or as long as it takes for writing to be a hundredth of the time.
        settings: What must be the same for a run to go on; plain values by name.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        every: float | int | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        # A program may go to another folder meanwhile.
        self.path = None if path is None else Path(path).absolute()
        if every is not None:
            every = as_number("every", every, at_least=0)
            if path is None:
                raise ValueError(f"every is given ({every:g}), but checkpoint is not; give both")
        self.settings = settings or {}
        self._every, self._lock, self._made = every, None, False
        # When the last file was written, or the run began; and how long that took.
        self._written, self._took = -math.inf, 0.0
        #: Files of this run that were written, or gone on with: the last is the newest.
        self.good: list[Path] = []
        # Better now than after an hour of training.
        if self.path is not None:
            _check_place(self.path)

    # -- one run to a folder ---------------------------------------------------------------------

    def __enter__(self) -> Checkpoint:
        if self.path is not None and not self._is_file:
            if not self.path.exists():
                self._make()
            self._lock = RunLock(self.path)
            self._lock.__enter__()
        return self

    def _make(self) -> None:
        assert self.path is not None
        try:
            self.path.mkdir()
        except OSError as error:
            raise type(error)(
                error.errno,
                f"checkpoint: the folder cannot be made ({error.strerror})",
                str(self.path),
            ) from error
        self._made = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._lock is None or self.path is None:
            return
        if self._made and not checkpoints_in(self.path):
            # A run that failed before its first state leaves nothing behind.
            with suppress(OSError):
                (self.path / LOCK).unlink()
                self.path.rmdir()
        self._lock.__exit__(kind, error, trace)
        self._lock = None

    @property
    def _is_file(self) -> bool:
        return self.path is not None and self.path.is_file()

    # -- writing ---------------------------------------------------------------------------------

    @property
    def due(self) -> bool:
        """Whether the last write was long ago."""
        if self.path is None:
            return False
        pause = self._every
        if pause is None:
            pause = max(_SECONDS_BETWEEN_WRITES, self._took * (1 / _MOST_OF_THE_TIME - 1))
        return time.perf_counter() - self._written >= pause

    def write(self, state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Add a file with this state, and remove those that are no longer needed.

        A file that cannot be written, on a full disk say, ends no training that has another one to
        go back to: a warning tells of it, and the next one is tried in its time.
        """
        if self.path is None:
            return
        began = time.perf_counter()
        header = {"version": _VERSION, "settings": self.settings, "state": state}
        target = self._next()
        try:
            write_tensors(target, tensors, CHECKPOINT, header)
        except OSError as error:
            if not self.good:
                raise
            warnings.warn(
                f"checkpoint: {target} could not be written ({error.strerror or error}). The "
                f"training goes on; the last good one is {self.good[-1]}",
                RuntimeWarning,
                stacklevel=2,
            )
        else:
            self._keep(target)
        self._written = time.perf_counter()
        self._took = self._written - began

    def _next(self) -> Path:
        assert self.path is not None
        if self._is_file:
            return self.path
        return self.path / checkpoint_name(max(checkpoints_in(self.path), default=0) + 1)

    def _keep(self, target: Path) -> None:
        """Note a file that is safe on the disk, and remove all but the last ones of this run."""
        assert self.path is not None
        self.good = [*self.good, target][-_KEPT:]
        if self._is_file:
            return
        for file in checkpoints_in(self.path).values():
            if file not in self.good:
                # None of them matters enough to fail for.
                with suppress(OSError):
                    if file.is_file() and looks_like_checkpoint(file):
                        file.unlink()

    def saver(self, phase: int, stopping: Stopping | None = None) -> Saver | None:
        """What writes the state of a training loop.

        Args:
            phase: The number of the loop in its run.
            stopping: How several processes agree to write at the same time: each tells its part,
                and only the first has a path. None for a process that is alone.
        """
        if stopping is not None and not stopping.team.alone:
            return self._joint_saver(phase, stopping)
        if self.path is None:
            return None

        def save(loop: Loop) -> None:
            state, tensors = loop.state()
            self.write({"phase": phase, **state}, tensors)

        return Saver(lambda: self.due, save)

    def _joint_saver(self, phase: int, stopping: Stopping) -> Saver:
        stopping.wants_to_save = lambda: self.due

        def save(loop: Loop) -> None:
            state, tensors = loop.state()
            self.write({"phase": phase, **state}, tensors)
            stopping.saved()

        return Saver(lambda: stopping.save, save, lambda: stopping.team.any(self.due))

    # -- reading ---------------------------------------------------------------------------------

    def read(self) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """The newest state that can be read, checked to be of this run; None where there is none.

        What the state says is yet to be checked by whoever takes it up. A warning tells of states
        that were passed over because they are damaged.
        """
        if self.path is None or not self.path.exists():
            return None
        files = [self.path] if self._is_file else [*checkpoints_in(self.path).values()][::-1]
        damaged: list[tuple[Path, Exception]] = []
        for file in files:
            try:
                header, tensors = read_tensors(file, CHECKPOINT)
                _check_header(header)
            except (FormatError, OSError) as error:
                damaged.append((file, error))
                continue
            self._check_settings(file, header["settings"])
            if damaged:
                warnings.warn(
                    f"checkpoint: {damaged[0][0]} is damaged ({damaged[0][1]}); going on from the "
                    f"one before it, {file}",
                    RuntimeWarning,
                    stacklevel=2,
                )
            self.good, self._written = [file], time.perf_counter()
            return header["state"], tensors
        if not damaged:
            return None
        file, error = damaged[0]
        if isinstance(error, OSError):
            raise error
        raise FormatError(
            f"checkpoint: {file} is no checkpoint that can be resumed: {error}"
        ) from error

    def _check_settings(self, file: Path, written: dict[str, Any]) -> None:
        changes = differences(written, self.settings)
        if changes:
            raise ValueError(
                f"checkpoint: {file} is of another training run ({changes}). Give the same "
                "settings and data to go on with it, or begin anew without resuming"
            )


def _check_place(path: Path) -> None:
    """Raise unless checkpoints may be written to a path."""
    if path.is_dir():
        return
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(
            errno.ENOENT, "checkpoint: there is no such folder", str(path.parent)
        )
    if not path.exists():
        return
    if not path.is_file():
        raise FormatError(
            f"checkpoint: {path} is no plain file, but a pipe, a socket or a device; give another"
        )
    # One that was damaged may be replaced too, if it still looks like one.
    if not looks_like_checkpoint(path):
        raise FormatError(
            f"checkpoint: {path} is no checkpoint of a training run, and would be replaced by one; "
            "give another name, or remove it first"
        )


def _check_header(header: dict[str, Any]) -> None:
    if CHECKSUM not in header:
        raise FormatError(
            "it has no checksum, as an earlier release of einet wrote it. Go on with that release, "
            "or give resume=False to begin anew"
        )
    try:
        as_fields(header, "its header", ["version", "settings", "state", CHECKSUM])
        as_count(header["version"], "its version", 1, _VERSION)
        for name in ("settings", "state"):
            if not isinstance(header[name], dict):
                raise ValueError(f"its {name} must be an object, got {header[name]!r:.60}")
    except ValueError as error:
        raise FormatError(str(error)) from error
