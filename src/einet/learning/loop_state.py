"""The state of a training loop as plain values, and back with everything checked.

What follows from something else in the state is compared with it: whether a model waits for a
better epoch follows from its validation results, and so does which of its epochs was the best.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, get_args

from einet.learning.history import History, Stopped
from einet.learning.plain import as_count, as_fields, as_flag, as_list, as_number

__all__ = ["LoopState", "checked_history"]

# No data have more rows than this.
_MOST_ROWS = 1 << 48


@dataclass
class LoopState:
    """What a loop carries from epoch to epoch beside what learns.

    Attributes:
        done: Epochs of this loop that are done.
        before: Epochs that came before it, with another learner.
        histories: The record of each model.
        waiting: Whether each model goes on.
        best: The best validation result of each, −∞ where there is none.
    """

    done: int
    before: int
    histories: list[History]
    waiting: list[bool]
    best: list[float]

    def to_plain(self) -> dict[str, Any]:
        """What JSON can say."""
        return {
            "done": self.done,
            "before": self.before,
            "histories": [history.to_dict() for history in self.histories],
            "waiting": self.waiting,
            "best": [score if math.isfinite(score) else None for score in self.best],
        }

    @classmethod
    def from_plain(
        cls,
        plain: dict[str, Any],
        *,
        epochs: int,
        before: range,
        scored: list[bool],
        patience: int | None,
        baseline: bool,
    ) -> LoopState:
        """The state that :meth:`to_plain` told, if it is one.

        Args:
            plain: What JSON said.
            epochs: How many epochs the loop has at most.
            before: How many may have come before it.
            scored: Whether each model has validation rows.
            patience, baseline: As in :class:`~einet.learning.loop.Loop`.
        """
        plain = as_fields(plain, "loop", [field.name for field in fields(cls)])
        done = as_count(plain["done"], "loop.done", 0, epochs)
        earlier = as_count(plain["before"], "loop.before", before[0], before[-1])
        histories, waiting, best = (
            as_list(plain[name], f"loop.{name}", [len(scored)])
            for name in ("histories", "waiting", "best")
        )
        state = cls(done, earlier, [], [], [])
        for number, has_rows in enumerate(scored):
            name = f"loop.histories[{number}]"
            history = checked_history(
                histories[number], name, range(earlier, earlier + done + 1), has_rows, baseline
            )
            goes_on = as_flag(waiting[number], f"loop.waiting[{number}]")
            if goes_on is _is_over(history, earlier, patience):
                raise ValueError(f"loop.waiting[{number}] is not what follows from {name}")
            if goes_on and len(history) != earlier + done:
                raise ValueError(
                    f"{name}.train must have {earlier + done} entries, one for each epoch, "
                    f"got {len(history)}"
                )
            if goes_on is (history.stopped == "early"):
                raise ValueError(f"{name}.stopped is {history.stopped!r}, which it was not")
            state.histories.append(history)
            state.waiting.append(goes_on)
            state.best.append(_checked_best(best[number], number, history, has_rows and baseline))
        return state


def _is_over(history: History, before: int, patience: int | None) -> bool:
    """Whether a model has waited long enough for a better epoch; see ``Loop._judge``."""
    if patience is None or not history.valid:
        return False
    best = before - 1 if history.best_epoch is None else history.best_epoch
    return len(history) - 1 - best >= patience


def _checked_best(value: Any, number: int, history: History, baseline: bool) -> float:
    name = f"loop.best[{number}]"
    best = -math.inf if value is None else as_number(value, name)
    if history.best_epoch is not None:
        known = history.valid[history.best_epoch]
        if best != known:
            raise ValueError(f"{name} must be {known}, the best of its epochs, got {best}")
    elif not baseline and value is not None:
        raise ValueError(f"{name} must be null where no epoch was the best, got {best}")
    elif baseline and max(history.valid, default=-math.inf) > best:
        raise ValueError(f"{name} must not be below that of an epoch, got {best}")
    return best


def checked_history(
    value: Any, name: str, epochs: range, scored: bool, baseline: bool = False
) -> History:
    """The record of a model, if it is one.

    Args:
        value: What JSON said.
        name: What it is called in errors.
        epochs: How many epochs there may be.
        scored: Whether there are validation rows.
        baseline: Whether the state before the first epoch may be the best.
    """
    if isinstance(value, dict):
        # Earlier releases left out no rows.
        value = {"skipped": [], **value}
    value = as_fields(value, name, [field.name for field in fields(History)])
    train = as_list(value["train"], f"{name}.train", epochs)
    lengths = {
        "train": [len(train)],
        # Rows whose labels are all unknown have no result.
        "valid": [0, len(train)] if scored else [0],
        "seconds": [len(train)],
        "step_size": range(len(train) + 1),
    }
    least = {"seconds": 0.0, "step_size": 0.0}
    lists = {
        field: [
            as_number(entry, f"{name}.{field}[{place}]", least.get(field, -math.inf))
            for place, entry in enumerate(as_list(value[field], f"{name}.{field}", allowed))
        ]
        for field, allowed in lengths.items()
    }
    skipped = [
        as_count(entry, f"{name}.skipped[{place}]", 0, _MOST_ROWS)
        for place, entry in enumerate(as_list(value["skipped"], f"{name}.skipped", [0, len(train)]))
    ]
    if value["stopped"] not in get_args(Stopped):
        raise ValueError(f"{name}.stopped must be one of {get_args(Stopped)}")
    valid = lists["valid"]
    highest = max(valid, default=-math.inf)
    expected = None if highest == -math.inf else valid.index(highest)
    best = value["best_epoch"]
    if isinstance(best, bool) or (best != expected and not (baseline and best is None)):
        raise ValueError(f"{name}.best_epoch must be {expected}, that of the highest valid")
    return History(**lists, best_epoch=best, stopped=value["stopped"], skipped=skipped)
