"""What can be asked of a distribution given evidence, whatever the model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from einet._checks import as_int
from einet.data.batch import Batch, as_batch
from einet.inference.distribution import Distribution
from einet.inference.sampling import Leaves

__all__ = ["Posterior"]


class Posterior(ABC):
    """p(· | e) for a batch of evidence, one row each; made by ``model.given``.

    All answers are exact, except :meth:`mode`. Rows with p(e) = 0 have no posterior: for them
    :meth:`log_prob` is −∞, and every other query raises, naming them.
    """

    def __init__(self, model: Distribution, evidence: Batch) -> None:
        self.model = model
        # A copy: answers are computed when they are asked for, and x may have changed by then.
        self.evidence = evidence.map(torch.clone)

    def __len__(self) -> int:
        return len(self.evidence)

    @property
    def log_evidence(self) -> Float[Tensor, " batch"]:
        """log p(e) of each row."""
        return self._log_evidence.to(self.model.dtype)

    @cached_property
    @torch.no_grad()
    def _log_evidence(self) -> Float[Tensor, " batch"]:
        # In float64: differences of log densities would lose most of their digits in float32.
        return self.model.batch_log_prob(self.evidence)

    @abstractmethod
    def sample(
        self, n: int, leaves: Leaves = "sample", seed: int | torch.Generator | None = None
    ) -> Float[Tensor, "n batch variables"]:
        """Independent draws of all variables; observed ones keep their values.

        Args:
            n: How many for each row of evidence.
            leaves: ``"mean"`` takes the leaves' means in place of draws from them (noise-free
                images, the paper's addendum); what the sums choose is drawn all the same.
            seed: A seed, or a generator on the model's device.
        """

    @abstractmethod
    def mean(self) -> Float[Tensor, "batch variables"]:
        """E[x | e]; NaN for Categorical variables that are not observed."""

    @abstractmethod
    def variance(self) -> Float[Tensor, "batch variables"]:
        """Var[x | e], 0 where observed; NaN for Categorical variables that are not observed."""

    @abstractmethod
    def mode(self) -> Float[Tensor, "batch variables"]:
        """An approximation of argmax_x p(x | e), by max-product and backtracking.

        The exact answer (MPE) is NP-hard in circuits whose sums overlap, as these do. The answer
        here is the best point of a single sub-tree of the circuit, chosen with the leaves at their
        modes: a point of high density, but not always the highest.
        """

    @abstractmethod
    def log_marginals(self, x: Any, observed: Any = None) -> Float[Tensor, "batch variables"]:
        """log p(x_d | e) of each variable by itself, at the given values; 0 where x is missing."""

    @abstractmethod
    def probabilities(self, variable: int) -> Float[Tensor, "batch states"]:
        """p(x_d = s | e) of every state s = 0, 1, … of one variable with finitely many."""

    def log_prob(self, x: Any, observed: Any = None) -> Float[Tensor, " batch"]:
        """Equation (1): log p(x_q | e), everything neither in x nor in the evidence integrated out.

        Args:
            x: Query values ``[batch, variables]``, NaN where not asked for; a single row of
                evidence is asked about every row of x. A variable may stand in both; where the two
                contradict each other the answer is −∞.
            observed: A mask of the same shape, for integer data.
        """
        query = as_batch(x, self.model.num_variables, observed, device=self.model.device)
        evidence = self.evidence
        log_evidence = self._log_evidence
        if len(evidence) == 1 and len(query) != 1:
            evidence = evidence[torch.zeros(len(query), dtype=torch.long, device=query.x.device)]
            log_evidence = log_evidence.expand(len(query))
        if len(query) != len(evidence):
            raise ValueError(
                f"x must have as many rows as the evidence, {len(evidence)}, got {len(query)}"
            )
        both = query.mask & evidence.mask
        values = torch.where(evidence.mask, evidence.x.double(), query.x.double())
        contradiction = (both & ~_same(query, evidence)).any(1)
        both_known = replace(evidence, x=values, observed=query.mask | evidence.mask)
        with torch.no_grad():
            joint = self.model.batch_log_prob(both_known)
        impossible = contradiction | (log_evidence == -torch.inf)
        answer = torch.where(impossible, -torch.inf, joint - log_evidence)
        return answer.to(self.model.dtype)

    def check_possible(self) -> None:
        """Raise where p(e) = 0, naming the rows."""
        rows = (self.log_evidence == -torch.inf).nonzero().flatten().tolist()
        if rows:
            shown = ", ".join(map(str, rows[:10])) + (", …" if len(rows) > 10 else "")
            raise ValueError(
                f"the evidence has probability 0 in {len(rows)} of {len(self)} rows ({shown}), "
                "which have no posterior"
            )

    @property
    def result_dtype(self) -> torch.dtype:
        """The type of answers that hold data: the evidence's, if that is finer than the model's."""
        kind = self.evidence.x.dtype
        return torch.promote_types(self.model.dtype, kind if kind.is_floating_point else torch.half)

    def keep_evidence(self, answer: Tensor) -> Tensor:
        """Put the observed values in place, in a tensor ``[…, batch, variables]``."""
        return torch.where(self.evidence.mask, self.evidence.x.to(answer.dtype), answer)

    def as_variable(self, variable: int) -> int:
        """The number of a variable, checked."""
        number, total = as_int("variable", variable, minimum=0), self.model.num_variables
        if number >= total:
            raise ValueError(f"variable must lie between 0 and {total - 1}, got {variable!r}")
        return number

    def answer_marginals(
        self, query: Batch, log_marginals: Float[Tensor, "batch variables"]
    ) -> Float[Tensor, "batch variables"]:
        """Marginals with what is observed put in: 0 if the query agrees, −∞ if not."""
        known = torch.where(_same(query, self.evidence), 0.0, -torch.inf)
        answer = torch.where(self.evidence.mask, known, log_marginals.double())
        return torch.where(query.mask, answer, 0.0).to(self.model.dtype)

    def as_query(self, x: Any, observed: Any) -> Batch:
        """Query values with one row for each row of evidence."""
        query = as_batch(x, self.model.num_variables, observed, device=self.model.device)
        if len(query) != len(self):
            raise ValueError(
                f"x must have as many rows as the evidence, {len(self)}, got {len(query)}"
            )
        return query

    @staticmethod
    def as_count(n: int, leaves: str) -> int:
        """How many to sample, checked together with how."""
        if leaves not in ("sample", "mean"):
            raise ValueError(f"leaves must be 'sample' or 'mean', got {leaves!r}")
        return as_int("n", n, minimum=0)


def _same(query: Batch, evidence: Batch) -> Bool[Tensor, "batch variables"]:
    """Which values are equal, once both are rounded to the coarser of their types."""
    kinds = [batch.x.dtype for batch in (query, evidence) if batch.x.is_floating_point()]
    coarse = min(kinds, key=lambda kind: torch.finfo(kind).bits, default=torch.float64)
    return query.x.to(coarse) == evidence.x.to(coarse)
