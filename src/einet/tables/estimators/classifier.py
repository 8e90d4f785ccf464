"""A classifier that needs no feature in particular."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from einet.learning.history import History
from einet.tables.averaging import average, class_shares, members_for
from einet.tables.estimators.base import TableEstimator, seed_of
from einet.tables.learning import learn, refine
from einet.tables.model import TableModel, frame_table

__all__ = ["EinetClassifier"]


class EinetClassifier(ClassifierMixin, TableEstimator):
    """p(class | features) with any features missing, exactly.

    A generative model of features and classes is learnt first. Then it goes on with the
    conditional likelihood of classes as its objective, and keeps what it gained where validation
    rows gain too. With several ``members`` the answer is the mean of their exact answers.

    Args:
        columns, num_sums, epochs, random_state, device, members: See :class:`TableEstimator`.
        refine: Whether to go on with the conditional likelihood.

    Example:
        >>> import pandas
        >>> frame = pandas.DataFrame({"a": [0.1, 1.2, 2.0, 3.1] * 30, "b": ["x", "y"] * 60})
        >>> classifier = EinetClassifier(random_state=0, epochs=2, members=2)
        >>> classifier = classifier.fit(frame, ["no", "no", "yes", "yes"] * 30)
        >>> classifier.predict(pandas.DataFrame({"a": [None, 0.1], "b": ["y", None]})).shape
        (2,)
    """

    model_: TableModel
    classes_: np.ndarray
    #: How the last of the members was learnt.
    history_: History

    def __init__(
        self,
        columns: Any = None,
        num_sums: Any = None,
        epochs: Any = None,
        random_state: Any = None,
        device: Any = None,
        refine: Any = True,
        members: Any = None,
    ) -> None:
        super().__init__(columns, num_sums, epochs, random_state, device, members)
        self.refine = refine

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> EinetClassifier:
        """Learn from rows and their classes.

        Args:
            X: Rows of the features: a data frame, or an array of numbers.
            y: The class of each.
            sample_weight: How often each row counts; once by default.
        """
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None"
            )
        data = self._checked(X, reset=True, least=2)
        y = column_or_1d(y, warn=True)
        assert_all_finite(y, input_name="y")
        check_classification_targets(y)
        if len(y) != len(data):
            raise ValueError(f"y must have as many rows as X, {len(data)}, got {len(y)}")
        data, weights, y = self._weighted(data, sample_weight, y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y must hold at least two classes, got 1 class, {self.classes_[0]!r}")
        seed, labels = seed_of(self.random_state), labels.astype(np.int64)
        table = frame_table(data, self.columns)

        def member(seed: int, valid_rows: Any) -> Any:
            z = table.encode(data, strange="ignore", seed=seed)
            options: Any = {
                "epochs": self.epochs, "seed": seed, "weights": weights, "valid_rows": valid_rows
            }  # fmt: skip
            model, self.history_ = learn(
                table, z, labels=labels, num_classes=len(self.classes_), num_sums=self.num_sums,
                device=self.device, **options,
            )  # fmt: skip
            if self.refine:
                # In float32, as learning goes on for a while.
                refine(model.float(), z, labels, **options)
            return model.double().cpu()

        members = members_for(len(labels), self.members)
        self.model_ = TableModel(average(members, len(labels), seed, member), table)
        return self

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """log p(class | known features) of each row, in the order of ``classes_``.

        Args:
            X: Rows of the features, any of them missing.

        Returns:
            ``[rows, classes]``.

        Example:
            >>> x, y = np.linspace(0, 1, 60).reshape(-1, 1), ["low"] * 30 + ["high"] * 30
            >>> classifier = EinetClassifier(random_state=0, epochs=3, members=1, refine=False)
            >>> logs = classifier.fit(x, y).predict_log_proba([[0.1]])
            >>> bool((np.exp(logs) == classifier.predict_proba([[0.1]])).all())
            True
        """
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def predict_proba(self, X: Any) -> np.ndarray:
        """p(class | known features) of each row, in the order of ``classes_``.

        Args:
            X: Rows of the features, any of them missing.

        Returns:
            ``[rows, classes]``; the rows add up to 1.

        Example:
            >>> x, y = np.linspace(0, 1, 60).reshape(-1, 1), ["low"] * 30 + ["high"] * 30
            >>> classifier = EinetClassifier(random_state=0, epochs=3, members=1, refine=False)
            >>> classifier.fit(x, y).predict_proba([[0.1], [0.9]]).argmax(1), classifier.classes_
            (array([1, 0]), array(['high', 'low'], dtype='<U4'))
        """
        check_is_fitted(self)
        data = self._checked(X, reset=False)
        return class_shares(self.model_.model, self.model_.table.encode(data))

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row.

        Args:
            X: Rows of the features, any of them missing.
        """
        shares = self.predict_proba(X)
        return self.classes_[shares.argmax(1)]

    def _state(self) -> dict[str, Any]:
        values = self.classes_.tolist()
        if not all(isinstance(value, str | bool | int | float) for value in values):
            raise TypeError(
                "classes must be text, numbers or flags to be kept in a file, got "
                f"{type(values[0]).__name__}"
            )
        return {"classes_": values, "classes_dtype": self.classes_.dtype.str}

    def _restore(self, state: dict[str, Any]) -> None:
        kind = np.dtype(state["classes_dtype"])
        if kind.kind not in "biufUO":
            raise ValueError(f"classes_dtype must be of text, numbers or flags, got {kind}")
        self.classes_ = np.array(state["classes_"], dtype=kind)
        count = next(iter(self.model_.model.weighted_einets()))[1].num_classes
        if self.classes_.shape != (count,):
            raise ValueError(f"classes_ must have {count} values, got {len(self.classes_)}")
