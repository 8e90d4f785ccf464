"""Outliers: how well the rarest class of a table is told from the rest without knowing classes.

Every method sees all rows without their labels, as is usual for this table, and ranks them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

from table_tasks.data import read
from table_tasks.results import Measured

__all__ = ["METHODS", "TABLES", "measure"]

TABLES = ("mammography",)
METHODS = ("einet", "isolation forest", "local outlier factor")


def measure(
    table: str, method: str, seed: int, most: int | None = None, device: str = "cpu"
) -> Iterator[Measured]:
    """ROC AUC and average precision of one method."""
    frame = read(table)
    if most is not None:
        rows = np.random.default_rng(seed).permutation(len(frame))[:most]
        frame = frame.iloc[rows].reset_index(drop=True)
    truth = (frame["label"] == "1").to_numpy()
    x = frame.drop(columns="label")
    began = time.perf_counter()
    if method == "einet":
        from einet.tables import EinetOutlierDetector

        detector = EinetOutlierDetector(random_state=seed, device=device)
        score = -detector.fit(x).score_samples(x)
    elif method == "isolation forest":
        from sklearn.ensemble import IsolationForest

        score = -IsolationForest(random_state=seed).fit(x).score_samples(x)
    else:
        from sklearn.neighbors import LocalOutlierFactor

        detector = LocalOutlierFactor()
        detector.fit_predict(x.to_numpy())
        score = -detector.negative_outlier_factor_
    seconds = time.perf_counter() - began
    yield Measured("ROC AUC", float(roc_auc_score(truth, score)), seconds)
    yield Measured("average precision", float(average_precision_score(truth, score)), seconds)
