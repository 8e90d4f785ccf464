"""Every public definition says what it is, and what users import shows how to use it.

What overrides another may leave both to that one.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import einet
from tests.public_names import (
    MODULES,
    PublicName,
    names,
    undocumented_arguments,
    without_example,
)

# Fused kernels run on a GPU: an example would not run everywhere. `tests/layers` tests them.
NEED_A_GPU = {
    f"einet.layers.{layer}.{method}"
    for layer in ("SumLayer", "EinsumLayer", "LinearLayer", "MixingLayer")
    for method in ("propagate_fused", "backpropagate_fused", "choose")
}


def modules() -> Iterator[object]:
    for module in pkgutil.walk_packages(einet.__path__, "einet."):
        # Kernels are called through the modules that launch them.
        if ".triton" not in module.name:
            yield importlib.import_module(module.name)


def silent(module: object) -> Iterator[str]:
    """The public definitions of a module that nobody says anything of."""
    name = module.__name__  # type: ignore[attr-defined]
    if not module.__doc__:
        yield name
    for attribute, value in vars(module).items():
        if attribute.startswith("_") or getattr(value, "__module__", None) != name:
            continue
        if inspect.isclass(value):
            if not vars(value).get("__doc__"):
                yield f"{name}.{attribute}"
            for member, defined in vars(value).items():
                function = getattr(defined, "fget", getattr(defined, "__func__", defined))
                is_public = inspect.isfunction(function) and not member.startswith("_")
                if is_public and not inspect.getdoc(getattr(value, member)):
                    yield f"{name}.{attribute}.{member}"
        elif inspect.isfunction(value) and not value.__doc__:
            yield f"{name}.{attribute}"


def test_public_definitions_have_docstrings():
    assert [name for module in modules() for name in silent(module)] == []


def test_public_names_have_examples():
    lacking = {name for public in names() for name, _ in without_example(public)}
    # Both ways: a name that has got an example is no exception any more.
    assert lacking == NEED_A_GPU


def test_arguments_of_public_names_are_documented():
    assert [line for public in names() for line in undocumented_arguments(public)] == []


def test_modules_that_public_ones_export_are_public():
    exported = {
        value.__name__
        for module in MODULES
        for name in importlib.import_module(module).__all__
        if inspect.ismodule(value := getattr(importlib.import_module(module), name))
    }
    assert exported - set(MODULES) == set()


def test_what_counts_as_an_example():
    class Silent:
        """Nothing to see.

        >>> Silent().shown()  # doctest: +SKIP
        """

        def shown(self):
            """What is skipped is no example."""

        def used(self, said, *unsaid):
            """And this one is.

            Args:
                said: Has a line.

            >>> Silent().used()
            """

        @property
        def error(self):
            """Raised, and shown as what was expected.

            >>> 1 / 0
            Traceback (most recent call last):
            ZeroDivisionError: division by zero
            """

    Silent.__module__ = "einet.silent"
    public = PublicName("einet", "Silent", Silent)
    found = [name for name, _ in without_example(public)]
    assert found == ["einet.Silent", "einet.Silent.shown", "einet.Silent.error"]
    assert list(undocumented_arguments(public)) == ["einet.Silent.used(unsaid)"]
