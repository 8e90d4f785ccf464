"""The passes through an Einet: upwards, downwards, and both as a step of EM.

They take data that have been checked; :class:`~einet.Einet` checks what users give.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor, nn

from einet._memory import fitting
from einet.data.batch import Batch
from einet.engine.m_step import check_canonical, m_step, update_classes
from einet.engine.pseudo_counts import PseudoCounts
from einet.engine.root import class_posterior, mask_classes
from einet.engine.statistics import EinetStatistics, row_sums
from einet.engine.values import EinetValues, Expectation
from einet.families import ExponentialFamily
from einet.kernels.dispatch import fused
from einet.kernels.streams import Beside
from einet.kernels.update import Step
from einet.layers import Circuit, LeafLayer
from einet.structures import RegionGraph

__all__ = ["Layers", "Passes"]


class Layers(nn.Module, ABC):
    """Leaves and a circuit on them: one Einet, or several side by side."""

    leaf: LeafLayer
    circuit: Circuit
    log_class_prior: Tensor
    num_variables: int
    num_leaves: int
    num_classes: int

    # Every model has a class prior, and asking for all parameters takes longer than some calls.

    @property
    def device(self) -> torch.device:
        return self.log_class_prior.device

    @property
    def dtype(self) -> torch.dtype:
        return self.log_class_prior.dtype

    @property
    def is_fused(self) -> bool:
        """Whether the fused kernels serve this model."""
        return self.circuit.fits_kernels and fused(self.log_class_prior)

    def _is_replayed(self, batch: Batch) -> bool:
        """Whether a call with these rows is recorded and replayed."""
        return self.is_fused and batch.x.is_cuda

    @abstractmethod
    def step_(
        self, batch: Batch, step_size: float | Tensor, prior: PseudoCounts | None = None
    ) -> Float[Tensor, "*sums"]:
        """A step of stochastic EM from checked data; sums over the rows."""

    def _fill(self, batch: Batch, maximise: bool = False) -> EinetValues:
        """The values of every node."""
        like = self.leaf.leaf_blocks[0].stored
        values = EinetValues.of(self.circuit.empty_values(len(batch), like, maximise))
        values.evidence = self.leaf.evidence(batch.x, batch.observed, fused=values.fused)
        count, entries = self.leaf.num_nodes, self.num_leaves
        v, m = values.body.v[:count, :entries], values.body.m[:count]
        self.leaf.propagate_(values.evidence, v, m, maximise)
        self.circuit.fill_(self.circuit.weights, values, maximise)
        return values


class Passes(Layers):
    """What an Einet does with a batch that has been checked."""

    graph: RegionGraph
    #: Whether the leaves have been set from data.
    initialized: bool

    @property
    def families(self) -> list[ExponentialFamily]:
        """The family of each variable."""
        result: list[ExponentialFamily | None] = [None] * self.num_variables
        for group in self.leaf.family_groups:
            for column, variable in enumerate(group.variables.tolist()):
                result[variable] = group.family.at(torch.tensor(column, device=self.device))
        return result  # type: ignore[return-value]

    # -- rows ----------------------------------------------------------------------------------

    def pieces(self, rows: int) -> list[slice]:
        """Slices of a batch small enough for their values to fit a bounded memory, much alike."""
        circuit, like = self.circuit, self.log_class_prior
        bytes_each = circuit.num_body * circuit.width * like.element_size()
        number = -(-rows // fitting("values", bytes_each, like.device, least=64))
        # Whole multiples of what rows of a recording are filled up to.
        step = max(64, -(-rows // max(1, number) // 16) * 16)
        return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]

    # -- up and down ---------------------------------------------------------------------------

    @torch.no_grad()
    def upward(self, batch: Batch, maximise: bool = False) -> tuple[EinetValues, Tensor]:
        """Values of every node and the roots' log values ``[classes, batch]``; no gradients."""
        values = self._fill(batch, maximise)
        return values, self.circuit.root_of(values)

    @torch.no_grad()
    def row_log_likelihood(self, batch: Batch) -> Float[Tensor, " batch"]:
        """log p(x), or log p(x, c) of labelled rows, by the fused kernels (float64)."""
        from einet.kernels.triton import root as triton

        values = self._fill(batch)
        return triton.finish(values.top[-1:], self.log_class_prior, batch.labels, None, None)[0]

    @torch.no_grad()
    def downward(
        self,
        values: EinetValues,
        seed: Float[Tensor, "classes batch"],
        statistics: list[Tensor] | Step | None = None,
    ) -> Float[Tensor, "leaf_nodes leaves batch"]:
        """p_L of every leaf entry (eq. 6), for weights ``seed`` on the roots' log values."""
        return self.circuit.backpropagate_(self.circuit.weights, values, seed, statistics)

    # -- EM ------------------------------------------------------------------------------------

    @torch.no_grad()
    def expect_(self, batch: Batch, into: EinetStatistics) -> None:
        """Add the statistics of checked rows, all at once."""
        expected = self._expect(batch, into.weights)
        self.leaf.statistics(expected.evidence, expected.flow, into.leaves)
        into.add_sums(expected.sums)

    @torch.no_grad()
    def step_(
        self, batch: Batch, step_size: float | Tensor, prior: PseudoCounts | None = None
    ) -> Float[Tensor, " sums"]:
        """The whole of :meth:`em_step` for checked data; the sums of :class:`Expectation`."""
        check_canonical(self)
        pieces = self.pieces(len(batch))
        if len(pieces) > 1:
            statistics = EinetStatistics.zeros(self)
            for rows in pieces:
                self.expect_(batch[rows], statistics)
            m_step(self, statistics, step_size, prior)
            return statistics.sums()
        sums, leaves = (None, None) if prior is None else (prior.sums, prior.leaves)
        with Beside(self.log_class_prior) as beside:
            expected = self._expect(batch, Step(step_size, sums), beside)
            self.leaf.step_(expected.evidence, expected.flow, step_size, leaves)
            update_classes(self, expected.sums[3:], step_size)
        return expected.sums

    def _expect(
        self, batch: Batch, of_weights: list[Tensor] | Step, beside: Beside | None = None
    ) -> Expectation:
        """Both passes over one piece of a batch; statistics of sum weights go where asked for."""
        values = self._fill(batch)
        weights = self.circuit.weights
        if values.fused:
            from einet.kernels.triton import root as triton

            self.circuit.forget_scales(values)
            flow = self.circuit.empty_flow(values)
            root, prior = values.top[-1:], self.log_class_prior
            top = flow["top"][-1]
            _, sums = triton.finish(root, prior, batch.labels, batch.weights, top)
            into_leaves = self.circuit.flow_down_(weights, values, flow, of_weights, beside)
            return Expectation(values.evidence, into_leaves, sums)
        joint = self.circuit.root_of(values) + self.log_class_prior.double().unsqueeze(-1)
        if batch.labels is not None:
            joint = mask_classes(joint, batch.labels)
        log_likelihood = torch.logsumexp(joint, 0)
        seed = class_posterior(joint, None)
        ones = torch.ones_like(log_likelihood)
        row_weight = ones if batch.weights is None else batch.weights
        seed *= row_weight
        into_leaves = self.circuit.backpropagate_(weights, values, seed, of_weights)
        rows = row_sums(log_likelihood, row_weight)
        return Expectation(values.evidence, into_leaves, torch.cat([rows, seed.sum(1)]))
