"""The training loop's dealings with whoever sits before it: Ctrl-C and the progress bar."""

from __future__ import annotations

import math
import signal
import threading
from importlib.util import find_spec
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

__all__ = ["Bar", "Interrupt"]

# Without it rich warns in every notebook, and draws no bar that moves.
_HAS_WIDGETS = find_spec("ipywidgets") is not None


class Interrupt:
    """Turns the first Ctrl-C into a request to stop, looked at where stopping does no harm.

    Args:
        by_term: Whether SIGTERM asks for the same, as systems send it before they take a machine
            away: where what was learnt is written to a file in the end.
    """

    def __init__(self, by_term: bool = False) -> None:
        self.requested = False
        self._signals = [signal.SIGINT, signal.SIGTERM] if by_term else [signal.SIGINT]
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Interrupt:
        # Python allows handlers in its main thread only. None was not set from Python and could
        # not be put back; a program that ignores a signal goes on doing so.
        if threading.current_thread() is threading.main_thread():
            for number in self._signals:
                previous = signal.getsignal(number)
                if previous not in (None, signal.SIG_IGN):
                    self._previous[number] = previous
                    signal.signal(number, self._handle)
        return self

    def _handle(self, number: int, frame: Any) -> None:
        if not self.requested:
            self.requested = True
        elif number == signal.SIGINT:
            raise KeyboardInterrupt
        else:
            # Whoever asks twice is not kept waiting: what would have happened, happens.
            signal.signal(number, self._previous[number])
            signal.raise_signal(number)

    def __exit__(self, *error: object) -> None:
        for number, previous in self._previous.items():
            signal.signal(number, previous)


class Bar:
    """The progress bar; nothing where it was not asked for or nobody would see it move."""

    def __init__(
        self, epochs: int, steps: int | None, asked_for: bool, unit: str = "epoch"
    ) -> None:
        console = Console(stderr=True)
        # Without their number nobody can tell how many are left.
        self._each = None if steps is None else max(1, steps // epochs)
        self._progress: Progress | None = None
        # Not console.is_terminal: FORCE_COLOR, as CI sets it, would fill logs with moving bars.
        if asked_for and (console.file.isatty() or (console.is_jupyter and _HAS_WIDGETS)):
            self._progress = Progress(
                TextColumn(unit + " {task.fields[epoch]}/{task.fields[epochs]}"),
                BarColumn(),
                TextColumn("train {task.fields[train]}{task.fields[valid]}"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=console,
                # Half a minute by default: steps that take longer would never show a time left.
                speed_estimate_period=math.inf,
            )
            self._task = self._progress.add_task(
                "", total=steps, epoch=1, epochs=epochs, train="…", valid=""
            )

    def __enter__(self) -> Bar:
        if self._progress is not None:
            self._progress.start()
        return self

    def advance(self, steps: int = 1) -> None:
        """One more step is done, or several."""
        if self._progress is not None:
            self._progress.update(self._task, advance=steps)
            if self._each is not None:
                done = self._progress.tasks[0].completed - 1
                self._progress.update(self._task, epoch=int(done) // self._each + 1)

    def at(self, number: int) -> None:
        """Which epoch, or whatever the unit is, is under way; counted from 1."""
        if self._progress is not None:
            self._progress.update(self._task, epoch=number)

    def show(self, train: float | None = None, valid: float | None = None) -> None:
        """New log-likelihoods."""
        if self._progress is not None and train is not None:
            self._progress.update(self._task, train=f"{train:.6g}")
        if self._progress is not None and valid is not None:
            self._progress.update(self._task, valid=f"  valid {valid:.6g}")

    def __exit__(self, *error: object) -> None:
        if self._progress is not None:
            self._progress.stop()
