"""Imputation: 30 % of the cells hidden, in three ways, and filled in again.

Training and test rows have holes alike. Scores are of the hidden cells of test rows: the root of
the mean square error in standard deviations of the column (mean over columns), the share of
categories that are right, and of einet the log-likelihood of the hidden cells together, the share
of hidden numbers in its 90 % intervals, their mean length, and the share that the model itself
gives them: columns of few numbers have no interval of exactly 90 %.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool

from table_tasks.data import categorical, deviation, numeric, read, train_and_test
from table_tasks.encoding import Matrix, as_categories
from table_tasks.results import Measured

__all__ = ["METHODS", "TABLES", "accuracy", "hide", "measure", "normalised_error"]

TABLES = (
    "titanic", "penguins", "mpg", "abalone", "wine_white", "horse_colic", "mammography", "magic",
    "shoppers", "diamonds", "default", "beijing", "adult",
)  # fmt: skip
METHODS = ("einet", "iterative", "knn", "miceforest")
WAYS = ("at random", "given others", "blocks")
SHARE = 0.3
#: Neighbours are searched among so many training rows.
_MOST_NEIGHBOURS, _FORESTS = 5000, 5

Fill = Callable[[pd.DataFrame, pd.DataFrame, int], tuple[pd.DataFrame, float]]


def measure(
    table: str, method: str, seed: int, most: int | None = None, device: str = "cpu"
) -> Iterator[Measured]:
    """Scores of one method on one table."""
    train, test = train_and_test(table, read(table), seed, most=most)
    both = pd.concat([train, test], ignore_index=True)
    for number, way in enumerate(WAYS):
        hidden = hide(both, way, np.random.default_rng([seed, number]))
        holes = both.mask(hidden)
        holes = holes.dropna(axis=1, how="all")
        first, last = (part.reset_index(drop=True) for part in _split(holes, len(train)))
        asked = pd.DataFrame(hidden[len(train) :], columns=list(both)) & test.notna()
        if method == "einet":
            yield from _einet(train, test, first, last, asked, way, seed, device)
            continue
        filled, seconds = _FILL[method](first, last, seed)
        yield from _scores(train, test, filled, asked, way, seconds)


def _split(frame: pd.DataFrame, count: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The first rows and the rest."""
    return frame.iloc[:count], frame.iloc[count:]


def hide(
    frame: pd.DataFrame, way: str, generator: np.random.Generator
) -> Bool[np.ndarray, "rows columns"]:
    """Which cells to hide, about 30 % of them.

    Args:
        frame: The rows.
        way: ``"at random"``: each cell by itself. ``"given others"``: every second column is
            never hidden, and in the rest a cell is hidden the more likely the larger the row's
            number in the column before it. ``"blocks"``: in some rows, a run of neighbouring
            columns.
        generator: Of all that is random.
    """
    rows, columns = frame.shape
    if way == "at random":
        return generator.random((rows, columns)) < SHARE
    hidden = np.zeros((rows, columns), dtype=bool)
    if way == "given others":
        for column in range(1, columns, 2):
            before = frame.iloc[:, column - 1]
            order = pd.Series(pd.factorize(before, sort=True)[0])
            if pd.api.types.is_numeric_dtype(before):
                order = before
            rank = order.rank(pct=True, method="average").fillna(0.5).to_numpy()
            # From 0 to 2 · 30 %, about 30 % on average.
            hidden[:, column] = generator.random(rows) < 2 * SHARE * rank
        return hidden
    if way != "blocks":
        raise ValueError(f"way must be one of {WAYS}, got {way!r}")
    length = max(2, round(columns / 2))
    for row in np.flatnonzero(generator.random(rows) < SHARE * columns / length):
        start = generator.integers(0, columns - length + 1)
        hidden[row, start : start + length] = True
    return hidden


def normalised_error(
    train: pd.DataFrame, test: pd.DataFrame, filled: pd.DataFrame, asked: pd.DataFrame
) -> float:
    """The root of the mean square error in deviations of each column, on average over columns."""
    errors = []
    for name in numeric(test):
        rows = asked[name].to_numpy()
        scale = deviation(train, name)
        if rows.any() and name in filled and scale > 0:
            gap = filled[name].to_numpy(np.float64)[rows] - test[name].to_numpy(np.float64)[rows]
            errors.append(np.sqrt(np.mean(gap**2)) / scale)
    return float(np.mean(errors)) if errors else float("nan")


def accuracy(test: pd.DataFrame, filled: pd.DataFrame, asked: pd.DataFrame) -> float:
    """The share of hidden categories that are right, of all columns together."""
    right, count = 0, 0
    for name in categorical(test):
        rows = asked[name].to_numpy()
        if name in filled:
            same = filled[name].astype(object).to_numpy()[rows] == test[name].to_numpy()[rows]
            right, count = right + int(same.sum()), count + int(rows.sum())
    return right / count if count else float("nan")


def _scores(
    train: pd.DataFrame,
    test: pd.DataFrame,
    filled: pd.DataFrame,
    asked: pd.DataFrame,
    way: str,
    seconds: float,
) -> Iterator[Measured]:
    error, share = normalised_error(train, test, filled, asked), accuracy(test, filled, asked)
    for metric, value in (("error", error), ("accuracy", share)):
        if not np.isnan(value):
            yield Measured(f"{metric}, {way}", value, seconds)


def _einet(
    train: pd.DataFrame,
    test: pd.DataFrame,
    first: pd.DataFrame,
    last: pd.DataFrame,
    asked: pd.DataFrame,
    way: str,
    seed: int,
    device: str,
) -> Iterator[Measured]:
    import einet

    began = time.perf_counter()
    model = einet.TableModel.fit(first, seed=seed, device=device, members=None)
    posterior = model.given(last)
    filled = posterior.impute("mean")
    seconds = time.perf_counter() - began
    yield from _scores(train, test, filled, asked, way, seconds)
    # A row with a number that its column cannot hold has no density to compare.
    truth: Any = test[list(last)].where(last.notna() | asked[list(last)])
    gain = model.log_prob(truth)
    rows = np.isfinite(gain)
    gain = gain[rows] - model.log_prob(last)[rows]
    count = asked[list(last)].to_numpy()[rows].sum()
    yield Measured(f"log-likelihood of a cell, {way}", float(gain.sum() / count), seconds)
    yield Measured(f"share of rows beyond the bounds, {way}", float(1 - rows.mean()), seconds)
    covered, lengths, masses = [], [], []
    for name in numeric(last):
        rows = asked[name].to_numpy()
        if not rows.any() or not len(model.table.variables(name)):
            continue
        lower, upper = (np.asarray(end, np.float64)[rows] for end in posterior.interval(name, 0.9))
        true = test[name].to_numpy(np.float64)[rows]
        covered += ((lower <= true) & (true <= upper)).tolist()
        masses += _mass(posterior, name)[rows].tolist()
        lengths.append((upper - lower).mean() / max(deviation(train, name), 1e-12))
    if covered:
        yield Measured(f"coverage of 90 %, {way}", float(np.mean(covered)), seconds)
        yield Measured(f"length of 90 %, {way}", float(np.mean(lengths)), seconds)
        yield Measured(f"own share of 90 %, {way}", float(np.mean(masses)), seconds)


def _mass(posterior: Any, name: str) -> np.ndarray:
    """What the model itself gives intervals of 90 %: more where a column has few numbers."""
    lower, upper = (np.asarray(end, np.float64) for end in posterior.interval(name, 0.9))
    below = lower - 1e-8 * np.maximum(1, abs(lower))
    return posterior.cdf(name, upper) - posterior.cdf(name, below)


def _iterative(first: pd.DataFrame, last: pd.DataFrame, seed: int) -> tuple[pd.DataFrame, float]:
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    began, matrix = time.perf_counter(), Matrix(first)
    imputer = IterativeImputer(random_state=seed, keep_empty_features=True)
    filled: Any = imputer.fit(matrix.encode(first)).transform(matrix.encode(last))
    return matrix.decode(filled), time.perf_counter() - began


def _knn(first: pd.DataFrame, last: pd.DataFrame, seed: int) -> tuple[pd.DataFrame, float]:
    from sklearn.impute import KNNImputer

    began, matrix = time.perf_counter(), Matrix(first)
    rows = np.random.default_rng(seed).permutation(len(first))[:_MOST_NEIGHBOURS]
    imputer = KNNImputer(keep_empty_features=True).fit(matrix.encode(first)[rows])
    filled: Any = imputer.transform(matrix.encode(last))
    return matrix.decode(filled), time.perf_counter() - began


def _miceforest(first: pd.DataFrame, last: pd.DataFrame, seed: int) -> tuple[pd.DataFrame, float]:
    """The mean of five imputations, and the most frequent category.

    It learns from the known cells of test rows too: its imputation of new rows draws, with the
    versions at hand, from the columns' marginals.
    """
    import miceforest  # pyright: ignore[reportMissingImports]

    began = time.perf_counter()
    names = {name: f"c{n}" for n, name in enumerate(first)}
    both = pd.concat([first, last], ignore_index=True)
    frame = as_categories(both, both).rename(columns=names)
    kernel = miceforest.ImputationKernel(frame, num_datasets=_FORESTS, random_state=seed)
    kernel.mice(3, num_threads=1)
    draws = [kernel.complete_data(n).iloc[len(first) :] for n in range(_FORESTS)]
    columns = {}
    for name, short in names.items():
        cells: Any = pd.concat([draw[short].astype(object) for draw in draws], axis=1)
        is_number = name in numeric(first)
        columns[name] = cells.astype(float).mean(1) if is_number else cells.mode(axis=1)[0]
    return pd.DataFrame(columns).reset_index(drop=True), time.perf_counter() - began


_FILL: dict[str, Fill] = {"iterative": _iterative, "knn": _knn, "miceforest": _miceforest}
