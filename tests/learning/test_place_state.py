"""A place in an epoch comes back from plain values and tensors, and from nothing else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from einet.learning.place_state import load_place, place_state
from einet.learning.steps import Place

CPU = torch.device("cpu")


def generator(draws: int) -> torch.Generator:
    made = torch.Generator().manual_seed(5)
    torch.rand(draws, generator=made)
    return made


def told(steps: int = 3, over: bool = False) -> tuple[dict[str, Any], dict[str, Tensor]]:
    total, weight = torch.tensor(-7.0).double(), torch.tensor(4.0).double()
    place = Place(steps, total, weight, over) if steps else Place()
    return place_state(place, [generator(10)])


def load(values: Any, tensors: dict[str, Tensor], **changes: Any) -> tuple[Place, torch.Generator]:
    hidden = generator(0)
    options: dict[str, Any] = {"shape": [], "steps": 5, "device": CPU, "hidden": [hidden]}
    return load_place(values, tensors, **{**options, **changes}), hidden


@pytest.mark.parametrize(("steps", "over"), [(0, False), (3, False), (5, False), (5, True)])
def test_there_and_back(steps: int, over: bool):
    place, hidden = load(*told(steps, over))
    assert (place.steps, place.over) == (steps, over)
    assert (place.total is None) == (steps == 0)
    expected = generator(10 if steps else 0)
    assert torch.rand(4, generator=hidden).equal(torch.rand(4, generator=expected))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"at": torch.tensor([6, 0])}, r"place.at\[0\] must be a whole number from 0 to 5, got 6"),
        ({"at": torch.tensor([-1, 0])}, "got -1"),
        ({"at": torch.tensor([3, 1])}, "from 5 to 5, got 3"),
        ({"at": torch.tensor([3, 2])}, r"place.at\[1\]"),
        ({"at": torch.tensor([3.0, 0.0])}, "place.at must be two whole numbers"),
        ({"at": torch.tensor([0, 0])}, "must have 0 entries"),
        ({"total": torch.tensor(1.0)}, "total must be torch.float64"),
        ({"total": torch.tensor(torch.nan).double()}, "total must hold"),
        ({"weight": torch.tensor(-1.0).double()}, "weight must hold"),
        ({"weight": torch.ones(2).double()}, "weight must be torch.float64 of shape"),
        ({"hidden.0": torch.zeros(3, dtype=torch.uint8)}, "no state of a random number"),
        ({"more": torch.ones(1)}, "place must have the tensors"),
    ],
)
def test_others_are_refused(change: dict[str, Tensor], message: str):
    values, tensors = told()
    with pytest.raises(ValueError, match=message):
        load(values, {**tensors, **change})


def test_cells_are_hidden_where_they_were():
    values, tensors = told()
    values["hidden_on"] = ["cuda"]
    with pytest.raises(ValueError, match="drawn on 'cuda' in the middle of an epoch"):
        load(values, tensors)
    with pytest.raises(ValueError, match="place must have the fields"):
        load({**values, "more": 1}, tensors)
    # Where nobody knows how many steps there are, any number may be the last.
    place, _ = load(*told(3, True), steps=None)
    assert place.over
