"""The state of a loop comes back from plain values, and from nothing that contradicts itself."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import pytest

from einet.learning.history import History
from einet.learning.loop_state import LoopState

CHECKS: dict[str, Any] = {
    "epochs": 5, "before": range(1), "scored": [True, True, False], "patience": 2,
    "baseline": False,
}  # fmt: skip


def state() -> LoopState:
    """After three epochs: one goes on, one has stopped early, one has no validation rows."""
    going = History([-3.0, -2.0, -1.5], [-4.0, -3.0, -3.5], [0.1] * 3, [0.5] * 3, 1)
    early = History([-3.0, -2.0, -1.0], [-3.0, -4.0, -5.0], [0.1] * 3, [0.5] * 3, 0, "early")
    blind = History([-3.0, -math.inf, -1.0], [], [0.1] * 3, [0.5] * 3)
    return LoopState(3, 0, [going, early, blind], [True, False, True], [-3.0, -3.0, -math.inf])


def plain() -> dict[str, Any]:
    return json.loads(json.dumps(state().to_plain()))


def test_there_and_back():
    assert LoopState.from_plain(plain(), **CHECKS) == state()


@pytest.mark.parametrize(
    ("place", "value", "told"),
    [
        (["done"], 10**9, "loop.done must be a whole number from 0 to 5"),
        (["done"], 2, "must have"),
        (["done"], 4, "must have 4 entries, one for each epoch"),
        (["before"], 1, "loop.before must be a whole number from 0 to 0"),
        (["waiting", 0], False, r"loop.waiting\[0\] is not what follows"),
        (["waiting", 1], True, r"loop.waiting\[1\] is not what follows"),
        (["waiting"], [True], "must have 3 entries"),
        (["best", 0], -2.0, "must be -3.0, the best of its epochs"),
        (["best", 0], None, "must be -3.0, the best of its epochs"),
        (["best", 2], 0.0, "must be null"),
        (["histories", 0, "best_epoch"], 0, "best_epoch must be 1"),
        (["histories", 0, "best_epoch"], True, "best_epoch must be 1"),
        (["histories", 0, "valid"], [], "best_epoch must be None"),
        (["histories", 0, "valid", 0], math.nan, r"valid\[0\] must be a number"),
        (["histories", 2, "valid"], [-1.0] * 3, "must have 0 entries"),
        (["histories", 0, "train"], [-1.0] * 10**4, "must have 0 to 3|must have .* entries"),
        (["histories", 0, "train", 1], math.inf, "must be a number"),
        (["histories", 0, "seconds", 0], -1.0, "of at least 0"),
        (["histories", 0, "seconds"], [], "must have 3 entries"),
        (["histories", 0, "step_size"], [0.1] * 4, "entries"),
        (["histories", 0, "stopped"], "early", "stopped is 'early'"),
        (["histories", 0, "stopped"], ["early"], "stopped must be one of"),
        (["histories", 0], None, "must have the fields"),
        (["histories"], {}, "must be a list"),
        (["more"], 1, "must have the fields"),
    ],
)  # fmt: skip
def test_contradictions(place: list[Any], value: Any, told: str):
    broken = plain()
    owner = broken
    for key in place[:-1]:
        owner = owner[key]
    owner[place[-1]] = value
    with pytest.raises(ValueError, match=told):
        LoopState.from_plain(broken, **CHECKS)


def test_a_baseline_may_be_the_best():
    base = LoopState(2, 0, [History([-2.0, -1.0], [-5.0, -4.0], [0.1] * 2)], [True], [-3.0])
    checks = {**CHECKS, "scored": [True], "baseline": True, "patience": None}
    told = base.to_plain()
    assert LoopState.from_plain(copy.deepcopy(told), **checks) == base
    with pytest.raises(ValueError, match="must not be below that of an epoch"):
        LoopState.from_plain({**told, "best": [-4.5]}, **checks)
    with pytest.raises(ValueError, match="best_epoch must be 1"):
        LoopState.from_plain(told, **{**checks, "baseline": False})


def test_epochs_that_came_before():
    later = LoopState(1, 2, [History([-3.0, -2.0, -1.0], [], [0.1] * 3)], [True], [-math.inf])
    checks = {**CHECKS, "scored": [False], "before": range(1, 4)}
    assert LoopState.from_plain(later.to_plain(), **checks) == later
    with pytest.raises(ValueError, match="must be a whole number from 1 to 3, got 0"):
        LoopState.from_plain({**later.to_plain(), "before": 0}, **checks)
