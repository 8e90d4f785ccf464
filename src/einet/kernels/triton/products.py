"""Matrix products on tensor cores at a chosen precision, as parts of larger kernels.

Tensor cores multiply tf32 (11 significant bits) or bf16 (8 bits) and add in float32. Splitting an
operand into a rounded part and its remainder recovers the bits that were lost:

======== ================================ =====================
mode     operands                         relative error of an operand
======== ================================ =====================
highest  two tf32 parts, three products   2⁻²³: that of float32
high     rounded to tf32                  2⁻¹²
medium   rounded to bf16                  2⁻⁹
======== ================================ =====================

Rounding is to nearest: the cores themselves would cut bits off, and as all our numbers are
positive, such errors add up instead of averaging out.
"""

# pyright: reportGeneralTypeIssues=false

import os

import triton
import triton.language as tl

__all__ = [
    "PLANES",
    "PRECISIONS",
    "TINY",
    "cut",
    "dot",
    "dot_of_planes",
    "exact_dot",
    "log_of",
    "padded",
    "split",
]

#: Precision modes and how kernels know them.
PRECISIONS = {"highest": 0, "high": 1, "medium": 2}

#: In how many bf16 numbers operands are cut: three hold all 24 bits of float32, two hold 16.
PLANES = {"highest": 3, "high": 2, "medium": 1}

#: The least normal number of float32: what values are divided by where all of them are 0.
TINY = tl.constexpr(1.1754943508222875e-38)


_INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true"))


def padded(size: int) -> int:
    """The side of a tile that holds so many entries; tensor cores take 16 at least."""
    return max(16, int(triton.next_power_of_2(size)))


@triton.jit
def split(x):
    """The tf32 number nearest to x, and what is left of x."""
    bits = x.to(tl.int32, bitcast=True)
    rounded = ((bits + 0x1000) & -8192).to(tl.float32, bitcast=True)
    return rounded, x - rounded


@triton.jit
def dot(a, b, total, PRECISION: tl.constexpr):
    """``total + a @ b`` for float32 tiles; with PRECISION 3 they are tf32 numbers already."""
    if PRECISION == 3:
        total = tl.dot(a, b, total, input_precision="tf32")
    elif PRECISION == 2:
        a_near, b_near = a.to(tl.bfloat16), b.to(tl.bfloat16)
        if _INTERPRETED:
            # Triton's interpreter has no products of bf16; in float32 they are the same.
            total = tl.dot(a_near.to(tl.float32), b_near.to(tl.float32), total)
        else:
            total = tl.dot(a_near, b_near, total)
    else:
        a_near, a_rest = split(a)
        b_near, b_rest = split(b)
        if PRECISION == 0:
            total = tl.dot(a_rest, b_near, total, input_precision="tf32")
            total = tl.dot(a_near, b_rest, total, input_precision="tf32")
        total = tl.dot(a_near, b_near, total, input_precision="tf32")
    return total


@triton.jit
def exact_dot(chosen, x, total):
    """``total + chosen @ x`` for a mask of zeros and ones, without rounding of float32 ``x``.

    Three bf16 numbers hold all 24 bits of x.
    """
    near, middle, last = cut(x)
    # The interpreter makes bf16 numbers of float32 ones only.
    ones = chosen.to(tl.float32 if _INTERPRETED else tl.bfloat16)
    total = _dot(ones, last, total)
    total = _dot(ones, middle, total)
    return _dot(ones, near, total)


@triton.jit
def cut(x):
    """Three bf16 numbers that add up to a float32 number, the larger ones first."""
    near = x.to(tl.bfloat16)
    rest = x - near.to(tl.float32)
    middle = rest.to(tl.bfloat16)
    last = (rest - middle.to(tl.float32)).to(tl.bfloat16)
    return near, middle, last


@triton.jit
def _dot(a, b, total):
    """``total + a @ b`` for tiles of bf16."""
    if _INTERPRETED:
        # Triton's interpreter has no products of bf16; in float32 they are the same.
        total = tl.dot(a.to(tl.float32), b.to(tl.float32), total)
    else:
        total = tl.dot(a, b, total)
    return total


@triton.jit
def dot_of_planes(a1, a2, a3, b1, b2, b3, PLANES: tl.constexpr):
    """``a @ b`` for tiles that are cut into bf16 numbers, of which the first ``PLANES`` count.

    Small products come first: sums within tensor cores are cut off, not rounded, and what is cut
    off of a small sum is small. Products below the last bit of float32 are left out.
    """
    total = tl.zeros([a1.shape[0], b1.shape[1]], tl.float32)
    if PLANES == 3:
        total = _dot(a3, b1, total)
        total = _dot(a1, b3, total)
        total = _dot(a2, b2, total)
    if PLANES >= 2:
        total = _dot(a2, b1, total)
        total = _dot(a1, b2, total)
    return _dot(a1, b1, total)


@triton.jit
def log_of(x):
    """The logarithm in float64; −∞ for 0, and no fuss about it."""
    return tl.where(x > 0, tl.log(tl.maximum(x, TINY).to(tl.float64)), float("-inf"))
