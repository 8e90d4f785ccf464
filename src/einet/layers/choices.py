"""Choices of samples at all nodes of a circuit, as the fused kernels make them on the way down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from einet.families import Bernoulli, Categorical, Gaussian
from einet.layers.base import Values, Visits

if TYPE_CHECKING:
    from einet.layers.circuit import Circuit
    from einet.layers.leaf import LeafBlock, LeafLayer

__all__ = ["Choices", "choose", "draw_leaves", "draws_alone"]


@dataclass(frozen=True)
class Choices:
    """The entry by which each sample leaves each node; −1 for a node that it does not come to.

    Attributes:
        body, top: Choices of the nodes of both spaces (see :class:`~einet.layers.Values`).
        seed: What all random numbers of the pass are made of; it lies beside the choices.
    """

    body: Int[Tensor, "body_nodes samples"]
    top: Int[Tensor, "top_nodes samples"]
    seed: Int[Tensor, " 1"]

    @classmethod
    def none(cls, circuit: Circuit, samples: int, seed: Int[Tensor, " 1"]) -> Choices:
        """Before any choice is made."""
        size, body = (circuit.num_body + circuit.num_top, samples), circuit.num_body
        choice = torch.full(size, -1, dtype=torch.int32, device=seed.device)
        return cls(choice[:body], choice[body:], seed)

    def space(self, name: str) -> Int[Tensor, "nodes samples"]:
        """The choices of a space by its name."""
        return self.top if name == "top" else self.body

    def number(self, name: str, node: int) -> int:
        """The number of a node among those of both spaces: each has random numbers of its own."""
        return node + (len(self.body) if name == "top" else 0)

    def visits(self, nodes: Int[Tensor, " nodes"]) -> Visits:
        """The same of some nodes of the body as a list; waits for the device."""
        choice = self.body[nodes]
        node, sample = (choice >= 0).nonzero(as_tuple=True)
        return Visits(nodes[node], choice[node, sample].long(), sample)


def choose(
    circuit: Circuit,
    samples: int,
    seed: Int[Tensor, " 1"],
    joint: Float[Tensor, "classes rows"] | None,
    values: Values | None,
) -> Choices:
    """Draw the choices of all nodes, from the root down; nothing waits for the device.

    Args:
        circuit: The circuit; all its layers have kernels for that (:attr:`Circuit.has_choices`).
        samples: How many samples; number s belongs to row s modulo the number of rows.
        seed: A random number, on the circuit's device.
        joint: log p(c, e) of all classes and rows; None where there is one class.
        values: Of all nodes, given what is known of the rows; None where nothing is.
    """
    from einet.kernels.triton import inner_choices as triton

    choices = Choices.none(circuit, samples, seed)
    if joint is None:
        choices.top[-1].zero_()
    else:
        last = circuit.num_body + circuit.num_top
        triton.choose_class(joint, choices.top[-1], seed, last)
    layers = circuit.sum_layers
    for part, tree in reversed(circuit.parts(fused=True)):
        if tree is None:
            layers[part.start].choose(choices, values)
        else:
            tree.choose([layer.weight.detach() for layer in layers[part]], choices, values)
    return choices


def draw_leaves(
    leaf: LeafLayer,
    choices: Choices,
    out: Float[Tensor, "samples variables"],
    answer: str,
    generator: torch.Generator | None = None,
) -> None:
    """Write a value of every chosen leaf into ``out``, as :meth:`LeafLayer.draw_` does.

    Draws of the most frequent families take one launch for each block; for all else the choices
    are turned into lists.
    """
    rest: list[LeafBlock] = []
    for kind, block in enumerate(leaf.leaf_blocks, start=1):
        draw = _kernel_of(block) if answer == "sample" else None
        if draw is None:
            rest.append(block)
        else:
            draw(block.pairs, block.group.variables, choices.body, choices.seed, kind, out)
    options: dict[str, Any] = {"generator": generator} if answer == "sample" else {}
    for block in rest:
        visits = choices.visits(block.leaves)
        leaf.draw_(visits, out, answer, blocks=[block], **options)


def draws_alone(leaf: LeafLayer) -> bool:
    """Whether kernels draw from all leaves, so that nothing waits for the device."""
    return all(_kernel_of(block) is not None for block in leaf.leaf_blocks)


def _kernel_of(block: LeafBlock) -> Callable[..., None] | None:
    """What draws from the leaves of a block in one launch, where there is something."""
    from einet.kernels.triton import leaf_draws as triton

    # Of these very families: one that was derived from them may draw in another way.
    return {
        Categorical: triton.draw_states,
        Bernoulli: triton.draw_binary,
        Gaussian: triton.draw_gaussian,
    }.get(block.group.kind)
