"""Rows that a model of the table finds improbable."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from sklearn.base import OutlierMixin
from sklearn.utils.validation import check_is_fitted

from einet._checks import as_number
from einet.tables.cells import CellType
from einet.tables.columns import Binned, Number, Spiked
from einet.tables.estimators.base import TableEstimator
from einet.tables.frames import build_frame, usable_backend
from einet.tables.model import TableModel
from einet.tables.schema import Table
from einet.tables.surprise import cell_surprise

__all__ = ["EinetOutlierDetector"]

# With more states, rare rows would have some of their own, and be probable.
_NUM_SUMS = 8


class EinetOutlierDetector(OutlierMixin, TableEstimator):
    """Rows are outliers where the density of their known cells is low.

    It is the density on the model's scale, on which every column of numbers is about normal: it
    depends neither on the units of the table nor on how a column is skewed, and falls towards both
    ends of a column as it does where columns do not suit one another. Numbers that occur many times
    are no states of their own here, unless ``columns`` says so: a number beside a frequent one is
    as usual as that is. A number that its column cannot hold makes a row an outlier for certain.
    :meth:`surprise` says which cells it is due to.

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
    #: The smallest and the largest number of each column, None where there is no end.
    limits_: list[list[float | None]]
    _kept = ("offset_", "limits_", "contamination")

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
        """Learn from rows.

        Args:
            X: The rows: a data frame, or an array of numbers.
            y: Ignored.
            sample_weight: How often each row counts; once by default.
        """
        share = as_number("contamination", self.contamination, above=0, at_most=0.5)
        data = self._checked(X, reset=True, least=2)
        some, weights = self._weighted(data, sample_weight)
        with warnings.catch_warnings():
            # What there is to warn of, learning will.
            warnings.simplefilter("ignore")
            usual = Table.of(some, self.columns)
        self.limits_ = [_limits(coding) for coding in usual.codings.values()]
        given = dict(self.columns or {})
        frequent = [name for name, coding in usual.codings.items() if isinstance(coding, Spiked)]
        columns = {**dict.fromkeys(frequent, "continuous"), **given}
        self.model_ = self._fit_model(some, weights, _NUM_SUMS, columns)
        scores = self._scores(some)
        self.offset_ = float(np.percentile(scores, 100 * share))
        return self

    def score_samples(self, X: Any) -> np.ndarray:
        """log p of the known cells of each row, on the model's scale: the lower, the stranger.

        Args:
            X: The rows.

        Example:
            >>> x = np.random.default_rng(0).normal(size=(100, 2))
            >>> detector = EinetOutlierDetector(random_state=0, epochs=3, members=1).fit(x)
            >>> usual, strange = detector.score_samples([[0.0, 0.0], [9.0, -9.0]])
            >>> bool(usual > strange)
            True
        """
        check_is_fitted(self)
        return self._scores(self._checked(X, reset=False))

    def decision_function(self, X: Any) -> np.ndarray:
        """:meth:`score_samples`, counted from the threshold: below 0 are outliers.

        Args:
            X: The rows.

        Example:
            >>> x = np.random.default_rng(0).normal(size=(100, 2))
            >>> detector = EinetOutlierDetector(random_state=0, epochs=3, members=1).fit(x)
            >>> detector.decision_function([[0.0, 0.0], [9.0, -9.0]]) > 0
            array([ True, False])
        """
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> np.ndarray:
        """1 for inliers, −1 for outliers.

        Args:
            X: The rows.
        """
        return np.where(self.decision_function(X) < 0, -1, 1)

    def surprise(self, X: Any) -> Any:
        r"""Why a row is an outlier: :math:`-\log p(x_j \mid x_{-j})` of every cell, in nats.

        The larger, the less does a cell suit the others of its row. Rows and columns are those of
        ``X``, as a frame or an array; missing cells, constants and identifiers have NaN.

        Args:
            X: The rows.

        Example:
            >>> x = np.random.default_rng(0).normal(size=(100, 2))
            >>> detector = EinetOutlierDetector(random_state=0, epochs=3, members=1).fit(x)
            >>> this, that = detector.surprise([[0.0, 9.0]])[0]
            >>> bool(that > this)
            True
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
        table = self.model_.table
        z = torch.from_numpy(table.encode(data, strange="ignore"))
        scores = self.model_.model.log_prob(z).double().cpu().numpy()
        limits = dict(zip(table.names, self.limits_, strict=True))
        for name, cells in table.cells(data).items():
            lower, upper = limits[name]
            if lower is not None:
                scores = np.where(cells < lower, -np.inf, scores)
            if upper is not None:
                scores = np.where(cells > upper, -np.inf, scores)
        return scores


def _limits(coding: Any) -> list[float | None]:
    """The smallest and the largest number that a column can hold; None without an end."""
    number = coding.number if isinstance(coding, Spiked) else coding
    if not isinstance(number, Number | Binned):
        return [None, None]
    spikes = coding.spikes.tolist() if isinstance(coding, Spiked) else []
    ends = min([number.smallest, *spikes]), max([number.largest, *spikes])
    return [end if np.isfinite(end) else None for end in ends]
