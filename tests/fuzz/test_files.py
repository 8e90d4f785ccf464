"""Damaged files of models: refused at once, or of the same content; never a wrong answer."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
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

    report = campaign.run("blind_damage", case, 250)
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

    campaign.run("damage_under_a_checksum", case, 60)


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

    name = "hostile_files" if signed else "hostile_files_of_earlier_releases"
    report = campaign.run(name, case, 150)
    assert report.answers["refused"]


# -- memory and time -------------------------------------------------------------------------------

BOMBS = """
import json, resource, sys, time
import einet, torch
from pathlib import Path
from tests.fuzz.mutations import Parts, nested

def most():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

folder = Path(sys.argv[1])
graph = einet.random_trees(4, 2, 2)
path = folder / "model.einet"

def whole(family=None, **options):
    einet.Einet(graph, family or einet.Categorical(3), 2, **options).save(path)
    einet.load(path)
    return Parts.of(path)

def numbers(**changes):
    parts = whole()
    parts.header["model"].update(changes)
    return parts

def width(value):
    parts = whole()
    parts.header["model"]["families"][0]["config"]["width"] = value
    return parts

def graph_with(**changes):
    parts = whole()
    for name, values in changes.items():
        parts.tensors[f"graphs.0.{name}"] = torch.tensor(values, dtype=torch.int32)
    return parts

def chain(length):
    # Regions within regions: each of them would be a layer of its own.
    inner = list(range(length, 2 * length - 1))
    children = [0, 1]
    for variable in range(2, length):
        children += [variable, length + variable - 2]
    return graph_with(
        num_variables=length, num_regions=2 * length - 1, root=2 * length - 2,
        leaf_regions=list(range(length)), leaf_offsets=list(range(length + 1)),
        leaf_variables=list(range(length)), partition_regions=inner,
        partition_offsets=list(range(0, 2 * length - 1, 2)), partition_children=children,
    )

def star(count):
    # One region of many children, and many of two, which linear sums place in one layer.
    parts = whole(sums="linear")
    pairs = [[2 * i, 2 * i + 1] for i in range(count)]
    children = [c for pair in pairs for c in pair] + list(range(2 * count, 3 * count))
    arrays = dict(
        num_variables=2 * count, num_regions=3 * count + 1, root=3 * count,
        leaf_regions=list(range(2 * count)), leaf_offsets=list(range(2 * count + 1)),
        leaf_variables=list(range(2 * count)),
        partition_regions=list(range(2 * count, 3 * count + 1)),
        partition_offsets=[*range(0, 2 * count + 1, 2), 3 * count], partition_children=children,
    )
    for name, values in arrays.items():
        parts.tensors[f"graphs.0.{name}"] = torch.tensor(values, dtype=torch.int32)
    return parts

def components(count):
    parts = whole()
    model = parts.header["model"]
    parts.header["model"] = {"kind": "Mixture", "dtype": "float32", "clustered": True,
                             "components": [model] * count}
    return parts

bombs = {
    "leaves": lambda: numbers(num_leaves=10_000),
    "sums": lambda: numbers(num_sums=10_000),
    "both": lambda: numbers(num_sums=10_000, num_leaves=10_000),
    "more than a number holds": lambda: numbers(num_sums=10**30),
    "more than torch holds": lambda: numbers(num_sums=2**40),
    "classes": lambda: numbers(num_classes=10**9),
    "width": lambda: width(10**8),
    "more width": lambda: width(2**62),
    "variables": lambda: graph_with(num_variables=2**31 - 1),
    "one far variable": lambda: graph_with(
        num_variables=2**31 - 1, leaf_variables=[0, 1, 2, 2**31 - 2, 0, 1, 2, 3]),
    "regions": lambda: graph_with(num_regions=2**31 - 1),
    "a deep graph": lambda: chain(2000),
    "a wide graph": lambda: star(20_000),
    "many components": lambda: components(3000),
}
texts = {
    "a long header": (2**63).to_bytes(8, "little") + b"{}",
    "deep JSON": b"[" * 10**6,
    "deep objects": b'{"a":' * 10**6,
    "deep inside": b'{"__metadata__":{"einet":"' + b"[" * 10**6 + b'"}}',
    "many lists": b'{"a":[' + b"[]," * (10**7) + b"[]]}",
    "many of few inside": b'{"__metadata__":{"einet":"[' + b"{}," * (10**7) + b'{}]"}}',
    "a long name": b'{"' + b"x" * 10**7 + b'":1}',
}
for name, text in texts.items():
    if name != "a long header":
        text = len(text).to_bytes(8, "little") + text
    (folder / f"text {name}").write_bytes(text)
made = list(texts)
for name, make in bombs.items():
    make().write(folder / f"text {name}")
    made.append(name)
parts = whole()
parts.header["model"] = nested(parts.header["model"], 200)
parts.write(folder / "text nested mixtures")
made.append("nested mixtures")
# All are made: what they took until now is the base.
with open("/proc/self/status") as status:
    base = next(int(line.split()[1]) for line in status if line.startswith("VmSize")) << 10
resource.setrlimit(resource.RLIMIT_AS, (base + (1 << 30),) * 2)
for name in made:
    before, began = most(), time.perf_counter()
    try:
        einet.load(folder / f"text {name}")
        answer = "loaded"
    except einet.FormatError as error:
        answer = "refused"
    seconds, taken = time.perf_counter() - began, most() - before
    print(f"{answer}\\t{taken // 1024} MB\\t{seconds:.2f} s\\t{name}", flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc and limits of memory")
def test_bombs(tmp_path: Path):
    """Small files that ask for much: refused with little memory, and soon."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    program = [sys.executable, "-c", textwrap.dedent(BOMBS), str(tmp_path)]
    done = subprocess.run(
        program, env=environment, capture_output=True, text=True, timeout=10 * PATIENCE
    )
    print(done.stdout)
    assert done.returncode == 0, done.stderr
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(lines) == 22
    for answer, taken, seconds, name in lines:
        assert answer == "refused", name
        assert int(taken.split()[0]) < 200, (name, taken)
        # Seconds on an idle machine are a fraction of one; minutes would be a bomb.
        assert float(seconds.split()[0]) < PATIENCE, (name, seconds)


# -- processes that are killed ---------------------------------------------------------------------

SAVER = """
import sys
import torch
import einet
graph = einet.random_trees(8, 2, 4)
models = [einet.Einet(graph, einet.Gaussian(), 16, seed=seed) for seed in range(2)]
print("ready", flush=True)
while True:
    for number, model in enumerate(models):
        model.save(sys.argv[1], {"seed": number})
"""


@cache
def _saved(seed: int) -> Model:
    return Einet(einet.random_trees(8, 2, 4), einet.Gaussian(), 16, seed=seed)


def test_killed_while_saving(campaign: Campaign):
    """The file is one of the two that were being written, whole; the next save tidies up."""

    def case(random: np.random.Generator, folder: Path) -> str:
        path = folder / "model.einet"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        process = subprocess.Popen(
            [sys.executable, "-c", SAVER, str(path)],
            stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        while not path.exists():
            time.sleep(0.001)
        time.sleep(float(random.uniform(0, 0.1)))
        process.kill()
        process.communicate()
        seed = einet.load_metadata(path)["seed"]
        found, expected = einet.load(path).state_dict(), _saved(seed).state_dict()
        assert all(torch.equal(found[name], value) for name, value in expected.items()
                   if not value.isnan().any())  # fmt: skip
        left = len(list(folder.iterdir())) - 1
        _saved(0).save(path)
        assert [file.name for file in folder.iterdir()] == ["model.einet"]
        return f"{left} left behind"

    campaign.run("killed_while_saving", case, 1)
