"""The Einsum Network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from einet.base import Model
from einet.classes import class_posterior, log_sum_classes, mask_classes
from einet.data.batch import Batch, as_batch, as_labels, as_weights
from einet.families import ExponentialFamily
from einet.kernels.update import Step
from einet.layers import Circuit, LeafLayer, Values
from einet.learning.initialize import initialize_leaves
from einet.learning.m_step import check_canonical, m_step, update_leaves_and_classes
from einet.learning.statistics import EinetStatistics
from einet.structures import RegionGraph
from einet.structures.arguments import as_int

if TYPE_CHECKING:
    from einet.inference.conditional import EinetPosterior
    from einet.learning.statistics import Statistics

__all__ = ["Einet"]

# Values of one piece of a large batch are kept below this, where no gradients are asked for.
_PIECE_BYTES = 256 << 20


class Einet(Model):
    r"""An Einsum Network: a region graph with vectors of sums and of exponential-family leaves.

    In the paper's notation every leaf region holds K densities of the EF tensor
    :math:`\mathbf{E}`, every partition is a sum :math:`S_{lk} = W_{lkij} N_{li} N'_{lj}` over an
    outer product, and a region with several partitions mixes their sums element-wise.

    Args:
        graph: The structure: :func:`~einet.random_trees`, :func:`~einet.poon_domingos` or one
            built by hand.
        family: The leaves' exponential family: one for all variables or one for each.
        num_sums: K, the number of sums in each inner region.
        num_leaves: The number of densities in each leaf region; K by default.
        num_classes: C, the number of roots, one distribution p(x | c) each.
        seed: Seed of the random initial parameters.
        dtype, device: Type and place of the parameters; torch's defaults if not given.

    Example:
        >>> import einet, torch
        >>> graph = einet.random_trees(num_variables=4, depth=2, replicas=3, seed=0)
        >>> model = einet.Einet(graph, einet.Bernoulli(), num_sums=5)
        >>> states = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 4)
        >>> model.log_prob(states).exp().sum().item()
        1.0
        >>> model.log_prob(torch.tensor([[1.0, float("nan"), 0.0, float("nan")]])).shape
        torch.Size([1])
    """

    log_class_prior: Float[Tensor, " classes"]

    def __init__(
        self,
        graph: RegionGraph,
        family: ExponentialFamily | Sequence[ExponentialFamily],
        num_sums: int,
        *,
        num_leaves: int | None = None,
        num_classes: int = 1,
        seed: int = 0,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        num_sums = as_int("num_sums", num_sums, minimum=1)
        given_leaves = num_sums if num_leaves is None else num_leaves
        num_leaves = as_int("num_leaves", given_leaves, minimum=1)
        num_classes = as_int("num_classes", num_classes, minimum=1)
        if not isinstance(graph, RegionGraph):
            raise TypeError(f"graph must be a RegionGraph, got {type(graph).__name__}")
        _check_families(family, graph.num_variables)
        self.graph = graph
        self.num_variables = graph.num_variables
        self.num_sums, self.num_leaves, self.num_classes = num_sums, num_leaves, num_classes
        self.leaf = LeafLayer(graph, family, num_leaves)
        self.circuit = Circuit(graph, num_leaves, num_sums, num_classes)
        uniform = torch.full((num_classes,), -math.log(num_classes), dtype=dtype)
        if num_classes > 1:
            self.log_class_prior = nn.Parameter(uniform)
        else:
            self.register_buffer("log_class_prior", uniform)
        self.initialized = False
        if dtype is not None:
            # Cast before drawing: weights drawn in float32 would not add up to 1 in float64.
            self.to(dtype)
        generator = torch.Generator().manual_seed(seed)
        self.circuit.randomize(generator)
        initialize_leaves(self.leaf, None, generator)
        if device is not None:
            self.to(device)

    @property
    def families(self) -> list[ExponentialFamily]:
        """The family of each variable."""
        result: list[ExponentialFamily | None] = [None] * self.num_variables
        for group in self.leaf.family_groups:
            for column, variable in enumerate(group.variables.tolist()):
                result[variable] = group.family.at(torch.tensor(column, device=self.device))
        return result  # type: ignore[return-value]

    # -- densities -----------------------------------------------------------------------------

    def log_likelihood(
        self, x: Any, observed: Any = None, *, labels: Any = None
    ) -> Float[Tensor, " batch"]:
        """What learning maximises: log p(x, c) where the class is known, log p(x) elsewhere."""
        joint = self._class_log_prob(x, observed) + self.log_class_prior.double().unsqueeze(-1)
        known = self._as_labels(labels, joint.shape[1])
        joint = joint if known is None else mask_classes(joint, known)
        return log_sum_classes(joint).to(self.dtype)

    def class_log_prob(self, x: Any, observed: Any = None) -> Float[Tensor, "batch classes"]:
        """log p(x | c) for every class."""
        return self._class_log_prob(x, observed).T.to(self.dtype)

    def class_posterior(self, x: Any, observed: Any = None) -> Float[Tensor, "batch classes"]:
        """p(c | x) for every class; the class prior where p(x) = 0."""
        joint = self._class_log_prob(x, observed) + self.log_class_prior.double().unsqueeze(-1)
        return class_posterior(joint, self.log_class_prior).T.to(self.dtype)

    def _class_log_prob(self, x: Any, observed: Any) -> Float[Tensor, "classes batch"]:
        batch = as_batch(x, self.num_variables, observed, device=self.device)
        tracked = torch.is_grad_enabled() and any(p.requires_grad for p in self.parameters())
        if tracked and len(batch):
            batch = batch.double()
            return self.circuit(*self.leaf(batch.x, batch.observed))
        with torch.no_grad():
            parts = [self.upward(batch[rows])[1] for rows in self.pieces(len(batch))]
        return torch.cat(parts, 1) if parts else self.log_class_prior.new_empty(self.num_classes, 0)

    def propagate(
        self,
        v: Float[Tensor, "leaf_nodes leaves batch"],
        m: Float[Tensor, "leaf_nodes batch"],
    ) -> Float[Tensor, "batch classes"]:
        """Log values of the roots from given leaf values ``v·exp(m)``: the circuit alone."""
        return self.circuit(v, m).T

    # -- queries -------------------------------------------------------------------------------

    def given(self, x: Any, observed: Any = None, *, labels: Any = None) -> EinetPosterior:
        """The distribution of everything, given the observed cells of each row.

        Args:
            x, observed: The evidence; as in :meth:`log_prob`.
            labels: The class of each row where it is known too, −1 where not.
        """
        from einet.inference.conditional import EinetPosterior

        batch = as_batch(x, self.num_variables, observed, device=self.device)
        return EinetPosterior(self, batch, self._as_labels(labels, len(batch)))

    # -- learning ------------------------------------------------------------------------------

    def initialize(self, data: Any, observed: Any = None, seed: int = 0) -> Einet:
        """Set the leaves from data: each entry between the column's statistics and one row's.

        Every column's location and scale are read off the data, and each density of each leaf is
        put between the overall distribution and a randomly chosen row. A variable that is never
        observed keeps its parameters.
        """
        batch = as_batch(data, self.num_variables, observed, name="data", allow_empty=False)
        self.check_support(batch, "data")
        initialize_leaves(self.leaf, batch, torch.Generator().manual_seed(seed))
        self.initialized = True
        return self

    def check_support(self, batch: Batch, name: str) -> None:
        """Raise if an observed value has density zero whatever the parameters."""
        for group in self.leaf.family_groups:
            family = group.family
            columns = group.variables.to(batch.x.device)
            moved = {key: value.to(batch.x.device) for key, value in family.hyper.items()}
            family = family.with_hyperparameters(moved)
            for start in range(0, len(batch), 4096):
                part = batch[slice(start, start + 4096)]
                x = torch.where(part.mask, part.x.double(), family.filler)[:, columns]
                bad = (family.log_h(x) == -torch.inf).nonzero()
                if bad.numel():
                    row, column = bad[0].tolist()
                    raise ValueError(
                        f"{name}[{start + row}, {int(columns[column])}] is {x[row, column]:g}, "
                        f"outside the support of {type(family).__name__}: {family.support}"
                    )

    @torch.no_grad()
    def e_step(
        self,
        x: Any,
        observed: Any = None,
        *,
        labels: Any = None,
        weights: Any = None,
        into: Statistics | None = None,
    ) -> EinetStatistics:
        """Expected statistics of a batch (eq. 6), added to ``into`` where given.

        Args:
            x, observed: The data; as in :meth:`log_prob`.
            labels: The class of each row, −1 where unknown.
            weights: How often each row counts; once by default.
            into: Statistics to add to.
        """
        batch = as_batch(x, self.num_variables, observed, device=self.device)
        rows = len(batch)
        known = self._as_labels(labels, rows)
        weight = None if weights is None else as_weights(weights, rows).to(self.device)
        statistics = EinetStatistics.zeros(self) if into is None else into
        assert isinstance(statistics, EinetStatistics)
        for part in self.pieces(rows):
            labels_here = None if known is None else known[part]
            weight_here = None if weight is None else weight[part]
            self._expect(batch[part], labels_here, weight_here, statistics, statistics.weights)
        return statistics

    @torch.no_grad()
    def em_step(
        self,
        x: Any,
        observed: Any = None,
        *,
        labels: Any = None,
        weights: Any = None,
        step_size: float | Tensor = 1.0,
    ) -> Float[Tensor, ""]:
        """``m_step(e_step(x), step_size)`` in one go; the mean log-likelihood before the update.

        Weights of sums are updated within the backward pass, as soon as their statistics are known:
        the same numbers, sooner, without memory for the statistics.
        """
        batch = as_batch(x, self.num_variables, observed, device=self.device, allow_empty=False)
        if len(self.pieces(len(batch))) > 1:
            statistics = self.e_step(batch.x, batch.observed, labels=labels, weights=weights)
            self.m_step(statistics, step_size)
        else:
            check_canonical(self)
            known = self._as_labels(labels, len(batch))
            weight = None if weights is None else as_weights(weights, len(batch)).to(self.device)
            statistics = EinetStatistics.zeros(self, sums=False)
            self._expect(batch, known, weight, statistics, Step(step_size))
            update_leaves_and_classes(self, statistics, step_size)
        return statistics.log_likelihood / statistics.rows

    def _expect(
        self,
        batch: Batch,
        labels: Tensor | None,
        weight: Tensor | None,
        statistics: EinetStatistics,
        of_weights: list[Tensor] | Step,
    ) -> None:
        """Add the expected statistics of one piece of a batch; those of weights as asked for."""
        values, root = self.upward(batch)
        joint = root + self.log_class_prior.double().unsqueeze(-1)
        if labels is not None:
            joint = mask_classes(joint, labels)
        log_likelihood = torch.logsumexp(joint, 0)
        seed = class_posterior(joint, None)
        row_weight = torch.ones_like(log_likelihood) if weight is None else weight
        seed *= row_weight
        flow = self.downward(values, seed, of_weights)
        self.leaf.statistics(values.evidence, flow, statistics.leaves)
        statistics.classes += seed.sum(1)
        statistics.add_rows(log_likelihood, row_weight)

    def m_step(self, statistics: Statistics, step_size: float | Tensor = 1.0) -> None:
        assert isinstance(statistics, EinetStatistics)
        m_step(self, statistics, step_size)

    # -- passes --------------------------------------------------------------------------------

    def pieces(self, rows: int) -> list[slice]:
        """Slices of a batch small enough for their values to fit a bounded memory."""
        item = torch.finfo(self.dtype).bits // 8
        bytes_each = self.circuit.num_body * self.circuit.width * item
        step = max(64, _PIECE_BYTES // bytes_each)
        return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]

    @torch.no_grad()
    def upward(self, batch: Batch, maximise: bool = False) -> tuple[EinetValues, Tensor]:
        """Values of every node and the roots' log values ``[classes, batch]``; no gradients."""
        batch = batch.double()
        evidence = self.leaf.evidence(batch.x, batch.observed)
        like = self.leaf.leaf_blocks[0].stored
        values = self.circuit.empty_values(len(batch), like)
        count, entries = self.leaf.num_nodes, self.num_leaves
        v, m = values.body.v[:count, :entries], values.body.m[:count]
        self.leaf.propagate_(evidence, v, m, maximise)
        root = self.circuit.propagate_(self.circuit.weights, values, maximise)
        return EinetValues(values.body, values.top, evidence), root

    @torch.no_grad()
    def downward(
        self,
        values: EinetValues,
        seed: Float[Tensor, "classes batch"],
        statistics: list[Tensor] | Step | None = None,
    ) -> Float[Tensor, "leaf_nodes leaves batch"]:
        """p_L of every leaf entry (eq. 6), for weights ``seed`` on the roots' log values."""
        return self.circuit.backpropagate_(self.circuit.weights, values, seed, statistics)

    def _as_labels(self, labels: Any, rows: int) -> Tensor | None:
        if labels is None:
            return None
        return as_labels(labels, rows, self.num_classes).to(self.device)

    def extra_repr(self) -> str:
        classes = f", classes={self.num_classes}" if self.num_classes > 1 else ""
        return (
            f"variables={self.num_variables}, sums={self.num_sums}, leaves={self.num_leaves}"
            f"{classes}, parameters={self.num_parameters:,}"
        )


class EinetValues(Values):
    """Values of a circuit together with the evidence at its leaves."""

    def __init__(self, body, top, evidence) -> None:
        super().__init__(body, top)
        self.evidence = evidence


def _check_families(family: Any, num_variables: int) -> None:
    if isinstance(family, ExponentialFamily):
        return
    if not isinstance(family, Sequence) or not all(
        isinstance(f, ExponentialFamily) for f in family
    ):
        raise TypeError(
            "family must be an exponential family such as einet.Gaussian(), or a list with one for "
            f"each variable, got {family!r}"
        )
    if len(family) != num_variables:
        raise ValueError(
            f"family must hold one family for each of the {num_variables} variables, "
            f"got {len(family)}"
        )
