"""The map of the code is true, and the examples of how to add to it run."""

import inspect
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import einet
from einet import storage
from einet.cli.commands import app
from einet.families import FAMILIES
from einet.inference.posterior import Posterior
from einet.learning import checkpoint
from einet.structures import serialization
from einet.tables import schema
from tests.families import test_families as family_tests
from tests.oracle import NAN, Joint, close, random_model, random_rows

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
HOW_TO_ADD = PAGE.split("## How to add\n")[1].split("\n## ")[0]


def test_the_map_has_the_rooms_that_there_are():
    map_of_rooms = PAGE.split("## The map")[1].split("\n## ")[0]
    named = re.findall(r"^\| `(\w+)/` \|", map_of_rooms, re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (contract,) = project["tool"]["importlinter"]["contracts"]
    *rooms, lowest = contract["layers"]
    assert named == rooms
    folders = [path.name for path in (ROOT / "src" / "einet").iterdir() if path.is_dir()]
    assert sorted(named) == sorted(name for name in folders if name != "__pycache__")
    for module in lowest.split(" | "):
        assert (ROOT / "src" / "einet" / f"{module}.py").exists()
        assert f"`{module}.py`" in map_of_rooms


# -- how to add ------------------------------------------------------------------------------------


def blocks(heading: str) -> list[str]:
    """The Python code under a heading of the page."""
    section = HOW_TO_ADD.split(f"### {heading}\n")[1].split("\n### ")[0]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


def run(heading: str) -> SimpleNamespace:
    """What the code under a heading defines."""
    names: dict[str, Any] = {"__name__": "example"}
    for code in blocks(heading):
        exec(compile(code, f"CONTRIBUTING.md, {heading}", "exec"), names)
    return SimpleNamespace(**names)


def test_every_kind_has_an_example():
    table = re.findall(r"^\| \[(.+?)\]\(#(.+?)\) \|", HOW_TO_ADD, re.MULTILINE)
    assert len(table) == 6
    for name, link in table:
        assert link == name.replace(" ", "-")
        assert blocks(name[0].upper() + name[1:])


@pytest.fixture
def rayleigh() -> Iterator[SimpleNamespace]:
    yield run("A family")
    FAMILIES.pop("Rayleigh", None)


def test_a_family_is_put_through_the_tests_of_families(rayleigh: SimpleNamespace):
    done = 0
    for name, check in inspect.getmembers(family_tests, inspect.isfunction):
        wanted = set(inspect.signature(check).parameters)
        if name.startswith("test_") and "case" in wanted:
            assert wanted <= {"case", "dtype"}, name
            for dtype in (torch.float32, torch.float64) if "dtype" in wanted else (None,):
                if name == "test_integers_count_as_the_same_numbers":
                    dtype = torch.int64
                check(
                    **{"case": rayleigh.case, "dtype": dtype} if dtype else {"case": rayleigh.case}
                )
                done += 1
    assert done > 20


def test_a_family_in_a_model(rayleigh: SimpleNamespace, tmp_path: Path):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 4, 2, generator=generator).norm(dim=-1) + 0.01
    x[::7, 1] = torch.nan
    model = einet.Einet(einet.random_trees(4, 1, 2), rayleigh.Rayleigh(), num_sums=3)
    history = einet.fit(model, x, epochs=3, optimizer=einet.EM(), progress=False)
    assert history.train[-1] > history.train[0]
    assert model.given(x).impute().gt(0).all()
    model.save(tmp_path / "model.einet")
    assert torch.equal(einet.load(tmp_path / "model.einet").log_prob(x), model.log_prob(x))


def test_a_structure():
    example = run("A structure")
    assert abs(float(example.model.log_normalizer())) < 1e-5
    graph = example.comb(5)
    assert len(graph.leaves) == 5
    assert len(graph.layers()) == 5
    assert example.comb(1).num_variables == 1
    model = random_model(example.comb(3), einet.Categorical(3), 2)
    joint = Joint(model)
    close(model.log_prob(joint.states), joint.log_prob(joint.states))
    close(model.log_prob(joint.states).exp().sum(), 1.0)


@pytest.fixture
def disagreement() -> Iterator[None]:
    run("A question")
    yield
    del Posterior.disagreement  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.usefixtures("disagreement")
def test_a_question():
    models = [
        random_model(einet.random_trees(3, 2, 2), einet.Categorical(3), 3, seed=seed)
        for seed in (0, 1)
    ]
    evidence = random_rows(models[0], 5, missing=0.6)
    evidence[0] = NAN
    joint = Joint(models[0])
    posterior: Any = models[0].given(evidence)
    for row, known in enumerate(evidence):
        p = joint.marginal(1, known)
        expected = 1 - np.square(p).sum() if known[1].isnan() else 0.0
        close(posterior.disagreement(1)[row], expected)
    mixed: Any = einet.Mixture(models, [0.3, 0.7]).given(evidence)
    close(mixed.disagreement(2), 1 - mixed.probabilities(2).square().sum(-1))
    with pytest.raises(ValueError, match="variable"):
        posterior.disagreement(3)


def test_a_sum_layer():
    """The page shows the file that ``tests/layers/test_own_layer.py`` tests."""
    (code,) = blocks("A sum layer")
    assert code == (ROOT / "tests" / "layers" / "shared_layer.py").read_text(encoding="utf-8")


def test_a_learner(tmp_path: Path):
    slowing = run("A learner").Slowing
    x = torch.randn(90, 4, generator=torch.Generator().manual_seed(0)).cumsum(1)
    graph = einet.random_trees(4, 1, 2)

    def fit(stop_after: int | None = None, **options: Any) -> tuple[einet.Einet, einet.History]:
        model = einet.Einet(graph, einet.Gaussian(), num_sums=3)
        history = einet.fit(
            model, x, epochs=4, batch_size=30, optimizer=slowing(), progress=False,
            callbacks=lambda report: report.epoch == stop_after and report.stop(), **options,
        )  # fmt: skip
        return model, history

    whole, history = fit()
    assert history.train[-1] > history.train[0]
    fit(stop_after=2, checkpoint=tmp_path / "run")
    again, history = fit(checkpoint=tmp_path / "run", resume=True)
    assert len(history) == 4
    for one, two in zip(again.parameters(), whole.parameters(), strict=True):
        assert one.equal(two)
    with pytest.raises(ValueError, match="the state of Slowing must be its steps, got .*'3'"):
        slowing().load_state({"steps": "3"}, {})


@pytest.fixture
def total() -> Iterator[None]:
    run("A command")
    yield
    app.registered_commands.pop()


@pytest.mark.usefixtures("total")
def test_a_command(tmp_path: Path):
    path = tmp_path / "model.einet"
    einet.Einet(einet.random_trees(4, 1, 2), einet.Bernoulli(), num_sums=3).save(path)
    done = CliRunner().invoke(app, ["total", str(path)])
    assert (done.exit_code, done.output) == (0, "1.000000\n")
    refused = CliRunner().invoke(app, ["total", str(tmp_path / "none.einet")])
    assert refused.exit_code == 2
    assert len(refused.output.splitlines()) == 1
    assert "Print what the probabilities" in CliRunner().invoke(app, ["--help"]).output


def test_examples_are_formatted_as_the_code_is():
    command = [sys.executable, "-m", "ruff", "format", "--diff", "-"]
    for code in re.findall(r"```python\n(.*?)```", HOW_TO_ADD, re.DOTALL):
        done = subprocess.run(command, input=code, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


# -- releases and files ----------------------------------------------------------------------------


@pytest.mark.skipif(not (ROOT / "docs").exists(), reason="documents are in the repository only")
def test_the_page_of_releases_names_the_versions_that_there_are():
    page = (ROOT / "docs" / "versioning.md").read_text(encoding="utf-8")
    kinds = "a model|the schema|a checkpoint|a region graph"
    rows = re.findall(rf"^\| ({kinds}).*?\| ([\d, ]+) \|", page, re.MULTILINE)
    newest = {kind: int(versions.split(",")[-1]) for kind, versions in rows}
    assert newest == {
        "a model": storage.VERSION,
        "the schema": schema._VERSION,
        "a checkpoint": checkpoint._VERSION,
        "a region graph": serialization._VERSION,
    }
