r"""Answers to questions: from a text to a number.

.. math:: P(A \mid B) = \frac{\sum_{b \in boxes(A \land B)} P(b)}{\sum_{b \in boxes(B)} P(b)}

Every sum is over boxes that do not overlap, and every term is exact under the model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from einet.tables.constraints import Box
from einet.tables.query.algebra import Formula, all_of, disjoint_boxes
from einet.tables.query.column_answers import answer_about
from einet.tables.query.conditional import Conditional
from einet.tables.query.errors import QueryError
from einet.tables.query.meaning import column_of, formula_of
from einet.tables.query.parser import parse, parse_condition
from einet.tables.query.source import Mass, Source
from einet.tables.query.syntax import Question

__all__ = ["Answer", "ask", "condition_boxes"]


@dataclass(frozen=True)
class Answer:
    """What came out.

    Attributes:
        query: The question.
        kind: ``probability``, ``mean``, ``median``, ``quantile``, ``interval``, ``mode`` or
            ``distribution``.
        value: A number; a value of the column; two of them for an interval; for a distribution, the
            probability of each value, or some quantiles by their shares.
        condition: The probability of what was known; None where nothing was, or where a continuous
            column was held at one value, which has a density.
        event: The boxes of what was known.

    Example:
        >>> import pandas, einet
        >>> frame = pandas.DataFrame({"a": ["x", "y"] * 30, "b": ["x", "y"] * 30})
        >>> answer = einet.TableModel.fit(frame, epochs=3).query("P(a=x or a=y | b=x)")
        >>> print(answer, answer.kind, answer.condition > 0.4)
        1 probability True
    """

    query: str
    kind: str
    value: Any
    condition: float | None
    event: Sequence[Box] = field(default=(), repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """The answer as JSON can hold it.

        Example:
            >>> Answer("interval(0.9, age)", "interval", (20, 60), None).to_dict()["value"]
            [20, 60]
        """
        value = self.value
        if isinstance(value, dict):
            value = {str(key): _plain(part) for key, part in value.items()}
        elif isinstance(value, tuple):
            value = [_plain(part) for part in value]
        return {
            "query": self.query,
            "kind": self.kind,
            "value": _plain(value),
            "condition": self.condition,
        }

    def __str__(self) -> str:
        if isinstance(self.value, dict):
            width = max(len(str(key)) for key in self.value)
            lines = (f"{key!s:<{width}}  {_shown(part)}" for key, part in self.value.items())
            return "\n".join(lines)
        if isinstance(self.value, tuple):
            return " to ".join(map(_shown, self.value))
        return _shown(self.value)


def ask(source: Source, text: str) -> Answer:
    """The answer to a question.

    Args:
        source: What is asked, such as a model of a table.
        text: The question, such as ``P(income='>50K' | 30<=age<40)``, ``E(age | sex=Female)``,
            ``median(hours)``, ``quantile(0.9, hours)``, ``interval(0.9, hours)``, ``mode(job)`` or
            ``distribution(job)``.

    Raises:
        QueryError: The question cannot be read, or not be answered; it says where.

    Example:
        >>> from einet.tables import AskedColumn, Mass
        >>> class Coins(Source):  # two of them
        ...     sides = ("heads", "tails")
        ...
        ...     @property
        ...     def columns(self):
        ...         return {name: AskedColumn(name, "category", self.sides) for name in "ab"}
        ...
        ...     def measure(self, events):
        ...         def share(box):
        ...             return math.prod(len(part.values) / 2 for (part,) in box.values())
        ...
        ...         return [Mass(0, math.log(sum(map(share, event)))) for event in events]
        >>> print(ask(Coins(), "P(a=heads | a=heads or b=heads)"))
        0.666667
    """
    question = parse(text)
    formula: Formula = True
    if question.condition is not None:
        formula = formula_of(question.condition, source.columns, text)
    event = _boxes(source, formula, text)
    if question.function == "probability":
        assert question.event is not None
        asked = formula_of(question.event, source.columns, text)
        both = _boxes(source, all_of([asked, formula]), text)
        joint, whole = source.measure([both, event])
        _check_possible(question, whole)
        value: Any = _ratio(question, joint, whole)
    else:
        assert question.column is not None
        column = column_of(question.column, source.columns, text)
        known = Conditional(source, column, event)
        whole = known.whole
        _check_possible(question, whole)
        value = answer_about(known, question)
    has_chance = question.condition is not None and not whole.points
    condition = math.exp(min(0.0, whole.log)) if has_chance else None
    return Answer(text, question.function, value, condition, event)


def condition_boxes(source: Source, text: str) -> list[Box]:
    """The boxes of a condition by itself, such as ``sex=Female, age<40``.

    Args:
        source: Whose columns it is about.
        text: The condition.
    """
    return _boxes(source, formula_of(parse_condition(text), source.columns, text), text)


def _boxes(source: Source, formula: Formula, text: str) -> list[Box]:
    domains = {name: column.domain for name, column in source.columns.items()}
    try:
        return disjoint_boxes(formula, domains)
    except ValueError as error:
        raise QueryError(f"this condition is too involved: {error}", text, 0) from None


def _check_possible(question: Question, whole: Mass) -> None:
    if whole.log == -math.inf:
        place = question.places[1]
        raise QueryError("the condition has probability 0 under the model", question.text, place)


def _ratio(question: Question, joint: Mass, whole: Mass) -> float:
    if joint.log == -math.inf:
        return 0.0
    if joint.points != whole.points:
        raise QueryError(
            "this asks for one value of a continuous column, which has probability 0; ask for a "
            "range, such as 1.5 <= x < 2.5",
            question.text,
            question.places[0],
        )
    return math.exp(min(0.0, joint.log - whole.log))


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, bool | int | float | str | list | dict) or value is None:
        return value
    return str(value)


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
