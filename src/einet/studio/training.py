"""A model that is learnt in a process of its own, as the studio sees it."""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from einet.studio.learner import learn

__all__ = ["Training"]

# How long the process may take to end after it was asked to, before it is ended.
_GRACE = 30.0
# The same where the studio itself ends.
_LAST_GRACE = 1.0


class Training:
    """One training, under way or over.

    Args:
        file: Where the model goes.
        frame: The table.
        columns: The kind of some columns.
        options: What else :meth:`einet.TableModel.fit` takes.
        seconds: How long it may take.
        finish: Called with the file once the model is there.
    """

    def __init__(
        self,
        file: Path,
        frame: Any,
        columns: Mapping[Any, str],
        options: Mapping[str, Any],
        seconds: float | int,
        finish: Callable[[Path], None],
    ) -> None:
        self._file, self._finish, self._seconds = file, finish, seconds
        self._lock = threading.Lock()
        self._state, self._message = "running", "reading the columns"
        self._epochs: int | None = None
        self._train: list[float] = []
        self._valid: list[float] = []
        self._began, self._ended = time.monotonic(), None
        self._is_stopping = False
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=learn,
            args=(theirs, file, frame, dict(columns), dict(options), seconds),
            daemon=True,
            name="einet-studio-training",
        )
        self._process.start()
        theirs.close()
        threading.Thread(target=self._listen, name="einet-studio-listening", daemon=True).start()

    @property
    def is_running(self) -> bool:
        """Whether it is under way."""
        return self._state == "running"

    @property
    def pid(self) -> int | None:
        """The number of its process."""
        return self._process.pid

    def shown(self) -> dict[str, Any]:
        """How far it is."""
        with self._lock:
            ended = time.monotonic() if self._ended is None else self._ended
            return {
                "state": self._state,
                "epoch": len(self._train),
                "epochs": self._epochs,
                "train": list(self._train),
                "valid": list(self._valid),
                "seconds": ended - self._began,
                "message": self._message,
            }

    def stop(self) -> None:
        """Ask it to end with the best model so far."""
        with self._lock:
            if self._state != "running" or self._is_stopping:
                return
            self._is_stopping, self._message = True, "stopping"
        with contextlib.suppress(OSError):
            self._connection.send("stop")
        self._end_after(_GRACE)

    def close(self) -> None:
        """End it at once, and wait until its process is gone."""
        if self._process.is_alive():
            self._process.terminate()
            self._process.join(_LAST_GRACE)
        if self._process.is_alive():
            self._process.kill()
        self._process.join()

    def wait(self, seconds: float | int | None = None) -> None:
        """Wait until it is over, or so long."""
        end = None if seconds is None else time.monotonic() + seconds
        while self.is_running and (end is None or time.monotonic() < end):
            time.sleep(0.02)

    def _end_after(self, seconds: float | int) -> None:
        timer = threading.Timer(seconds, self._process.kill)
        timer.daemon = True
        timer.start()

    def _listen(self) -> None:
        """Hear of it until it is over."""
        self._end_after(self._seconds + _GRACE)
        try:
            while True:
                word, content = self._connection.recv()
                if word in ("done", "stopped", "failed"):
                    self._over(word, content)
                    break
                with self._lock:
                    self._heard(word, content)
        except (EOFError, OSError):
            self._process.join(_LAST_GRACE)
            if self._is_stopping:
                self._end(
                    "stopped", "it did not stop in time and was ended: there is no model of it"
                )
            code = self._process.exitcode
            self._end("failed", f"the process that learns ended without a word (status {code})")
        finally:
            self.close()
            self._connection.close()

    def _heard(self, word: str, content: Any) -> None:
        if word == "begun":
            self._epochs = content["epochs"]
            self._message = "looking for a structure of the columns"
            return
        train, valid = content
        self._train.append(train)
        if valid is not None:
            self._valid.append(valid)
        if not self._is_stopping:
            self._message = "learning"

    def _over(self, word: str, content: Any) -> None:
        if word == "failed":
            self._end("failed", str(content))
        elif word == "stopped" and content is None:
            self._end("stopped", "stopped before its first epoch was over: there is no model of it")
        else:
            try:
                self._finish(self._file)
            except Exception as error:
                self._end("failed", f"the model that was learnt cannot be read: {error}")
                return
            said = "learnt"
            if word == "stopped":
                said = "stopped; the best model so far is kept"
                if content["out_of_time"]:
                    said = f"out of time after {self._seconds:g} s; the best model so far is kept"
            self._end(word, said)

    def _end(self, state: str, message: str) -> None:
        with self._lock:
            if self._state == "running":
                self._state, self._message, self._ended = state, message, time.monotonic()
