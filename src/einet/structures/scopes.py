"""Scopes as bitmasks: variable d is bit d of a Python ``int``.

Union, intersection and inclusion of two scopes are then single ``|``, ``&`` and ``==`` on machine
words, which keeps graphs over many thousand variables cheap to build and to check.
"""

from collections.abc import Iterable

import numpy as np

__all__ = ["describe_scope", "scope_of", "variables_of"]


def scope_of(variables: Iterable[int]) -> int:
    """The bitmask of some non-negative variables; repetitions have no effect.

    >>> scope_of([0, 1, 3])
    11
    """
    # One byte at a time: OR-ing 1 << d into a growing int would be quadratic in the scope size.
    octets = bytearray()
    for variable in variables:
        position = variable >> 3
        if position >= len(octets):
            octets.extend(bytes(position + 1 - len(octets)))
        octets[position] |= 1 << (variable & 7)
    return int.from_bytes(octets, "little")


def variables_of(scope: int) -> tuple[int, ...]:
    """The variables of a bitmask, ascending.

    >>> variables_of(11)
    (0, 1, 3)
    """
    octets = scope.to_bytes((scope.bit_length() + 7) // 8, "little")
    bits = np.unpackbits(np.frombuffer(octets, dtype=np.uint8), bitorder="little")
    return tuple(np.flatnonzero(bits).tolist())


def describe_scope(scope: int, limit: int = 4) -> str:
    """A scope in a few characters: runs of variables, at most ``limit`` of them.

    >>> describe_scope(scope_of([0, 1, 4, 5, 6, 7]))
    '{0, 1, 4-7}'
    >>> describe_scope(scope_of(range(0, 100, 2)))
    '{0, 2, 4, ...; 50 variables}'
    """
    pieces: list[str] = []
    variables = variables_of(scope)
    start = 0
    for end in range(1, len(variables) + 1):
        if end < len(variables) and variables[end] == variables[end - 1] + 1:
            continue
        first, last = variables[start], variables[end - 1]
        if last - first < 2:
            pieces.extend(str(variable) for variable in variables[start:end])
        else:
            pieces.append(f"{first}-{last}")
        start = end
        if len(pieces) > limit:
            return "{" + ", ".join(pieces[: limit - 1]) + f", ...; {len(variables)} variables}}"
    return "{" + ", ".join(pieces) + "}"
