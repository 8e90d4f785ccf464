"""Families by name: the library's, and one's own."""

from collections.abc import Iterator

import pytest

import einet
from einet.families import FAMILIES, check_registered, family_from_config, register


@pytest.fixture(autouse=True)
def names_as_before() -> Iterator[None]:
    before = dict(FAMILIES)
    yield
    FAMILIES.clear()
    FAMILIES.update(before)


class Coin(einet.Bernoulli):
    """A family of one's own."""


class Unfinished(einet.ExponentialFamily):
    """A family that lacks its methods."""


def test_a_family_is_found_by_its_name():
    with pytest.raises(
        ValueError, match=r"family Coin could not .*einet\.families\.register\(Coin\)"
    ):
        check_registered(Coin())
    assert register(Coin) is Coin
    assert register(Coin) is Coin  # once more is no mistake
    check_registered(Coin())
    family = Coin(0.25)
    again = family_from_config("Coin", family.config(), family.hyper)
    assert type(again) is Coin
    assert again.min_probability == 0.25


def test_names_are_taken_once():
    register(Coin)
    other = type("Coin", (einet.Poisson,), {})
    with pytest.raises(ValueError, match=r"Coin is registered already: .*test_registry\.Coin"):
        register(other)
    with pytest.raises(
        ValueError, match=r"Beta is registered already: einet\.families\.beta\.Beta"
    ):
        register(type("Beta", (einet.Beta,), {}))
    assert FAMILIES["Coin"] is Coin
    with pytest.raises(ValueError, match="family Coin could not be loaded again"):
        check_registered(other())


@pytest.mark.parametrize("wrong", [int, einet.Poisson(), "Poisson", None], ids=repr)
def test_only_families_are_registered(wrong: object):
    with pytest.raises(TypeError, match="family must be a class derived from ExponentialFamily"):
        register(wrong)


def test_unfinished_families_are_refused():
    with pytest.raises(TypeError, match="Unfinished lacks A, T, constrain"):
        register(Unfinished)
    assert "Unfinished" not in FAMILIES


def test_unknown_families_are_named():
    match = r"no family 'Cauchy'; the families are Bernoulli, .*einet\.families\.register"
    with pytest.raises(ValueError, match=match):
        family_from_config("Cauchy", {}, {})
