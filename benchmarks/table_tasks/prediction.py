"""Prediction with holes: the log loss of a class with 0, 30 and 60 % of the features missing.

Methods learn from the training rows as they are; cells of test rows are hidden at random.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import accuracy_score, log_loss

from table_tasks.data import TABLES as SOURCES
from table_tasks.data import categorical, numeric, read, train_and_test
from table_tasks.encoding import as_categories
from table_tasks.results import Measured

__all__ = ["METHODS", "TABLES", "measure"]

TABLES = (
    "titanic", "penguins", "mpg", "abalone", "wine_white", "horse_colic", "mammography", "magic",
    "shoppers", "diamonds", "default", "adult",
)  # fmt: skip
METHODS = ("einet", "einet, generative", "boosting", "logistic")
SHARES = (0.0, 0.3, 0.6)


def measure(
    table: str, method: str, seed: int, most: int | None = None, device: str = "cpu"
) -> Iterator[Measured]:
    """Scores of one method on one table; seconds are those of learning."""
    train, test = train_and_test(table, read(table), seed, most=most)
    target = SOURCES[table].target
    x, y = train.drop(columns=target), train[target].astype(str)
    model: Any
    if method.startswith("einet"):
        from einet.tables import EinetClassifier

        refine = method == "einet"
        model = EinetClassifier(random_state=seed, device=device, refine=refine)
    elif method == "boosting":
        model = Boosting(seed)
    else:
        model = logistic(x)
    began = time.perf_counter()
    model.fit(x, y)
    seconds = time.perf_counter() - began
    classes = [str(value) for value in model.classes_]
    known = test[test[target].isin(classes)]
    features, truth = known.drop(columns=target), known[target].astype(str)
    generator = np.random.default_rng([seed, 1])
    for share in SHARES:
        holes = features.mask(generator.random(features.shape) < share)
        proba = np.clip(model.predict_proba(holes), 1e-15, 1)
        proba = proba / proba.sum(1, keepdims=True)
        loss = log_loss(truth, proba, labels=classes)
        yield Measured(f"log loss, {share:.0%} missing", float(loss), seconds)
        right = accuracy_score(truth, np.array(classes)[proba.argmax(1)])
        yield Measured(f"accuracy, {share:.0%} missing", float(right), seconds)


class Boosting:
    """`HistGradientBoostingClassifier`, which knows missing cells and pandas' categories."""

    def __init__(self, seed: int) -> None:
        from sklearn.ensemble import HistGradientBoostingClassifier

        early: Any = True
        self.model = HistGradientBoostingClassifier(
            categorical_features="from_dtype", random_state=seed, early_stopping=early
        )

    def fit(self, x: pd.DataFrame, y: pd.Series) -> Boosting:
        coded = as_categories(x, x)
        self.types = {name: coded[name].dtype for name in categorical(x)}
        self.model.fit(coded, y)
        self.classes_ = self.model.classes_
        return self

    def predict_proba(self, x: pd.DataFrame) -> np.ndarray:
        return self.model.predict_proba(x.astype(self.types))


def logistic(x: pd.DataFrame) -> Any:
    """Medians and an indicator for missing numbers, one-hot categories with one for missing."""
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = make_pipeline(
        SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler()
    )
    nothing: Any = None
    categories = make_pipeline(
        SimpleImputer(strategy="constant", fill_value="missing", missing_values=nothing),
        OneHotEncoder(handle_unknown="ignore"),
    )
    columns = ColumnTransformer(
        [("numbers", numbers, numeric(x)), ("categories", categories, categorical(x))]
    )
    return _Pipeline(make_pipeline(columns, LogisticRegression(max_iter=2000)))


class _Pipeline:
    """A pipeline whose missing categories are None, whatever pandas made of them."""

    def __init__(self, pipeline: Any) -> None:
        self.pipeline = pipeline

    def fit(self, x: pd.DataFrame, y: pd.Series) -> _Pipeline:
        self.pipeline.fit(_plain(x), y)
        self.classes_ = self.pipeline.classes_
        return self

    def predict_proba(self, x: pd.DataFrame) -> np.ndarray:
        return self.pipeline.predict_proba(_plain(x))


def _plain(x: pd.DataFrame) -> pd.DataFrame:
    answer = x.copy()
    for name in categorical(x):
        answer[name] = x[name].astype(object).where(x[name].notna(), None)
    return answer
