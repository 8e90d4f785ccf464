"""Who writes the state of a training loop, and when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from einet.learning.loop import Loop

__all__ = ["Saver"]


@dataclass(frozen=True)
class Saver:
    """What writes the state of a loop.

    Attributes:
        due: Whether the last time was long ago; asked after every step.
        save: Writes it.
        due_between: The same between epochs, where processes may take the time to agree; the same
            as ``due`` unless given.
    """

    due: Callable[[], bool]
    save: Callable[[Loop], None]
    due_between: Callable[[], bool] | None = None
