"""Every optimiser's state comes back, and nothing that it could not have kept."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from einet.learning.optimizer_state import groups_of, load_state_of, state_of

OPTIMIZERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "Adam": (torch.optim.Adam, {"lr": 0.1, "amsgrad": True}),
    "AdamW": (torch.optim.AdamW, {"lr": 0.1}),
    "SGD": (torch.optim.SGD, {"lr": 0.1}),
    "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "RMSprop": (torch.optim.RMSprop, {"lr": 0.1, "centered": True}),
    "Adagrad": (torch.optim.Adagrad, {"lr": 0.1}),
    "Adafactor": (torch.optim.Adafactor, {"lr": 0.1}),
    "Rprop": (torch.optim.Rprop, {"lr": 0.1}),
}


class Made:
    """Two parameters with an optimiser that has made some steps."""

    def __init__(self, kind: Any, options: dict[str, Any], steps: int = 3) -> None:
        generator = torch.Generator().manual_seed(0)
        self.make = lambda parameters: kind(parameters, **options)
        self.parameters = [
            nn.Parameter(torch.randn(size, generator=generator)) for size in ((3, 2), (4,))
        ]
        self.optimizer = self.make(self.parameters)
        self.began = groups_of(self.optimizer)
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        self.optimizer.zero_grad()
        sum((p.square().sum() for p in self.parameters), torch.zeros(())).backward()
        self.optimizer.step()

    def load(self, values: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        load_state_of(self.optimizer, self.began, self.make, values, tensors)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_there_and_back(name: str):
    one, two = Made(*OPTIMIZERS[name]), Made(*OPTIMIZERS[name], steps=0)
    two.load(*state_of(one.optimizer, one.began))
    for mine, theirs in zip(two.parameters, one.parameters, strict=True):
        mine.data.copy_(theirs.data)
    for made in (one, two):
        made.step()
    for mine, theirs in zip(two.parameters, one.parameters, strict=True):
        assert torch.equal(mine, theirs)


def test_a_rate_that_was_changed_on_the_way():
    one, two = (Made(torch.optim.Adam, {"lr": 0.1}, steps) for steps in (2, 0))
    one.optimizer.param_groups[0]["lr"] = 0.05
    values, tensors = state_of(one.optimizer, one.began)
    two.load(values, tensors)
    assert two.optimizer.param_groups[0]["lr"] == 0.05
    assert two.optimizer.param_groups[0]["betas"] == (0.9, 0.999)
    for name, value in (("lr", "fast"), ("params", [0]), ("betas", 0.9)):
        wrong = {**values, "groups": [{**values["groups"][0], name: value}]}
        with pytest.raises(ValueError, match=rf"groups\[0\]\.{name} is no such setting"):
            two.load(wrong, tensors)


def test_another_optimiser():
    values, tensors = state_of((one := Made(torch.optim.Adam, {"lr": 0.1})).optimizer, one.began)
    for kind, options in ((torch.optim.AdamW, {"lr": 0.1}), (torch.optim.Adam, {"lr": 0.2})):
        with pytest.raises(ValueError, match="of another training run"):
            Made(kind, options, steps=0).load(values, tensors)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("0.exp_avg", torch.full((3, 2), torch.nan), "finite numbers"),
        ("0.exp_avg", torch.zeros(2), "must be .* got torch.float32 of shape"),
        ("0.exp_avg", torch.zeros(3, 2).double(), "must be"),
        ("1.step", None, "must hold the tensors"),
        ("7.step", torch.zeros(()), "must hold the tensors"),
    ],
)
def test_tensors_that_it_could_not_have_kept(name: str, value: Any, told: str):
    made = Made(torch.optim.Adam, {"lr": 0.1})
    values, tensors = state_of(made.optimizer, made.began)
    changed = {**tensors, name: value} if value is not None else dict(tensors)
    if value is None:
        del changed[name]
    with pytest.raises(ValueError, match=told):
        made.load(values, changed)
    if "tensors" in told:
        # Told of, too.
        with pytest.raises(ValueError, match=r"is missing|keeps nothing of a parameter 7"):
            made.load({**values, "tensors": sorted(changed)}, changed)


@pytest.mark.parametrize("key", ["x.step", "0", "-1.step", "1" * 30 + ".a"])
def test_names_that_are_none(key: str):
    made = Made(torch.optim.Adam, {"lr": 0.1})
    values, tensors = state_of(made.optimizer, made.began)
    with pytest.raises(ValueError, match="number of a parameter"):
        made.load({**values, "state": {key: 1}}, tensors)
