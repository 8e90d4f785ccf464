"""Checks of what a network is to be made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from einet.families import ExponentialFamily
from einet.layers.compiler import COMPILERS
from einet.structures import RegionGraph

__all__ = ["check_families", "check_sums", "steep_leaves"]


def check_sums(sums: Any, num_sums: int, num_leaves: int) -> None:
    """Raise unless the kind of sums is known and fits the numbers of entries."""
    if sums not in COMPILERS:
        raise ValueError(
            f"sums must be one of {', '.join(map(repr, COMPILERS))}, got {sums!r}; others are made "
            "known by einet.layers.register_sums"
        )
    if COMPILERS[sums].equal_entries and num_leaves != num_sums:
        raise ValueError(
            f"{sums} sums multiply entries of leaves and of sums one by one: num_leaves must equal "
            f"num_sums ({num_sums}), got {num_leaves}"
        )


def steep_leaves(
    graph: RegionGraph, family: ExponentialFamily | Sequence[ExponentialFamily]
) -> list[int]:
    """Leaves whose densities may differ by more than float32 can hold."""

    def is_steep(region: int) -> bool:
        first, *others = graph.variables(region)
        of_first = family if isinstance(family, ExponentialFamily) else family[first]
        return bool(others) or not of_first.bounded

    return [region for region in graph.leaves if is_steep(region)]


def check_families(family: Any, num_variables: int) -> None:
    """Raise unless there is one family for all variables or one for each."""
    if isinstance(family, ExponentialFamily):
        return
    if not isinstance(family, Sequence) or not all(
        isinstance(f, ExponentialFamily) for f in family
    ):
        raise TypeError(
            "family must be an exponential family such as einet.Gaussian(), or a list with one for "
            f"each variable, got {family!r}"
        )
    if len(family) != num_variables:
        raise ValueError(
            f"family must hold one family for each of the {num_variables} variables, "
            f"got {len(family)}"
        )
