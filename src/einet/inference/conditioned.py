"""A model together with evidence: what every question to a posterior is answered from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from einet._checks import as_int, check_choice
from einet._memory import check_memory
from einet.data.batch import Batch
from einet.data.batch_events import Events
from einet.inference.distribution import Distribution
from einet.inference.kept import Kept, room_on
from einet.inference.leaf_moments import mean_and_variance
from einet.inference.sampling import Leaves
from einet.layers import LeafLayer

__all__ = ["Conditioned", "WeightedLeaves", "same_values"]

# In place of typing.Self, which the run-time checks of the tests cannot read in methods.
Given = TypeVar("Given", bound="Conditioned")


@dataclass(frozen=True)
class WeightedLeaves:
    """The leaves of one Einet for some rows of the evidence, with their posterior probabilities.

    Attributes:
        rows: Which rows of the evidence these are.
        share: p(Einet | e) of each of them (float64): 1 for a model that is one Einet.
        leaf: The leaves.
        flow: p_L of every leaf entry within this Einet; together with ``share``, p(L | e).
        events: Those of the rows. Of a variable that has one, L is its density given the event:
            :mod:`einet.layers.leaf_events` has what to ask of it.
        alone: Whether these are all leaves that explain the rows.
    """

    rows: slice | Int[Tensor, " rows"]
    share: Float[Tensor, " rows"]
    leaf: LeafLayer
    flow: Float[Tensor, "leaf_nodes K rows"]
    events: Events | None = None
    alone: bool = False


class Conditioned(ABC):
    """p(· | e) for a batch of evidence, without the questions; they are in :class:`Posterior`.

    This class is also the guide to adding a question: one file with one function that takes a
    ``Conditioned`` first, and one line in :class:`~einet.inference.posterior.Posterior`. It works
    for every model then, as a question has two things to ask in turn:

    * ``model.log_joint(batch)``: log p of any rows, missing cells integrated out;
    * :meth:`weighted_leaves`: p(L | e) of every leaf density L given the evidence. A variable's
      marginal is Σ_L p(L | e) p_L(x_d), and any expectation the same sum over expectations of
      leaves: see :meth:`expectation`.

    Questions that choose a point (:meth:`sample`, :meth:`mode`) go down the model itself, and so
    each kind of model answers them by itself.

    Args:
        model: The model.
        evidence: Rows that were checked, and that nobody else writes to.
        room: How many bytes of its passes the posterior keeps; see :class:`~.kept.Kept`. It is
            given by another posterior that this one is a part of.
    """

    def __init__(self, model: Distribution, evidence: Batch, room: int | None = None) -> None:
        self.model, self.evidence = model, evidence
        #: Whether it is a part of another posterior: some of its rows, or a component's.
        self.is_part = room is not None
        self.room = room_on(model.device) if room is None else room
        self.kept = Kept(model, self.room)

    def __len__(self) -> int:
        return len(self.evidence)

    # -- what a model answers by itself --------------------------------------------------------

    @abstractmethod
    def weighted_leaves(self) -> Iterator[WeightedLeaves]:
        """All leaves that explain the evidence, in pieces; shares of a row add up to 1.

        Raises where p(e) = 0.

        Example:
            >>> import einet, torch
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> (leaves,) = model.given([[0.5, float("nan")]]).weighted_leaves()
            >>> leaves.flow.shape  # p_L of 3 densities in each of 2 leaves, for one row
            torch.Size([2, 3, 1])
            >>> torch.allclose(leaves.flow.sum(1), torch.ones(2, 1))
            True
        """

    @abstractmethod
    def find_log_evidence(self) -> Float[Tensor, " batch"]:
        """log p(e) of each row (float64).

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> posterior = model.given([[0.5, float("nan")]])
            >>> torch.equal(posterior.find_log_evidence(), posterior.exact_log_evidence)
            True
        """

    @abstractmethod
    def at(self: Given, rows: slice | Int[Tensor, " rows"]) -> Given:
        """The same for some of the rows, with what is kept of them.

        Args:
            rows: A slice, or the numbers of rows in ascending order.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> posterior = model.given([[0.5, float("nan")], [1.5, float("nan")]])
            >>> torch.equal(posterior.at(slice(1, 2)).mean(), posterior.mean()[1:])
            True
        """

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

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> draws = model.given([[0.5, float("nan")]]).sample(4, seed=0)
            >>> draws.shape
            torch.Size([4, 1, 2])
            >>> draws[:, 0, 0]  # what was observed
            tensor([0.5000, 0.5000, 0.5000, 0.5000], dtype=torch.float64)
        """

    @abstractmethod
    def mode(self) -> Float[Tensor, "batch variables"]:
        """An approximation of argmax_x p(x | e), by max-product and backtracking.

        The exact answer (MPE) is NP-hard in circuits whose sums overlap, as these do. The answer
        here is the best point of a single sub-tree of the circuit, chosen with the leaves at their
        modes: a point of high density, but not always the highest.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(4, 2, 2), einet.Bernoulli(), num_sums=3)
            >>> posterior = model.given([[1, 0, 0, 0]], observed=[[True, True, False, False]])
            >>> states = torch.tensor([[1, 0, i, j] for i in (0, 1) for j in (0, 1)])
            >>> likely = posterior.log_prob(states).max()
            >>> bool(posterior.log_prob(posterior.mode()) > likely - 0.5)
            True
        """

    # -- what questions share ------------------------------------------------------------------

    @property
    def log_evidence(self) -> Float[Tensor, " batch"]:
        """log p(e) of each row.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> evidence = torch.tensor([[0.5, float("nan")]])
            >>> torch.allclose(model.given(evidence).log_evidence, model.log_prob(evidence))
            True
        """
        return self.exact_log_evidence.to(self.model.dtype)

    @property
    def exact_log_evidence(self) -> Float[Tensor, " batch"]:
        """The same in float64: differences of log densities would lose their digits in float32.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> model.given([[0.5, float("nan")]]).exact_log_evidence.dtype
            torch.float64
        """
        return self.kept.once("log evidence", self.find_log_evidence)

    def expectation(
        self, of: Callable[[WeightedLeaves], Float[Tensor, "rows size"]], size: int
    ) -> Float[Tensor, "batch size"]:
        """Σ_L p(L | e) f(L) for each row (float64).

        Args:
            of: The sum over the leaves of one Einet, given their flow: so many numbers for a row.
            size: How many these are.

        Returns:
            ``[batch, size]``.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> posterior = model.given([[0.5, float("nan")]])
            >>> def entry(leaves):  # the posterior of which density stands behind the first leaf
            ...     return leaves.flow[0].T.double()
            >>> posterior.expectation(entry, size=3).sum().item()
            1.0
        """
        shape, kind = (len(self), size), torch.float64
        total = torch.zeros(shape, dtype=kind, device=self.model.device)
        for leaves in self.weighted_leaves():
            total[leaves.rows] += leaves.share.unsqueeze(-1) * of(leaves)
        return total

    def moments_under(
        self, leaves: WeightedLeaves
    ) -> tuple[Float[Tensor, "rows variables"], Float[Tensor, "rows variables"]]:
        """Mean and variance of every variable within one Einet (float64), events apart.

        Args:
            leaves: The leaves of the Einet.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> posterior = model.given([[float("nan"), float("nan")]])
            >>> (leaves,) = posterior.weighted_leaves()
            >>> torch.equal(posterior.moments_under(leaves)[0], posterior.mean())
            True
        """
        return mean_and_variance(leaves.leaf, leaves.flow)

    def check_possible(self) -> None:
        """Raise where p(e) = 0, naming the rows.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Bernoulli(), num_sums=3)
            >>> model.given([[1, 0], [7, 0]]).check_possible()
            Traceback (most recent call last):
            ValueError: the evidence has probability 0 in 1 of 2 rows (1), which have no posterior
        """
        # Kept, as a GPU has to be waited for.
        rows = self.kept.once("impossible rows", self._impossible_rows)
        if rows:
            shown = ", ".join(map(str, rows[:10])) + (", …" if len(rows) > 10 else "")
            raise ValueError(
                f"the evidence has probability 0 in {len(rows)} of {len(self)} rows ({shown}), "
                "which have no posterior"
            )

    def _impossible_rows(self) -> list[int]:
        # Looked through here: a GPU would be waited for twice, and has other things to do.
        return (self.exact_log_evidence.cpu() == -torch.inf).nonzero().flatten().tolist()

    @property
    def result_dtype(self) -> torch.dtype:
        """The type of answers that hold data: the evidence's, if that is finer than the model's.

        Example:
            >>> import einet, torch
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> evidence = torch.zeros(1, 2)
            >>> [model.given(each).result_dtype for each in (evidence, evidence.double())]
            [torch.float32, torch.float64]
        """
        kind = self.evidence.x.dtype
        return torch.promote_types(self.model.dtype, kind if kind.is_floating_point else torch.half)

    def keep_evidence(self, answer: Tensor) -> Tensor:
        """Put the observed values in place, in a tensor ``[…, batch, variables]``.

        Args:
            answer: A tensor of all variables; it is not changed.

        Example:
            >>> import einet, torch
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> model.given([[0.5, float("nan")]]).keep_evidence(torch.full((1, 2), 9.0))
            tensor([[0.5000, 9.0000]])
        """
        return torch.where(self.evidence.mask, self.evidence.x.to(answer.dtype), answer)

    def as_variable(self, variable: int) -> int:
        """The number of a variable, checked.

        Args:
            variable: What was given for one.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> model.given().as_variable(2)
            Traceback (most recent call last):
            ValueError: variable must lie between 0 and 1, got 2
        """
        number, total = as_int("variable", variable, minimum=0), self.model.num_variables
        if number >= total:
            raise ValueError(f"variable must lie between 0 and {total - 1}, got {variable!r}")
        return number

    def as_query(self, x: Any, observed: Any) -> Batch:
        """Query values with one row for each row of evidence.

        Args:
            x, observed: The values; as in :meth:`log_prob`.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> posterior = model.given([[0.5, float("nan")]])
            >>> posterior.as_query([[float("nan"), 1.0]], observed=None).mask
            tensor([[False,  True]])
        """
        query = self.model.as_batch(x, observed)
        if len(query) != len(self):
            raise ValueError(
                f"x must have as many rows as the evidence, {len(self)}, got {len(query)}"
            )
        return query

    def as_count(self, n: int, leaves: str) -> int:
        """How many to sample, checked together with what is read off the leaves.

        Args:
            n: What was given for the number of samples.
            leaves: What was given for what to read off the leaves.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> model.given().as_count(16, leaves="sample")
            16
            >>> model.given().as_count(-1, leaves="sample")
            Traceback (most recent call last):
            ValueError: n must be an integer >= 0, got -1
        """
        check_choice("leaves", leaves, ("sample", "mean"))
        count, model = as_int("n", n, minimum=0), self.model
        each = len(self) * model.num_variables * self.result_dtype.itemsize
        check_memory("n, the number of samples,", count * each, model.device)
        return count


def same_values(query: Batch, evidence: Batch) -> Bool[Tensor, "batch variables"]:
    """Which values are equal, once both are rounded to the coarser of their types."""
    kinds = [batch.x.dtype for batch in (query, evidence) if batch.x.is_floating_point()]
    coarse = min(kinds, key=lambda kind: torch.finfo(kind).bits, default=torch.float64)
    return query.x.to(coarse) == evidence.x.to(coarse)
