"""What a checkpoint says of clusters follows from their rows, or is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from einet.clusters.resuming import (
    ClusterState,
    checked_assignment,
    checked_inertia,
    lessons_of,
)
from einet.clusters.together import plan
from einet.learning.history import History

SIZES = [30, 0, 12, 25]
CHECKS: dict[str, Any] = {
    "sizes": SIZES, "batch_size": 10, "stackable": True, "epochs": 2, "finish": 1,
    "scored": [False] * 4,
}  # fmt: skip


def history(epochs: int) -> History:
    return History([-1.0] * epochs, [], [0.1] * epochs, [0.5] * epochs)


def told(together: int, done: int, lengths: list[int]) -> dict[str, Any]:
    lessons = lessons_of(plan(SIZES, 10, together), finish=True)
    state = ClusterState(lessons, done, [history(n) for n in lengths], None)
    return json.loads(json.dumps(state.to_plain([3.0, 2.0])))


@pytest.mark.parametrize("together", [1, 2, 16])
def test_there_and_back(together: int):
    first = len(plan(SIZES, 10, together))
    for done, lengths in ((0, [0] * 4), (first, [2, 0, 2, 2]), (first + 3, [3, 0, 3, 3])):
        plain = told(together, done, lengths)
        state = ClusterState.from_plain(plain, **CHECKS)
        assert json.loads(json.dumps(state.to_plain([3.0, 2.0]))) == plain
    assert state.taught == [0, 2, 3]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lessons": [[[0], False]]}, "lessons must be those"),
        ({"lessons": [[[0], False]] * 10**5}, "must have 0 to 8 entries"),
        ({"lessons": [[[1 << 30], False]]}, r"lessons\[0\]\[0\] must be a whole number"),
        ({"lessons": [[[0], 1]]}, "must be true or false"),
        ({"lessons": [[0, False]]}, "must be a list"),
        ({"done": 7}, "done must be a whole number from 0 to 6"),
        ({"done": 2}, r"histories\[3\]"),
        ({"histories": []}, "must have 4 entries"),
        ({"loop": 3}, "loop must be"),
        ({"loop": {}}, "must be those of the present lesson"),
        ({"more": 1}, "must have the fields"),
    ],
)
def test_contradictions(change: dict[str, Any], message: str):
    plain = {**told(1, 3, [2, 0, 2, 2]), **change}
    with pytest.raises(ValueError, match=message):
        ClusterState.from_plain(plain, **CHECKS)


def test_lessons_together_need_a_learner_for_them():
    sizes = [30, 28]
    lessons = lessons_of(plan(sizes, 10, 2), finish=False)
    assert len(lessons) == 1
    plain = ClusterState(lessons, 0, [history(0)] * 2, None).to_plain([])
    checks = {**CHECKS, "sizes": sizes, "finish": 0, "scored": [False] * 2}
    assert ClusterState.from_plain(plain, **checks).lessons == lessons
    with pytest.raises(ValueError, match="lessons must be"):
        ClusterState.from_plain(plain, **{**checks, "stackable": False})


def test_assignments():
    right = torch.tensor([0, 2, 1], dtype=torch.int32)
    assert checked_assignment(right, 3, 3, None).tolist() == [0, 2, 1]
    assert checked_assignment(right, 3, 3, right.long()).tolist() == [0, 2, 1]
    for wrong, message in (
        (None, "missing"),
        (right[:2], r"of shape \[3\]"),
        (right.long(), "torch.int32"),
        (right - 1, "between 0 and 2, got -1"),
        (right + 2**30, "between 0 and 2, got 1073741826"),
    ):
        with pytest.raises(ValueError, match=message):
            checked_assignment(wrong, 3, 3, None)
    with pytest.raises(ValueError, match="given as clusters"):
        checked_assignment(right, 3, 3, torch.tensor([0, 1, 2]))


def test_inertia():
    assert checked_inertia([2.0, 1.0], 2) == [2.0, 1.0]
    for wrong in ([2.0] * 3, [-1.0], "low", [float("nan")]):
        with pytest.raises(ValueError, match="inertia"):
            checked_inertia(wrong, 2)
