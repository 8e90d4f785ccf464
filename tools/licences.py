"""The licences of everything that einet needs, as a table: ``docs/licences.md``.

    .venv/bin/python tools/licences.py            # write the table
    .venv/bin/python tools/licences.py FOLDER     # with packages that lie there too

It covers the versions of constraints.txt. What only builds need is no part of ``.venv``; before
the table is written after a change of versions, such packages go to a folder of their own:

    pip install --no-deps --target FOLDER -c constraints.txt editables
"""

from __future__ import annotations

import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "docs" / "licences.md"
# What sets of packages are called, from those that everybody needs to those that few do.
EVERYONE, EXTRAS, DEVELOPMENT = "everyone", "extras", "development"
# The extras that nobody needs who uses einet.
DEVELOPERS = {"browser", "dev", "docs"}

# SPDX's names for what older packages say in their own words.
_CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
_WORDS = {"Apache 2.0": "Apache-2.0", "BSD 2-Clause License": "BSD-2-Clause"}
# A licence's name, rather than all of its text.
_SHORT = 30
_HEAD = """# Licences

einet itself is under the Apache License 2.0. This is what it needs, and what its development needs:
the versions of `constraints.txt`, with the licences that the packages themselves declare. Those for
`everyone` are installed with einet; `extras` are those of `einet[all]`; `development` is for tests,
checks and builds. What torch brings along on a machine with a GPU, NVIDIA's CUDA libraries, has
terms of its own.

Written by `python tools/licences.py`.

| package | version | licence | for |
| --- | --- | --- | --- |
"""


def pinned() -> dict[str, str]:
    """The packages of constraints.txt and their versions."""
    text = (ROOT / "constraints.txt").read_text()
    lines = (line.split("#")[0].strip() for line in text.splitlines())
    return dict(line.split("==") for line in lines if line)


def licence_of(package: metadata.PackageMetadata) -> str:
    """What a package declares: an expression, a name, or a classifier."""
    expressions, texts, all_classifiers = (
        [str(value) for value in package.get_all(field) or []]
        for field in ("License-Expression", "License", "Classifier")
    )
    if expressions:
        return expressions[0]
    words = "".join(texts).strip()
    classifiers = [
        line.split(" :: ")[-1] for line in all_classifiers if line.startswith("License :: ")
    ]
    found = {_CLASSIFIERS.get(name, name) for name in classifiers if name != "OSI Approved"}
    if words and len(words) <= _SHORT and (not found or found == {"BSD"}):
        return _WORDS.get(words, words)
    return " OR ".join(sorted(found)) or "unknown"


def users() -> dict[str, str]:
    """For whom each package is, by its canonical name: the first set that needs it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    dev = {text for name in DEVELOPERS for text in extras[name]}
    own = {text for name in extras.keys() - DEVELOPERS for text in extras[name]}
    result: dict[str, str] = {}
    for user, texts in ((EVERYONE, project["dependencies"]), (EXTRAS, own), (DEVELOPMENT, dev)):
        for name in _closure({text for text in texts if not text.startswith("einet[")}):
            result.setdefault(name, user)
    return result


def _closure(texts: set[str]) -> set[str]:
    """The packages that requirements ask for, and what those ask for in turn."""
    found: set[str] = set()
    waiting = [Requirement(text) for text in texts]
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        # A GPU's libraries are asked for by markers that say so; they are not pinned.
        if name in found or (wanted.marker and not wanted.marker.evaluate({"extra": ""})):
            continue
        try:
            needs = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        found.add(name)
        waiting += [Requirement(text) for text in needs]
    return found


def rows() -> list[tuple[str, str, str, str]]:
    """Package, version, licence and user, sorted by name."""
    used = users()
    result = []
    for name, version in pinned().items():
        package = metadata.metadata(name)
        if package["Version"].split("+")[0] != version:
            raise SystemExit(f"{name} {package['Version']} is installed, but {version} is pinned")
        user = used.get(canonicalize_name(name), DEVELOPMENT)
        result.append((name, version, licence_of(package), user))
    return sorted(result, key=lambda row: row[0].lower())


def read_table() -> list[tuple[str, str, str, str]]:
    """The rows of the table that is there."""
    lines = re.findall(r"^\| (\S+) \| (\S+) \| (.+) \| (\w+) \|$", TABLE.read_text(), re.MULTILINE)
    return [(name, version, licence, user) for name, version, licence, user in lines[1:]]


def main(folders: list[str]) -> None:
    """Write the table."""
    sys.path += folders
    text = _HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows())
    TABLE.write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
