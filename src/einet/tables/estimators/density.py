"""The density of a table, as an estimator."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.base import DensityMixin
from sklearn.utils.validation import check_is_fitted

from einet.tables.estimators.base import TableEstimator, seed_of
from einet.tables.model import TableModel

__all__ = ["EinetDensity"]


class EinetDensity(DensityMixin, TableEstimator):
    """A model of all columns together: densities, marginals, conditionals and samples.

    Args:
        columns, num_sums, epochs, random_state, device, members: See :class:`TableEstimator`.

    Example:
        >>> import pandas
        >>> frame = pandas.DataFrame({"a": [0.1, 1.2, 2.0, None] * 20, "b": ["x", "y"] * 40})
        >>> density = EinetDensity(random_state=0, epochs=3).fit(frame)
        >>> density.score_samples(frame).shape
        (80,)
        >>> density.sample(3, given={"b": "y"})["b"].tolist()
        ['y', 'y', 'y']
    """

    model_: TableModel

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> EinetDensity:
        """Learn from rows.

        Args:
            X: The rows: a data frame, or an array of numbers.
            y: Ignored.
            sample_weight: How often each row counts; once by default.
        """
        data = self._checked(X, reset=True, least=2)
        data, weights = self._weighted(data, sample_weight)
        self.model_ = self._fit_model(data, weights)
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> EinetDensity:
        """Learn from more rows: one step of stochastic EM, with the schema of the first rows.

        The first call is :meth:`fit`. Each further one moves the parameters a tenth of the way to
        those that suit its rows alone.

        Args:
            X, y, sample_weight: As in :meth:`fit`.

        Example:
            >>> x = np.random.default_rng(0).normal(size=(120, 2))
            >>> density = EinetDensity(random_state=0, epochs=1, members=1).partial_fit(x[:60])
            >>> before = density.score(x[60:])
            >>> density.partial_fit(x[60:]).score(x[60:]) > before
            True
        """
        if not hasattr(self, "model_"):
            return self.fit(X, sample_weight=sample_weight)
        data, weights = self._weighted(self._checked(X, reset=False), sample_weight)
        z = self.model_.table.encode(data, seed=seed_of(self.random_state))
        some = None if weights is None else torch.from_numpy(weights)
        self.model_.model.em_step(torch.from_numpy(z), weights=some, step_size=0.1)
        return self

    def score_samples(self, X: Any) -> np.ndarray:
        """log p of the known cells of each row; see :meth:`einet.TableModel.log_prob`.

        Args:
            X: The rows.
        """
        check_is_fitted(self)
        return self.model_.log_prob(self._checked(X, reset=False))

    def score(self, X: Any, y: Any = None) -> float:
        """The mean of log p over the rows.

        Args:
            X: The rows.
            y: Ignored.

        Example:
            >>> x = np.random.default_rng(0).normal(size=(60, 2))
            >>> density = EinetDensity(random_state=0, epochs=1, members=1).fit(x)
            >>> bool(density.score(x) == density.score_samples(x).mean())
            True
        """
        return float(self.score_samples(X).mean())

    def log_prob(self, X: Any) -> np.ndarray:
        """log p of the cells of a frame that has any of the columns, all others integrated out.

        Args:
            X: The rows.

        Example:
            >>> import pandas
            >>> frame = pandas.DataFrame({"a": ["x", "x", "x", "y"] * 20, "b": ["x", "y"] * 40})
            >>> density = EinetDensity(random_state=0, epochs=3, members=1).fit(frame)
            >>> more, less = density.log_prob(pandas.DataFrame({"a": ["x", "y"]}))
            >>> bool(more > less), float((np.exp(more) + np.exp(less)).round(6))
            (True, 1.0)
        """
        check_is_fitted(self)
        return self.model_.log_prob(X)

    def sample(self, n_samples: int = 1, given: Any = None, random_state: Any = None) -> Any:
        """New rows, as what the model was fitted to: a frame or an array.

        Args:
            n_samples: How many.
            given: What is known of them: a dict of values, intervals and sets by column, or a
                frame, for each row of which so many are drawn.
            random_state: Where to begin, other than at the estimator's own.
        """
        check_is_fitted(self)
        state = self.random_state if random_state is None else random_state
        return self.model_.sample(n_samples, given=given, seed=seed_of(state))
