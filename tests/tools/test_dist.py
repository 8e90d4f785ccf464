"""What is distributed is whole, and nothing else. `make dist` installs and tries it besides."""

import io
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tools import dist, smoke

SDIST = tomllib.loads((dist.ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"][
    "targets"
]["sdist"]
INCLUDED = {name.strip("/") for name in SDIST["include"]}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Both of them, by the builder that `make dist` installs into an environment of its own."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    done = subprocess.run(command, cwd=dist.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def test_the_wheel(built: tuple[Path, Path]):
    dist.check_wheel(built[0])


def test_the_source_distribution(built: tuple[Path, Path]):
    dist.check_sdist(built[1], INCLUDED)
    with tarfile.open(built[1]) as archive:
        names = {member.name.partition("/")[2] for member in archive}
    assert "tests/families/cases.py" in names
    # Tests of what is in the repository only, and what long runs of fuzzing counted.
    for folder in ("benchmarks", "docs", "experiments", "tools", "fuzz/results", "test_readme.py"):
        assert f"/tests/{folder}" in SDIST["exclude"]
        assert not any(name.startswith(f"tests/{folder}") for name in names), folder


STRAYS = {
    "einet/extra.py": r"should not have \['einet/extra.py'\]",
    "einet-0.dist-info/__pycache__/a.py": "should not have .*__pycache__",
    "tests/test_readme.py": r"should not have \[.tests/test_readme.py.\]",
}


@pytest.mark.parametrize("name", STRAYS)
def test_a_wheel_with_more(name: str, built: tuple[Path, Path], tmp_path: Path):
    wheel = Path(shutil.copy(built[0], tmp_path))
    with zipfile.ZipFile(wheel, "a") as archive:
        home = next(each for each in archive.namelist() if each.endswith("/METADATA"))
        archive.writestr(name.replace("einet-0.dist-info", home.partition("/")[0]), "")
    with pytest.raises(ValueError, match=STRAYS[name]):
        dist.check_wheel(wheel)


@pytest.mark.parametrize("lost", ["einet/py.typed", "einet/models/einet.py", "LICENSE"])
def test_a_wheel_with_less(lost: str, built: tuple[Path, Path], tmp_path: Path):
    wheel = tmp_path / built[0].name
    with zipfile.ZipFile(built[0]) as whole, zipfile.ZipFile(wheel, "w") as part:
        for name in whole.namelist():
            if not name.endswith(lost):
                part.writestr(name, whole.read(name))
    with pytest.raises(ValueError, match=lost if "/" in lost else "no licence"):
        dist.check_wheel(wheel)


def test_a_source_distribution_with_results(built: tuple[Path, Path], tmp_path: Path):
    sdist = tmp_path / built[1].name
    with tarfile.open(built[1]) as whole, tarfile.open(sdist, "w:gz") as more:
        first = whole.getmembers()[0].name.partition("/")[0]
        for member in whole:
            more.addfile(member, whole.extractfile(member))
        more.addfile(tarfile.TarInfo(f"{first}/tests/fuzz/results/a.json"), io.BytesIO())
    with pytest.raises(ValueError, match="should not have .*results/a.json"):
        dist.check_sdist(sdist, INCLUDED)
    with pytest.raises(ValueError, match="should not have .*src"):
        dist.check_sdist(built[1], INCLUDED - {"src"})


def test_trials_are_named():
    with pytest.raises(SystemExit, match="usage: smoke.py bare|extras FOLDER"):
        smoke.main(["all", "."])
    with pytest.raises(SystemExit, match="nothing was learnt"):
        smoke.require(False, "nothing was learnt")
