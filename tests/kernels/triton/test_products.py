"""Products of tiles: what each precision makes of its operands."""

# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

import triton
import triton.language as tl

from einet.kernels.triton.products import PRECISIONS, cut, dot, log_of, padded, split, times
from tests.kernels.triton.inner_check import INF, on_devices, on_precisions

# numpy, in which kernels are interpreted, warns where a GPU computes inf or NaN without a word.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@triton.jit
def _dot(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr):
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    left = tl.load(a + m * K + k[None, :])
    right = tl.load(b + k[:, None] * N + n)
    total = tl.load(c + m * N + n)
    tl.store(c + m * N + n, dot(left, right, total, PRECISION))


@triton.jit
def _split(x, near, rest, N: tl.constexpr):
    n = tl.arange(0, N)
    first, second = split(tl.load(x + n))
    tl.store(near + n, first)
    tl.store(rest + n, second)


@triton.jit
def _cut(x, factor, planes, N: tl.constexpr):
    n = tl.arange(0, N)
    power = tl.load(factor + n)
    near, middle, last = cut(tl.load(x + n))
    tl.store(planes + n, times(near, power))
    tl.store(planes + N + n, times(middle, power))
    tl.store(planes + 2 * N + n, times(last, power))


@triton.jit
def _log(x, out, N: tl.constexpr):
    n = tl.arange(0, N)
    tl.store(out + n, log_of(tl.load(x + n)))


def uniform(*shape: int, device: str, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)).to(device)


@on_precisions
def test_dot(device: str, precision: str) -> None:
    a, b, c = (uniform(32, 32, device=device, seed=seed) for seed in range(3))
    exact = c.double() + a.double() @ b.double()
    _dot[(1,)](a, b, c, M=32, N=32, K=32, PRECISION=PRECISIONS[precision])
    # Two operands, each rounded to nearest.
    error = {"highest": 1e-6, "high": 2**-11, "medium": 2**-8}[precision]
    torch.testing.assert_close(c.double(), exact, rtol=error, atol=0.0)


@on_precisions
def test_errors_of_rounding_average_out(device: str, precision: str) -> None:
    """Cutting bits off would make every product too small."""
    a, b = (uniform(64, 64, device=device, seed=seed) for seed in range(2))
    c = torch.zeros_like(a)
    _dot[(1,)](a, b, c, M=64, N=64, K=64, PRECISION=PRECISIONS[precision])
    error = c.double() / (a.double() @ b.double()) - 1
    # Operands are rounded to nearest. The sums of tensor cores are cut off, in their last bits.
    bias = {"highest": 5e-7, "high": 2**-15, "medium": 2**-12}[precision]
    assert error.mean().abs() < bias


@on_devices
def test_split(device: str) -> None:
    """Into a number of 11 significant bits, the nearest one, and an exact rest."""
    x = torch.cat([uniform(200, device=device), 2.0 ** torch.arange(-120, -64).float().to(device)])
    x = x * uniform(256, device=device, seed=1)
    x[:3] = torch.tensor([0.0, 1.0, 1 - 2**-24])
    near, rest = torch.full_like(x, torch.nan), torch.full_like(x, torch.nan)
    _split[(1,)](x, near, rest, N=256)
    assert (near.double() + rest.double()).equal(x.double())
    assert (rest.abs().double() <= x.double() * 2**-11).all()
    assert (near.view(torch.int32) & 0x1FFF == 0).all()


@on_devices
def test_cut(device: str) -> None:
    """Into three numbers of 8 bits that hold all 24, and each is exact when scaled."""
    x = uniform(256, device=device) * 2.0 ** torch.arange(-60, 68).repeat(2).float().to(device)
    x[:4] = torch.tensor([0.0, 1.0, 1 - 2**-24, 1e38])
    factor = 2.0 ** -torch.arange(256).remainder(30).float().to(device)
    planes = torch.full((3, 256), torch.nan, dtype=torch.bfloat16, device=device)
    _cut[(1,)](x, factor.bfloat16(), planes, N=256)
    assert planes.double().sum(0).equal(x.double() * factor.double())
    near, middle, last = planes.double().abs()
    assert (middle <= near * 2**-7).all()
    assert (last <= near * 2**-15).all()


@on_devices
def test_log_of(device: str) -> None:
    x = torch.cat([uniform(29, device=device), torch.tensor([0.0, 1.0, 1e-37]).to(device)])
    out = torch.full_like(x, torch.nan, dtype=torch.float64)
    _log[(1,)](x, out, N=32)
    assert out[29] == -INF
    assert out[30] == 0
    torch.testing.assert_close(out, x.double().log(), rtol=1e-12, atol=1e-12)


def test_padded() -> None:
    assert [padded(n) for n in (1, 15, 16, 17, 40, 64, 200)] == [16, 16, 16, 32, 64, 64, 256]
