"""One alternative of what is known of rows: the model's variables given it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from einet.data.events import Event
from einet.inference.few_rows import MOST_ROWS, FewPosterior
from einet.inference.posterior import Posterior
from einet.models.base import Model
from einet.tables.leaves import GaussianLeaves, few_leaves, gaussian_leaves

__all__ = ["Piece"]


class Piece:
    """p(· | e) of a model's variables: what answers about columns are made of.

    A few rows are answered in numpy where the model is served there, all others by the model's own
    posterior: the same numbers.

    Args:
        model: The model.
        z: Values of the variables in each row, NaN where unknown.
        events: What else is known of some variables, in all rows.
        few: The answer in numpy, where it is there already.
    """

    def __init__(
        self,
        model: Model,
        z: Float[np.ndarray, "rows variables"],
        events: Mapping[int, Event],
        few: FewPosterior | None = None,
    ) -> None:
        self.model, self.z, self.events = model, z, events
        if few is None:
            few = FewPosterior.of(model, z, [events] * len(z) if events else ())
        self._few = few
        self._posterior: Posterior | None = None

    @classmethod
    def several(
        cls,
        model: Model,
        z: Sequence[Float[np.ndarray, "rows variables"]],
        events: Sequence[Mapping[int, Event]],
    ) -> list[Piece]:
        """One for each alternative; those of one row have their passes together.

        Args:
            model: The model.
            z: For each alternative, the values of the variables in each row.
            events: For each alternative, what else is known.
        """
        if len(z) == 1 or any(len(rows) != 1 for rows in z):
            return [cls(model, rows, known) for rows, known in zip(z, events, strict=True)]
        pieces = []
        for start in range(0, len(z), MOST_ROWS):
            some = slice(start, start + MOST_ROWS)
            few = FewPosterior.of(model, np.concatenate(z[some]), list(events[some]))
            pieces += [
                cls(model, rows, known, None if few is None else few.at(number))
                for number, (rows, known) in enumerate(zip(z[some], events[some], strict=True))
            ]
        return pieces

    def __len__(self) -> int:
        return len(self.z)

    @property
    def posterior(self) -> Posterior:
        """The same as the model answers it."""
        # No lock: threads may make it at the same time, and either serves.
        posterior = self._posterior
        if posterior is None:
            options = {"where": dict(self.events)} if self.events else {}
            posterior = self._posterior = self.model.given(torch.from_numpy(self.z), **options)
        return posterior

    @property
    def log_evidence(self) -> Float[np.ndarray, " rows"]:
        """log p(e) of each row, on the model's scale."""
        if self._few is not None:
            return self._few.log_evidence
        return self.posterior.exact_log_evidence.cpu().numpy()

    def probabilities(self, variable: int) -> Float[np.ndarray, "rows states"]:
        """The probability of each state of a discrete variable."""
        answer = None if self._few is None else self._few.probabilities(variable)
        if answer is None:
            answer = self.posterior.probabilities(variable).double().cpu().numpy()
        return answer

    def leaves(self, variable: int, beside: int | None = None) -> list[GaussianLeaves]:
        """The leaves of a Gaussian variable; their weights add up to 1 in every row.

        Args:
            variable: The variable.
            beside: One of states, which is known to be in state 0 then wherever it is unknown.
        """
        if self._few is None and beside is None:
            return list(gaussian_leaves(self.posterior, variable))
        found = None
        if self._few is not None and beside is None:
            found = self._few.leaves(variable)
        elif self._few is not None and beside is not None:
            found = self._few.leaves_given(variable, beside, 0)
        if found is not None:
            return few_leaves(found, len(self))
        assert beside is not None
        z = self.z.copy()
        z[np.isnan(z[:, beside]), beside] = 0.0
        others = {v: event for v, event in self.events.items() if v != beside}
        return Piece(self.model, z, others).leaves(variable)

    def sample(self, n: int, seed: int) -> Float[Tensor, "n rows variables"]:
        """Draws of all variables; known ones keep their values."""
        return self.posterior.sample(n, seed=seed).double().cpu()
