"""A region graph compiled into layers of sums, and how values and flows run in it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from einet.kernels.dispatch import (
    MOST_ENTRIES,
    MOST_OUTER,
    Precision,
    fused,
    warn_of_size,
)
from einet.kernels.nodes import Nodes
from einet.kernels.streams import Beside
from einet.kernels.update import Statistic, Step
from einet.layers.base import Descent, SumLayer, Values, Visits
from einet.layers.compiler import COMPILERS
from einet.layers.leaf_flow import LeafFlow
from einet.layers.linear import LinearLayer
from einet.layers.shared_flows import SharedFlows
from einet.layers.tree import LinearTree, find_trees
from einet.structures import RegionGraph

__all__ = ["Circuit"]


class Circuit(nn.Module):
    """The inner layers of an Einet: everything above the leaves.

    Nodes 0, 1, … are the leaves in the order of ``graph.leaves``; each layer appends its own. The
    compiled order is part of the saved format (see :mod:`einet.storage.reference`).

    Args:
        graph: The structure.
        num_leaves: Entries of a leaf.
        num_sums: Entries of an inner sum.
        num_classes: Entries of the root.
        sums: The kind of sums over partitions, one of :data:`~einet.layers.compiler.COMPILERS`.
        steep: Leaf regions whose entries may differ by more than a float can hold: see
            :class:`~einet.layers.compiler.LinearCompiler`.
    """

    def __init__(
        self,
        graph: RegionGraph,
        num_leaves: int,
        num_sums: int,
        num_classes: int,
        sums: str = "einsum",
        steep: Collection[int] = (),
    ) -> None:
        super().__init__()
        self.num_leaf_nodes = len(graph.leaves)
        self.num_leaves, self.num_sums, self.num_classes = num_leaves, num_sums, num_classes
        compiler = COMPILERS[sums](graph, num_leaves, num_sums, num_classes, steep)
        inner = [layer.num_outputs for layer in compiler.layers if layer.target == "body"]
        #: Entries reserved for a node of the body.
        self.width = max([num_leaves, *inner])
        self.num_body, self.num_top = compiler.size["body"], compiler.size["top"]
        #: How exactly the fused kernels compute.
        self.precision: Precision = "highest"
        self._adopt(compiler.layers)

    def _adopt(self, layers: list[SumLayer]) -> None:
        """Take over the layers, bottom up."""
        self.layers = nn.ModuleList(layers)
        reached: set[int] = set()
        for layer in reversed(self.sum_layers):
            layer.expect(reached, self.num_leaf_nodes)
            if layer.source == "body":
                reached.update(layer.sources())
        #: Runs of layers that the fused kernels serve together.
        self.trees = nn.ModuleList(trees := find_trees(layers))
        self._shared = SharedFlows.find(layers, trees)
        #: Whether leaves may have values of any scale: linear sums keep an exponent for each entry.
        self.takes_any_scale = all(isinstance(layer, LinearLayer) for layer in layers)
        # Now rather than when it is asked for: threads would have to wait for each other there.
        self._passed_by = self._find_passed_by()
        self._parts = {fused: self._find_parts(fused) for fused in (False, True)}
        #: Whether every layer is within what the fused kernels can do.
        self.fits_kernels = self._find_fit()

    def repeated(self, times: int) -> Circuit:
        """As many copies of this circuit in one, their roots the last nodes of the top.

        See :meth:`SumLayer.repeated`; weights are yet to be set.
        """
        new = Circuit.__new__(Circuit)
        nn.Module.__init__(new)
        new.num_leaf_nodes = self.num_leaf_nodes * times
        new.num_leaves, new.num_sums, new.width = self.num_leaves, self.num_sums, self.width
        new.num_classes, new.precision = self.num_classes, self.precision
        new.num_body, new.num_top = self.num_body * times, self.num_top * times
        new._adopt([layer.repeated(times) for layer in self.sum_layers])
        return new

    @property
    def sum_layers(self) -> list[SumLayer]:
        """The layers, bottom up."""
        return list(self.layers)  # type: ignore[arg-type]

    @property
    def weights(self) -> list[Tensor]:
        """The weights of every layer, bottom up."""
        return [layer.weight for layer in self.sum_layers]

    def randomize(self, generator: torch.Generator | None = None) -> None:
        """Draw every sum's weights uniformly from the simplex, where the generator is."""
        with torch.no_grad():
            for layer in self.sum_layers:
                device = layer.weight.device if generator is None else generator.device
                draws = torch.empty_like(layer.weight, device=device)
                draws.exponential_(generator=generator).clamp_(min=1e-6)
                for simplex in layer.simplices(draws):
                    simplex /= simplex.sum(-1, keepdim=True)
                layer.weight.copy_(draws)

    # -- values --------------------------------------------------------------------------------

    def empty_values(self, batch: int, like: Tensor, maximise: bool = False) -> Values:
        """Uninitialised values for a batch; the leaves are to be written into the first nodes."""
        if fused(like) and not self.fits_kernels:
            warn_of_size(self.width, self.num_classes)
        return Values(
            Nodes.empty(self.num_body, self.width, batch, like),
            Nodes.empty(self.num_top, self.num_classes, batch, like),
            fused=fused(like) and self.fits_kernels and not maximise and batch > 0,
            precision=self.precision,
        )

    def _find_fit(self) -> bool:
        layers = self.sum_layers
        inside = all(layer.num_outputs <= layer.most_entries for layer in layers)
        # What lies below a sum over outer products is an operand of it.
        least = min([MOST_ENTRIES, *(x.most_entries for x in layers if x.source == "body")])
        return inside and self.num_classes <= MOST_OUTER and self.width <= least

    @property
    def has_choices(self) -> bool:
        """Whether every layer has fused kernels that draw: see :mod:`einet.layers.choices`."""
        return all(layer.has_choices for layer in self.sum_layers)

    def propagate_(
        self, weights: list[Tensor], values: Values, maximise: bool = False
    ) -> Float[Tensor, "classes batch"]:
        """Fill ``values`` above the leaves and return the root's log values (float64)."""
        self.fill_(weights, values, maximise)
        return self.root_of(values)

    def root_of(self, values: Values) -> Float[Tensor, "classes batch"]:
        """The root's log values (float64)."""
        return values.top.v[-1].double().log() + values.top.m[-1]

    def fill_(self, weights: list[Tensor], values: Values, maximise: bool = False) -> None:
        """Fill ``values`` above the leaves."""
        layers = self.sum_layers
        for part, tree in self.parts(values.fused and not maximise):
            if tree is None:
                layers[part.start].propagate(weights[part.start], values, maximise)
            else:
                tree.propagate(weights[part], values)

    @property
    def linear_trees(self) -> list[LinearTree]:
        """Runs of layers that the fused kernels serve together."""
        return list(self.trees)  # type: ignore[arg-type]

    def parts(self, fused: bool) -> list[tuple[slice, LinearTree | None]]:
        """The layers, bottom up: one by one, or all of a tree where the fused kernels serve it."""
        return self._parts[fused]

    def _find_parts(self, fused: bool) -> list[tuple[slice, LinearTree | None]]:
        trees = self.linear_trees if fused else []
        starts = {tree.slots.start: tree for tree in trees}
        parts: list[tuple[slice, LinearTree | None]] = []
        number = 0
        while number < len(self.layers):
            tree = starts.get(number)
            part = slice(number, number + 1) if tree is None else tree.slots
            parts.append((part, tree))
            number = part.stop
        return parts

    def backpropagate_(
        self,
        weights: list[Tensor],
        values: Values,
        seed: Float[Tensor, "classes batch"],
        statistics: list[Tensor] | Step | None,
        done: Callable[[int], None] | None = None,
    ) -> Float[Tensor, "leaf_nodes leaves batch"]:
        """Flows into the leaves (p_L of eq. 6), given the gradients of the root's log values.

        Adds ∂/∂W of every layer to ``statistics``, or moves the weights by a step right away; then
        ``done`` is called with the number of the layer.
        """
        flow = self.empty_flow(values)
        root = values.top.v[-1]
        flow["top"][-1] = torch.where(root > 0, seed / root, 0.0) if values.fused else seed
        return self.flow_down_(weights, values, flow, statistics, done=done).flow

    def forget_scales(self, values: Values) -> None:
        """Free the log-scales ``m`` of the body, where the fused backward pass needs none."""
        if not any(layer.needs_scales and layer.source == "body" for layer in self.sum_layers):
            m = values.body.m
            values.body.m = m.new_empty(()).expand(m.shape)

    def empty_flow(self, values: Values, consume: bool = False) -> dict[str, Tensor]:
        """Flows before a backward pass; the root's are to be written into ``["top"][-1]``.

        With fused kernels they are gradients of values instead, except for leaves. They are 0 where
        some layer adds to them. With ``consume``, values of leaves may be lost on the way: there
        may be ``["shared"]`` flows in their place, and no ``["body"]`` (:class:`SharedFlows`).
        """
        written = values.fused or all(layer.first for layer in self.sum_layers)
        new = torch.empty_like if written else torch.zeros_like
        if consume and values.fused and self._shared is not None:
            return {"top": new(values.top.v), "shared": self._shared.room(values)}
        return {"top": new(values.top.v), "body": new(values.body.v)}

    def flow_down_(
        self,
        weights: list[Tensor],
        values: Values,
        flow: dict[str, Tensor],
        statistics: list[Tensor] | Step | None,
        beside: Beside | None = None,
        done: Callable[[int], None] | None = None,
    ) -> LeafFlow:
        """As :meth:`backpropagate_`, from flows into the root to those into the leaves.

        What layers below need not wait for runs in ``beside``; without, it is done on return.
        There ``done`` is called with the number of each layer whose statistics are complete.
        """
        if beside is None:
            with Beside(values.body.v) as beside:
                return self.flow_down_(weights, values, flow, statistics, beside, done)
        each: list[Statistic] = [None] * len(weights)
        if statistics is not None:
            each = [*statistics] if isinstance(statistics, list) else [statistics] * len(weights)
        layers = self.sum_layers
        for part, tree in reversed(self.parts(values.fused)):
            if self._shared is not None and "shared" in flow:
                rest = self._shared.backpropagate(
                    tree or layers[-1], weights[part], values, flow, each[part]
                )
            elif tree is None:
                at = part.start
                rest = layers[at].backpropagate(weights[at], values, flow, each[at])
            else:
                rest = tree.backpropagate(weights[part], values, flow["body"], each[part])
            if rest is not None:
                beside.run(rest)
            if done is not None:
                for number in reversed(range(part.start, part.stop)):
                    beside.run(partial(done, number))
        if self._shared is not None and "shared" in flow:
            return self._shared.into_leaves(flow["shared"])
        return LeafFlow(flow["body"][: self.num_leaf_nodes, : self.num_leaves])

    @torch.no_grad()
    def root_from(
        self,
        v: Float[Tensor, "leaf_nodes leaves batch"],
        m: Float[Tensor, "leaf_nodes batch"],
    ) -> Float[Tensor, "classes batch"]:
        """The root's log values (float64) from scaled leaf values; no gradients."""
        values = self.empty_values(v.shape[-1], v)
        values.body.v[: self.num_leaf_nodes, : self.num_leaves] = v
        values.body.m[: self.num_leaf_nodes] = m
        return self.propagate_(self.weights, values)

    # -- choices -------------------------------------------------------------------------------

    def descend(self, classes: Tensor, descent: Descent) -> Visits:
        """Follow choices from the root's entry ``classes[sample]`` down to leaves."""
        samples = torch.arange(classes.shape[0], device=classes.device)
        offset = {"body": 0, "top": self.num_body}
        last = self.num_body + self.num_top - 1
        visits = Visits(torch.full_like(samples, last), classes, samples)
        for layer, passed_by in zip(reversed(self.sum_layers), self._passed_by, strict=True):
            begin = layer.start + offset[layer.target]
            reached, others = visits, None
            if passed_by:
                # What lies above has been left already, so all from here on is of this layer.
                here = visits.node >= begin
                reached, others = (visits[which.nonzero().flatten()] for which in (here, ~here))
            if reached.node.shape[0]:
                reached = Visits(reached.node - begin, reached.k, reached.sample)
                below = layer.descend(reached, descent)
                below.node = below.node + offset[layer.source]
                visits = below if others is None else Visits.cat([others, below])
        return visits

    def _find_passed_by(self) -> list[bool]:
        """For each layer from the top, whether some node above has children further down.

        Where none has, a descent need not look which of its visits are of the layer: on a GPU it
        would have to wait for the answer.
        """
        result: list[bool] = []
        offset = {"body": 0, "top": self.num_body}
        lowest = self.num_body + self.num_top - 1
        for layer in reversed(self.sum_layers):
            result.append(lowest < layer.start + offset[layer.target])
            below = min(layer.sources()) + offset[layer.source]
            lowest = min(lowest, below) if result[-1] else below
        return result
