"""Latency: milliseconds of questions about one row on a CPU, and seconds of learning.

The model is that of all training rows. Every question is asked 200 times after some that do not
count, each about another row; medians and the 95th of 100 are kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from table_tasks.data import TABLES as SOURCES
from table_tasks.data import categorical, read, train_and_test
from table_tasks.results import Measured

__all__ = ["METHODS", "TABLES", "measure"]

TABLES = ("adult", "titanic")
METHODS = ("einet", "boosting")
_WARM_UP, _TIMES = 20, 200


def measure(
    table: str, method: str, seed: int, most: int | None = None, device: str = "cpu"
) -> Iterator[Measured]:
    """Times of `query`, `predict_proba` and `impute` for one row."""
    train, test = train_and_test(table, read(table), seed, most=most)
    target = SOURCES[table].target
    x: Any = train.drop(columns=target)
    y: Any = train[target]
    rows = [test.iloc[[n % len(test)]].reset_index(drop=True) for n in range(_WARM_UP + _TIMES)]
    asked = [row.drop(columns=target) for row in rows]
    if method == "boosting":
        from table_tasks.prediction import Boosting

        began = time.perf_counter()
        other = Boosting(seed).fit(x, y)
        seconds = time.perf_counter() - began
        yield from _times("predict_proba", lambda n: other.predict_proba(asked[n]), seconds)
        return
    import einet
    from einet.tables import EinetClassifier

    began = time.perf_counter()
    classifier = EinetClassifier(random_state=seed, device=device).fit(x, y)
    seconds = time.perf_counter() - began
    yield Measured("learning s, classifier", seconds, seconds)
    yield from _times("predict_proba", lambda n: classifier.predict_proba(asked[n]), seconds)
    began = time.perf_counter()
    model = einet.TableModel.fit(train, seed=seed, device=device)
    seconds = time.perf_counter() - began
    yield Measured("learning s, density", seconds, seconds)
    yield from _times("log_prob", lambda n: model.log_prob(rows[n]), seconds)
    # Half of the cells of a row are to be filled in.
    generator = np.random.default_rng(seed)
    holes = [row.mask(generator.random(row.shape) < 0.5) for row in rows]
    yield from _times("impute", lambda n: model.impute(holes[n]), seconds)
    value = str(y.iloc[0])
    questions = [_question(row, target, value) for row in rows]
    yield from _times("query", lambda n: model.query(questions[n]), seconds)


def _question(row: pd.DataFrame, target: str, value: str) -> str:
    """P(target | three other categories of a row)."""
    cells = row.iloc[0].to_dict()
    known = [name for name in categorical(row) if name != target and pd.notna(cells[name])][:3]
    given = ", ".join(f"{name}='{cells[name]}'" for name in known)
    return f"P({target}='{value}' | {given})"


def _times(name: str, ask: Callable[[int], object], seconds: float) -> Iterator[Measured]:
    times = []
    for n in range(_WARM_UP + _TIMES):
        began = time.perf_counter()
        ask(n)
        times.append(1e3 * (time.perf_counter() - began))
    times = times[_WARM_UP:]
    yield Measured(f"{name} ms, median", float(np.median(times)), seconds)
    yield Measured(f"{name} ms, 95th of 100", float(np.quantile(times, 0.95)), seconds)
