"""Damaged files of models: refused at once, or of the same content; never a wrong answer."""

from __future__ import annotations

import resource
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

import einet
from einet import Einet, FormatError, Mixture, Model
from tests.families.cases import CASES
from tests.fuzz.campaign import Campaign
from tests.fuzz.mutations import Parts, change_parts, damage

GRAPH = einet.random_trees(3, depth=1, replicas=2)
MIXED = [einet.Gaussian(), einet.Categorical([3]), einet.Binomial(4)]
# Far more than any case takes on a busy machine: only what hangs is stopped.
PATIENCE = 60
# What a file that is refused, or small, may take beyond what the process has.
MOST_BYTES = 200 << 20
TOLD = {"units": "mm", "shape": [1, 3], "zeros": "0" * 64}


def _mixture() -> Mixture:
    parts = [Einet(GRAPH, MIXED, 2, seed=seed) for seed in range(3)]
    return Mixture([parts[0], Mixture(parts[1:], [0.2, 0.8])], [0.7, 0.3])


MODELS: dict[str, Callable[[], Model]] = {
    **{case.name: lambda case=case: Einet(GRAPH, case.several, 2) for case in CASES},
    "classes": lambda: Einet(GRAPH, MIXED, 2, num_leaves=3, num_classes=3, dtype=torch.float64),
    "linear": lambda: Einet(einet.random_trees(5, 2, 2), einet.Gaussian(), 3, sums="linear"),
    "one leaf": lambda: Einet(einet.RegionGraph(2, [3], []), einet.Bernoulli(), 2),
    "grid": lambda: Einet(einet.poon_domingos((2, 3), delta=1), einet.Bernoulli(), 2),
    "mixture": _mixture,
    "clusters": lambda: einet.ClusteredEinet(GRAPH, einet.Gaussian(), 2, num_clusters=3),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A whole file of each kind."""
    folder = tmp_path_factory.mktemp("whole")
    result = {}
    for number, (name, make) in enumerate(MODELS.items()):
        result[name] = folder / f"{number}.einet"
        make().save(result[name], TOLD)
    return result


@pytest.fixture(scope="module")
def parts(files: dict[str, Path]) -> dict[str, Parts]:
    """The same files taken apart."""
    return {name: Parts.of(path) for name, path in files.items()}


@contextmanager
def in_bounds() -> Iterator[None]:
    """Fails where something hangs or takes much memory."""

    def stop(*_) -> None:
        raise AssertionError(f"this took more than {PATIENCE} s")

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    old = signal.signal(signal.SIGALRM, stop)
    signal.alarm(PATIENCE)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)
    unit = 1 if sys.platform == "darwin" else 1024
    taken = unit * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    assert taken < MOST_BYTES, f"this took {taken >> 20} MB"


def loaded(path: Path) -> Model | None:
    """The model in a file; None where it is refused, in one line that a terminal can show."""
    with in_bounds():
        try:
            return einet.load(path)
        except FormatError as error:
            message = str(error)
    assert message.isprintable()
    assert len(message) < 1000
    return None


def check_is_a_distribution(model: Model) -> None:
    """What an accepted file promises, whoever made it: it is normalised and can be asked."""
    with in_bounds():
        nothing = torch.full((1, model.num_variables), torch.nan, dtype=torch.float64)
        # A few layers of sums, each off by rounding in float32.
        assert model.log_prob(nothing).abs().item() < 1e-4
        x = model.sample(3, seed=0)
        assert x.shape == (3, model.num_variables)
        assert not model.log_prob(x).isnan().any()


def one_of(items: dict, random: np.random.Generator) -> str:
    return list(items)[random.integers(len(items))]


def test_blind_damage(campaign: Campaign, files: dict[str, Path]):
    """Flipped, replaced, lost, added or moved bytes: no other content is ever accepted."""

    def case(random: np.random.Generator, folder: Path) -> str:
        whole = files[one_of(files, random)]
        path = folder / "model.einet"
        path.write_bytes(damage(whole.read_bytes(), random))
        if path.read_bytes() == whole.read_bytes():
            return "not damaged"
        model = loaded(path)
        if model is None:
            return "refused"
        # Saved again, the same content is the same bytes.
        told = einet.load_metadata(path)
        model.save(path, told)
        assert path.read_bytes() == whole.read_bytes()
        return "same content"

    report = campaign.run("blind_damage", case, 120)
    assert report.answers["refused"]


def test_damage_that_the_checksum_does_not_know_of(campaign: Campaign, parts: dict[str, Parts]):
    """Parts changed under the old checksum: refused before anything else is looked at."""

    def case(random: np.random.Generator, folder: Path) -> str:
        changed = parts[one_of(parts, random)].copy()
        checksum = changed.header["checksum"]
        path = folder / "model.einet"
        changed.write(path)
        same = path.read_bytes()
        change_parts(changed, random)
        changed.write(path)
        if path.read_bytes() == same:
            return "not damaged"
        other = Parts.of(path).header["checksum"]
        content = path.read_bytes()
        for digest in ("tensors", "header"):
            content = content.replace(other[digest].encode(), checksum[digest].encode())
        path.write_bytes(content)
        with pytest.raises(FormatError, match="damaged"):
            einet.load(path)
        return "refused"

    campaign.run("damage_that_the_checksum_does_not_know_of", case, 30)


@pytest.mark.parametrize("signed", [True, False], ids=["signed", "unsigned"])
def test_hostile_files(campaign: Campaign, parts: dict[str, Parts], signed: bool):
    """Parts changed by one who repairs the checksum, or leaves it out: still a distribution."""

    def case(random: np.random.Generator, folder: Path) -> str:
        changed = parts[one_of(parts, random)].copy()
        change_parts(changed, random)
        path = folder / "model.einet"
        (changed.write if signed else changed.write_unsigned)(path)
        model = loaded(path)
        if model is None:
            return "refused"
        check_is_a_distribution(model)
        return "a distribution"

    name = "hostile_files" if signed else "hostile_files_unsigned"
    report = campaign.run(name, case, 50)
    assert report.answers["refused"]
