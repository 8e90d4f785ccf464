"""Stopping, and saving, together: what one process is asked all do after the same step."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch

from einet.distributed.team import Team

__all__ = ["Asked", "LooseStopping", "Stopping"]

# How often processes without a common step look whether another was interrupted.
_SECONDS_BETWEEN_LOOKS = 0.2


@runtime_checkable
class Asked(Protocol):
    """Something that knows whether its process was asked to stop, such as by Ctrl-C."""

    @property
    def requested(self) -> bool:
        """Whether it was."""
        ...


class Stopping:
    """Whether one of the processes was asked to stop, agreed upon step by step.

    In every step each process tells the others, and hears what they told in the step before: so
    nobody waits, and all stop after the same one.

    Args:
        team: The processes.

    Example:
        >>> stopping = Stopping(Team())
        >>> stopping.look(), stopping.requested
        (False, False)
    """

    def __init__(self, team: Team) -> None:
        self.team = team
        self._own: Asked | None = None
        self._agreed = False
        self._pending: tuple[torch.Tensor, Any] | None = None
        #: Whether this process has a state to write; asked in every step.
        self.wants_to_save: Callable[[], bool] = lambda: False
        self._save, self._stale = False, False

    def watch(self, own: Asked) -> Asked:
        """From here on, ask ``own`` about this process; what is returned knows about all."""
        if self.team.alone:
            return own
        self._own = own
        return self

    @property
    def requested(self) -> bool:
        """Whether all have agreed to stop."""
        return self._agreed

    @property
    def save(self) -> bool:
        """Whether all have agreed to write their state after the present step."""
        return self._save

    def saved(self) -> None:
        """The state was written: what was told before that is out of date."""
        self._save, self._stale = False, self._pending is not None

    def look(self, wait: bool = False, more: bool = False) -> bool:
        """Tell the others whether to stop, and hear of them.

        Args:
            wait: Whether to hear right now what they tell now.
            more: Whether this process has more to do; heard only with ``wait``.

        Returns:
            Whether one of the processes has more to do.
        """
        if self.team.alone:
            return more
        self._hear()
        asked = self._own is not None and self._own.requested
        told = torch.tensor([int(asked), int(more), int(self.wants_to_save())])
        self._pending = told, self.team.begin_most_(told)
        return self._hear() if wait else more

    def _hear(self) -> bool:
        if self._pending is None:
            return False
        told, work = self._pending
        self._pending = None
        self.team.wait(work)
        asked, more, save = told.tolist()
        self._agreed = self._agreed or bool(asked)
        self._save, self._stale = bool(save) and not self._stale, False
        return bool(more)


class LooseStopping:
    """The same where processes work by themselves: they look for a sign now and then.

    Args:
        team: The processes.
        own: What knows about this process.
    """

    def __init__(self, team: Team, own: Asked) -> None:
        self._team, self._own = team, own
        self._told = self._heard = False
        self._looked = time.monotonic()

    @property
    def requested(self) -> bool:
        """Whether one of the processes was asked to stop; raises if one has failed."""
        if self._own.requested and not self._told:
            self._team.tell("stop")
            self._told = True
        if not (self._told or self._heard):
            now = time.monotonic()
            if now - self._looked > _SECONDS_BETWEEN_LOOKS:
                self._looked = now
                self._heard = self._team.was_told("stop")
        return self._told or self._heard
