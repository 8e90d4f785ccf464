r"""Both passes over a few rows, in numpy: for questions about one row at a time.

A pass in torch over one row is some hundred operations of a few numbers each, and nearly all of its
time goes to calling them. Here the same arithmetic is a handful of calls for each layer, on arrays
that follow from the parameters alone and are made once. Values are logarithms, in float64:

.. math:: \log S_{lk} = M_l + \log \sum_i W_{lki} \exp\Big(\sum_c \log N_{lci} - M_l\Big)

with :math:`M_l` the largest term. Backwards run posterior probabilities p_L of eq. (6), as in the
other passes. Models of linear sums over leaves of one Gaussian or Categorical variable are served,
in float64 on a CPU: what models of tables are. All others take the passes in torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from einet.data.batch import Batch
from einet.engine.changes import State, state_of
from einet.engine.few_leaves import FewLeafLayer
from einet.kernels.dispatch import in_numpy
from einet.layers import LinearLayer

if TYPE_CHECKING:
    from einet.engine.passes import Layers

__all__ = ["MOST_ROWS", "FewPasses", "UpwardFew", "few_passes", "few_roots"]

#: More rows than these go by torch, and so do models of more entries in all their nodes: there the
#: arithmetic takes longer than calling it, and torch bounds its memory.
MOST_ROWS = 8
_MOST_ENTRIES = 1 << 17


def few_roots(einet: Layers, batch: Batch) -> Float[Tensor, "classes batch"] | None:
    """log p(x | c) of a few rows (float64); None where these, or the model, are not served.

    Args:
        einet: One Einet.
        batch: Rows that were checked.
    """
    if not 0 < len(batch) <= MOST_ROWS or batch.events is not None:
        return None
    passes = few_passes(einet)
    if passes is None:
        return None
    x = batch.x.detach().double()
    if batch.observed is not None:
        x = torch.where(batch.observed, x, torch.nan)
    upward = passes.up(x.numpy())
    return None if upward is None else torch.from_numpy(upward.roots)


def few_passes(einet: Layers) -> FewPasses | None:
    """The passes over a few rows of a model, made once for its parameters; None if not served.

    No lock is held: threads may make them at the same time, and either serves.
    """
    if not in_numpy(einet.log_class_prior):
        return None
    state = _state_of(einet)
    if state is None:
        return None
    kept = _made.get(einet)
    if kept is None or kept.state != state:
        kept = _made[einet] = _Made(state, FewPasses.of(einet))
    return kept.passes


class _Made(NamedTuple):
    """The passes of the parameters in one state."""

    state: State
    passes: FewPasses | None


# They go with their models, and are no part of them: files and copies hold parameters alone.
_made: WeakKeyDictionary[Layers, _Made] = WeakKeyDictionary()


def _state_of(einet: Layers) -> State | None:
    """Which tensors a model is made of, and how often each has changed; None if nobody counts."""
    kept = [einet._parameters if einet.num_classes > 1 else einet._buffers]
    kept += [block._parameters for block in einet.leaf.blocks]
    kept += [layer._parameters for layer in einet.circuit.layers]
    # A group of variables has its hyper-parameters among its buffers.
    kept += [group._buffers for group in einet.leaf.groups]
    return state_of(kept)


class _Sums(NamedTuple):
    """A layer of linear sums: its weights, its children place by place, and where it writes."""

    weight: Float[np.ndarray, "L K I"]
    children: list[Int[np.ndarray, " some"]]
    slots: slice
    is_top: bool


@dataclass(frozen=True)
class UpwardFew:
    """What the upward pass over a few rows finds: log p(x | c), and products and sums."""

    roots: Float[np.ndarray, "classes batch"]
    products: list[Float[np.ndarray, "_ _ batch"]]
    sums: list[Float[np.ndarray, "_ _ batch"]]


class FewPasses:
    """Both passes of one Einet over a few rows; :func:`few_passes` makes them.

    Attributes:
        leaf: The leaves.
        log_prior: log p(c).
    """

    def __init__(
        self,
        sums: list[_Sums],
        leaf: FewLeafLayer,
        log_prior: Float[np.ndarray, "classes 1"],
        size: tuple[int, int, int],
    ) -> None:
        self._sums, self._size = sums, size
        self.leaf, self.log_prior = leaf, log_prior
        self._product_of = {
            node: (number, row)
            for number, layer in enumerate(sums)
            for index in layer.children
            for row, node in enumerate(index.tolist())
        }

    @classmethod
    def of(cls, einet: Layers) -> FewPasses | None:
        """Those of a model as it is now; None where it has other sums or leaves."""
        circuit = einet.circuit
        if circuit.num_body * circuit.width > _MOST_ENTRIES:
            return None
        leaf = FewLeafLayer.of(einet.leaf)
        if leaf is None or circuit.width != einet.num_leaves or circuit.num_top != 1:
            return None
        sums = []
        for layer in circuit.sum_layers:
            # With first, what runs backwards reaches every node once.
            if type(layer) is not LinearLayer or not layer.first:
                return None
            lists = layer.child_lists()
            places = range(max(map(len, lists)))
            children = [np.array([of[c] for of in lists if len(of) > c]) for c in places]
            weight = layer.weight.detach().numpy()
            sums.append(_Sums(weight, children, layer.slots, layer.target == "top"))
        prior = einet.log_class_prior.detach().numpy()[:, None].copy()
        return cls(sums, leaf, prior, (circuit.num_body, circuit.width, einet.leaf.num_nodes))

    def are_factors(self, node: int, other: int) -> bool:
        """Whether two nodes are factors of the same product."""
        return self._product_of[node] == self._product_of[other]

    # -- upward --------------------------------------------------------------------------------

    def up(
        self,
        x: Float[np.ndarray, "batch variables"],
        masses: dict[int, Float[np.ndarray, "K batch"]] | None = None,
    ) -> UpwardFew | None:
        """The upward pass; None where a cell is none that this arithmetic serves.

        Args:
            x: Rows, NaN where missing.
            masses: For some leaf nodes, log P_L(E) of an event in each row, as the leaves tell it;
                0 in rows without. Cells of rows that have one are missing.
        """
        nodes, width, _ = self._size
        logs = np.empty((nodes, width, len(x)))
        if not self.leaf.write(x, logs):
            return None
        for node, extra in (masses or {}).items():
            logs[node] += extra
        products, values, top = [], [], logs
        with np.errstate(divide="ignore"):
            for layer in self._sums:
                inputs = layer.weight.shape[2]
                terms = logs[layer.children[0], :inputs]
                for index in layer.children[1:]:
                    terms[: len(index)] += logs[index, :inputs]
                largest = terms.max(1, keepdims=True)
                # What is impossible throughout has no largest term to count from.
                np.maximum(largest, -1e300, out=largest)
                terms -= largest
                np.exp(terms, out=terms)
                total = np.matmul(layer.weight, terms)
                products.append(terms)
                values.append(total)
                found = np.log(total)
                found += largest
                if layer.is_top:
                    top = found
                else:
                    logs[layer.slots, : found.shape[1]] = found
        return UpwardFew(top[-1], products, values)

    # -- downward ------------------------------------------------------------------------------

    def down(
        self, upward: UpwardFew, seed: Float[np.ndarray, "classes batch"]
    ) -> Float[np.ndarray, "leaf_nodes K batch"]:
        """p_L of every leaf entry (eq. 6), for weights ``seed`` on the roots' log values."""
        nodes, width, leaves = self._size
        flow = np.zeros((nodes, width, seed.shape[1]))
        above = seed[None]
        passes = zip(reversed(self._sums), upward.products[::-1], upward.sums[::-1], strict=True)
        for layer, product, total in passes:
            if not layer.is_top:
                above = flow[layer.slots, : layer.weight.shape[1]]
            share = np.divide(above, total, out=np.zeros_like(total), where=total > 0)
            below = np.matmul(layer.weight.transpose(0, 2, 1), share)
            below *= product
            for index in layer.children:
                flow[index, : below.shape[1]] = below[: len(index)]
        return flow[:leaves]
