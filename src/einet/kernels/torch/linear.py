"""The linear layer in plain torch: S_lk = Σ_i W_lki Π_c N_ci over any number of children.

A product has entry i of every child as its factors. The largest entries of two children need not
lie at the same i, so that a product of many may be far below the least number of a float, and an
entry that falls behind in some factors may catch up in others. So exponents are kept apart from
mantissas: a product is ``p·2**e`` with p in [1, 2) and an integer e *for each entry*. In the end
one power of two is taken out for each sample, such that the largest entry is in [1, 2): nothing is
lost but what is 2⁻¹²⁶ (2⁻¹⁰²² in float64) of it. On a CPU that is done only for samples whose
largest entry is below 2⁻¹⁰; of others what is below 2⁻¹¹⁶ of it is lost.

Backwards, the flow into entry i of a product is that into entry i of every child.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from einet.kernels.memory import block_bytes, blocks, rows_at_once, scratch
from einet.kernels.nodes import Nodes, add_product, finish, per_sum
from einet.kernels.update import Collector

__all__ = ["Factors", "linear_backward", "linear_forward", "multiply_", "scale_down_"]

# Of floats: the integers that have their bits, how many of them are the mantissa's, the exponent
# of 1 and the bits of 1 and of all mantissas.
_BITS = {
    torch.float32: (torch.int32, 23, 127, 0x3F800000, 0x7FFFFF),
    torch.float64: (torch.int64, 52, 1023, 0x3FF0000000000000, 0xFFFFFFFFFFFFF),
}

# Products are made as they are where the largest one of a sample is at least this.
_FAR = 2.0**-10


def multiply_(p: Tensor, exponent: Tensor, factor: Tensor) -> None:
    """``p·2**exponent`` times factors of at least 0, with all p then in [1, 2) or 0."""
    integer, shift, bias, one, mantissa = _BITS[p.dtype]
    p *= factor
    bits = p.view(integer)
    power = bits >> shift
    exponent += power - bias
    bits &= mantissa
    bits |= one
    p.masked_fill_(power == 0, 0.0)


def scale_down_(p: Tensor, exponent: Tensor) -> Int[Tensor, "rows *columns"]:
    """Put entries (axis 1) on a common scale, and return the power of two it is.

    Where all are 0 it is some very low one.
    """
    exponent.masked_fill_(p == 0, -(1 << 30))
    power = exponent.amax(1)
    exponent -= power.unsqueeze(1)
    p *= exponent.to(p.dtype).exp2_()
    return power


@dataclass
class Factors:
    """The children of L products: those of row l are ``index[ends[l]:ends[l + 1]]``.

    Rows come with the most children first: ``widths[c]`` of them have more than c. All children
    have I entries.
    """

    index: Int[Tensor, " edges"]
    ends: Int[Tensor, " L_1"]
    widths: list[int]
    num_inputs: int

    def at(self, rows: slice) -> list[Int[Tensor, " some"]]:
        """For each place the children there, of as many of these rows as have one."""
        starts = self.ends[rows]
        widths = (min(width - rows.start, rows.stop - rows.start) for width in self.widths)
        return [self.index[starts[:w] + c] for c, w in enumerate(widths) if w > 0]

    def product(
        self, v: Float[Tensor, "nodes K batch"], rows: slice, columns: slice
    ) -> tuple[Float[Tensor, "some I columns"], Int[Tensor, "some columns"] | None]:
        """Products of some rows, in scratch memory, and powers of two; without, these are 1."""
        v = v[:, : self.num_inputs, columns]
        places = self.at(rows)
        p = scratch("product", (len(places[0]), *v.shape[1:]), v)
        if v.is_cuda:
            return p, _with_exponents((_picked(v, index) for index in places), p)
        torch.index_select(v, 0, places[0], out=p)
        for index in places[1:]:
            p[: len(index)] *= _picked(v, index)
        # Numbers below the least one of full precision are slow, and are taken for 0.
        torch.threshold_(p, torch.finfo(p.dtype).tiny, 0.0)
        # No factor is above 1. Where the largest product is not far below, nothing is lost.
        far = (p.amax(1) < _FAR).any(0).nonzero().flatten()
        if not len(far):
            return p, None
        power = places[0].new_zeros(len(p), p.shape[2])
        factors = (_picked(v, index).index_select(2, far) for index in places)
        some = scratch("far product", (*p.shape[:2], len(far)), v)
        power[:, far] = _with_exponents(factors, some)
        p.index_copy_(2, far, some)
        return p, power

    def log_scale(self, m: Float[Tensor, "nodes batch"]) -> Float[Tensor, "L batch"]:
        """The log-scale of their products, without the powers of two."""
        first, *others = self.at(slice(0, len(self.ends) - 1))
        total = m.index_select(0, first)
        for index in others:
            total[: len(index)] += m.index_select(0, index)
        return total


def _with_exponents(factors: Iterable[Tensor], p: Tensor) -> Int[Tensor, "some columns"]:
    """Products into ``p``, on a scale for each sample that is returned as a power of two."""
    p.fill_(1.0)
    exponent = torch.zeros(p.shape, dtype=torch.int64, device=p.device)
    for factor in factors:
        multiply_(p[: len(factor)], exponent[: len(factor)], factor)
    return scale_down_(p, exponent)


def _picked(v: Tensor, index: Tensor) -> Tensor:
    out = scratch("picked", (len(index), *v.shape[1:]), v)
    return torch.index_select(v, 0, index, out=out)


def linear_forward(
    weight: Float[Tensor, "L K_out I"],
    nodes: Nodes,
    factors: Factors,
    out: Nodes,
    maximise: bool = False,
) -> None:
    """One linear layer into ``out``; with ``maximise`` the sum over i becomes a maximum."""
    outputs = weight.shape[1]
    log_scale = factors.log_scale(nodes.m)
    row_blocks, column_blocks = _blocks(weight, nodes, outputs if maximise else 1)
    for rows in row_blocks:
        for columns in column_blocks:
            product, power = factors.product(nodes.v, rows, columns)
            if maximise:
                terms = weight[rows].unsqueeze(-1) * product.unsqueeze(1)
                out.v[rows, :, columns] = terms.amax(2)
            elif len(column_blocks) == 1:
                torch.bmm(weight[rows], product, out=out.v[rows])
            else:
                out.v[rows, :, columns] = torch.bmm(weight[rows], product)
            if power is not None:
                log_scale[rows, columns] += power.double() * math.log(2.0)
    finish(out.v, log_scale, out)


def linear_backward(
    weight: Float[Tensor, "L K_out I"],
    nodes: Nodes,
    factors: Factors,
    sums: Nodes,
    flow: Float[Tensor, "L K_out batch"],
    statistics: Collector | None,
    child_flow: Float[Tensor, "nodes K batch"],
    first: bool = False,
) -> None:
    """Add the children's flows to ``child_flow``; hand over ∂/∂W (n of eq. 6) if asked.

    With ``first`` they are written: nothing is there yet, and no child occurs twice.
    """
    row_blocks, column_blocks = _blocks(weight, nodes, 1)
    for rows in row_blocks:
        room = None if statistics is None else statistics.room(rows)
        fresh = statistics is not None and statistics.fresh
        for columns in column_blocks:
            above = per_sum(flow, sums, rows, columns)
            product, _ = factors.product(nodes.v, rows, columns)
            if room is not None:
                add_product(room, above, product.transpose(1, 2), fresh)
                fresh = False
            below = scratch("below", product.shape, product)
            torch.bmm(weight[rows].transpose(1, 2), above, out=below)
            below *= product
            into = child_flow[:, : factors.num_inputs, columns]
            for index in factors.at(rows):
                if first:
                    into.index_copy_(0, index, below[: len(index)])
                else:
                    into.index_add_(0, index, below[: len(index)])
        if statistics is not None:
            statistics.done(rows)


def _blocks(weight: Tensor, nodes: Nodes, times: int) -> tuple[list[slice], list[slice]]:
    cell = weight.shape[-1] * weight.element_size() * times
    budget, at_once = block_bytes(weight.device), rows_at_once(weight.device)
    return blocks(weight.shape[0], nodes.v.shape[-1], cell, budget, at_once)
