"""Checks of what a network is to be made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from einet._checks import shown
from einet._memory import check_memory
from einet.families import ExponentialFamily
from einet.layers.compiler import COMPILERS
from einet.structures import RegionGraph

__all__ = ["check_dtype", "check_families", "check_room", "check_sums", "steep_leaves"]


def check_sums(sums: Any, num_sums: int, num_leaves: int) -> None:
    """Raise unless the kind of sums is known and fits the numbers of entries."""
    if not isinstance(sums, str) or sums not in COMPILERS:
        raise ValueError(
            f"sums must be one of {', '.join(map(repr, COMPILERS))}, got {shown(sums)}; others are "
            "made known by einet.layers.register_sums"
        )
    if COMPILERS[sums].equal_entries and num_leaves != num_sums:
        raise ValueError(
            f"{sums} sums multiply entries of leaves and of sums one by one: num_leaves must equal "
            f"num_sums ({num_sums}), got {num_leaves}"
        )


def check_dtype(dtype: Any) -> None:
    """Raise unless parameters can be of this type."""
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point or dtype.itemsize < 2:
        raise TypeError(f"dtype must be torch.float32 or torch.float64, got {shown(dtype)}")


def check_room(
    graph: RegionGraph,
    family: ExponentialFamily | Sequence[ExponentialFamily],
    sums: str,
    num_sums: int,
    num_leaves: int,
    num_classes: int,
) -> None:
    """Raise where the parameters cannot fit any memory that there is.

    Counted is no more than a network surely has: one partition for each region that is split, and
    the numbers of each leaf.
    """
    weights = num_classes
    if graph.partitions:
        entries = min(num_sums, num_leaves)
        inner = len(graph.scopes) - len(graph.leaves) - 1
        products = entries**2 if sums == "einsum" else entries
        weights = (num_classes + inner * num_sums) * products
    families = [family] if isinstance(family, ExponentialFamily) else family
    each = min(one.num_statistics for one in families)
    cells = sum(graph.scopes[leaf].bit_count() for leaf in graph.leaves)
    names = "num_sums, num_leaves, num_classes and the family's number of states"
    check_memory(names, 4 * (weights + cells * num_leaves * each))


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
            f"each variable, got {shown(family)}"
        )
    if len(family) != num_variables:
        raise ValueError(
            f"family must hold one family for each of the {num_variables} variables, "
            f"got {len(family)}"
        )
