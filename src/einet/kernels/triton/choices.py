"""Choices on a GPU: random numbers, and drawing one of many options by them.

On the way down a circuit each sample comes to a node at most once, as the children of a product
share no variable. So all choices fit one table, ``choice[node, sample]``: the entry by which the
sample left the node above, −1 where it did not come by. Kernels read the choice of a sum, draw one
of its options, and write the choices of its children.

**Random numbers** are counted, not carried along: Philox turns (seed, sample, node, kind) into four
words, whatever program asks for them and when. So results depend on the seed alone. The seed lies
in memory, where a recording finds another one at the next replay.

**Options** are drawn by inverting their cumulative weights in float64 at a uniform number of 53
bits. A parallel scan adds in another order for each place, so that it may rise where nothing was
added, and may end below the total: an option of weight 0 is passed over in any case, and where
nothing exceeds the target the last one of positive weight is taken.
"""

# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false

import triton
import triton.language as tl
from torch import Tensor

__all__ = ["SUMS", "option_at", "place_above", "samples_at_once", "uniforms"]

#: The kind of all choices of sums; leaves have others (:mod:`~einet.kernels.triton.leaf_draws`).
SUMS = tl.constexpr(0)

# Twice as much as the number of any option.
_END = tl.constexpr(1 << 30)


def samples_at_once(like: Tensor, samples: int, block: int) -> int:
    """Samples of a program: so many, or fewer where there are no more.

    An interpreter takes as long for many samples as for few.
    """
    most = block if like.is_cuda else 4096
    return min(most, int(triton.next_power_of_2(samples)))


@triton.jit
def uniforms(seed, sample, node, kind):
    """Two uniform numbers in [0, 1) for each sample, in float64; ``node`` may differ in shape."""
    zero = sample * 0
    a, b, c, d = tl.philox(tl.load(seed), sample, zero + node.to(tl.int32), zero + kind, zero)
    return _unit(a, b), _unit(c, d)


@triton.jit
def _unit(a, b):
    """53 of 64 random bits as a number in [0, 1)."""
    return ((a >> 5).to(tl.float64) * 67108864.0 + (b >> 6).to(tl.float64)) * 1.1102230246251565e-16


@triton.jit
def place_above(cumulative, target, weight, number):
    """The place of each sample's option; the smallest of several such is that of all of them.

    The option is the first whose cumulative weight exceeds the target, or else the last one of
    positive weight: places of the latter come after all others, and fall from one to the next. So
    a single minimum finds either. Arguments can be broadcast to ``[samples, options]``.
    """
    place = tl.where(cumulative > target, number, _END - 1 - number)
    return tl.min(tl.where(weight > 0, place, _END), 1, keep_dims=True)


@triton.jit
def option_at(place):
    """The number of the option at a place; −1 where all weights are 0."""
    return tl.where(place < _END // 2, place, _END - 1 - place)
