"""A regressor that needs no feature in particular, and knows how sure it is."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import assert_all_finite
from sklearn.utils.validation import check_is_fitted, column_or_1d

from einet.tables.estimators.base import TableEstimator, is_frame
from einet.tables.frames import as_frame
from einet.tables.model import TableModel
from einet.tables.posterior import TablePosterior

__all__ = ["EinetRegressor"]

# The name of the target among the columns; a user's own columns have names that differ from it.
_TARGET = "target of the regression"


class EinetRegressor(RegressorMixin, TableEstimator):
    """E[target | features] with any features missing, and quantiles and intervals: all exact.

    Args:
        columns, num_sums, epochs, random_state, device, members: See :class:`TableEstimator`.

    Example:
        >>> x = np.linspace(0, 1, 200).reshape(-1, 1)
        >>> regressor = EinetRegressor(random_state=0, epochs=10, members=1)
        >>> regressor = regressor.fit(x, 3 * x[:, 0])
        >>> bool(abs(regressor.predict([[0.5]])[0] - 1.5) < 0.3)
        True
        >>> lower, upper = regressor.predict_interval([[0.5], [float("nan")]], mass=0.9)
        >>> bool(upper[1] - lower[1] > upper[0] - lower[0])
        True
    """

    model_: TableModel

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> EinetRegressor:
        """Learn from rows and their targets.

        Args:
            X: Rows of the features: a data frame, or an array of numbers.
            y: The target of each, a number.
            sample_weight: How often each row counts; once by default.
        """
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None"
            )
        data = self._checked(X, reset=True, least=2)
        target = column_or_1d(y, warn=True)
        target = np.asarray(target, dtype=np.float64)
        assert_all_finite(target, input_name="y")
        if len(target) != len(data):
            raise ValueError(f"y must have as many rows as X, {len(data)}, got {len(target)}")
        data, weights, target = self._weighted(data, sample_weight, target)
        self.model_ = self._fit_model(self._frame(data, target), weights)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The exact conditional mean of the target of each row.

        Args:
            X: Rows of the features, any of them missing.
        """
        if self._is_constant():
            return self._constant(X)
        return self._posterior(X).mean(_TARGET)

    def predict_quantile(self, X: Any, q: float | list[float] = 0.5) -> np.ndarray:
        """Exact conditional quantiles.

        Args:
            X: Rows of the features, any of them missing.
            q: A probability, or several.

        Returns:
            ``[rows]``, or ``[len(q), rows]`` for several.

        Example:
            >>> x = np.linspace(0, 1, 60).reshape(-1, 1)
            >>> regressor = EinetRegressor(random_state=0, epochs=3, members=1).fit(x, 3 * x[:, 0])
            >>> lower, upper = regressor.predict_quantile([[0.5]], q=[0.25, 0.75])
            >>> bool(lower[0] < upper[0])
            True
        """
        return self._posterior(X).quantile(_TARGET, q)

    def predict_interval(self, X: Any, mass: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """The ends between which the target lies with this probability, as much on each side.

        Args:
            X: Rows of the features, any of them missing.
            mass: That probability, between 0 and 1.

        Returns:
            The lower and the upper ends, ``[rows]`` each.
        """
        return self._posterior(X).interval(_TARGET, mass)

    def _posterior(self, X: Any) -> TablePosterior:
        check_is_fitted(self)
        data = self._checked(X, reset=False)
        return self.model_.given(self._frame(data, np.full(len(data), np.nan)))

    def _is_constant(self) -> bool:
        check_is_fitted(self)
        return not self.model_.table.variables(_TARGET)

    def _constant(self, X: Any) -> np.ndarray:
        rows = len(self._checked(X, reset=False))
        return self.model_.table.coding(_TARGET).decode(np.empty((rows, 0)))

    @staticmethod
    def _frame(X: Any, target: np.ndarray) -> Any:
        """Features and target in one frame."""
        if is_frame(X):
            import narwhals.stable.v2 as nw

            frame = as_frame(X)[0]
            series: Any = nw.new_series(_TARGET, target, nw.Float64(), backend=frame.implementation)
            if frame.implementation.is_pandas():
                return X.assign(**{_TARGET: target})
            return frame.with_columns(series)
        columns: dict[str, Any] = {f"x{n}": X[:, n] for n in range(X.shape[1])}
        return as_frame({**columns, _TARGET: target})[0]
