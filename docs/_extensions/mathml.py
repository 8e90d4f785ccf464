"""Formulas as MathML, which browsers draw by themselves: no script, and nothing from a network.

The conversion is the one that docutils has. A formula that it does not know is a warning, and so an
error of the build.
"""

from __future__ import annotations

import re

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

__all__ = ["setup", "to_mathml"]


# What docutils does not know, and browsers do by themselves: sizes of brackets.
_UNKNOWN = {r"\\dots\b": r"\\ldots", r"\\[bB]igg?[lr]?(?![a-zA-Z])": ""}


def to_mathml(formula: str, as_block: bool) -> str:
    """One formula of LaTeX as MathML.

    Raises:
        MathError: It has a command that is not known.
    """
    for unknown, known in _UNKNOWN.items():
        formula = re.sub(unknown, known, formula)
    return str(latex2mathml.tex2mathml(formula, as_block=as_block))


def _draw(translator: HTML5Translator, node: nodes.Element, as_block: bool) -> None:
    try:
        text = to_mathml(node.astext(), as_block)
    except (AttributeError, MathError) as error:  # the former of malformed ones
        logger = logging.getLogger(__name__)
        logger.warning("a formula cannot be drawn: %s", error, location=node, type="mathml")
        text = translator.encode(node.astext())
    translator.body.append(f'<div class="math">{text}</div>' if as_block else text)
    raise nodes.SkipNode


def _inline(translator: HTML5Translator, node: nodes.Element) -> None:
    _draw(translator, node, as_block=False)


def _block(translator: HTML5Translator, node: nodes.Element) -> None:
    _draw(translator, node, as_block=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx: what `html_math_renderer = "mathml"` means."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
