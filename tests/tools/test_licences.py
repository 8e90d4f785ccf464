"""The table of licences is complete, true, and without bad surprises."""

import re
from importlib import metadata

import pytest

from tools import licences

# Licences that ask for no more than to be named.
PERMISSIVE = {
    "0BSD",
    "Apache-2.0",
    "BSD",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-CMU",
    "PSF-2.0",
    "Zlib",
}


def test_the_table_has_exactly_what_is_pinned():
    assert {name: version for name, version, _, _ in licences.read_table()} == licences.pinned()
    assert len(licences.read_table()) == len(licences.pinned())


def test_what_is_installed_with_einet_is_permissive():
    for name, _, licence, user in licences.read_table():
        assert user in (licences.EVERYONE, licences.EXTRAS, licences.DEVELOPMENT)
        parts = set(re.split(r" (?:AND|OR) ", licence.replace(" WITH LLVM-exception", "")))
        assert parts != {"unknown"}, name
        if user != licences.DEVELOPMENT:
            assert parts <= PERMISSIVE, f"{name} is under {licence}"


def test_the_table_says_what_packages_say():
    compared = 0
    for name, version, licence, _ in licences.read_table():
        try:
            package = metadata.metadata(name)
        except metadata.PackageNotFoundError:
            continue  # what builds the package
        if package["Version"].split("+")[0] == version:
            assert licences.licence_of(package) == licence
            compared += 1
    assert compared > 20


def test_direct_requirements_are_for_whom_pyproject_says():
    used = {name: user for name, _, _, user in licences.read_table()}
    assert used["torch"] == used["numpy"] == licences.EVERYONE
    assert used["pillow"] == used["typer"] == licences.EXTRAS
    assert used["pytest"] == used["hatchling"] == licences.DEVELOPMENT


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"License-Expression": "MIT OR Apache-2.0", "License": "other"}, "MIT OR Apache-2.0"),
        ({"License": "Apache 2.0"}, "Apache-2.0"),
        ({"License": "x" * 4000, "Classifier": "License :: OSI Approved :: BSD License"}, "BSD"),
        ({"License": "BSD-3-Clause", "Classifier": "License :: OSI Approved :: BSD License"},
         "BSD-3-Clause"),
        ({"Classifier": "Topic :: Games"}, "unknown"),
    ],
)  # fmt: skip
def test_packages_declare_licences_in_several_ways(fields: dict[str, str], expected: str):
    from email.message import Message

    package = Message()
    for key, value in fields.items():
        package[key] = value
    assert licences.licence_of(package) == expected  # type: ignore[arg-type]
