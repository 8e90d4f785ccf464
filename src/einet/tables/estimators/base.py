"""What estimators for tables share: parameters, checks of data, learning, files."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from einet.models.record import FormatError
from einet.storage import load_metadata
from einet.tables.frames import as_frame
from einet.tables.model import TableModel

__all__ = ["TableEstimator", "is_frame", "seed_of"]

# Under this name a file has what an estimator knows beside its model.
_KEY = "estimator"


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
        members: How many models to average, each learnt without a part of the rows. Learning and
            answers take as many times as long; with few rows they are much better for it. By the
            number of rows if None: 8 up to 2,000 rows, 4 of 4,000, and 1 above 8,000.
    """

    model_: TableModel
    #: What else a fitted estimator keeps in its file: names of plain values.
    _kept: tuple[str, ...] = ()

    def __init__(
        self,
        columns: Any = None,
        num_sums: Any = None,
        epochs: Any = None,
        random_state: Any = None,
        device: Any = None,
        members: Any = None,
    ) -> None:
        self.columns = columns
        self.num_sums = num_sums
        self.epochs = epochs
        self.random_state = random_state
        self.device = device
        self.members = members

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write model, schema and what the estimator knows beside them to one safe file.

        :meth:`load` reads it, and :meth:`einet.TableModel.load` the model in it.

        Args:
            path: The file; its folder must exist.

        Example:
            >>> import tempfile
            >>> from einet.tables import EinetImputer
            >>> x = np.linspace(0, 1, 60).reshape(-1, 1)
            >>> imputer = EinetImputer(random_state=0, epochs=1, members=1).fit(x)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     imputer.save(f"{folder}/imputer.einet")
            ...     TableModel.load(f"{folder}/imputer.einet").table == imputer.model_.table
            True
        """
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        state = {
            "name": type(self).__name__,
            "n_features_in_": int(self.n_features_in_),  # type: ignore[attr-defined]
            "feature_names_in_": None if names is None else names.tolist(),
            **self._state(),
        }
        self.model_.save(path, {_KEY: state})

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: Any = None) -> Any:
        """The fitted estimator that :meth:`save` wrote: the same answers, in the same labels.

        How it was learnt is not in the file: parameters are those by default, but for what answers
        depend on.

        Args:
            path: The file.
            device: Where to put the model; on the CPU by default.

        Raises:
            FormatError: The file is no such estimator, or damaged.

        Example:
            >>> import tempfile
            >>> from einet.tables import EinetImputer
            >>> x = np.linspace(0, 1, 60).reshape(-1, 1)
            >>> imputer = EinetImputer(random_state=0, epochs=1, members=1).fit(x)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     imputer.save(f"{folder}/imputer.einet")
            ...     again = EinetImputer.load(f"{folder}/imputer.einet")
            >>> bool((again.transform([[np.nan]]) == imputer.transform([[np.nan]])).all())
            True
        """
        state: Any = load_metadata(path).get(_KEY)
        name = state.get("name") if isinstance(state, dict) else None
        if name != cls.__name__:
            what = "a model without an estimator" if name is None else f"of an {name!s:.40}"
            raise FormatError(f"{path} is {what}; {cls.__name__}.load reads an {cls.__name__}")
        estimator = cls()
        estimator.model_ = TableModel.load(path, device)
        try:
            estimator.n_features_in_ = int(state["n_features_in_"])  # type: ignore[attr-defined]
            if state["feature_names_in_"] is not None:
                names = np.array(state["feature_names_in_"], dtype=object)
                estimator.feature_names_in_ = names  # type: ignore[attr-defined]
            estimator._restore(state)
        except (LookupError, TypeError, ValueError) as error:
            raise FormatError(f"{path} is no {cls.__name__} that can be loaded: {error}") from error
        return estimator

    def _state(self) -> dict[str, Any]:
        """What a file holds of the estimator beside its model, in plain values."""
        return {name: getattr(self, name) for name in self._kept}

    def _restore(self, state: dict[str, Any]) -> None:
        """Take up what :meth:`_state` told."""
        for name in self._kept:
            setattr(self, name, state[name])

    def _fit_model(
        self,
        frame: Any,
        weights: np.ndarray | None,
        num_sums: int | None = None,
        columns: Any = None,
    ) -> TableModel:
        return TableModel.fit(
            frame,
            self.columns if columns is None else columns,
            num_sums=num_sums if self.num_sums is None else self.num_sums,
            epochs=self.epochs,
            seed=seed_of(self.random_state),
            device=self.device,
            members=self.members,
            weights=weights,
        )

    @staticmethod
    def _weighted(
        data: Any, sample_weight: Any, *others: np.ndarray
    ) -> tuple[Any, np.ndarray | None, *tuple[np.ndarray, ...]]:
        """The rows that count, how often each does, and what else belongs to them."""
        if sample_weight is None:
            return data, None, *others
        rows = len(data)
        weights = np.asarray(sample_weight, dtype=np.float64)
        if weights.ndim == 0:
            weights = np.full(rows, float(weights))
        if weights.shape != (rows,):
            raise ValueError(
                f"sample_weight must have one number for each of the {rows} rows, got shape "
                f"{list(weights.shape)}"
            )
        if not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
            raise ValueError(
                "sample_weight must hold finite numbers of at least 0, not all of them zero"
            )
        counts = weights > 0
        # A row that does not count shall not be a state, or the end of a column, either.
        if not counts.all():
            data = as_frame(data)[0].filter(counts.tolist()) if is_frame(data) else data[counts]
            others = tuple(other[counts] for other in others)
        return data, weights[counts], *others

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
