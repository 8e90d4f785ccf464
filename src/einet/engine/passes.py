"""The passes through an Einet: upwards, downwards, and both as a step of EM.

They take data that have been checked; :class:`~einet.Einet` checks what users give.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd import forward_ad

from einet._memory import fitting
from einet.data.batch import Batch, check_no_events
from einet.distributed.reduction import Reduction
from einet.engine import autograd
from einet.engine.few_rows import few_roots
from einet.engine.m_step import check_canonical, m_step, update_log_weights
from einet.engine.memory import LEAST_ROWS
from einet.engine.pseudo_counts import PseudoCounts
from einet.engine.root import fused_log_prob, join, log_sum, share_out
from einet.engine.statistics import EinetStatistics, row_sums
from einet.engine.values import EinetValues, Expectation
from einet.families import ExponentialFamily
from einet.kernels.dispatch import fused
from einet.kernels.streams import Beside
from einet.kernels.update import Step
from einet.layers import Circuit, LeafLayer
from einet.structures import RegionGraph

__all__ = ["Layers", "Passes", "Place"]


class Place(NamedTuple):
    """Where a tensor of a module is kept: in a dictionary of the module's, by name.

    Inside :func:`einet.unconstrained` the dictionary has no parameter of that name: it is computed
    from others then, as the module's attribute.
    """

    module: nn.Module
    tensors: dict[str, Any]
    name: str

    @property
    def kept(self) -> Tensor | None:
        """The tensor that is kept here, if it is not computed from others."""
        return self.tensors.get(self.name)

    @property
    def value(self) -> Tensor:
        """The tensor, be it kept or computed."""
        return getattr(self.module, self.name)


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
        """Where the parameters are."""
        return self.log_class_prior.device

    @property
    def dtype(self) -> torch.dtype:
        """The type of the parameters."""
        return self.log_class_prior.dtype

    @property
    def is_fused(self) -> bool:
        """Whether the fused kernels serve this model.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> model.is_fused  # on a GPU it would be True
            False
        """
        return self.circuit.fits_kernels and fused(self.log_class_prior)

    def parameter_places(self) -> list[Place]:
        """Where each parameter is kept.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> [place.name for place in model.parameter_places()]
            ['stored', 'weight', 'log_class_prior']
        """
        places = [Place(block, block._parameters, "stored") for block in self.leaf.leaf_blocks]
        places += [Place(layer, layer._parameters, "weight") for layer in self.circuit.sum_layers]
        prior = self._buffers if self.num_classes == 1 else self._parameters
        places.append(Place(self, prior, "log_class_prior"))
        return places

    def places(self) -> list[Place]:
        """Where all numbers of a model are kept; its other tensors follow from its structure.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Bernoulli(), num_sums=3)
            >>> [place.name for place in model.places()]
            ['stored', 'weight', 'log_class_prior', 'min_probability']
        """
        groups = self.leaf.family_groups
        hyper = [Place(group, group._buffers, name) for group in groups for name in group.raw_hyper]
        return [*self.parameter_places(), *hyper]

    def is_tracked(self, batch: Batch) -> bool:
        """Whether derivatives are asked for, in the parameters or in the rows.

        Args:
            batch: The rows.

        Example:
            >>> import einet, torch
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> x = torch.zeros(1, 2)
            >>> rows = (x, x.clone().requires_grad_())
            >>> [model.is_tracked(model.as_batch(each, differentiable=True)) for each in rows]
            [False, True]
        """
        forwards = forward_ad._current_level >= 0
        if forwards and forward_ad.unpack_dual(batch.x).tangent is not None:
            # There are none in forward mode; autograd says so.
            return True
        if not torch.is_grad_enabled():
            return False
        if batch.x.requires_grad:
            return True
        parameters = (place.kept for place in self.parameter_places())
        return any(p is None or p.requires_grad for p in parameters)

    def _is_replayed(self, batch: Batch) -> bool:
        """Whether a call with these rows is recorded and replayed."""
        return self.is_fused and batch.x.is_cuda

    @abstractmethod
    def step_(
        self, batch: Batch, step_size: float | Tensor, prior: PseudoCounts | None = None
    ) -> Float[Tensor, "*sums"]:
        """A step of stochastic EM from checked data.

        Args:
            batch: The rows.
            step_size: λ: how far to move; 1 is all the way.
            prior: Pseudo-counts on the scale of these rows.

        Returns:
            Sums over the rows: log-likelihood, weight, impossible rows, and the weight of each
            class.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> sums = model.step_(model.as_batch([[1.5, 2.0], [2.5, 3.0]]), step_size=0.1)
            >>> sums[1:].tolist()
            [2.0, 0.0, 2.0]
        """

    def fill(
        self,
        batch: Batch,
        weights: list[Tensor] | None = None,
        natural: list[tuple[Tensor, Tensor]] | None = None,
        maximise: bool = False,
        keep: bool = True,
    ) -> EinetValues:
        """The values of every node; no gradients.

        Args:
            batch: The rows.
            weights: Those of every layer; the model's own by default.
            natural: θ and A of every block of leaves; the model's own by default.
            maximise: Whether missing cells and sums are maximised rather than summed out.
            keep: Whether there will be a way back.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> values = model.fill(model.as_batch([[0.5, 1.0]]))
            >>> values.body.v.shape  # 2 leaves of 3 densities, for one row
            torch.Size([2, 3, 1])
        """
        like = self.leaf.leaf_blocks[0].stored
        values = EinetValues.of(self.circuit.empty_values(len(batch), like, maximise))
        values.keeps = keep
        values.evidence = self.leaf.evidence(batch.x, batch.observed, fused=values.fused)
        count, entries = self.leaf.num_nodes, self.num_leaves
        v, m = values.body.v[:count, :entries], values.body.m[:count]
        any_scale = values.fused and self.circuit.takes_any_scale
        self.leaf.propagate_(
            values.evidence, v, m, maximise, natural, batch.events, any_scale=any_scale
        )
        weights = self.circuit.weights if weights is None else weights
        self.circuit.fill_(weights, values, maximise)
        return values


class Passes(Layers):
    """What an Einet does with a batch that has been checked."""

    graph: RegionGraph
    #: Whether the leaves have been set from data.
    initialized: bool
    #: So many rows at a time are known to fit the device; None where nothing has gone wrong yet.
    most_rows: int | None = None

    @property
    def families(self) -> list[ExponentialFamily]:
        """The family of each variable.

        Example:
            >>> import einet
            >>> leaves = [einet.Gaussian(), einet.Bernoulli(), einet.Categorical(3)]
            >>> model = einet.Einet(einet.random_trees(3, 1, 1), leaves, num_sums=3)
            >>> [type(family).__name__ for family in model.families]
            ['Gaussian', 'Bernoulli', 'Categorical']
        """
        result: list[ExponentialFamily | None] = [None] * self.num_variables
        for group in self.leaf.family_groups:
            for column, variable in enumerate(group.variables.tolist()):
                result[variable] = group.family.at(torch.tensor(column, device=self.device))
        return result  # type: ignore[return-value]

    # -- rows ----------------------------------------------------------------------------------

    def pieces(self, rows: int) -> list[slice]:
        """Slices of a batch small enough for their values to fit a bounded memory, much alike.

        Args:
            rows: How many rows there are.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> model.pieces(1000)
            [slice(0, 1000, None)]
        """
        circuit, like = self.circuit, self.log_class_prior
        bytes_each = circuit.num_body * circuit.width * like.element_size()
        most = fitting("values", bytes_each, like.device, least=LEAST_ROWS)
        number = -(-rows // (most if self.most_rows is None else min(most, self.most_rows)))
        # Whole multiples of what rows of a recording are filled up to.
        step = max(LEAST_ROWS, -(-rows // max(1, number) // 16) * 16)
        return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]

    # -- up and down ---------------------------------------------------------------------------

    @torch.no_grad()
    def upward(self, batch: Batch, maximise: bool = False) -> tuple[EinetValues, Tensor]:
        """Values of every node and the roots' log values ``[classes, batch]``; no gradients.

        Args:
            batch: The rows.
            maximise: Whether missing cells and sums are maximised rather than summed out.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> batch = model.as_batch([[0.5, 1.0]])
            >>> values, root = model.upward(batch)
            >>> torch.allclose(root[0].float(), model.log_prob(batch))
            True
        """
        values = self.fill(batch, maximise=maximise)
        return values, self.circuit.root_of(values)

    def class_roots(self, batch: Batch) -> Float[Tensor, "classes batch"]:
        """log p(x | c) of every class (float64), with gradients where those are asked for.

        Args:
            batch: The rows.

        Example:
            >>> import einet
            >>> graph = einet.random_trees(num_variables=2, depth=1, replicas=1)
            >>> model = einet.Einet(graph, einet.Gaussian(), num_sums=3, num_classes=2)
            >>> batch = model.as_batch([[0.5, 1.0]])
            >>> torch.equal(model.class_roots(batch).T.float(), model.class_log_prob(batch))
            True
        """
        if self.is_tracked(batch) and len(batch):
            return autograd.class_roots(self, batch)
        few = few_roots(self, batch)
        if few is not None:
            return few
        parts = [self.upward(batch[rows])[1] for rows in self.pieces(len(batch))]
        nothing = self.log_class_prior.new_empty(self.num_classes, 0, dtype=torch.float64)
        return torch.cat(parts, 1) if parts else nothing

    def batch_log_prob(self, batch: Batch) -> Float[Tensor, " batch"]:
        """log p(x), or log p(x, c) of labelled rows (float64); gradients as in class_roots."""
        if self.is_tracked(batch) or not len(batch):
            return log_sum(join(self.class_roots(batch), self.log_class_prior, batch.labels))
        few = few_roots(self, batch)
        if few is not None:
            return log_sum(join(few, self.log_class_prior, batch.labels))
        return torch.cat([self.piece_log_prob(batch[rows]) for rows in self.pieces(len(batch))])

    @torch.no_grad()
    def piece_log_prob(self, batch: Batch) -> Float[Tensor, " batch"]:
        """:meth:`batch_log_prob` of a batch that needs no cutting; no gradients.

        Args:
            batch: The rows.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> batch = model.as_batch([[0.5, 1.0]])
            >>> torch.allclose(model.piece_log_prob(batch), model.batch_log_prob(batch))
            True
        """
        values = self.fill(batch, keep=False)
        if values.fused:
            return fused_log_prob(values.top[-1:], self.log_class_prior, batch)[0]
        return log_sum(join(self.circuit.root_of(values), self.log_class_prior, batch.labels))

    @torch.no_grad()
    def downward(
        self,
        values: EinetValues,
        seed: Float[Tensor, "classes batch"],
        statistics: list[Tensor] | Step | None = None,
    ) -> Float[Tensor, "leaf_nodes leaves batch"]:
        """p_L of every leaf entry (eq. 6).

        Args:
            values: What :meth:`upward` found.
            seed: Weights on the roots' log values: how often each row counts.
            statistics: Where those of sum weights are added up, or the step that they serve.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> values, root = model.upward(model.as_batch([[0.5, 1.0]]))
            >>> flow = model.downward(values, torch.ones_like(root))
            >>> torch.allclose(
            ...     flow.sum(1), torch.ones(2, 1)
            ... )  # one entry of each leaf explains the row
            True
        """
        return self.circuit.backpropagate_(self.circuit.weights, values, seed, statistics)

    # -- EM ------------------------------------------------------------------------------------

    @torch.no_grad()
    def expect_(
        self, batch: Batch, into: EinetStatistics, reduction: Reduction | None = None
    ) -> None:
        """Add the statistics of checked rows, all at once.

        Args:
            batch: The rows.
            into: What to add to.
            reduction: Where these are the last rows of this process: sends sums of layers to the
                other processes as soon as they are complete.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> statistics = model.e_step([[0.5, 1.0]])
            >>> model.expect_(model.as_batch([[1.5, 2.0], [2.5, 3.0]]), statistics)
            >>> statistics.rows.item()
            3.0
        """
        last = len(into.weights) - 1
        # They are numbered from the top there, as they become complete.
        done = None if reduction is None else (lambda number: reduction.ready(last - number))
        expected = self._expect(batch, into.weights, done=done)
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
            if self.num_classes > 1:
                update_log_weights(self.log_class_prior, expected.sums[3:], step_size)
        return expected.sums

    def _expect(
        self,
        batch: Batch,
        of_weights: list[Tensor] | Step,
        beside: Beside | None = None,
        done: Callable[[int], None] | None = None,
    ) -> Expectation:
        """Both passes over one piece of a batch; statistics of sum weights go where asked for."""
        check_no_events(batch)
        values = self.fill(batch)
        weights = self.circuit.weights
        if values.fused:
            self.circuit.forget_scales(values)
            flow = self.circuit.empty_flow(values, consume=True)
            root, top = values.top[-1:], flow["top"][-1]
            _, sums = fused_log_prob(root, self.log_class_prior, batch, top)
            into_leaves = self.circuit.flow_down_(weights, values, flow, of_weights, beside, done)
            return Expectation(values.evidence, into_leaves, sums)
        joint = join(self.circuit.root_of(values), self.log_class_prior, batch.labels)
        log_prob, seed, row_weights = share_out(joint, batch.weights)
        into_leaves = self.circuit.backpropagate_(weights, values, seed, of_weights, done)
        rows = row_sums(log_prob, row_weights)
        return Expectation(values.evidence, into_leaves, torch.cat([rows, seed.sum(1)]))
