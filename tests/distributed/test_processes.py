"""Processes that learn together arrive where one would, and end together."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.distributed import cases
from tests.distributed.processes import SIZES, run_each

Results = dict[tuple[str, int], list[Any]]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """All cases by 1, 2 and 4 processes, in one run of four."""
    folder = tmp_path_factory.mktemp("resumed")
    cases.broken_off(folder)
    going_on = {
        "resumed": partial(cases.resumed, folder),
        "resumed_within": partial(cases.resumed_within, folder),
        "saved_within": partial(cases.saved_within, folder),
        "files_within": partial(cases.files_within, folder),
    }
    return run_each({**cases.CASES, **cases.OTHERS, **going_on})


def assert_same(one: Any, other: Any) -> None:
    """Equal to 1e-12, whatever is in it."""
    if isinstance(one, Tensor):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12, equal_nan=True)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            assert_same(one[name], other[name])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            assert_same(*pair)
    elif isinstance(one, float):
        assert one == pytest.approx(other, rel=1e-12, abs=1e-12)
    else:
        assert one == other


@pytest.mark.parametrize("name", cases.CASES)
def test_many_processes_learn_what_one_does(name: str, results: Results) -> None:
    alone = cases.CASES[name](0, 1)
    for size in SIZES:
        for told in results[name, size]:
            assert_same(told, alone)


@pytest.mark.parametrize("size", SIZES)
def test_loaders_of_uneven_and_empty_shards(size: int, results: Results) -> None:
    """Joint mini-batches are those that the loaders yield at the same time."""
    told = results["loaders", size]
    for each in told[1:]:
        assert_same(each, told[0])
    alone = cases.loaders_alone()
    assert_same(told[0][0], alone[0])
    assert_same(told[0][1]["valid"], alone[1]["valid"])


@pytest.mark.parametrize("size", [2, 4])
def test_loaders_must_agree_on_columns(size: int, results: Results) -> None:
    for told in results["named_loaders", size]:
        assert told.startswith("ValueError: the loaders of all processes must yield the same")
        assert f"in process {size - 1} ('d', 'c', 'b', 'a')" in told


@pytest.mark.parametrize("size", SIZES)
def test_the_first_process_is_called_back_and_stops_all(size: int, results: Results) -> None:
    for rank, (_, history, called) in enumerate(results["callbacks", size]):
        assert called == ([0, 1] if rank == 0 else [])
        assert history["stopped"] == "callback"
        assert len(history["train"]) == 2


@pytest.mark.parametrize("size", SIZES)
def test_an_interruption_of_one_ends_all_after_the_same_step(size: int, results: Results) -> None:
    told = results["interrupted", size]
    assert {steps for _, _, steps in told} == {told[0][2]}
    # It is heard of in the step after it was told.
    assert 7 <= told[0][2] <= 9
    for numbers, history, _ in told:
        assert history["stopped"] == "interrupted"
        assert_same(numbers, told[0][0])


@pytest.mark.parametrize("size", [2, 4])
def test_processes_that_differ_are_refused_by_name(size: int, results: Results) -> None:
    for told in results["another_graph", size]:
        assert told.startswith("ValueError: the processes of this run must agree")
        assert "the structure of the model is" in told
    for told in results["another_setting", size]:
        assert "epochs is 1 in process 0 and 2 in 1" in told
        assert "train is (51, " in told


@pytest.mark.parametrize("size", [2, 4])
def test_an_error_of_one_process_is_told_by_all(size: int, results: Results) -> None:
    *others, failed = results["fails_alone", size]
    assert failed.startswith("TypeError: train must be an array of numbers")
    for rank, told in enumerate(others):
        assert told.startswith(f"ProcessesError: process {rank} cannot go on: ")
        assert f"process {size - 1} ended with TypeError: train must be" in told
    for told in results["first_fails", size]:
        assert told == "FileNotFoundError: [Errno 2] no such file: 'x'"


@pytest.mark.parametrize("size", SIZES)
def test_a_learner_of_ones_own_has_to_say_that_it_joins(size: int, results: Results) -> None:
    for told in results["unknown_learner", size]:
        # All find it out by themselves; the last to do so may have heard of it from another.
        assert "ValueError: optimizer Own does not say how it learns in several" in told


def test_distributed_false_learns_alone(results: Results) -> None:
    for rank, told in enumerate(results["alone_among_others", 4]):
        assert_same(told, cases.alone_among_others(rank, 1))


@pytest.mark.parametrize("size", SIZES)
def test_what_a_team_tells(size: int, results: Results) -> None:
    ends = []
    for told in results["teams", size]:
        assert told["sums"] == [[size * (size + 1) / 2] * 2, float(size)]
        assert told["copied"] == [size - 1.0] * 3
        assert told["first"]
        assert told["each"] == list(range(size))
        assert told["any"] == (True, False)
        ends.append(told["share"])
    assert [start for start, _ in ends] == [0, *(stop for _, stop in ends[:-1])]
    assert ends[-1][1] == 10


def test_another_number_of_processes_goes_on_from_a_checkpoint(results: Results) -> None:
    for stopped, *_ in results["resumed", 4]:
        assert stopped == ["callback", "callback"]
    alone = cases.resumed(Path(), 0, 0)
    for size in (1, 2):
        for told in results["resumed", size]:
            assert_same(told, alone)


def test_processes_go_on_within_an_epoch_that_one_has_begun(results: Results) -> None:
    alone = [cases.within(learner) for learner in cases.LEARNERS.values()]
    for size in SIZES:
        for told in results["resumed_within", size]:
            assert_same(told, alone)


def test_processes_save_within_an_epoch_and_go_on_there(results: Results) -> None:
    alone = [(True, cases.within(learner)) for learner in cases.LEARNERS.values()]
    for size in SIZES:
        for told in results["saved_within", size]:
            assert_same(told, alone)


def test_fewer_processes_begin_an_epoch_over_a_file_anew(results: Results) -> None:
    """Each had its own part of the file: fewer processes have other parts."""
    alone = cases.files(0, 1)
    for size in SIZES:
        for told in results["files_within", size]:
            assert_same(told, alone)
