"""What a process does that learns a model of a table for the studio.

It tells the studio of every epoch through a pipe, and leaves the model in a file. It ends when it
is asked to, when its time is over, and when the studio is gone.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from _thread import interrupt_main
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch

__all__ = ["Pipe", "learn"]

# What questions have to go on with while a model is learnt: they come first.
_NICE = 5


@runtime_checkable
class Pipe(Protocol):
    """One end of a pipe between two processes."""

    def send(self, message: Any, /) -> None:
        """Tell the other end."""
        ...

    def poll(self, seconds: float | None = None, /) -> bool:
        """Wait so long, or for as long as it takes, until the other end has told something."""
        ...

    def recv(self) -> Any:
        """What it told; an error where it is gone."""
        ...


def learn(
    connection: Pipe,
    file: Path,
    frame: Any,
    columns: Mapping[Any, str],
    options: Mapping[str, Any],
    seconds: float | int,
) -> None:
    """Learn a model, and write it; what happens is told through the pipe.

    Messages are pairs of a word and what belongs to it: ``epoch`` for each of them, then ``done``
    or ``stopped`` with the history, or ``failed`` with a sentence.

    Args:
        connection: The pipe; anything that is sent to here asks to stop.
        file: Where the model goes.
        frame: The table.
        columns: The kind of some columns, where it is not to be read off the data.
        options: What else :meth:`einet.TableModel.fit` takes.
        seconds: How long it may take.
    """
    asked = _Asked(connection, seconds)
    try:
        from einet.tables import TableModel
        from einet.tables.learning import recipe_for

        chosen = recipe_for(len(frame), options.get("num_sums"), options.get("epochs"))
        connection.send(("begun", {"epochs": chosen.epochs}))

        def told(report: Any) -> None:
            connection.send(("epoch", (report.train, report.valid)))
            if asked.is_asked:
                report.stop()

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = TableModel.fit(frame, columns, callbacks=told, **options)
        history = model.history
        assert history is not None
        if not len(history):
            connection.send(("stopped", None))
            return
        kept = {"train": history.train, "valid": history.valid, "best_epoch": history.best_epoch}
        model.save(file, {"history": kept})
        word = "stopped" if history.stopped in ("callback", "interrupted") else "done"
        connection.send((word, {"out_of_time": asked.out_of_time}))
    except (ValueError, TypeError, OSError, MemoryError, ArithmeticError, RuntimeError) as error:
        connection.send(("failed", " ".join(str(error).split()) or type(error).__name__))


class _Asked:
    """Whether to stop: asked for through the pipe, out of time, or left alone.

    Training looks at Ctrl-C between mini-batches, and at this after epochs. So whoever waits is
    not kept waiting for an epoch, and a model that is being written is not disturbed.
    """

    def __init__(self, connection: Pipe, seconds: float | int) -> None:
        self.is_asked = self.out_of_time = False
        self._connection, self._end = connection, time.monotonic() + seconds
        if hasattr(os, "setpgid"):
            # Ctrl-C in the studio's terminal is for the studio, which then ends this.
            os.setpgid(0, 0)
        if hasattr(os, "nice"):
            os.nice(_NICE)
        # One core is left to whoever asks: threads that wait for one another take turns badly.
        torch.set_num_threads(max(1, (os.cpu_count() or 2) - 1))
        # Training takes the signal over while it runs.
        signal.signal(signal.SIGINT, lambda number, frame: None)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                left = None if self.is_asked else max(0.0, self._end - time.monotonic())
                heard = self._connection.poll(left)
                if heard:
                    self._connection.recv()
            except (EOFError, OSError):
                # Nobody is there any more to want the model.
                os._exit(1)
            if not self.is_asked:
                self.is_asked, self.out_of_time = True, not heard
                interrupt_main()
