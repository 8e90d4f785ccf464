"""Data as the fused leaf kernels read them: variables first, samples last, one number a cell."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from einet.families import Gaussian
from einet.kernels.triton.leaf_common import cdiv, launch

__all__ = ["SAMPLES", "WORD", "bits", "standardised", "states"]

#: Samples of a block.
SAMPLES = 32
#: Samples of binary variables in a word of 32 bits.
WORD = 16
#: Where the support of Gaussians ends.
LARGEST = tl.constexpr(Gaussian.largest)


@triton.jit
def _encode(
    x,
    x_row,
    x_column,
    observed,
    o_row,
    o_column,
    variables,
    first,
    second,
    out,
    holes,
    V,
    batch,
    MASKED: tl.constexpr,
    TABLE: tl.constexpr,
    BINARY: tl.constexpr,
    BV: tl.constexpr,
    BB: tl.constexpr,
):
    variable = tl.program_id(0) * BV + tl.arange(0, BV)
    b = (tl.program_id(1) * BB + tl.arange(0, BB)).to(tl.int64)
    inside = (b < batch)[:, None] & (variable < V)[None, :]
    column = tl.load(variables + variable, mask=variable < V, other=0)
    at = x + b[:, None] * x_row + column[None, :] * x_column
    value = tl.load(at, mask=inside, other=0).to(tl.float64)
    known = value == value
    if MASKED:
        mask = observed + b[:, None] * o_row + column[None, :] * o_column
        known = known & (tl.load(mask, mask=inside, other=0) != 0)
    if BINARY:
        state = tl.where(value == 1, 1, tl.where(value == 0, 2, 3))
        state = tl.where(inside & known, state, 0)
        word = tl.sum(state << (2 * tl.arange(0, BB))[:, None], 0)
        to = out + variable.to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
        tl.store(to, word, mask=variable < V)
        return
    if TABLE:
        count = tl.load(first + variable, mask=variable < V, other=0).to(tl.float64)
        fits = (value >= 0) & (value < count[None, :]) & (value == tl.floor(value))
        state = tl.where(fits, value, -2.0).to(tl.int32)
        result = tl.where(known, state, -1)
    else:
        location = tl.load(first + variable, mask=variable < V, other=0.0).to(tl.float64)
        scale = tl.load(second + variable, mask=variable < V, other=1.0).to(tl.float64)
        z = (value - location[None, :]) / scale[None, :]
        # Its square, too, is finite in float32.
        z = tl.minimum(tl.maximum(z, -1e18), 1e18)
        # What lies beyond the support is as impossible as an infinite value.
        finite = tl.abs(value) <= LARGEST
        z = tl.where(finite, z, float("inf"))
        result = tl.where(known, z, float("nan")).to(tl.float32)
        hole = tl.max((inside & ~(known & finite)).to(tl.int32), 0)
        at = holes + variable * tl.num_programs(1) + tl.program_id(1)
        tl.store(at, hole, mask=variable < V)
    to = out + variable.to(tl.int64)[None, :] * batch + b[:, None]
    tl.store(to, result, mask=inside)


def standardised(
    x: Tensor, observed: Tensor | None, variables: Tensor, location: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor]:
    """(x − location) / scale of some columns, ``[V, batch]`` in float32; NaN where missing.

    The other tensor ``[V, blocks]`` says of every ``SAMPLES`` samples whether any of them is
    missing or infinite: most are not, and need less care.
    """
    out = location.new_empty(len(variables), len(x), dtype=torch.float32)
    holes = variables.new_empty(len(variables), cdiv(len(x), SAMPLES), dtype=torch.int32)
    _launch(x, observed, variables, location, scale, out, holes)
    return out, holes


def states(x: Tensor, observed: Tensor | None, variables: Tensor, num_categories: Tensor) -> Tensor:
    """Integers from 0 in some columns, ``[V, batch]``; −1 where missing, −2 where impossible."""
    out = num_categories.new_empty(len(variables), len(x), dtype=torch.int32)
    _launch(x, observed, variables, num_categories, num_categories, out, out, table=True)
    return out


def bits(x: Tensor, observed: Tensor | None, variables: Tensor) -> Tensor:
    """Zeros and ones in some columns, two bits for each: ``[V, words]`` of ``WORD`` samples.

    1 stands for a one, 2 for a zero, 3 for an impossible value and 0 for a missing one. A program
    then learns of all its samples by reading one number.
    """
    out = variables.new_empty(len(variables), cdiv(len(x), WORD), dtype=torch.int32)
    _launch(x, observed, variables, variables, variables, out, out, binary=True)
    return out


def _launch(
    x: Tensor,
    observed: Tensor | None,
    variables: Tensor,
    first: Tensor,
    second: Tensor,
    out: Tensor,
    holes: Tensor,
    table: bool = False,
    binary: bool = False,
) -> None:
    V, batch = len(variables), len(x)
    samples = WORD if binary else SAMPLES
    x = x.view(torch.uint8) if x.dtype == torch.bool else x
    mask = x if observed is None else observed.view(torch.uint8)
    launch(
        _encode, (cdiv(V, 32), cdiv(batch, samples)),
        x, *x.stride(), mask, *mask.stride(), variables, first, second, out, holes, V, batch,
        MASKED=observed is not None, TABLE=table, BINARY=binary, BV=32, BB=samples, num_warps=4,
    )  # fmt: skip
