"""What estimators for tables share: parameters, checks of data, learning, files."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from einet.tables.frames import as_frame
from einet.tables.model import TableModel

__all__ = ["TableEstimator", "is_frame", "seed_of"]


class TableEstimator(BaseEstimator):
    """An estimator that learns a :class:`~einet.TableModel`; ``model_`` has it once it is fitted.

    Data are data frames with columns of any kind, or arrays of numbers. NaN, None and nulls are
    missing cells, in learning as in answers.

    Args:
        columns: What some columns are, where the data do not tell; see :meth:`einet.Table.of`.
        num_sums: K, the states of each column's latent variable; by the number of rows if None.
        epochs: The most passes through the rows; by their number if None.
        random_state: A seed or a ``RandomState`` for all that is random.
        device: Where to learn; a GPU where there is one, if None.
    """

    model_: TableModel

    def __init__(
        self,
        columns: Any = None,
        num_sums: Any = None,
        epochs: Any = None,
        random_state: Any = None,
        device: Any = None,
    ) -> None:
        self.columns = columns
        self.num_sums = num_sums
        self.epochs = epochs
        self.random_state = random_state
        self.device = device

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write model and schema to one safe file, which :meth:`einet.TableModel.load` reads."""
        check_is_fitted(self)
        self.model_.save(path)

    def _fit_model(self, frame: Any, num_sums: int | None = None) -> TableModel:
        return TableModel.fit(
            frame,
            self.columns,
            num_sums=num_sums if self.num_sums is None else self.num_sums,
            epochs=self.epochs,
            seed=seed_of(self.random_state),
            device=self.device,
        )

    def _checked(self, X: Any, *, reset: bool, least: int = 1) -> Any:
        """Data as a frame or an array of numbers, with names and number of columns remembered."""
        if not is_frame(X):
            return validate_data(
                self, X, reset=reset, ensure_all_finite="allow-nan", ensure_min_samples=least
            )
        validate_data(self, X, reset=reset, skip_check_array=True)
        rows = len(X)
        if rows < least:
            raise ValueError(
                f"X must have at least {least} rows, got a frame with {rows} sample(s)"
            )
        return X


def is_frame(X: Any) -> bool:
    """Whether data have columns with names: a frame of some library, not an array."""
    try:
        return not isinstance(X, np.ndarray | list) and bool(as_frame(X)[1])
    except (TypeError, ValueError):
        return False


def seed_of(random_state: Any) -> int:
    """A seed drawn from what scikit-learn takes for one."""
    return int(check_random_state(random_state).randint(2**31 - 1))
