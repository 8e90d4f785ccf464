"""Synthetic data: as many rows as were learnt from, and how they differ from real ones.

The protocol of TabSyn, TabDiff and TabPC: 90 % of the rows to learn from (adult: the official
part), missing categories a category of their own. Shape and Trend are SDMetrics'; the classifier
two-sample test is its detection metric with XGBoost, training rows against synthetic ones, 1 where
they cannot be told apart. Utility is the ROC AUC (or the error in deviations) on real test rows of
XGBoost that learnt from synthetic ones.

Newer releases of SDMetrics leave pairs of columns that hardly depend on one another out of Trend;
the published figures are from before that, so that all pairs count here as there.

A GPU learns larger models. Where it is in another machine, this one measures the rows drawn there:

    python benchmarks/tables.py --tasks synthetic --device cuda --draw draws    # there
    python benchmarks/tables.py --tasks synthetic --drawn draws                 # here
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from table_tasks.data import PROTOCOL, categorical, deviation, numeric, read, train_and_test
from table_tasks.data import TABLES as SOURCES
from table_tasks.draws import learn_and_draw, read_draws
from table_tasks.fidelity import alpha_precision_beta_recall, nearer_to_training, points_of
from table_tasks.results import Measured

__all__ = ["DRAWN", "METHODS", "TABLES", "measure", "split", "utility"]

TABLES = PROTOCOL
#: Columns shuffled by themselves are what a generator of right marginals alone would make; training
#: rows say how useful real rows are.
METHODS = ("einet", "einet on a GPU", "shuffled columns", "training rows")
#: The method whose rows come from a folder.
DRAWN = "einet on a GPU"
#: Distances are measured between so many rows at most.
_MOST_POINTS = 10_000


def split(table: str, seed: int, most: int | None = None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows to learn from, and test rows."""
    return train_and_test(table, _complete(read(table)), seed, test=0.1, most=most)


def measure(
    table: str,
    method: str,
    seed: int,
    most: int | None = None,
    device: str = "cpu",
    drawn_in: Path | None = None,
) -> Iterator[Measured]:
    """All measures of one method on one table; seconds are those of learning and sampling."""
    train, test = split(table, seed, most)
    learning = sampling = 0.0
    drawn: Any
    if method in ("einet", DRAWN):
        if method == DRAWN:
            assert drawn_in is not None
            drawn, learning, sampling = read_draws(drawn_in, table, seed)
        else:
            drawn, learning, sampling = learn_and_draw(train, seed, device)
        yield Measured("learning s", learning, learning)
        yield Measured("sampling s", sampling, sampling)
    elif method == "shuffled columns":
        generator = np.random.default_rng(seed)
        drawn = pd.DataFrame({name: generator.permutation(train[name]) for name in train})
    else:
        drawn = train
    drawn = drawn[list(train)]
    yield Measured("utility", utility(drawn, train, test, table, seed), learning)
    if method != "training rows":
        yield from _fidelity(train, test, drawn, seed, learning + sampling)


def _fidelity(
    train: pd.DataFrame, test: pd.DataFrame, drawn: pd.DataFrame, seed: int, seconds: float
) -> Iterator[Measured]:
    from sdmetrics.reports.single_table import QualityReport  # pyright: ignore

    kinds = {name: {"sdtype": "categorical"} for name in categorical(train)}
    kinds |= {name: {"sdtype": "numerical"} for name in numeric(train)}
    metadata: dict[str, Any] = {"columns": kinds}
    # SDMetrics takes random folds from numpy's global generator.
    np.random.seed(seed)  # noqa: NPY002
    yield Measured(
        "C2ST with XGBoost", float(_detection().compute(train, drawn, metadata)), seconds
    )
    report = QualityReport()
    report.real_correlation_threshold = report.real_association_threshold = 0
    report.generate(train, drawn, metadata, verbose=False)
    scores = report.get_properties().set_index("Property")["Score"]
    yield Measured("Shape", float(scores["Column Shapes"]), seconds)
    yield Measured("Trend", float(scores["Column Pair Trends"]), seconds)
    points = points_of(train, train, drawn, test)
    some = np.random.default_rng(seed).permutation(len(train))[:_MOST_POINTS]
    precision, recall = alpha_precision_beta_recall(points[0][some], points[1][some])
    yield Measured("α-precision, naive", precision, seconds)
    yield Measured("β-recall, naive", recall, seconds)
    share, copies = nearer_to_training(points[0], points[2], points[1][some], seed)
    yield Measured("nearer to training than to held-out rows", share, seconds)
    yield Measured("exact copies of training rows", copies, seconds)


def utility(
    drawn: pd.DataFrame, train: pd.DataFrame, test: pd.DataFrame, table: str, seed: int
) -> float:
    """ROC AUC of a class, or the error of a quantity in deviations, of XGBoost on test rows."""
    from sklearn.metrics import roc_auc_score
    from xgboost import XGBClassifier, XGBRegressor  # pyright: ignore

    source = SOURCES[table]
    features = [
        pd.get_dummies(frame.drop(columns=source.target), dtype=float) for frame in (drawn, test)
    ]
    columns = pd.get_dummies(train.drop(columns=source.target), dtype=float).columns
    x, x_test = (part.reindex(columns=columns, fill_value=0.0) for part in features)
    names = [f"f{n}" for n in range(len(columns))]
    x, x_test = x.set_axis(names, axis=1), x_test.set_axis(names, axis=1)
    y, y_test = drawn[source.target], test[source.target]
    if source.regression:
        model = XGBRegressor(random_state=seed).fit(x, y)
        gap = model.predict(x_test) - y_test.to_numpy(np.float64)
        return float(np.sqrt(np.mean(gap**2)) / deviation(train, source.target))
    positive = sorted(train[source.target].unique())[-1]
    model = XGBClassifier(random_state=seed).fit(x, (y == positive).astype(int))
    return float(roc_auc_score(y_test == positive, model.predict_proba(x_test)[:, 1]))


def _detection() -> Any:
    """SDMetrics' detection metric with XGBoost for its classifier."""
    from sdmetrics.single_table.detection import sklearn as detection  # pyright: ignore
    from xgboost import XGBClassifier  # pyright: ignore

    class Detection(detection.ScikitLearnClassifierDetectionMetric):
        name = "XGBoost detection"

        @staticmethod
        def _get_classifier() -> Any:
            return XGBClassifier(random_state=0)

    return Detection


def _complete(frame: pd.DataFrame) -> pd.DataFrame:
    """Missing categories as one more category, and no row with a missing quantity."""
    answer = frame.dropna(subset=numeric(frame)).reset_index(drop=True)
    for name in categorical(answer):
        answer[name] = answer[name].where(answer[name].notna(), "?")
    return answer
