"""Families by name, under which saved files record them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, TypeVar

from torch import Tensor

from einet.families.base import ExponentialFamily

__all__ = ["FAMILIES", "check_registered", "family_from_config", "register"]

# Not bound to families: what else is given gets an error that says more.
Kind = TypeVar("Kind")

#: Every registered family by its class name.
FAMILIES: dict[str, type[ExponentialFamily]] = {}


def register(family: Kind) -> Kind:
    """Make a family of one's own known by its class name, so that its models can be saved.

    A program that loads such a model registers the family before. Registering a class once more
    changes nothing; two classes cannot share a name.

    Args:
        family: A class derived from :class:`ExponentialFamily`, all of whose methods are defined.

    Returns:
        The class itself, so that this can be used as a decorator.

    Example:
        >>> import einet
        >>> einet.families.register(einet.Poisson) is einet.Poisson
        True
    """
    if not (inspect.isclass(family) and issubclass(family, ExponentialFamily)):
        raise TypeError(f"family must be a class derived from ExponentialFamily, got {family!r}")
    name = family.__name__
    if inspect.isabstract(family):
        missing = ", ".join(sorted(family.__abstractmethods__))
        raise TypeError(f"family must define all abstract methods, but {name} lacks {missing}")
    known = FAMILIES.setdefault(name, family)
    if known is not family:
        raise ValueError(
            f"family must have a name of its own, but {name} is registered already: "
            f"{known.__module__}.{known.__qualname__}"
        )
    return family


def check_registered(family: ExponentialFamily) -> None:
    """Raise unless a saved family could be found again by its name.

    Args:
        family: The family.

    Example:
        >>> import einet
        >>> check_registered(einet.Poisson())
        >>> class Own(einet.Poisson): ...
        >>> check_registered(Own())
        Traceback (most recent call last):
        ValueError: the family Own could not be loaded again: register it by ...
    """
    name = type(family).__name__
    if FAMILIES.get(name) is not type(family):
        raise ValueError(
            f"the family {name} could not be loaded again: register it by "
            f"einet.families.register({name})"
        )


def family_from_config(
    name: str, config: Mapping[str, Any], hyper: Mapping[str, Tensor]
) -> ExponentialFamily:
    """A family as it was saved: from its class name, its ``config()`` and its ``hyper`` tensors.

    Nothing is derived or checked anew as by the constructor: hyper-parameters that were read off
    data come back as they were.

    Args:
        name: The name of its class.
        config: What its ``config()`` said.
        hyper: Its hyper-parameters by name.

    Example:
        >>> from einet import Categorical
        >>> saved = Categorical([2, 3])
        >>> family_from_config("Categorical", saved.config(), saved.hyper)
        Categorical(num_categories=<2 values>, min_probability=1e-06)
    """
    if name not in FAMILIES:
        raise ValueError(
            f"there is no family {name!r}; the families are {', '.join(sorted(FAMILIES))}. "
            "One of your own is made known by einet.families.register"
        )
    kind = FAMILIES[name]
    if set(hyper) != set(kind.hyperparameters):
        raise ValueError(
            f"{name} has the hyper-parameters {', '.join(kind.hyperparameters)}, "
            f"got {', '.join(hyper) or 'none'}"
        )
    family = object.__new__(kind)
    vars(family).update(config)
    return family.with_hyperparameters(dict(hyper))
