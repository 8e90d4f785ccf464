"""The contract of the inner layers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from einet.kernels.dispatch import MOST_ENTRIES
from einet.kernels.nodes import Nodes
from einet.kernels.update import Statistic
from einet.layers.detour import Detour

if TYPE_CHECKING:
    from einet.layers.choices import Choices

__all__ = ["Descent", "SumLayer", "Values", "Visits", "copied_lists", "copies"]


def copies(nodes: Sequence[int], times: int) -> list[int]:
    """The numbers of each node in all copies of a circuit; a negative one stands for no node."""
    return [node * times + c if node >= 0 else node for node in nodes for c in range(times)]


def copied_lists(nodes: Sequence[int], counts: Sequence[int], times: int) -> list[list[int]]:
    """The same for lists of nodes, given one after the other with their lengths."""
    rest = iter(nodes)
    lists = [list(islice(rest, count)) for count in counts]
    return [[node * times + c for node in each] for each in lists for c in range(times)]


@dataclass
class Values:
    """The values of a whole circuit for one batch.

    Args:
        body: Every leaf and inner sum, K values each.
        top: The root and, where the root has several partitions, the simple sums it mixes, one
            value for each class.
        fused: Whether fused kernels compute them.
        precision: How exactly those do.
        kept: What a layer has kept for its own way back.
        keeps: Whether there is a way back at all.

    Example:
        >>> import einet
        >>> graph = einet.random_trees(num_variables=4, depth=1, replicas=2)
        >>> model = einet.Einet(graph, einet.Gaussian(), num_sums=3)
        >>> values = model.fill(model.as_batch([[0.5, 1.0, 1.5, 2.0]]))
        >>> values.space("body").v.shape, values.space("top").v.shape
        (torch.Size([4, 3, 1]), torch.Size([3, 1, 1]))
    """

    body: Nodes
    top: Nodes
    fused: bool = False
    precision: str = "highest"
    kept: dict[nn.Module, Any] = field(default_factory=dict)
    keeps: bool = True

    def space(self, name: str) -> Nodes:
        """The nodes of a space by its name.

        Args:
            name: ``"body"`` or ``"top"``.
        """
        return self.top if name == "top" else self.body


@dataclass
class Visits:
    """Nodes a top-down pass has reached: entry ``k`` of ``node`` for sample ``sample``.

    Args:
        node: The number of each node.
        k: Which entry of it.
        sample: For which sample.

    Example:
        >>> one = Visits(torch.tensor([0, 1]), torch.tensor([2, 2]), torch.tensor([0, 0]))
        >>> Visits.cat([one, one[:1]]).node
        tensor([0, 1, 0])
    """

    node: Int[Tensor, " visits"]
    k: Int[Tensor, " visits"]
    sample: Int[Tensor, " visits"]

    def __getitem__(self, item: Tensor | slice) -> Visits:
        return Visits(self.node[item], self.k[item], self.sample[item])

    @staticmethod
    def cat(parts: list[Visits]) -> Visits:
        """Visits one after the other.

        Args:
            parts: The visits.
        """
        return Visits(
            torch.cat([part.node for part in parts]),
            torch.cat([part.k for part in parts]),
            torch.cat([part.sample for part in parts]),
        )


@dataclass(frozen=True)
class Descent:
    """How a top-down pass chooses.

    With ``values`` the choice is a posteriori, under the evidence those values were computed from:
    sample ``s`` belongs to row ``s % batch``. Without them it is a priori.

    Args:
        pick: Draws, or takes the best, from rows of weights.
        maximise: Whether the best is taken.
        values: Those of the evidence.

    Example:
        >>> best = Descent(pick=lambda weights: weights.argmax(-1), maximise=True)
        >>> terms = torch.tensor([[0.25, 0.5, 0.25]])
        >>> best.pick(terms), best.reduce(terms), Descent(pick=best.pick).reduce(terms)
        (tensor([1]), tensor([0.5000]), tensor([1.]))
    """

    pick: Callable[[Float[Tensor, "visits options"]], Int[Tensor, " visits"]]
    maximise: bool = False
    values: Values | None = None

    def reduce(self, terms: Tensor) -> Tensor:
        """The sum of terms, or the largest of them.

        Args:
            terms: ``[..., options]``.
        """
        return terms.amax(-1) if self.maximise else terms.sum(-1)


class SumLayer(nn.Module, ABC):
    """One layer of sums: it reads nodes computed before and writes ``num_nodes`` new ones.

    A new kind of sum layer is one class, with the attributes and abstract methods below, and a
    :class:`~einet.layers.Compiler` that places it; learning, sampling and maximising then work with
    it. A layer reads from ``source`` and writes to ``target``, either ``"body"`` or ``"top"`` (see
    :class:`Values`), at ``start`` and following. ``torch.empty`` is for its parameters only: they
    have no values, and no memory, until a file fills them.

    Its arithmetic is written in torch: :meth:`propagate_torch` and :meth:`backpropagate_torch`.
    That serves the fused path too, where values and flows are converted for this layer. One with
    kernels of its own there says so by ``has_fused`` and defines :meth:`propagate_fused` and
    :meth:`backpropagate_fused`. On a GPU nothing should wait for the device.

    Example:
        >>> import einet
        >>> graph = einet.random_trees(num_variables=2, depth=1, replicas=1)
        >>> model = einet.Einet(graph, einet.Gaussian(), num_sums=3)
        >>> (layer,) = model.circuit.sum_layers  # the root: one sum over products of two leaves
        >>> isinstance(layer, SumLayer), layer.slots, layer.sources()
        (True, slice(0, 1, None), [0, 1])
        >>> values = model.fill(model.as_batch([[0.5, 1.0]]))
        >>> layer.propagate(layer.weight, values)  # which has been done already
        >>> torch.allclose(layer.written(values).m.float(), model.log_prob([[0.5, 1.0]]))
        True
    """

    weight: Tensor
    source: str
    target: str
    start: int
    num_nodes: int
    num_outputs: int
    #: The fused path serves layers with so many entries in a node.
    most_entries: ClassVar[int] = MOST_ENTRIES
    #: Whether it has fused kernels of its own.
    has_fused: ClassVar[bool] = False
    #: Whether it can draw by fused kernels too, in :meth:`choose`.
    has_choices: ClassVar[bool] = False
    #: Whether the backward pass of the fused path needs the log-scales of what the layer read.
    needs_scales: bool = True
    #: Whether no layer above reads what this one does, and this one reads everything once.
    first: bool = False

    @property
    def slots(self) -> slice:
        """Where the layer's nodes are in its target space."""
        return slice(self.start, self.start + self.num_nodes)

    def written(self, values: Values) -> Nodes:
        """This layer's part of ``values``.

        Args:
            values: The values of the circuit.
        """
        nodes = values.space(self.target)[self.slots]
        return Nodes(nodes.v[:, : self.num_outputs], nodes.m, nodes.peak)

    # -- upward --------------------------------------------------------------------------------

    def propagate(self, weight: Tensor, values: Values, maximise: bool = False) -> None:
        """Compute this layer's nodes in ``values`` with the given weights.

        Args:
            weight: The weights, of the shape of :attr:`weight`.
            values: The values of the circuit, to which this layer's are written.
            maximise: Whether the largest term is taken in place of the sum.
        """
        out = self.written(values)
        if values.fused and self.has_fused and not maximise:
            self.propagate_fused(weight, values, out)
        else:
            self.propagate_torch(weight, values, out, maximise)

    @abstractmethod
    def propagate_torch(self, weight: Tensor, values: Values, out: Nodes, maximise: bool) -> None:
        """Write v, m and peak of this layer's nodes; with ``maximise``, of the largest terms.

        :func:`einet.kernels.nodes.finish` scales values that are written to ``out.v``.

        Args:
            weight, values, maximise: As in :meth:`propagate`.
            out: This layer's part of the values.

        Example:
            >>> import einet
            >>> graph = einet.random_trees(num_variables=2, depth=1, replicas=1)
            >>> model = einet.Einet(graph, einet.Gaussian(), num_sums=3)
            >>> (layer,) = model.circuit.sum_layers
            >>> values = model.fill(model.as_batch([[0.5, 1.0]]))
            >>> out = layer.written(values)
            >>> layer.propagate_torch(layer.weight, values, out, maximise=True)
            >>> bool(out.m < model.log_prob([[0.5, 1.0]]))  # the largest term is less than the sum
            True
        """

    def propagate_fused(self, weight: Tensor, values: Values, out: Nodes) -> None:
        """The same by fused kernels, which do not maximise.

        Args:
            weight, values: As in :meth:`propagate`.
            out: This layer's part of the values.
        """
        raise NotImplementedError(f"{type(self).__name__} has no fused kernels")

    # -- downward ------------------------------------------------------------------------------

    def expect(self, reached: set[int], num_leaf_nodes: int) -> None:
        """Told once, from the top down: the body's nodes that layers above have flows for.

        Args:
            reached: Their numbers.
            num_leaf_nodes: How many of the body's nodes are leaves; these come first.

        Example:
            >>> import einet
            >>> graph = einet.random_trees(num_variables=2, depth=1, replicas=1)
            >>> (layer,) = einet.Einet(graph, einet.Gaussian(), num_sums=3).circuit.sum_layers
            >>> layer.expect(set(), num_leaf_nodes=2)  # there is nothing above the root
        """
        if not self.has_fused:
            # Nodes of the top have one reader each, and none of them is a leaf.
            of_body = self.source == "body"
            above = reached if of_body else ()
            self._detour = Detour(self.sources(), above, num_leaf_nodes if of_body else 0)

    def backpropagate(
        self, weight: Tensor, values: Values, flow: dict[str, Tensor], statistic: Statistic
    ) -> Callable[[], None] | None:
        """From the flows of this layer's nodes to those of what it read.

        A flow is v·∂log P/∂v (see :mod:`einet.kernels.nodes`); ``flow["body"]`` and ``flow["top"]``
        have the shape of the values. On the fused path they hold gradients ∂log P/∂v in place of
        flows, except for leaves. ∂log P/∂weight goes to ``statistic``. What is returned, if
        anything, is to be called before the pass ends; layers below need not wait for it.

        Args:
            weight: The weights, of the shape of :attr:`weight`.
            values: What the pass upwards found.
            flow: The flows of both spaces by name; those of what this layer read are written.
            statistic: Where the statistics of weights go; None where nobody wants them.

        Example:
            >>> import einet
            >>> graph = einet.random_trees(num_variables=2, depth=1, replicas=1)
            >>> model = einet.Einet(graph, einet.Gaussian(), num_sums=3)
            >>> (layer,) = model.circuit.sum_layers
            >>> values = model.fill(model.as_batch([[0.5, 1.0]]))
            >>> flow = {
            ...     "top": torch.ones_like(values.top.v),
            ...     "body": torch.zeros_like(values.body.v),
            ... }
            >>> layer.backpropagate(layer.weight, values, flow, None)
            >>> flow["body"].sum(1).flatten()  # the densities of each leaf share the row
            tensor([1.0000, 1.0000])
        """
        above, below = flow[self.target][self.slots, : self.num_outputs], flow[self.source]
        if not values.fused:
            self.backpropagate_torch(weight, values, above, below, statistic)
            return None
        if self.has_fused:
            return self.backpropagate_fused(weight, values, above, below, statistic)
        flows = self._detour.flows_of(above, self.written(values).v)
        room = self._detour.room(flow, self.source)
        self.backpropagate_torch(weight, values, flows, room, statistic)
        self._detour.bring(room, values.space(self.source).v, below)
        return None

    @abstractmethod
    def backpropagate_torch(
        self, weight: Tensor, values: Values, above: Tensor, below: Tensor, statistic: Statistic
    ) -> None:
        """Add to the flows ``below[node]`` of what it read, given those of its own, ``above``.

        They may be written instead of added if this layer is the ``first`` to reach all of them.
        :func:`einet.kernels.update.collector` takes the statistics of weights, whatever becomes of
        them.

        Args:
            weight, values, statistic: As in :meth:`backpropagate`.
            above: The flows of this layer's own nodes.
            below: Those of all nodes of the space it read.

        Example:
            >>> import einet
            >>> graph = einet.random_trees(num_variables=2, depth=1, replicas=1)
            >>> model = einet.Einet(graph, einet.Gaussian(), num_sums=3)
            >>> (layer,) = model.circuit.sum_layers
            >>> values = model.fill(model.as_batch([[0.5, 1.0]]))
            >>> above, below = torch.ones_like(values.top.v), torch.zeros_like(values.body.v)
            >>> statistic = torch.zeros_like(layer.weight)
            >>> layer.backpropagate_torch(layer.weight, values, above, below, statistic)
            >>> (statistic * layer.weight).sum().item()  # Σ n of one row
            1.0000
        """

    def backpropagate_fused(
        self, weight: Tensor, values: Values, above: Tensor, below: Tensor, statistic: Statistic
    ) -> Callable[[], None] | None:
        """The same by fused kernels, for gradients ∂log P/∂v; flows for leaves.

        Nothing is there before: whether to write or to add is decided node by node, by what
        :meth:`expect` was told.

        Args:
            weight, values, statistic: As in :meth:`backpropagate`.
            above: The gradients of this layer's own nodes.
            below: Those of all nodes of the space it read.
        """
        raise NotImplementedError(f"{type(self).__name__} has no fused kernels")

    # -- structure and choices -----------------------------------------------------------------

    @abstractmethod
    def sources(self) -> list[int]:
        """The nodes it reads, in its source space; one that it reads twice comes twice."""

    @abstractmethod
    def descend(self, visits: Visits, descent: Descent) -> Visits:
        """Replace visits of this layer's nodes (numbered from 0) by visits of nodes it read.

        Args:
            visits: Which entries of its nodes were reached, for which samples.
            descent: How to choose.

        Example:
            >>> import einet
            >>> graph = einet.random_trees(num_variables=2, depth=1, replicas=1)
            >>> (layer,) = einet.Einet(graph, einet.Gaussian(), num_sums=3).circuit.sum_layers
            >>> root = Visits(*(torch.zeros(1, dtype=torch.long) for _ in range(3)))
            >>> layer.descend(root, Descent(pick=lambda weights: weights.argmax(-1))).node
            tensor([0, 1])
        """

    def choose(self, choices: Choices, values: Values | None) -> None:
        """Draw the choices of the nodes it read, given its own: :meth:`descend` by fused kernels.

        A node has one choice for each sample (:class:`~einet.layers.choices.Choices`), a posteriori
        where there are ``values``. A layer without kernels of its own for that need not define it:
        the whole circuit then goes down by :meth:`descend`.

        Args:
            choices: Those of all nodes; written here for the nodes that this layer read.
            values: Those given the evidence; None for draws without any.
        """
        raise NotImplementedError(f"{type(self).__name__} has no kernels that draw")

    def align(self, share: float) -> None:
        """Move ``share`` of each sum's weight to its own entry of its children, k modulo theirs.

        Mixing has nothing to align: it adds entry k of all its children anyway.

        Args:
            share: From 0, for nothing, to 1, for all of it.

        Example:
            >>> import einet
            >>> graph = einet.random_trees(num_variables=4, depth=2, replicas=1)
            >>> model = einet.Einet(graph, einet.Gaussian(), num_sums=3, sums="linear")
            >>> layer = model.circuit.sum_layers[0]
            >>> layer.align(1.0)
            >>> layer.simplices(layer.weight)[0][0].detach().round()
            tensor([[1., 0., 0.],
                    [0., 1., 0.],
                    [0., 0., 1.]])
        """

    @abstractmethod
    def repeated(self, times: int) -> SumLayer:
        """The layer of as many copies of a circuit, which know nothing of one another.

        Node n of copy c is node ``n · times + c``, and so are its weights: what a copy has of
        :meth:`simplices` is ``[c::times]``.

        Args:
            times: How many copies.

        Example:
            >>> import einet
            >>> graph = einet.random_trees(num_variables=2, depth=1, replicas=1)
            >>> (layer,) = einet.Einet(graph, einet.Gaussian(), num_sums=3).circuit.sum_layers
            >>> layer.repeated(4).num_nodes
            4
        """

    @abstractmethod
    def simplices(self, tensor: Tensor) -> list[Tensor]:
        """Views of a tensor shaped like ``weight`` whose last axis is one sum's distribution.

        Args:
            tensor: Such as ``weight``.

        Example:
            >>> import einet
            >>> graph = einet.random_trees(num_variables=2, depth=1, replicas=1)
            >>> (layer,) = einet.Einet(graph, einet.Gaussian(), num_sums=3).circuit.sum_layers
            >>> [view.shape for view in layer.simplices(layer.weight)]
            [torch.Size([1, 1, 9])]
        """

    @abstractmethod
    def from_simplices(self, views: list[Tensor]) -> Tensor:
        """The inverse of :meth:`simplices`, differentiable.

        Args:
            views: What :meth:`simplices` returned.

        Example:
            >>> import einet
            >>> graph = einet.random_trees(num_variables=2, depth=1, replicas=1)
            >>> (layer,) = einet.Einet(graph, einet.Gaussian(), num_sums=3).circuit.sum_layers
            >>> torch.equal(layer.from_simplices(layer.simplices(layer.weight)), layer.weight)
            True
        """
