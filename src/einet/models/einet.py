"""The Einsum Network."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.utils import parametrize

from einet._checks import as_device, as_int, as_seed, as_step_size, check_choice, check_flag
from einet.data.batch import Batch, as_batch
from einet.distributed.team import ALONE, Team
from einet.engine import replay
from einet.engine.expectation import e_step
from einet.engine.initialize import initialize_leaves
from einet.engine.initialize_clusters import initialize_from_clusters
from einet.engine.m_step import m_step
from einet.engine.memory import Memory, memory_of
from einet.engine.pseudo_counts import check_pseudo_counts
from einet.engine.root import join, responsibilities
from einet.engine.statistics import EinetStatistics, check_statistics
from einet.engine.tracing import eagerly, is_traced
from einet.families import ExponentialFamily, check_registered
from einet.inference.distribution import Distribution
from einet.inference.einet import EinetDistribution
from einet.kernels.dispatch import Precision
from einet.layers import Circuit, LeafLayer
from einet.layers.arguments import check_dtype, check_families, check_room, check_sums, steep_leaves
from einet.layers.event_checks import check_events
from einet.layers.parameter import CanonicalParameter, OnPaper, canonicalize
from einet.models.base import Model, check_no_team
from einet.models.record import common_dtype
from einet.models.state import RECORD, is_initialized, record_of
from einet.structures import RegionGraph

if TYPE_CHECKING:
    from einet.engine.pseudo_counts import PseudoCounts
    from einet.engine.statistics import Statistics

__all__ = ["Einet"]


class Einet(EinetDistribution, Model):
    r"""An Einsum Network: a region graph with vectors of sums and of exponential-family leaves.

    In the paper's notation every leaf region holds K densities of the EF tensor
    :math:`\mathbf{E}`, every partition is a sum :math:`S_{lk} = W_{lkij} N_{li} N'_{lj}` over an
    outer product, and a region with several partitions mixes their sums element-wise. With
    ``sums="linear"`` a partition is :math:`S_{lk} = W_{lki} \prod_c N_{lci}` over all its children,
    with K² weights in place of K³.

    Args:
        graph: The structure: :func:`~einet.random_trees`, :func:`~einet.poon_domingos` or one
            built by hand.
        family: The leaves' exponential family: one for all variables or one for each.
        num_sums: K, the number of sums in each inner region.
        num_leaves: The number of densities in each leaf region; K by default.
        sums: ``"einsum"`` for sums over outer products of two children (partitions of more become
            binary trees), ``"linear"`` for sums over element-wise products of any number of them:
            what the K states of hidden trees such as :func:`~einet.chow_liu` need.
        num_classes: C, the number of roots, one distribution p(x | c) each.
        precision: How exactly the fused kernels on a GPU multiply: ``"highest"`` as float32 does,
            ``"high"`` with operands rounded to tf32, ``"medium"`` to bf16. It can be changed at
            any time (``model.precision``) and concerns float32 on CUDA only.
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
        sums: str = "einsum",
        num_classes: int = 1,
        precision: Precision = "highest",
        seed: int = 0,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        given_leaves = num_sums if num_leaves is None else num_leaves
        seed, device = as_seed(seed), None if device is None else as_device(device)
        self._compile(graph, family, num_sums, given_leaves, sums, num_classes, precision, dtype)
        if dtype is not None:
            # Cast before drawing: weights drawn in float32 would not add up to 1 in float64.
            self.to(dtype)
        generator = torch.Generator().manual_seed(seed)
        self.circuit.randomize(generator)
        initialize_leaves(self.leaf, None, generator)
        if device is not None:
            self.to(device)

    @classmethod
    def unfilled(
        cls,
        graph: RegionGraph,
        family: ExponentialFamily | Sequence[ExponentialFamily],
        num_sums: int,
        num_leaves: int,
        sums: str,
        num_classes: int,
    ) -> Einet:
        """A network whose parameters have shapes, but no values or memory: for a file to fill.

        Args:
            graph, family, num_sums, num_leaves, sums, num_classes: As of :class:`Einet` itself.

        Example:
            >>> import einet
            >>> graph = einet.random_trees(num_variables=2, depth=1, replicas=1)
            >>> model = einet.Einet.unfilled(graph, einet.Gaussian(), 3, 3, "einsum", num_classes=1)
            >>> model.num_parameters, model.leaf.leaf_blocks[0].stored.device
            (21, device(type='meta'))
        """
        model = cls.__new__(cls)
        torch.nn.Module.__init__(model)
        with OnPaper():
            model._compile(graph, family, num_sums, num_leaves, sums, num_classes, planned=True)
        return model

    def _compile(
        self,
        graph: RegionGraph,
        family: ExponentialFamily | Sequence[ExponentialFamily],
        num_sums: int,
        num_leaves: int,
        sums: str,
        num_classes: int,
        precision: Precision = "highest",
        dtype: torch.dtype | None = None,
        planned: bool = False,
    ) -> None:
        """Check what the network is to be made of, and make its layers."""
        num_sums = as_int("num_sums", num_sums, minimum=1)
        num_leaves = as_int("num_leaves", num_leaves, minimum=1)
        num_classes = as_int("num_classes", num_classes, minimum=1)
        check_sums(sums, num_sums, num_leaves)
        if not isinstance(graph, RegionGraph):
            raise TypeError(f"graph must be a RegionGraph, got {type(graph).__name__}")
        check_families(family, graph.num_variables)
        if not planned:
            check_room(graph, family, sums, num_sums, num_leaves, num_classes)
        if dtype is not None:
            check_dtype(dtype)
        self.graph = graph
        self.num_variables = graph.num_variables
        self.num_sums, self.num_leaves, self.num_classes = num_sums, num_leaves, num_classes
        #: The kind of sums: ``"einsum"`` or ``"linear"``.
        self.sums = sums
        self.leaf = LeafLayer(graph, family, num_leaves)
        steep = steep_leaves(graph, family)
        self.circuit = Circuit(graph, num_leaves, num_sums, num_classes, sums, steep)
        self.precision = precision
        uniform = torch.full((num_classes,), -math.log(num_classes), dtype=dtype)
        if num_classes > 1:
            self.log_class_prior = CanonicalParameter(uniform)
        else:
            self.register_buffer("log_class_prior", uniform)
        self.initialized = False
        for parameter in self.parameters():
            # A kind of layer from outside the library may have made plain ones.
            parameter.requires_grad_(False)
        canonicalize(self)

    @property
    def precision(self) -> Precision:
        """How exactly the fused kernels multiply: ``"highest"``, ``"high"`` or ``"medium"``.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> model.precision
            'highest'
            >>> model.precision = "medium"  # from now on, where the model lies on a GPU
        """
        return self.circuit.precision

    @precision.setter
    def precision(self, value: Precision) -> None:
        check_choice("precision", value, get_args(Precision))
        self.circuit.precision = value

    # -- densities -----------------------------------------------------------------------------

    def log_prob(
        self, x: Any = None, observed: Any = None, *, labels: Any = None, where: Any = None
    ) -> Float[Tensor, " batch"]:
        if is_traced():
            return eagerly(self.log_prob, x, observed, labels=labels, where=where)
        # Asked once: on a small circuit the GPU waits for every microsecond spent here.
        is_fused = self.is_fused
        options: Any = {"where": where, "events": True, "differentiable": True}
        batch = self.as_batch(x, observed, labels=labels, scan=not is_fused, **options)
        if not is_fused or not len(batch) or self.is_tracked(batch):
            return self.batch_log_prob(batch).to(self.dtype)
        pieces = self.pieces(len(batch))
        if len(pieces) == 1:
            return replay.log_prob(self, batch)
        return torch.cat([replay.log_prob(self, batch[piece]) for piece in pieces])

    log_prob.__doc__ = Distribution.log_prob.__doc__

    def class_log_prob(
        self, x: Any = None, observed: Any = None, *, where: Any = None
    ) -> Float[Tensor, "batch classes"]:
        """log p(x | c) for every class.

        Args:
            x, observed, where: The rows; as in :meth:`log_prob`.

        Returns:
            ``[batch, classes]``.

        Example:
            >>> import einet, torch
            >>> graph = einet.random_trees(num_variables=2, depth=1, replicas=1)
            >>> model = einet.Einet(graph, einet.Gaussian(), num_sums=3, num_classes=2)
            >>> of_classes = model.class_log_prob([[0.5, 1.0]])
            >>> of_classes.shape
            torch.Size([1, 2])
            >>> torch.allclose(model.log_prob([[0.5, 1.0]]).exp(), of_classes.exp().mean(1))
            True
        """
        if is_traced():
            return eagerly(self.class_log_prob, x, observed, where=where)
        batch = self.as_batch(x, observed, where=where, events=True, differentiable=True)
        return self.class_roots(batch).T.to(self.dtype)

    def class_posterior(
        self, x: Any = None, observed: Any = None, *, where: Any = None
    ) -> Float[Tensor, "batch classes"]:
        """p(c | x) for every class; the class prior where p(x) = 0.

        Args:
            x, observed, where: The rows; as in :meth:`log_prob`.

        Returns:
            ``[batch, classes]``; the rows add up to 1.

        Example:
            >>> import einet, torch
            >>> x = torch.tensor([[-2.0, -2.0], [-1.0, -2.0], [2.0, 2.0], [2.0, 1.0]])
            >>> graph = einet.random_trees(num_variables=2, depth=1, replicas=1)
            >>> model = einet.Einet(graph, einet.Gaussian(), num_sums=3, num_classes=2)
            >>> history = einet.fit(model, x, labels=[0, 0, 1, 1], epochs=3, progress=False)
            >>> model.class_posterior([[-2.0, float("nan")], [2.0, 2.0]]).argmax(1)
            tensor([0, 1])
        """
        if is_traced():
            return eagerly(self.class_posterior, x, observed, where=where)
        batch = self.as_batch(x, observed, where=where, events=True, differentiable=True)
        joint = join(self.class_roots(batch), self.log_class_prior)
        return responsibilities(joint, self.log_class_prior).T.to(self.dtype)

    # -- learning ------------------------------------------------------------------------------

    def initialize(
        self, data: Any, observed: Any = None, seed: int = 0, *, clusters: bool = False
    ) -> Einet:
        """Set the leaves from data: each entry between the column's statistics and one row's.

        Every column's location and scale are read off the data, and each density of each leaf is
        put between the overall distribution and a randomly chosen row. A variable that is never
        observed keeps its parameters.

        Args:
            data, observed: Rows; as in :meth:`log_prob`.
            seed: Seed of all that is random.
            clusters: Whether entry k of all leaves and sums starts out as cluster k of the rows
                (k-means), which sets the sum weights too. EM often ends in a better place from
                there, with linear sums above all.

        Example:
            >>> import einet, torch
            >>> x = torch.randn(60, 2, generator=torch.manual_seed(0)) + torch.tensor(
            ...     [[0.0], [9.0]] * 30
            ... )
            >>> graph = einet.random_trees(num_variables=2, depth=1, replicas=1)
            >>> model = einet.Einet(graph, einet.Gaussian(), num_sums=4, sums="linear")
            >>> plain = model.initialize(x).log_prob(x).mean()
            >>> (model.initialize(x, clusters=True).log_prob(x).mean() > plain).item()
            True
        """
        generator = torch.Generator().manual_seed(as_seed(seed))
        check_flag("clusters", clusters)
        options = {"name": "data", "allow_empty": False, "device": None}
        batch = self.as_batch(data, observed, **options)
        self.check_support(batch, "data")
        if clusters:
            initialize_from_clusters(self, batch, generator)
        else:
            initialize_leaves(self.leaf, batch, generator)
        self.initialized = True
        self.remember(batch.columns)
        return self

    def check_support(self, batch: Batch, name: str) -> None:
        """Raise if an observed value has density zero whatever the parameters."""
        for group in self.leaf.family_groups:
            family = group.family.to(batch.x.device)
            columns = group.variables.to(batch.x.device)
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
        team: Team = ALONE,
    ) -> EinetStatistics:
        """Expected statistics of a batch (eq. 6), added to ``into`` where given.

        Args:
            x, observed: The data; as in :meth:`log_prob`.
            labels: The class of each row, −1 where unknown.
            weights: How often each row counts; once by default.
            into: Statistics to add to.
            team: Processes with rows of their own each: the statistics are those of all rows.
        """
        batch = self.as_batch(x, observed, labels=labels, weights=weights, scan=not self.is_fused)
        if into is not None:
            self.check_statistics(into, "into")
            check_no_team(team)
        statistics: Any = EinetStatistics.zeros(self) if into is None else into
        e_step(self, batch, statistics, team)
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
        prior: PseudoCounts | None = None,
    ) -> Float[Tensor, ""]:
        """``m_step(e_step(x), step_size)`` in one go; the mean log-likelihood before the update.

        Weights of sums are updated within the backward pass, as soon as their statistics are known:
        the same numbers, sooner, without memory for the statistics.
        """
        step_size = as_step_size(step_size)
        check_pseudo_counts(prior)
        batch = self.as_batch(
            x, observed, labels=labels, weights=weights, allow_empty=False, scan=not self.is_fused
        )
        if self._is_replayed(batch):
            sums = replay.step(self, batch, step_size, prior)
        else:
            sums = self.step_(batch, step_size, prior)
        # The fused kernels write where torch does not look; posteriors want to know of it.
        torch.autograd.graph.increment_version(self.leaf.leaf_blocks[0].stored)
        self.remember(batch.columns)
        return sums[0] / sums[1]

    def m_step(
        self,
        statistics: Statistics,
        step_size: float | Tensor = 1.0,
        prior: PseudoCounts | None = None,
    ) -> None:
        step_size = as_step_size(step_size)
        check_pseudo_counts(prior)
        self.check_statistics(statistics, "statistics")
        m_step(self, statistics, step_size, prior)  # type: ignore[arg-type]

    def check_statistics(self, statistics: Any, name: str) -> None:
        check_statistics(statistics, self, name)

    def memory(self, batch_size: int = 500, *, full_batch: bool = False) -> Memory:
        check_flag("full_batch", full_batch)
        return memory_of(self, as_int("batch_size", batch_size, minimum=1), full_batch)

    # -- what else there is to know ------------------------------------------------------------

    def as_batch(self, x: Any, observed: Any = None, **options: Any) -> Batch:
        """What a method was given, checked and on the model's device."""
        options = {"device": self.device, **options}
        options = {"columns": self.columns, "num_classes": self.num_classes, **options}
        batch = as_batch(x, self.num_variables, observed, **options)
        if batch.events is not None:
            check_events(self.leaf, batch.events, self.columns)
        return batch

    def describe(self, graphs: dict[RegionGraph, str]) -> dict[str, Any]:
        families = []
        for group in self.leaf.family_groups:
            family = group.family
            check_registered(family)
            families.append({"name": type(family).__name__, "config": family.config()})
        return {
            "kind": "Einet",
            "dtype": common_dtype(self),
            "graph": graphs.setdefault(self.graph, f"graphs.{len(graphs)}"),
            "sums": self.sums,
            "num_sums": self.num_sums,
            "num_leaves": self.num_leaves,
            "num_classes": self.num_classes,
            "initialized": self.initialized,
            "families": families,
            **self.compiled_order(),
        }

    def compiled_order(self) -> dict[str, Any]:
        """What the tensors' names do not tell of the compiled order.

        Example:
            >>> import einet
            >>> graph = einet.random_trees(num_variables=4, depth=2, replicas=2)
            >>> model = einet.Einet(graph, einet.Gaussian(), num_sums=3)
            >>> [layer["kind"] for layer in model.compiled_order()["layers"]]
            ['EinsumLayer', 'EinsumLayer', 'MixingLayer']
        """
        groups = self.leaf.family_groups
        layers = []
        for layer in self.circuit.sum_layers:
            kind = parametrize.type_before_parametrizations(layer).__name__
            layers.append({"kind": kind, "target": layer.target})
        return {
            "blocks": [groups.index(block.group) for block in self.leaf.leaf_blocks],
            "layers": layers,
        }

    # -- states ----------------------------------------------------------------------------------

    def get_extra_state(self) -> Tensor:
        """What ``state_dict`` holds beside parameters: whether they are initialised, and of what.

        :mod:`einet.models.state` says more.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> bytes(model.get_extra_state().tolist())[:16]
            b'{"initialized": '
        """
        return record_of(self)

    def set_extra_state(self, state: Any) -> None:
        """Taken up with all else in :meth:`load_state_dict`.

        Args:
            state: What :meth:`get_extra_state` told; nothing is done with it here.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> model.set_extra_state(model.get_extra_state())  # torch asks for both
            >>> "_extra_state" in model.state_dict()
            True
        """

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        *arguments: Any,
    ) -> None:
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, *arguments
        )
        # States of earlier releases have no record, and are to be taken all the same.
        missing_keys[:] = [name for name in missing_keys if name != prefix + RECORD]
        self.initialized = is_initialized(self, state_dict, prefix)

    def extra_repr(self) -> str:
        """What torch prints of the network beside its layers.

        Example:
            >>> import einet
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), num_sums=3)
            >>> model.extra_repr()
            'variables=2, sums=3, leaves=3, parameters=21'
        """
        classes = f", classes={self.num_classes}" if self.num_classes > 1 else ""
        kind = "" if self.sums == "einsum" else f" {self.sums}"
        return (
            f"variables={self.num_variables}, sums={self.num_sums}{kind}, leaves={self.num_leaves}"
            f"{classes}, parameters={self.num_parameters:,}"
        )
