"""The root on a GPU: log-likelihoods, class posteriors and their sums, in one launch."""

# pyright: reportArgumentType=false, reportCallIssue=false

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from einet.kernels.nodes import Nodes
from einet.kernels.triton.products import log_of

__all__ = ["finish"]


def finish(
    root: Nodes,
    log_prior: Float[Tensor, " classes"],
    labels: Int[Tensor, " batch"] | None,
    weights: Float[Tensor, " batch"] | None,
    gradient: Float[Tensor, "classes batch"] | None,
) -> tuple[Float[Tensor, " batch"], Float[Tensor, " sums"]]:
    """Log-likelihoods of rows, and what an E-step adds up of them.

    Args:
        root: The values of the root alone, ``v[1, classes, batch]``.
        log_prior: The log of the class prior.
        labels: The class of each row where known, −1 elsewhere.
        weights: How often each row counts; once by default.
        gradient: Where the gradient of the weighted log-likelihood in the root's values goes;
            zero for impossible rows.

    The sums are the weighted log-likelihood, the weights, the number of impossible rows, and the
    expected count of each class.
    """
    classes, batch = root.v.shape[1:]
    C = triton.next_power_of_2(classes)
    block = max(1, min(triton.next_power_of_2(batch), 1024, 4096 // C))
    log_prob = torch.empty(batch, dtype=torch.float64, device=root.v.device)
    sums = torch.empty(3 + classes, dtype=torch.float64, device=root.v.device)
    absent = log_prob
    _finish[(1,)](
        root.v, root.m, log_prior,
        absent if labels is None else labels, absent if weights is None else weights,
        absent if gradient is None else gradient, log_prob, sums,
        batch, root.v.stride(1), 0 if gradient is None else gradient.stride(0), classes,
        LABELS=labels is not None, WEIGHTS=weights is not None, BACKWARD=gradient is not None,
        C=C, B_BLOCK=block, num_warps=8 if C * block >= 1024 else 4,
    )  # fmt: skip
    return log_prob, sums


@triton.jit
def _finish(
    v, m, log_prior, labels, weights, gradient, log_prob, sums, B, v_class, g_class, classes,
    LABELS: tl.constexpr, WEIGHTS: tl.constexpr, BACKWARD: tl.constexpr,
    C: tl.constexpr, B_BLOCK: tl.constexpr,
):  # fmt: skip
    c = tl.arange(0, C)
    prior = tl.load(log_prior + c, mask=c < classes, other=float("-inf")).to(tl.float64)
    total = tl.zeros([B_BLOCK], tl.float64)
    rows = tl.zeros([B_BLOCK], tl.float64)
    impossible = tl.zeros([B_BLOCK], tl.float64)
    counts = tl.zeros([C, B_BLOCK], tl.float64)
    for start in range(0, B, B_BLOCK):
        b = start + tl.arange(0, B_BLOCK)
        inside = b < B
        here = (c[:, None] < classes) & inside[None, :]
        value = tl.load(v + c[:, None] * v_class + b[None, :], mask=here, other=0.0)
        scale = tl.load(m + b, mask=inside, other=float("-inf"))
        joint = log_of(value) + scale[None, :] + prior[:, None]
        if LABELS:
            label = tl.load(labels + b, mask=inside, other=-1)
            admitted = (label[None, :] < 0) | (label[None, :] == c[:, None])
            joint = tl.where(admitted, joint, float("-inf"))
        largest = tl.max(joint, 0)
        possible = largest > float("-inf")
        share = tl.exp(joint - tl.where(possible, largest, 0.0)[None, :])
        norm = tl.sum(share, 0)
        result = tl.where(possible, largest + tl.log(tl.where(possible, norm, 1.0)), float("-inf"))
        tl.store(log_prob + b, result, mask=inside)
        weight = tl.where(inside, 1.0, 0.0).to(tl.float64)
        if WEIGHTS:
            weight = tl.load(weights + b, mask=inside, other=0.0).to(tl.float64)
        seed = share * (weight / tl.where(possible, norm, 1.0))[None, :]
        seed = tl.where(possible[None, :] & here, seed, 0.0)
        if BACKWARD:
            at = gradient + c[:, None] * g_class + b[None, :]
            g = tl.where(value > 0, seed.to(tl.float32) / tl.where(value > 0, value, 1.0), 0.0)
            tl.store(at, g, mask=here)
        total += tl.where(weight > 0, result * weight, 0.0)
        rows += weight
        impossible += tl.where((weight > 0) & (result == float("-inf")), 1.0, 0.0)
        counts += seed
    tl.store(sums, tl.sum(total, 0))
    tl.store(sums + 1, tl.sum(rows, 0))
    tl.store(sums + 2, tl.sum(impossible, 0))
    tl.store(sums + 3 + c, tl.sum(counts, 1), mask=c < classes)
