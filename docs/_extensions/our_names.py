"""Our names in docstrings and signatures: each must exist, and leads to its page if it has one.

Docstrings speak of names of all rooms, while the reference shows the public ones. So a name that is
on no page is no mistake as long as it exists. One that is known by several paths (`einet.Table` and
`einet.tables.Table`, or a method that is inherited) leads to where it is described.
"""

from __future__ import annotations

import pkgutil
import re
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.nodes import make_refnode

__all__ = ["escape_sizes", "part_types", "places", "setup"]

# Methods that scikit-learn and torch need, and nobody calls by hand.
_PLUMBING = re.compile(r"set_\w+_request|[gs]et_extra_state|extra_repr")


def places(name: str) -> list[str] | None:
    """The paths by which an object of ours may be described, or None if there is no such object."""
    try:
        found = pkgutil.resolve_name(name)
    except (AttributeError, ImportError, ValueError):
        # A field of a dataclass or of an instance is an annotation of its class.
        owner, _, field = name.rpartition(".")
        try:
            annotations = getattr(pkgutil.resolve_name(owner), "__annotations__", {})
        except (AttributeError, ImportError, ValueError):
            return None
        return [name] if field in annotations else None
    found = getattr(found, "fget", None) or found
    module = getattr(found, "__module__", None)
    qualname = getattr(found, "__qualname__", None)
    return [name, f"{module}.{qualname}"] if module and qualname else [name]


def escape_sizes(line: str) -> str:
    """A line of a docstring in which ``|T|`` is a size, not a substitution of reStructuredText."""
    pieces = re.split(r"(``.*?``|`[^`]*`)", line)
    return "".join(
        piece if index % 2 else re.sub(r"\|([^|\s][^|]*)\|", r"\\|\1\\|", piece)
        for index, piece in enumerate(pieces)
    )


def part_types(lines: list[str]) -> list[str]:
    """Lines in which a type that was put right behind a heading stands before it."""
    lines = list(lines)
    for index in range(len(lines) - 1):
        heading, following = lines[index : index + 2]
        if heading.startswith(".. rubric::") and following.startswith(":rtype:"):
            lines[index : index + 2] = [following, "", heading]
    return lines


def _find(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, content: nodes.TextElement
) -> nodes.Node | None:
    target = node.get("reftarget", "")
    if node.get("refdomain") != "py" or not target.startswith("einet"):
        return None
    known = places(target)
    if known is None:
        return None  # Sphinx then says that there is no such name
    described = env.domains.python_domain.objects
    for place in known:
        if place in described:
            entry = described[place]
            source = node.get("refdoc", env.docname)
            return make_refnode(app.builder, source, entry.docname, entry.node_id, content, place)
    return content


def _escape(app: Sphinx, what: str, name: str, found: Any, options: Any, lines: list[str]) -> None:
    lines[:] = [line if line.lstrip().startswith(">>>") else escape_sizes(line) for line in lines]


def _part(app: Sphinx, what: str, name: str, found: Any, options: Any, lines: list[str]) -> None:
    lines[:] = part_types(lines)


def _skip(app: Sphinx, what: str, name: str, found: Any, skip: bool, options: Any) -> bool | None:
    return True if _PLUMBING.fullmatch(name) else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("missing-reference", _find)
    # Before napoleon, which reads sections.
    app.connect("autodoc-process-docstring", _escape, priority=400)
    # After sphinx-autodoc-typehints, which adds types.
    app.connect("autodoc-process-docstring", _part, priority=900)
    app.connect("autodoc-skip-member", _skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
