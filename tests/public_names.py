"""What users import: every public name of the library, in one place.

The tests hold each of them documented with an example, and the API reference is made of them.

    python -m tests.public_names        # all names, and where they lie
    python -m tests.public_names rest   # those without an example, and the module that defines them
"""

from __future__ import annotations

import ast
import doctest
import functools
import importlib
import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

__all__ = [
    "MODULES",
    "PublicName",
    "members",
    "names",
    "undocumented_arguments",
    "without_example",
]

#: The modules whose names are public, most used first. What several of them export belongs to the
#: first. None stands for all of ``__all__``; other modules have rooms behind the counter, too.
MODULES: dict[str, tuple[str, ...] | None] = {
    "einet": None,
    "einet.tables": None,
    "einet.structures": None,
    "einet.families": None,
    "einet.inference": None,
    "einet.storage": None,
    "einet.storage.reference": None,
    "einet.data": None,
    "einet.data.debd": None,
    "einet.data.images": None,
    "einet.data.images.array": None,
    "einet.data.images.celeba": None,
    "einet.data.images.folder": None,
    "einet.data.images.idx": None,
    "einet.data.images.svhn": None,
    "einet.imaging": None,
    "einet.imaging.masks": None,
    "einet.imaging.pictures": None,
    "einet.imaging.reading": None,
    "einet.distributed": None,
    # Who adds a kind of sums needs these; circuits and leaves are what others make of them.
    "einet.layers": (
        "Compiler",
        "Descent",
        "EinsumLayer",
        "LinearLayer",
        "MixingLayer",
        "SumLayer",
        "Values",
        "Visits",
        "register_sums",
    ),
}


@dataclass(frozen=True)
class PublicName:
    """One public function or class.

    Attributes:
        module: Where users import it from.
        name: Its name there.
        value: The function or class itself.
    """

    module: str
    name: str
    value: Any

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


def names() -> list[PublicName]:
    """All public functions and classes, each once; modules and constants have no docstring."""
    found: dict[int, PublicName] = {}
    for module, listed in MODULES.items():
        for name in listed or importlib.import_module(module).__all__:
            value = getattr(importlib.import_module(module), name)
            if inspect.isclass(value) or inspect.isfunction(value):
                found.setdefault(id(value), PublicName(module, name, value))
    return list(found.values())


def members(cls: type) -> Iterator[tuple[str, list[Any]]]:
    """The public methods and properties of a class that this library wrote.

    With each come its definitions, that of the class itself first, then those it overrides.
    """
    ours = [each for each in cls.__mro__ if each.__module__.startswith("einet.")]
    seen = dict.fromkeys(name for each in ours for name in vars(each) if not name.startswith("_"))
    for name in seen:
        defined = [vars(each)[name] for each in ours if name in vars(each)]
        if _is_code(defined[0]):
            yield name, [each for each in defined if _is_code(each)]


def without_example(public: PublicName) -> Iterator[tuple[str, str]]:
    """What has no example of a public name and its members, and the module that defines it first.

    A class shows an example of its own. That of a function names the function, and a member is
    named in its own example, in that of a definition which it overrides, or in that of its class.
    """
    is_class = inspect.isclass(public.value)
    if not (_names_of(public.value) if is_class else public.name in _names_of(public.value)):
        yield str(public), public.value.__module__
    if is_class:
        ours = [each for each in public.value.__mro__ if each.__module__.startswith("einet.")]
        for name, defined in members(public.value):
            if not any(name in _names_of(each) for each in [*defined, *ours]):
                yield f"{public}.{name}", _function(defined[-1]).__module__


def undocumented_arguments(public: PublicName) -> Iterator[str]:
    """Arguments of a public name and its members of which no docstring has a line.

    The line may be that of a definition which it overrides. Those of a class are in its docstring.
    """
    value = public.value
    if not inspect.isclass(value):
        yield from _unsaid(str(public), value, [value])
        return
    ours = [each for each in value.__mro__ if each.__module__.startswith("einet.")]
    if "__init__" in vars(value) and not issubclass(value, BaseException):
        yield from _unsaid(str(public), value, ours)
    for name, defined in members(value):
        function = inspect.unwrap(_function(defined[0]))
        # A question of a posterior is a function that takes the posterior first.
        is_method = not isinstance(defined[0], staticmethod | classmethod | property)
        yield from _unsaid(f"{public}.{name}", function, map(_function, defined), is_method)


def _unsaid(name: str, called: Any, said: Iterable[Any], is_method: bool = False) -> Iterator[str]:
    parameters = list(inspect.signature(called).parameters)[is_method:]
    texts = [each.__doc__ or "" for each in said]
    for parameter in parameters:
        line = rf"^ +(\w+, )*\**{parameter}(, \w+)*:"
        is_plain = parameter not in ("self", "cls") and not parameter.startswith("_")
        if is_plain and not any(re.search(line, text, re.MULTILINE) for text in texts):
            yield f"{name}({parameter})"


def _function(defined: Any) -> Any:
    """The function of a method or a property."""
    for wrapper in ("__func__", "fget", "func"):
        defined = getattr(defined, wrapper, defined)
    return defined


def _is_code(defined: Any) -> bool:
    kinds = (staticmethod, classmethod, property, functools.cached_property)
    return isinstance(defined, kinds) or inspect.isfunction(defined)


def _names_of(defined: Any) -> frozenset[str]:
    """The names in the example of a definition itself; an inherited one is that of another."""
    if isinstance(defined, functools.cached_property):
        # Doctest does not look at these, so that an example of theirs would never run.
        return frozenset()
    function = getattr(defined, "__func__", defined)
    text = vars(function).get("__doc__") if inspect.isclass(function) else function.__doc__
    return _names_in(text or "")


@functools.cache
def _names_in(docstring: str) -> frozenset[str]:
    """All names in the code of a docstring's examples, and the errors that it shows."""
    found: set[str] = set()
    for example in doctest.DocTestParser().get_examples(docstring):
        if example.options.get(doctest.SKIP):
            continue
        for node in ast.walk(ast.parse(example.source)):
            if isinstance(node, ast.Name):
                found.add(node.id)
            elif isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.FunctionDef):
                found.add(node.name)
        if example.exc_msg:
            found.add(example.exc_msg.partition(":")[0].rpartition(".")[2].strip())
    return frozenset(found)


if __name__ == "__main__":
    for each in names():
        for line in without_example(each) if "rest" in sys.argv else [(str(each),)]:
            print(*line)
