"""Events as users write them, and as a batch carries them along."""

from typing import Any

import numpy as np
import pytest
import torch

import einet
from einet.data import Batch, as_batch
from einet.data.batch_events import Events, as_events
from einet.data.events import Between, States

INF = float("inf")
CPU = torch.device("cpu")


def test_intervals():
    event = einet.between(1, 2.5)
    assert isinstance(event, Between)
    assert event.rows is None
    assert (event.lower.item(), event.upper.item()) == (1, 2.5)
    assert event.lower.dtype == torch.float64
    open_ended = einet.between(lower=np.array([1, 2]))
    assert open_ended.rows == 2
    assert open_ended.upper.tolist() == [INF, INF]
    assert einet.between().lower.item() == -INF


def test_states():
    event = einet.among([3, 0, 3])
    assert isinstance(event, States)
    assert event.values.tolist() == [0, 3]
    assert event.weights.tolist() == [1, 1]
    assert einet.among({2}).values.tolist() == [2]
    assert einet.among(range(2)).values.tolist() == [0, 1]
    mask = einet.among(torch.tensor([[True, False], [False, True]]))
    assert mask.rows == 2
    assert mask.table
    assert einet.among([True, False]).weights.tolist() == [1, 0]
    soft = einet.likelihood([[0.5, 0], [1, 7]])
    assert soft.rows == 2
    assert soft.values.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: einet.between(2, 1), "lower must not be above upper, got 2 and 1"),
        (lambda: einet.between([0, 3], [1, 2]), "got 3 and 2 in row 1"),
        (lambda: einet.between(float("nan")), "lower must not be NaN"),
        (lambda: einet.between(0, [1, float("nan")]), "upper must not be NaN"),
        (lambda: einet.between([0, 1], [1, 2, 3]), "for as many rows, got 2 and 3"),
        (lambda: einet.between([[0]], 1), r"lower must be one number .* got shape \[1, 1\]"),
        (lambda: einet.among([]), "at least one whole number"),
        (lambda: einet.among(2), "at least one whole number"),
        (lambda: einet.among([0.5]), "whole numbers, got 0.5"),
        (lambda: einet.among([INF]), "whole numbers, got inf"),
        (lambda: einet.likelihood([0.5, -1]), "not negative, got -1"),
        (lambda: einet.likelihood([0.5, float("nan")]), "got nan"),
        (lambda: einet.likelihood(0.5), r"\[states\] or \[rows, states\], got shape \[\]"),
        (lambda: einet.likelihood(torch.ones(1, 1, 1)), r"got shape \[1, 1, 1\]"),
    ],
)
def test_wrong_numbers(make: Any, match: str):
    with pytest.raises(ValueError, match=match):
        make()


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: einet.between("a"), "lower must be numbers, got 'a'"),
        (lambda: einet.between(True), "lower must be numbers, got True"),
        (lambda: einet.between(0, torch.tensor(1j)), "upper must be numbers, got a tensor"),
        (lambda: einet.among("ab"), "states must be numbers, got 'ab'"),
        (lambda: einet.among(["a"]), "states must be numbers"),
        (lambda: einet.likelihood({0: 1.0}), "table must be numbers"),
        (lambda: einet.likelihood([True, False]), "table must be numbers"),
    ],
)
def test_wrong_types(make: Any, match: str):
    with pytest.raises(TypeError, match=match):
        make()


def events(rows: int | None = None) -> Events:
    where = {
        "a": einet.between([0.0, 1.0, 2.0], 5),
        2: einet.likelihood([[0.1, 0.9], [1, 0], [0, 1]]),
        "d": einet.among([1, 4]),
    }
    return as_events(where, 4, ("a", "b", "c", "d"), rows, CPU)


def test_events_of_rows():
    found = events(3)
    assert found.variables == (0,)
    assert found.all_variables == (0, 2, 3)
    assert found.lower.tolist() == [[0], [1], [2]]
    assert found.upper.tolist() == [[5], [5], [5]]
    assert [column.variable for column in found.states] == [2, 3]
    assert found.states[1].weights.shape == (3, 2)
    some = found[torch.tensor([2, 0])]
    assert some.lower.tolist() == [[2], [0]]
    assert some.states[0].weights.tolist() == [[0, 1], [0.1, 0.9]]
    assert found[1:2].upper.tolist() == [[5]]
    assert events().lower.shape == (3, 1)
    assert found.nbytes > 0
    moved = found.reordered([3, 2, 1, 0])
    assert moved.all_variables == (3, 1, 0)


def test_what_events_say_of_values():
    x = torch.tensor([[0.0, 9.0, 1.0, 4.0], [0.5, 9.0, 1.0, 1.0], [2.0, 9.0, 1.0, 2.0]])
    every = torch.ones(3, 4, dtype=torch.bool)
    found = events().log_weight(x, every).exp()
    expected = [[1, 1, 0.9, 1], [0, 1, 0, 1], [1, 1, 1, 0]]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))
    assert not events().log_weight(x, ~every).any()
    free = events().without(every).log_weight(x, every)
    assert not free.any()


@pytest.mark.parametrize(
    ("error", "where", "match"),
    [
        (TypeError, None, "where must be {variable: event}"),
        (TypeError, {}, "where must be {variable: event}, at least one"),
        (TypeError, {0: (1, 2)}, r"where\[0\] must be an event"),
        (TypeError, {0.5: einet.between(1)}, "numbers or names of variables, got 0.5"),
        (TypeError, {True: einet.between(1)}, "numbers or names of variables, got True"),
        (ValueError, {4: einet.between(1)}, "variables from 0 to 3, got 4"),
        (ValueError, {-1: einet.between(1)}, "variables from 0 to 3, got -1"),
        (ValueError, {"e": einet.between(1)}, "'e', which is not among"),
        (ValueError, {0: einet.between(1), "a": einet.between(2)}, "got two for 'a'"),
        (
            ValueError,
            {0: einet.between([1, 2])},
            "for as many rows as there are, 3, got 2",
        ),
    ],
)
def test_wrong_events(error: type[Exception], where: Any, match: str):
    with pytest.raises(error, match=match):
        as_events(where, 4, ("a", "b", "c", "d"), 3, CPU)
    with pytest.raises(ValueError, match="have none"):
        as_events({"a": einet.between(1)}, 4, None, 3, CPU)


def test_batches_carry_events_along():
    x = torch.full((3, 4), float("nan"))
    x[:, 1] = torch.arange(3.0)
    where = {0: einet.between([0, 1, 2], 3)}
    batch = as_batch(x, 4, where=where, events=True)
    assert batch.events is not None
    assert not batch.mask[:, 0].any()
    for some in (batch[1:], batch.double()[1:], batch.to(CPU)[1:], batch.cells[1:]):
        assert some.events is not None
        assert some.events.lower.tolist() == [[1], [2]]
    assert batch.nbytes > Batch(batch.x, batch.observed).nbytes
    assert batch.scanned().events is batch.events
    assert as_batch(batch, 4, events=True).events is batch.events
    with pytest.raises(ValueError, match="x is a Batch with events, which only queries take"):
        as_batch(batch, 4)
    with pytest.raises(ValueError, match="x is a Batch with its own events"):
        as_batch(batch, 4, where=where, events=True)


def test_events_move_with_columns():
    x = torch.full((1, 2), float("nan"))
    batch = as_batch(x, 2, columns=("a", "b"), where={"b": einet.between(1)}, events=True)
    turned = as_batch(batch, 2, columns=("b", "a"), events=True)
    assert turned.events is not None
    assert turned.events.variables == (0,)


def test_a_value_and_an_event():
    x = torch.tensor([[float("nan"), 1.0], [0.5, 1.0]])
    where = {0: einet.between(0)}
    with pytest.raises(ValueError, match="variable 0, but x has a value of it in row 1"):
        as_batch(x, 2, where=where, events=True)
    with pytest.raises(ValueError, match="variable 'a', but x has a value of it in row 1"):
        as_batch(x, 2, columns=("a", "b"), where=where, events=True)
    with pytest.raises(ValueError, match="has a value of it in row 0"):
        as_batch(x.long(), 2, where=where, events=True)
    hidden = torch.tensor([[False, True], [False, True]])
    assert as_batch(x, 2, hidden, where=where, events=True).events is not None
    with pytest.raises(ValueError, match="observed is given, but x is not"):
        as_batch(None, 2, hidden, where=where, events=True)


def test_rows_without_values():
    batch = as_batch(None, 2, where={0: einet.between([0, 1, 2])}, events=True)
    assert len(batch) == 3
    assert not batch.mask.any()
    assert len(as_batch(None, 2, events=True)) == 1
