"""Missing cells filled in from all that is known of their rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from einet.tables.columns import Identifier
from einet.tables.estimators.base import TableEstimator, seed_of
from einet.tables.model import TableModel

__all__ = ["EinetImputer"]


class EinetImputer(OneToOneFeatureMixin, TransformerMixin, TableEstimator):
    """Fill missing cells by their expectations, most probable values or draws.

    Args:
        columns, num_sums, epochs, random_state, device, members: See :class:`TableEstimator`.
        method: ``"mean"``, ``"median"``, ``"mode"`` or ``"sample"``; see
            :meth:`~einet.tables.TablePosterior.impute`. For multiple imputation ask
            :meth:`transform` several times with ``"sample"``: with ``random_state=None`` every
            answer is another draw.

    Example:
        >>> import pandas
        >>> frame = pandas.DataFrame({"a": [0.1, 1.2, 2.0, None] * 20, "b": ["x", "y"] * 40})
        >>> filled = EinetImputer(random_state=0, epochs=3).fit_transform(frame)
        >>> int(filled.isna().sum().sum()), filled["b"].equals(frame["b"])
        (0, True)
    """

    model_: TableModel
    _kept = ("method",)

    def __init__(
        self,
        columns: Any = None,
        num_sums: Any = None,
        epochs: Any = None,
        random_state: Any = None,
        device: Any = None,
        method: Any = "mean",
        members: Any = None,
    ) -> None:
        super().__init__(columns, num_sums, epochs, random_state, device, members)
        self.method = method

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> EinetImputer:
        """Learn from rows with holes.

        Args:
            X: The rows: a data frame, or an array of numbers.
            y: Ignored.
            sample_weight: How often each row counts; once by default.

        Example:
            >>> x = np.linspace(0, 1, 60).reshape(-1, 1)
            >>> EinetImputer(random_state=0, epochs=1, members=1).fit(x).n_features_in_
            1
        """
        data = self._checked(X, reset=True, least=2)
        data, weights = self._weighted(data, sample_weight)
        self.model_ = self._fit_model(data, weights)
        return self

    def transform(self, X: Any) -> Any:
        """The rows without holes; identifiers, which the model does not know, stay as they are.

        A column that held no value at all when the imputer learnt keeps its holes.

        Args:
            X: The rows.

        Example:
            >>> x = np.random.default_rng(0).normal(size=(100, 1)) * [1, -1]
            >>> imputer = EinetImputer(random_state=0, epochs=5, members=1).fit(x)
            >>> filled = imputer.transform([[2.0, np.nan]])
            >>> bool(filled[0, 0] == 2.0), bool(filled[0, 1] < -0.5)
            (True, True)
        """
        check_is_fitted(self)
        data = self._checked(X, reset=False)
        seed = seed_of(self.random_state) if self.method == "sample" else None
        method: Any = self.method
        filled = self.model_.given(data).impute(method, seed)
        if isinstance(filled, np.ndarray):
            # What is known is handed back as it was, to the last digit.
            known = ~np.isnan(data)
            return np.where(known, data, filled)
        return _with_left_out(filled, data, self.model_)


def _with_left_out(filled: Any, data: Any, model: TableModel) -> Any:
    """Put columns that the model leaves out back in their places."""
    left_out = [n for n, coding in model.table.codings.items() if isinstance(coding, Identifier)]
    if hasattr(filled, "set_axis"):
        filled = filled.set_axis(data.index, axis=0)
        for name in left_out:
            filled[name] = data[name]
        return filled[list(data.columns)]
    import narwhals.stable.v2 as nw

    frame, given = nw.from_native(filled), nw.from_native(data)
    frame = (
        frame.with_columns(*(given.get_column(name) for name in left_out)) if left_out else frame
    )
    return frame.select(given.columns).to_native()
