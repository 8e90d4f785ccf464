"""Density: the mean log-likelihood of test rows, in nats.

``density`` has all columns of mixed tables, beside independent columns and one Chow–Liu tree. For
the continuous tables it has the quantities alone too, without rows that have holes and spread over
the steps they were rounded to, beside a mixture of Gaussians with as many components, of full
covariance, as suit validation rows best. einet is an average of as many models as suit the number
of rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from table_tasks.chow_liu import chosen_tree
from table_tasks.data import CONTINUOUS, numeric, read, spread, train_and_test
from table_tasks.results import Measured

__all__ = ["METHODS", "TABLES", "measure"]

TABLES = (
    "titanic", "penguins", "mpg", "abalone", "wine_white", "horse_colic", "mammography", "magic",
    "shoppers", "diamonds", "default", "beijing", "adult",
)  # fmt: skip
METHODS = ("einet", "mixture", "independent", "tree")
_COMPONENTS = (1, 2, 4, 8, 16, 32, 64)


def measure(
    table: str, method: str, seed: int, most: int | None = None, device: str = "cpu"
) -> Iterator[Measured]:
    """The log-likelihood of all columns, and of quantities alone where there are enough."""
    import einet

    frame = read(table)
    train, test = train_and_test(table, frame, seed, most=most)
    if method != "mixture":
        began = time.perf_counter()
        if method == "einet":
            model = einet.TableModel.fit(train, seed=seed, device=device, members=None)
            schema = model.table
        else:
            schema = einet.Table.of(train)
            model = chosen_tree(train, schema, method == "tree", seed)
        seconds = time.perf_counter() - began
        # All methods are asked about the rows that have a density under the schema they share.
        inside = np.isfinite(schema.log_density_change(test))
        rows: Any = test[inside]
        score = float(model.log_prob(rows).mean())
        yield Measured("log-likelihood, all columns", score, seconds)
        yield Measured("share of rows beyond the bounds", float(1 - inside.mean()), seconds)
    if table in CONTINUOUS and method in ("einet", "mixture"):
        yield _of_quantities(train, test, method, seed, device)


def _of_quantities(train: Any, test: Any, method: str, seed: int, device: str) -> Measured:
    import einet

    names = numeric(train)
    train, test = (
        spread(part[names].dropna(), seed + n).reset_index(drop=True)
        for n, part in enumerate((train, test))
    )
    began = time.perf_counter()
    if method == "einet":
        kinds = dict.fromkeys(names, "continuous")
        model = einet.TableModel.fit(train, kinds, seed=seed, device=device, members=None)
        scores = model.log_prob(test)
    else:
        scores = _mixture(train.to_numpy(), test.to_numpy(), seed)
    seconds = time.perf_counter() - began
    return Measured("log-likelihood, quantities", float(np.mean(scores)), seconds)


def _mixture(train: np.ndarray, test: np.ndarray, seed: int) -> np.ndarray:
    """Scores of test rows by the best mixture of Gaussians, in the units of the columns."""
    from sklearn.mixture import GaussianMixture

    mean, deviation = train.mean(0), train.std(0)
    train, test = (train - mean) / deviation, (test - mean) / deviation
    order = np.random.default_rng(seed).permutation(len(train))
    count = max(1, len(train) // 10)
    best, model = -np.inf, None
    for components in _COMPONENTS:
        if 10 * components > len(train):
            break
        one = GaussianMixture(components, random_state=seed, max_iter=200)
        score = one.fit(train[order[count:]]).score(train[order[:count]])
        if score > best:
            best, model = score, one
    assert model is not None
    return model.score_samples(test) - np.log(deviation).sum()
