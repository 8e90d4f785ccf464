"""What a descent by fused kernels has to choose: Philox in numpy, and every sum in float64."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

import einet
from einet.layers import (
    Circuit,
    EinsumLayer,
    LeafLayer,
    LinearLayer,
    MixingLayer,
    SumLayer,
    Values,
)

__all__ = ["Expected", "philox", "pick", "uniform"]

_ROUNDS, _WORD = 10, np.uint64(0xFFFFFFFF)


def philox(seed: int, counters: list[np.ndarray]) -> list[np.ndarray]:
    """Philox 4×32-10 of Salmon et al. (2011): four words for each counter of four words."""
    c = [np.asarray(counter).astype(np.uint64) for counter in counters]
    k = [np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)]
    for _ in range(_ROUNDS):
        first, second = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        high = np.uint64(32)
        c = [(second >> high) ^ c[1] ^ k[0], second & _WORD, (first >> high) ^ c[3] ^ k[1],
             first & _WORD]  # fmt: skip
        k = [(k[0] + np.uint64(0x9E3779B9)) & _WORD, (k[1] + np.uint64(0xBB67AE85)) & _WORD]
    return c


def uniform(seed: int, sample: np.ndarray, node: int, kind: int = 0) -> tuple[Tensor, Tensor]:
    """Two numbers in [0, 1) for each sample."""
    zero = np.zeros_like(sample)
    words = philox(seed, [sample, zero + node, zero + kind, zero])
    five, six = np.uint64(5), np.uint64(6)
    numbers = [
        ((a >> five).astype(float) * 2**26 + (b >> six).astype(float)) / 2**53
        for a, b in (words[:2], words[2:])
    ]
    return torch.from_numpy(numbers[0]), torch.from_numpy(numbers[1])


def pick(options: Tensor, u: Tensor) -> Tensor:
    """The option of each row by inverting cumulative weights."""
    cumulative = options.double().cumsum(-1)
    return (cumulative <= (u * cumulative[:, -1]).unsqueeze(-1)).sum(-1)


class Expected:
    """The choices of all nodes of a circuit, body and top one after the other."""

    def __init__(
        self,
        circuit: Circuit,
        samples: int,
        seed: int,
        joint: Tensor | None = None,
        values: Values | None = None,
    ) -> None:
        self.circuit, self.seed, self.values = circuit, seed, values
        self.choice = torch.full((circuit.num_body + circuit.num_top, samples), -1)
        root = torch.zeros(samples, dtype=torch.long)
        if joint is not None:
            joint = joint.double().cpu()
            numbers = np.arange(samples)
            u, _ = uniform(seed, numbers, len(self.choice))
            root = pick((joint - joint.amax(0)).exp().T[numbers % joint.shape[1]], u)
        self.choice[-1] = root
        for layer in reversed(circuit.sum_layers):
            for number in range(layer.num_nodes):
                self._go_on(layer, number)

    def _go_on(self, layer: SumLayer, number: int) -> None:
        offset = {"body": 0, "top": self.circuit.num_body}
        node = offset[layer.target] + layer.start + number
        (sample,) = (self.choice[node] >= 0).nonzero(as_tuple=True)
        k = self.choice[node, sample]
        u, w = uniform(self.seed, sample.numpy(), node)
        weight = layer.weight.detach().double().cpu()
        if isinstance(layer, MixingLayer):
            first, last = layer.ends[number], layer.ends[number + 1]
            children = layer.children_index[first:last].cpu()
            options = weight[first:last].T[k]
            if self.values is not None:
                nodes = self.values.space(layer.source)
                row = sample % nodes.m.shape[-1]
                v, m = nodes.v.double().cpu(), nodes.m.cpu()[children][:, row]
                options = options * v[children][:, k, row].T * (m - m.amax(0)).exp().T
            self.choice[offset[layer.source] + children[pick(options, u)], sample] = k
        elif isinstance(layer, LinearLayer):
            children = layer.child_lists()[number]
            options = weight[number, k]
            for child in children:
                options = options * self._values(child, layer.num_inputs, sample)
            entry = pick(options, u)
            for child in children:
                self.choice[child, sample] = entry
        else:
            assert isinstance(layer, EinsumLayer)
            left, right = int(layer.left[number]), int(layer.right[number])
            joint = weight[number, k].unflatten(-1, (layer.num_left, layer.num_right))
            if right >= 0:
                joint = joint * self._values(right, layer.num_right, sample).unsqueeze(1)
            i = pick(joint.sum(-1) * self._values(left, layer.num_left, sample), u)
            self.choice[left, sample] = i
            if right >= 0:
                self.choice[right, sample] = pick(joint[torch.arange(len(i)), i], w)

    def _values(self, node: int, entries: int, sample: Tensor) -> Tensor:
        if self.values is None:
            return torch.ones(len(sample), entries, dtype=torch.float64)
        v = self.values.body.v
        return v[node, :entries].double().cpu().T[sample % v.shape[-1]]

    def points(self, leaf: LeafLayer) -> Tensor:
        """What is drawn from leaves of Categorical, Bernoulli and Gaussian variables."""
        samples = self.choice.shape[1]
        out = torch.full((samples, leaf.num_variables), torch.nan, dtype=torch.float64)
        for kind, block in enumerate(leaf.leaf_blocks, start=1):
            n, s = block.columns.shape
            family, stored = block.family.to("cpu"), block.stored.detach().double().cpu()
            variables = block.group.variables[block.columns].cpu()
            for pair in range(n * s):
                k = self.choice[int(block.leaves[pair // s])]
                (sample,) = (k >= 0).nonzero(as_tuple=True)
                u, w = uniform(self.seed, sample.numpy(), pair, kind)
                entries = stored[k[sample], pair]
                one = family.at(torch.tensor(pair))
                if isinstance(one, einet.Categorical):
                    drawn = pick(entries, u).double()
                elif isinstance(one, einet.Bernoulli):
                    drawn = (u < entries[:, 0]).double()
                else:
                    assert isinstance(one, einet.Gaussian)
                    normal = (-2 * torch.log1p(-u)).sqrt() * torch.cos(2 * torch.pi * w)
                    drawn = entries[:, 0] + normal * entries[:, 1].sqrt()
                    drawn = drawn * one.scale + one.location
                out[sample, variables.flatten()[pair]] = drawn
        return out
