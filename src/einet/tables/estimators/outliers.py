"""Rows that a model of the table finds improbable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sklearn.base import OutlierMixin
from sklearn.utils.validation import check_is_fitted

from einet._checks import as_number
from einet.families import Gaussian
from einet.tables.cells import CellType
from einet.tables.estimators.base import TableEstimator
from einet.tables.frames import build_frame, usable_backend
from einet.tables.model import TableModel
from einet.tables.surprise import cell_surprise

__all__ = ["EinetOutlierDetector"]

# With more states, rare rows would have some of their own, and be probable.
_NUM_SUMS = 8


class EinetOutlierDetector(OutlierMixin, TableEstimator):
    """Rows are outliers where the density of their known cells is low.

    Each column of numbers counts in a unit of its own, in which numbers lie about as close to one
    another, on average, as they do on the model's scale. So a density does not depend on the units
    of the table, and can be weighed against the probability of a state. A number that its column
    cannot hold makes a row an outlier for certain. :meth:`surprise` says which cells it is due to.

    Args:
        columns, num_sums, epochs, random_state, device, members: See :class:`TableEstimator`;
            without ``num_sums``, K is 8.
        contamination: The share of training rows that are taken for outliers, at most ½.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(200, 2))
        >>> detector = EinetOutlierDetector(random_state=0, epochs=5, members=1).fit(x)
        >>> detector.predict([[0.0, 0.0], [9.0, -9.0]])
        array([ 1, -1])
    """

    model_: TableModel
    offset_: float
    #: What the log density of a column's numbers is counted from, by column.
    units_: list[float]
    _kept = ("offset_", "units_", "contamination")

    def __init__(
        self,
        columns: Any = None,
        num_sums: Any = None,
        epochs: Any = None,
        random_state: Any = None,
        device: Any = None,
        contamination: Any = 0.1,
        members: Any = None,
    ) -> None:
        super().__init__(columns, num_sums, epochs, random_state, device, members)
        self.contamination = contamination

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> EinetOutlierDetector:
        """Learn from rows, each of which counts as often as it weighs; ``y`` is ignored."""
        share = as_number("contamination", self.contamination, above=0, at_most=0.5)
        data = self._checked(X, reset=True, least=2)
        some, weights = self._weighted(data, sample_weight)
        self.model_ = self._fit_model(some, weights, _NUM_SUMS)
        self.units_ = [float(np.mean(slopes[np.isfinite(slopes)])) for slopes in self._slopes(some)]
        scores = self._scores(some)
        self.offset_ = float(np.percentile(scores, 100 * share))
        return self

    def score_samples(self, X: Any) -> np.ndarray:
        """log p of the known cells of each row, in the columns' units: the lower, the stranger."""
        check_is_fitted(self)
        return self._scores(self._checked(X, reset=False))

    def decision_function(self, X: Any) -> np.ndarray:
        """The same, counted from the threshold: below 0 are outliers."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> np.ndarray:
        """1 for inliers, −1 for outliers."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    def surprise(self, X: Any) -> Any:
        r"""Why a row is an outlier: :math:`-\log p(x_j \mid x_{-j})` of every cell, in nats.

        The larger, the less does a cell suit the others of its row. Rows and columns are those of
        ``X``, as a frame or an array; missing cells, constants and identifiers have NaN.
        """
        check_is_fitted(self)
        data = self._checked(X, reset=False)
        cells = cell_surprise(self.model_, data)
        nothing = np.full(len(data), np.nan)
        columns = {name: cells.get(str(name), nothing) for name in self.model_.table.names}
        kind = CellType("Float64", "float64")
        parts = [(name, column, kind) for name, column in columns.items()]
        frame = build_frame(parts, usable_backend(self.model_.table.backend), len(data))
        return frame.set_axis(data.index, axis=0) if hasattr(frame, "set_axis") else frame

    def _scores(self, data: Any) -> np.ndarray:
        z = torch.from_numpy(self.model_.table.encode(data, strange="ignore"))
        scores = self.model_.model.log_prob(z).double().cpu().numpy()
        for slopes, unit in zip(self._slopes(data), self.units_, strict=True):
            scores = scores + np.where(np.isnan(slopes), 0.0, slopes - unit)
        return scores

    def _slopes(self, data: Any) -> Iterator[np.ndarray]:
        """log dz/dx of each column that may hold numbers; NaN for other cells, −∞ beyond bounds."""
        table = self.model_.table
        z = table.encode(data, strange="ignore")
        for name in table.modelled:
            variables = table.variables(name)
            if isinstance(table.coding(name).families()[-1], Gaussian):
                slope = table.log_slope(data, name)
                yield np.where(np.isnan(z[:, variables[-1]]), np.nan, slope)
