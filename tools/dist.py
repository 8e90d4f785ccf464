"""The wheel and the source distribution: built, looked into, installed and tried.

    make dist

Both are written to ``dist/``. Each is then installed into an environment of its own, in
``.venv-dist``, with the pinned versions of constraints.txt, first without extras and then with
those of the command and of tables; ``tools/smoke.py`` tries it there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path

__all__ = ["build", "check_sdist", "check_wheel", "main", "try_out"]

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
ENVIRONMENT = ROOT / ".venv-dist"

# What a source distribution has beside the files that pyproject.toml includes.
ALWAYS = {"LICENSE", "PKG-INFO", "README.md", "pyproject.toml", ".gitignore"}
# No part of a path in either of them.
UNWANTED = {"__pycache__", ".venv", "results", "node_modules", ".hypothesis", ".pytest_cache"}
# Pictures and results would make them larger than this many bytes.
LARGEST = 1_500_000


def build(folder: Path) -> tuple[Path, Path]:
    """Build both into a folder, each in an environment of its own; the wheel and the sdist."""
    command = [sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)]
    # Holds for what a build installs for itself, too.
    subprocess.run(command, check=True, env={**os.environ, "PIP_CONSTRAINT": str(CONSTRAINTS)})
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def check_wheel(wheel: Path) -> None:
    """A wheel has all files of the package, its licence, and nothing else.

    Raises:
        ValueError: It has too much, or too little.
    """
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    package = {name for name in names if name.startswith("einet/")}
    expected = {
        path.relative_to(ROOT / "src").as_posix() for path in _files(ROOT / "src" / "einet")
    }
    _require_same(wheel, package, expected)
    described = {name for name in names - package if ".dist-info/" in name}
    _require_same(wheel, names - package, described)
    if not any(name.endswith(".dist-info/licenses/LICENSE") for name in described):
        raise ValueError(f"{wheel.name} has no licence beside the package: {sorted(described)}")
    _check_each(wheel, names)


def check_sdist(sdist: Path, included: set[str]) -> None:
    """A source distribution has the package and what was asked for, without results or caches.

    Args:
        sdist: The archive.
        included: The files and folders at its top, beside those that every one has.

    Raises:
        ValueError: It has too much, or too little.
    """
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    _require_same(sdist, {name.partition("/")[0] for name in names}, included | ALWAYS)
    package = {name for name in names if name.startswith("src/")}
    expected = {path.relative_to(ROOT).as_posix() for path in _files(ROOT / "src" / "einet")}
    _require_same(sdist, package, expected)
    _check_each(sdist, names)


def try_out(archive: Path) -> None:
    """Install an archive into a clean environment, and try it without and with extras."""
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    venv.create(ENVIRONMENT, with_pip=True)
    scripts = ENVIRONMENT / ("Scripts" if os.name == "nt" else "bin")
    python, smoke = scripts / "python", Path(__file__).with_name("smoke.py")
    # The repository must not be found beside what was installed.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    install = [python, "-m", "pip", "install", "-q", "--no-compile", "-c", CONSTRAINTS]
    subprocess.run([*install, "pip"], check=True, env=environment)
    # Python's own pip may be too old to know of it.
    install += ["--build-constraint", CONSTRAINTS]
    with tempfile.TemporaryDirectory() as folder:
        for trial, wanted in (("bare", ""), ("extras", "[cli,tables]")):
            subprocess.run([*install, f"{archive}{wanted}"], check=True, env=environment)
            program = [python, "-W", "error", smoke, trial, folder]
            subprocess.run(program, check=True, env=environment, cwd=folder)
    shutil.rmtree(ENVIRONMENT)


def _files(folder: Path) -> list[Path]:
    found = (path for path in folder.rglob("*") if "__pycache__" not in path.parts)
    return [path for path in found if path.is_file()]


def _require_same(archive: Path, found: set[str], expected: set[str]) -> None:
    if found != expected:
        lacking, beyond = sorted(expected - found), sorted(found - expected)
        raise ValueError(f"{archive.name} lacks {lacking} and should not have {beyond}")


def _check_each(archive: Path, names: set[str]) -> None:
    unwanted = sorted(name for name in names if UNWANTED & set(name.split("/")))
    unwanted += sorted(name for name in names if name.endswith((".pyc", ".einet")))
    if unwanted:
        raise ValueError(f"{archive.name} should not have {unwanted}")
    if archive.stat().st_size > LARGEST:
        raise ValueError(f"{archive.name} has {archive.stat().st_size} bytes, over {LARGEST}")


def main() -> None:
    """Build both, look into them, install and try them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    asked = project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    folder = ROOT / "dist"
    shutil.rmtree(folder, ignore_errors=True)
    wheel, sdist = build(folder)
    check_wheel(wheel)
    check_sdist(sdist, {name.strip("/") for name in asked})
    for archive in (wheel, sdist):
        print(f"Trying {archive.name} ({archive.stat().st_size:,} bytes) ...", flush=True)
        try_out(archive)
    print("Both are good; they lie in dist/.")


if __name__ == "__main__":
    main()
