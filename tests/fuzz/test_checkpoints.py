"""Damaged checkpoints are refused, or make no difference; the model is then what it was."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import einet
from einet import EM, Gradient, Prior, StochasticEM
from einet.data.files import read_tensors, write_tensors
from einet.learning.checkpoint_file import checkpoints_in
from einet.models.base import Model
from tests.fuzz.campaign import Campaign

KEY = "einet.checkpoint"
GRAPH = einet.random_trees(3, depth=1, replicas=2, seed=0)
X = torch.randn(24, 3, generator=torch.Generator().manual_seed(0))
VALID = X[:9] + 0.1


@dataclass(frozen=True)
class Run:
    """A training run that can be begun, broken off and resumed.

    Attributes:
        make: Makes the model as it is before.
        train: Trains it, with the options of checkpoints and callbacks.
        crash: After so many epochs it is broken off.
    """

    make: Callable[[], Model]
    train: Callable[..., Any]
    crash: int


def one() -> Model:
    return einet.Einet(GRAPH, einet.Gaussian(), 2)


def mixed() -> Model:
    families = [einet.Gaussian(), einet.Gamma(), einet.Exponential()]
    return einet.Mixture([einet.Einet(GRAPH, families, 2, seed=s, sums="linear") for s in (0, 1)])


def clusters() -> einet.ClusteredEinet:
    return einet.ClusteredEinet(GRAPH, einet.Gaussian(), 2, num_clusters=2)


def of_fit(x: Tensor = X, **settings: Any) -> Callable[..., Any]:
    def train(model: Model, **options: Any) -> Any:
        made = {**settings, "optimizer": settings["optimizer"]()}
        return einet.fit(model, x, batch_size=8, progress=False, **{**made, **options})

    return train


def of_clusters(method: str, **settings: Any) -> Callable[..., Any]:
    def train(model: Any, **options: Any) -> Any:
        call = getattr(model, method)
        return call(X, batch_size=8, progress=False, **{**settings, **options})

    return train


RUNS = {
    "EM": Run(one, of_fit(optimizer=EM, epochs=3, valid=VALID), 2),
    "stochastic EM": Run(
        mixed,
        of_fit(X.abs() + 0.1, optimizer=lambda: StochasticEM(0.3, Prior(leaves=1.0)), epochs=3,
               valid=VALID.abs() + 0.1, patience=2, hide=0.1),
        2,
    ),
    "finish": Run(one, of_fit(optimizer=StochasticEM, epochs=2, finish=2, valid=VALID), 3),
    "Adam": Run(one, of_fit(optimizer=lambda: Gradient(torch.optim.Adam, lr=0.03), epochs=3), 2),
    "clusters": Run(clusters, of_clusters("fit", epochs=2, finish=1), 3),
    "together": Run(clusters, of_clusters("fit", epochs=3, valid=VALID, together=2), 3),
    "refine": Run(clusters, of_clusters("refine", epochs=3, valid=VALID), 2),
}  # fmt: skip


@dataclass(frozen=True)
class Broken:
    """What was left of a run, and what it comes to if it goes on."""

    run: Run
    content: bytes
    header: dict[str, Any]
    tensors: dict[str, Tensor]
    numbers: dict[str, Tensor]
    record: dict[str, Any]


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> list[Broken]:
    results = []
    for name, run in RUNS.items():
        path = tmp_path_factory.mktemp("runs") / f"{name}.checkpoint"
        left = run.crash

        def crash(report: einet.EpochReport) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise RuntimeError("broken off")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("einet.clusters.training._SECONDS_BETWEEN_COPIES", -1.0)
            with pytest.raises(RuntimeError, match="broken off"):
                run.train(run.make(), checkpoint=path, every=0, callbacks=crash)
        newest = list(checkpoints_in(path).values())[-1]
        content = newest.read_bytes()
        header, tensors = read_tensors(newest, KEY)
        model = run.make()
        history = run.train(model, checkpoint=path, resume=True)
        results.append(Broken(run, content, header, tensors, numbers(model), recorded(history)))
    return results


def numbers(model: Model) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def recorded(history: Any) -> dict[str, Any]:
    """What was measured, less the time it took."""
    told = history.to_dict()
    return {name: told[name] for name in told if not name.endswith("seconds")}


def same(one: dict[str, Tensor], two: dict[str, Tensor]) -> bool:
    return all(torch.equal(one[name].nan_to_num(), two[name].nan_to_num()) for name in one)


def resume(broken: Broken, path: Path, whole: bool) -> str:
    """Go on from a file; ``whole``: whether its record must be the same as well."""
    model = broken.run.make()
    before = numbers(model)
    refusal = history = None
    try:
        history = broken.run.train(model, checkpoint=path, resume=True)
    except ValueError as error:
        refusal = str(error)
    if refusal is not None:
        assert str(path) in refusal
        assert same(numbers(model), before)
        return "refused"
    assert same(numbers(model), broken.numbers)
    assert not whole or recorded(history) == broken.record
    return "same result"


# -- damage by accident ----------------------------------------------------------------------------


def damaged(content: bytes, random: np.random.Generator) -> bytes:
    data = bytearray(content)
    kind = random.integers(5)
    # As often in the header, small as it is, as in all the tensors.
    size = int.from_bytes(content[:8], "little") + 8 if random.random() < 0.5 else len(data)
    at = int(random.integers(size))
    if kind == 0:
        for _ in range(int(random.integers(1, 4))):
            data[int(random.integers(size))] ^= 1 << int(random.integers(8))
    elif kind == 1:
        del data[at:]
    elif kind == 2:
        data[at : at + int(random.integers(1, 64))] = bytes(random.integers(0, 256, 16, np.uint8))
    elif kind == 3:
        end = at + int(random.integers(1, 4096))
        data[at:end] = bytes(len(data[at:end]))
    else:
        data += bytes(random.integers(0, 256, int(random.integers(1, 64)), np.uint8))
    return bytes(data)


def test_damaged_checkpoints(campaign: Campaign, broken: list[Broken]):
    def case(random: np.random.Generator, folder: Path) -> str:
        chosen = broken[int(random.integers(len(broken)))]
        path = folder / "run.checkpoint"
        path.write_bytes(damaged(chosen.content, random))
        return resume(chosen, path, whole=True)

    campaign.run("damaged_checkpoints", case, 20)


# -- what somebody wrote there, with a checksum that is right --------------------------------------

HOSTILE: list[Any] = [
    None, True, False, 0, -1, 2**31, 2**62, 10**400, 1e9, 1e308, float("nan"), float("inf"),
    -float("inf"), 0.5, "", "x" * 1000, [], {}, [[]], [None], {"a": 1}, "finished", "0",
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where there is something in a JSON value."""
    inner: list[tuple[Any, Any]] = []
    if isinstance(value, dict | list):
        inner = list(value.items() if isinstance(value, dict) else enumerate(value))
    return [path, *(place for key, part in inner for place in places(part, (*path, key)))]


def forge_header(header: dict[str, Any], random: np.random.Generator) -> dict[str, Any]:
    """Put something else in one place of the state, or of the settings."""
    header = copy.deepcopy(header)
    part = "state" if random.random() < 0.9 else "settings"
    paths = [place for place in places(header[part]) if place]
    path = paths[int(random.integers(len(paths)))]
    owner = header[part]
    for key in path[:-1]:
        owner = owner[key]
    kind = random.random()
    old = owner[path[-1]]
    if kind < 0.15:
        del owner[path[-1]]
    elif kind < 0.3 and isinstance(old, int | float) and not isinstance(old, bool):
        owner[path[-1]] = old + int(random.integers(-1, 2))
    elif kind < 0.4 and isinstance(old, list):
        owner[path[-1]] = old * 2 if random.random() < 0.5 else old[:-1]
    else:
        owner[path[-1]] = HOSTILE[int(random.integers(len(HOSTILE)))]
    return header


def forge_tensors(tensors: dict[str, Tensor], random: np.random.Generator) -> dict[str, Tensor]:
    """Make one tensor something that no run has."""
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    name = sorted(tensors)[int(random.integers(len(tensors)))]
    tensor = tensors[name]
    kind = random.integers(6)
    if kind == 0:
        del tensors[name]
    elif kind == 1:
        tensors[f"{name}x"] = tensor
    elif kind == 2:
        tensors[name] = torch.cat([tensor.reshape(-1), tensor.reshape(-1)])
    elif kind == 3:
        tensors[name] = tensor.to(torch.int64 if tensor.is_floating_point() else torch.float32)
    else:
        place = int(random.integers(tensor.numel()))
        if tensor.is_floating_point():
            # Bounds of a family may be NaN, where they are relative to the data, or infinite.
            if ".groups." in name and not name.endswith(("scale", "location")):
                tensors[name] = tensor[:0]
            else:
                tensor.view(-1)[place] = float("nan") if kind == 4 else float("inf")
        else:
            tensor.view(-1)[place] = 2**30 if kind == 4 else -1
    return tensors


def test_forged_checkpoints(campaign: Campaign, broken: list[Broken]):
    def case(random: np.random.Generator, folder: Path) -> str:
        chosen = broken[int(random.integers(len(broken)))]
        path = folder / "run.checkpoint"
        header, tensors = chosen.header, chosen.tensors
        if random.random() < 0.7:
            header = forge_header(header, random)
        else:
            tensors = forge_tensors(tensors, random)
        write_tensors(path, tensors, KEY, header)
        # What was measured is for the record: nobody can tell whether it is true.
        return resume(chosen, path, whole=False)

    campaign.run("forged_checkpoints", case, 25)
