"""Every public definition says what it is; what overrides another may leave it to that one."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import einet


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
