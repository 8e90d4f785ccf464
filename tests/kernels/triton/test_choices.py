"""Drawing one of many options: uniform numbers, and the ends of cumulative weights."""

# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from scipy import stats

from einet.kernels.triton import choices, linear_choices
from einet.kernels.triton.choices import option_at, place_above, samples_at_once
from einet.kernels.triton.linear import LinearEdges
from tests.kernels.triton.choices_check import philox, pick, uniform
from tests.kernels.triton.leaf_check import DEVICES

on_devices = pytest.mark.parametrize("device", DEVICES)


@triton.jit(do_not_specialize=["node", "kind"])
def _uniforms(seed, out, node, kind, n: tl.constexpr):
    sample = tl.arange(0, n)
    first, second = choices.uniforms(seed, sample, node, kind)
    tl.store(out + sample, first)
    tl.store(out + n + sample, second)


@triton.jit
def _first(cumulative, target, weight, out, rows: tl.constexpr, n: tl.constexpr):
    row, i = tl.arange(0, rows)[:, None], tl.arange(0, n)[None, :]
    c, w = tl.load(cumulative + row * n + i), tl.load(weight + row * n + i)
    place = place_above(c, tl.load(target + row), w, i)
    tl.store(out + row, option_at(place))


def test_words_are_those_of_philox():
    """The first known answers of Random123: all zeros, and all ones."""
    zero, ones = np.zeros(1, dtype=np.int64), np.full(1, 0xFFFFFFFF)
    assert [f"{int(word[0]):08x}" for word in philox(0, [zero] * 4)] == [
        "6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8",
    ]  # fmt: skip
    assert [f"{int(word[0]):08x}" for word in philox(2**64 - 1, [ones] * 4)] == [
        "408f276d", "41c83b0e", "a20bc7c6", "6d5451fd",
    ]  # fmt: skip


@on_devices
@pytest.mark.parametrize("seed", [0, 5, 2**62 + 12345])
def test_uniform_numbers(device, seed):
    n, where = 1024, torch.tensor([seed], device=device)
    drawn = {}
    for node, kind in ((0, 0), (1, 0), (0, 1), (1 << 20, 3)):
        out = torch.empty(2, n, dtype=torch.float64, device=device)
        _uniforms[(1,)](where, out, node, kind, n)
        expected = torch.stack(uniform(seed, np.arange(n), node, kind))
        assert out.cpu().equal(expected)
        assert (out >= 0).all()
        assert (out < 1).all()
        assert stats.kstest(out.cpu().flatten().numpy(), "uniform").pvalue > 1e-4
        drawn[node, kind] = out.cpu()
    assert drawn[0, 0].unique().numel() == 2 * n
    correlation = np.corrcoef(torch.stack([each[0] for each in drawn.values()]).numpy())
    assert np.abs(correlation - np.eye(4)).max() < 0.15


@on_devices
def test_ends_of_cumulative_weights(device):
    """Nothing of weight 0 is taken, and nothing beyond the end, however sums were rounded."""
    up = 1 + 2.0**-52
    cumulative, target, weight, expected = zip(
        ([0, 0.5, 1, 1], 0.0, [0, 0.5, 0.5, 0], 1),
        ([0, 0.5, 1, 1], 0.5, [0, 0.5, 0.5, 0], 2),
        # A scan that rises where nothing is added.
        ([0.5, 0.5 * up, 1, 1], 0.5, [0.5, 0, 0.5, 0], 2),
        # One that ends below the total.
        ([0.5, 1, 1, 1], 1.0, [0.5, 0.5, 0, 0], 1),
        ([0.25, 0.5, 0.75, 1], 1.0, [0.25, 0.25, 0.25, 0.25], 3),
        ([0, 0, 0, 0], 0.0, [0, 0, 0, 0], -1),
        ([0, 0, 0, 1], 0.0, [0, 0, 0, 1], 3),
        ([1, 1, 1, 1], up - 1, [1, 0, 0, 0], 0),
        strict=True,
    )
    arguments = [
        torch.tensor(each, dtype=torch.float64, device=device)
        for each in (cumulative, target, weight)
    ]
    out = torch.empty(8, dtype=torch.int32, device=device)
    _first[(1,)](*arguments, out, 8, 4)
    assert out.tolist() == list(expected)


@on_devices
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("inputs", [3, 300])
def test_blocks_of_entries(device, given, inputs):
    """Entries in several blocks, products beyond the range of floats, and entries of weight 0."""
    generator = torch.Generator().manual_seed(inputs)
    samples, rows, K = 200, 5, 2
    weight = torch.rand(2, K, inputs, generator=generator)
    weight[:, :, 1 : inputs // 2] = 0
    v = torch.rand(4, inputs, rows, generator=generator).double()
    v[:, 2] = 0
    # Some 1e-120 altogether: single precision holds no such product.
    v *= torch.logspace(-40, -36, inputs).double().unsqueeze(-1)
    v = v.float().clamp(min=1.2e-38) * (v > 0)
    above = torch.randint(-1, K, (2, samples), generator=generator, dtype=torch.int32)
    below = torch.full((4, samples), -1, dtype=torch.int32, device=device)
    edges = LinearEdges(
        torch.tensor([0, 2, 3, 1], device=device), torch.tensor([0, 3, 4], device=device), inputs
    )
    seed = torch.tensor([77], device=device)
    linear_choices.choose(
        weight.to(device), v.to(device) if given else None, edges, above.to(device), below, seed, 9
    )
    found = below.cpu()
    for number, children in enumerate(([0, 2, 3], [1])):
        (sample,) = (above[number] >= 0).nonzero(as_tuple=True)
        options = weight[number, above[number, sample].long()].double()
        if given:
            for child in children:
                options = options * v[child].double().T[sample % rows]
        expected = torch.full((samples,), -1)
        expected[sample] = pick(options, uniform(77, sample.numpy(), 9 + number)[0])
        for child in children:
            assert found[child].equal(expected.int())
        assert (options[torch.arange(len(sample)), expected[sample]] > 0).all()


def test_blocks_of_samples():
    """A power of two, and no more than there are."""
    like = torch.empty(0)
    assert [samples_at_once(like, n, 32) for n in (1, 3, 32, 5000)] == [1, 4, 32, 4096]
