r"""The file format of models, and a slow evaluator of it that shares no code with them.

A saved model is one `safetensors <https://github.com/huggingface/safetensors>`_ file. Its metadata
have one entry, ``"einet"``, a JSON object:

============  ===================================================================================
``format``    ``"einet.model"``
``version``   1; 2 where a model has linear sums or numeric categories; 3 where weights were
              pruned. A reader refuses numbers that it does not know
``einet``     The release that wrote the file; for people
``model``     The description of the model
``metadata``  What a user wrote beside it, an object without meaning here; may be absent
``checksum``  ``{"tensors": …, "header": …}``: see below. Files of earlier releases lack it, and
              then have no other field than those above
============  ===================================================================================

**Checksum.** Both are SHA-256 digests, 64 hexadecimal digits in lower case; a reader refuses a
file that they do not fit. ``tensors`` is of all tensors in the order of their names (by code
points). For each, the digest takes the line ``["NAME", "TYPE", [2, 3]]`` as Python's
``json.dumps`` writes it, in ASCII, with the type and shape of safetensors' own header, a newline,
and then its bytes. ``header`` is of this JSON text itself, in UTF-8, with 64 zeros in the place of
its own digits; it is the last field of the last object in the text. So a reader that leaves the
tensors alone can still trust all else.

**Description.** A mixture is ``{"kind": "Mixture", "dtype": …, "components": […]}`` with one
description for each component, which may be a mixture again; ``"clustered": true`` beside them
says that it was a ``ClusteredEinet``, which means no other numbers. Beside all that, the outermost
description may have ``"columns"``, a list of distinct strings: the name of each variable, where the
model learnt from a table that has names. They mean no other numbers either. All else is

===============  ================================================================================
``kind``         ``"Einet"``
``dtype``        The type of its parameters: ``"float32"`` or ``"float64"``
``graph``        Where its graph is: ``"graphs.0"``, …; components may share one
``sums``         ``"einsum"`` or ``"linear"``: how the graph was compiled. Files of version 1 may
                 lack it, and then mean the former
``num_sums``     K, the entries of an inner sum
``num_leaves``   I, the entries of a leaf
``num_classes``  C, the entries of the root
``initialized``  Whether its leaves have been set from data
``families``     For each group of variables ``{"name": …, "config": {…}}``: the family's class, and
                 settings that are not tensors (for ``Categorical``, the ``width`` of its tables,
                 and ``numeric`` where categories are numbers, which means no other densities)
``blocks``       For each leaf block the number G of its group
``layers``       For each sum layer, bottom-up, ``{"kind": …, "target": …}``: ``"EinsumLayer"``,
                 ``"LinearLayer"`` or ``"MixingLayer"``, which writes to the ``"body"`` or to the
                 ``"top"``
===============  ================================================================================

**Graph.** The region graph ``graphs.0`` is the int32 tensors ``graphs.0.num_variables``,
``.num_regions``, ``.root``, ``.leaf_regions``, ``.leaf_offsets``, ``.leaf_variables``,
``.partition_regions``, ``.partition_offsets`` and ``.partition_children``, as explained at
:meth:`einet.RegionGraph.to_arrays`. A reader that only evaluates needs none of them: the indices
below are what the graph compiles to, in an order that is part of the format. Leaf l below is the
region ``leaf_regions[l]``; for einsum layers, partitions with more than two children have become
several nodes, and for linear layers some leaves have got a sum over their entries.

**Tensors.** The names of a component's tensors begin with ``components.0.``, ``components.1.``, …,
repeated for nested mixtures. Indices are int64 and count from 0; hyper-parameters (the numbers of
a family that are not learnt) may be float64 beside float32 parameters.

====================================  ===========================================================
``log_weights`` [components]          Of a mixture: the logarithms of its weights
``log_class_prior`` [C]               log π_c; 0 where C = 1
``leaf.groups.G.variables`` [V]       The variables (columns of the data) of family group G
``leaf.groups.G.NAME`` [V]            The hyper-parameter NAME of each of them
``leaf.blocks.B.leaves`` [n]          A block: n leaves that have s variables each of its group. A
                                      leaf over several groups is in a block of each
``leaf.blocks.B.columns`` [n, s]      These variables, as positions in the group
``leaf.blocks.B.stored`` [I, n·s, P]  The P parameters of entry i for variable ``columns[l, p]`` of
                                      leaf ``leaves[l]``, in ``stored[i, l·s + p]``
``circuit.layers.N.weight``           [L, K, I·J] in an einsum layer, [L, K, I] in a linear layer,
                                      [edges, K] in a mixing layer
``circuit.layers.N.left``             [L] The first child of each node of an einsum layer
``circuit.layers.N.right``            [L] Its second child, or −1
``circuit.layers.N.children_index``   [edges] The children of a linear or mixing layer's nodes, node
                                      by node
``circuit.layers.N.counts``           [n] How many of them each of its n nodes has
====================================  ===========================================================

**Pruned weights.** From version 3 on, a ``weight`` of which many numbers are 0 may be three tensors
in its place: ``weight.kept``, uint8, has one bit for each number in C order, the highest bit of a
byte first, with 0 for the bits behind the last; ``weight.values`` has the numbers whose bit is 1,
and ``weight.shape``, int64, the shape that they all are put into.

**Nodes.** There are two lists of nodes. The *body* begins with the leaves; the *top* begins empty.
Every layer appends its nodes to its target, and the last node of the top is the root, with one
entry for each class; so a layer with target *top* has C in place of K.

* Entry i of a leaf is the product of its variables' densities; a missing (NaN) variable counts 1.
* Node l of an einsum layer is :math:`S_k = \sum_{ij} W_{lk,iJ+j} N_i N'_j` over the I and J
  entries of its children, which are nodes of the body. A second child of −1 is the constant 1.
* Node l of a linear layer is :math:`S_k = \sum_i W_{lki} \prod_c N_{ci}` over its children c, nodes
  of the body with I entries each.
* A node of a mixing layer is :math:`S_k = \sum_c w_{ck} N_{ck}` over its children, nodes of the
  layer's own target.

Weights are used as they are, without normalising them: up to rounding they add up to 1, and those
of a mixture and of classes do as well. A reader refuses other ones, parameters that are not finite
or not within the bounds of their family, and mixtures nested more than 32 deep.

**Families.** The P stored parameters of each, in order (μ̃ and σ̃² belong to x̃, the data in units of
the hyper-parameters ``location`` and ``scale``). Hyper-parameters that are not named here bound
the parameters in learning and have no part in the density.

===============  ================================================================================
``Bernoulli``    p, the probability of 1
``Beta``         α and β
``Binomial``     p, for ``n`` trials
``Categorical``  Tables of P = ``width`` entries; of those, the first ``num_categories`` divided by
                 their sum are the probabilities
``Exponential``  The mean μ̃ of x̃ = x / ``scale``
``Gamma``        The shape α, and the mean μ̃ of x̃ = x / ``scale``
``Gaussian``     The mean μ̃ and the variance σ̃² of x̃ = (x − ``location``) / ``scale``
``Poisson``      The rate λ
===============  ================================================================================

All densities are with respect to x; a value outside the support has density 0. Supports end where
float64 would run out of digits or of range: at 1e30 for ``Exponential``, ``Gamma`` and ``Gaussian``
(there at −1e30, too), at 2³² for ``Poisson``.
"""

from __future__ import annotations

import json
import math
from hashlib import sha256
from os import PathLike
from typing import Any

import numpy as np
from jaxtyping import Float
from safetensors import safe_open

__all__ = ["Reference"]

Array = np.ndarray
lgamma = np.vectorize(math.lgamma, otypes=[np.float64])


def whole(x: Array) -> Array:
    """Which values are whole numbers."""
    return np.isfinite(x) & (x == np.round(x))


def log(x: Array) -> Array:
    """The logarithm, −∞ at 0 without a warning."""
    with np.errstate(divide="ignore"):
        return np.log(x)


def log_sum_exp(logs: Array, axis: int) -> Array:
    """log Σ exp along an axis, −∞ where all are."""
    largest = logs.max(axis, keepdims=True)
    shift = np.where(np.isfinite(largest), largest, 0.0)
    return np.squeeze(log(np.exp(logs - shift).sum(axis, keepdims=True)) + shift, axis)


# The support of every family, and its log density there as [I, rows]: of values x[rows] of one
# variable with hyper-parameters h, under the stored parameters of the I entries, [I, 1] each.
FAMILIES = {
    "Bernoulli": (
        lambda x, h: (x == 0) | (x == 1),
        lambda x, h, p: x * np.log(p) + (1 - x) * np.log1p(-p),
    ),
    "Beta": (
        lambda x, h: (x > 0) & (x < 1),
        lambda x, h, a, b: (
            (a - 1) * np.log(x) + (b - 1) * np.log1p(-x) + lgamma(a + b) - lgamma(a) - lgamma(b)
        ),
    ),
    "Binomial": (
        lambda x, h: whole(x) & (x >= 0) & (x <= h["n"]),
        lambda x, h, p: (
            (lgamma(h["n"] + 1) - lgamma(x + 1) - lgamma(h["n"] - x + 1))
            + (x * np.log(p) + (h["n"] - x) * np.log1p(-p))
        ),
    ),
    "Categorical": (
        lambda x, h: whole(x) & (x >= 0) & (x < h["num_categories"]),
        lambda x, h, *table: (
            np.log(np.stack(table)[x.astype(int), :, 0].T)
            - np.log(sum(table[: int(h["num_categories"])]))
        ),
    ),
    "Exponential": (
        lambda x, h: (x >= 0) & (x <= 1e30),
        lambda x, h, mean: -np.log(mean * h["scale"]) - x / (mean * h["scale"]),
    ),
    "Gamma": (
        lambda x, h: (x > 0) & (x <= 1e30),
        lambda x, h, shape, mean: (
            (shape - 1) * np.log(x)
            - shape * (x / (mean * h["scale"]) + np.log(mean * h["scale"] / shape))
            - lgamma(shape)
        ),
    ),
    "Gaussian": (
        lambda x, h: np.abs(x) <= 1e30,
        lambda x, h, mean, variance: (
            -0.5 * ((x - h["location"]) / h["scale"] - mean) ** 2 / variance
            - 0.5 * np.log(2 * np.pi * variance)
            - np.log(h["scale"])
        ),
    ),
    "Poisson": (
        lambda x, h: whole(x) & (x >= 0) & (x <= 2**32),
        lambda x, h, rate: x * np.log(rate) - rate - lgamma(x + 1),
    ),
}


def checksum_of(text: str, header: dict[str, Any], tensors: dict[str, Array]) -> dict[str, str]:
    """The digests of the header's text, in which its own are zeros, and of the tensors."""
    before, _, after = text.rpartition(header["checksum"]["header"])
    plain = before + 64 * "0" + after
    digest = sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        kind = f"{tensor.dtype.kind.upper()}{8 * tensor.itemsize}"
        digest.update(f"{json.dumps([name, kind, list(tensor.shape)])}\n".encode())
        digest.update(tensor.tobytes())
    return {"tensors": digest.hexdigest(), "header": sha256(plain.encode()).hexdigest()}


class Reference:
    """A saved model, evaluated in float64 with numpy, node by node: an oracle for small models.

    Args:
        path: A file written by ``model.save``.

    Example:
        >>> import einet, tempfile
        >>> model = einet.Einet(einet.random_trees(4, 1, 2), einet.Bernoulli(), num_sums=3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(f"{folder}/model.einet")
        ...     reference = Reference(f"{folder}/model.einet")
        >>> x = [[1.0, 0.0, float("nan"), 1.0]]
        >>> np.allclose(reference.log_prob(x), model.log_prob(x).detach())
        True
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        with safe_open(path, framework="numpy") as file:
            header = json.loads((file.metadata() or {}).get("einet", "{}"))
            if header.get("format") != "einet.model" or header.get("version") not in (1, 2, 3):
                raise ValueError(f"{path} is no file of the format einet.model in version 1 to 3")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            text = file.metadata()["einet"]
        if "checksum" in header and header["checksum"] != checksum_of(text, header, tensors):
            raise ValueError(f"{path} is damaged: its checksum is that of another content")
        floats = {name: t.astype(np.float64) for name, t in tensors.items() if t.dtype.kind == "f"}
        self._model, self._tensors = header["model"], tensors | floats
        for name in [name for name in tensors if name.endswith(".weight.kept")]:
            self._unpack(name.removesuffix(".kept"))

    def _unpack(self, name: str) -> None:
        """Weights again, of which the file has those that are not 0."""
        kept, values, shape = (
            self._tensors.pop(f"{name}.{part}") for part in ("kept", "values", "shape")
        )
        weight = np.zeros(shape.prod())
        weight[np.unpackbits(kept)[: weight.size].astype(bool)] = values
        self._tensors[name] = weight.reshape(shape)

    def log_prob(self, x: Any) -> Float[Array, " batch"]:
        """Log density of each row of ``x[batch, variables]``; NaN is missing.

        With classes it is log Σ_c π_c p(x | c).

        Args:
            x: The rows.
        """
        return self._log_prob(self._model, "", np.asarray(x, np.float64))

    def class_log_prob(self, x: Any) -> Float[Array, "batch classes"]:
        """log p(x | c) of each row for every class.

        Args:
            x: The rows.

        Example:
            >>> import einet, tempfile
            >>> graph = einet.random_trees(num_variables=4, depth=1, replicas=1)
            >>> model = einet.Einet(graph, einet.Bernoulli(), num_sums=3, num_classes=2)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     model.save(f"{folder}/model.einet")
            ...     reference = Reference(f"{folder}/model.einet")
            >>> x = [[1.0, 0.0, float("nan"), 1.0]]
            >>> np.allclose(reference.class_log_prob(x), model.class_log_prob(x))
            True
        """
        if self._model["kind"] != "Einet":
            raise ValueError("a mixture has no classes")
        return self._root(self._model, "", np.asarray(x, np.float64)).T

    def _log_prob(self, model: dict[str, Any], prefix: str, x: Array) -> Array:
        if model["kind"] == "Einet":
            parts = self._root(model, prefix, x)
            log_weights = self._tensors[prefix + "log_class_prior"]
        else:
            parts = np.stack(
                [
                    self._log_prob(component, f"{prefix}components.{number}.", x)
                    for number, component in enumerate(model["components"])
                ]
            )
            log_weights = self._tensors[prefix + "log_weights"]
        return log_sum_exp(log_weights[:, None] + parts, axis=0)

    def _root(self, model: dict[str, Any], prefix: str, x: Array) -> Array:
        """Log values of the root, [C, batch], as of every node: one row for each entry."""
        nodes = {"body": self._leaves(model, prefix, x), "top": []}
        for number, layer in enumerate(model["layers"]):
            target = nodes[layer["target"]]
            name = f"{prefix}circuit.layers.{number}"
            if layer["kind"] == "EinsumLayer":
                target += self._einsum(name, nodes["body"])
            elif layer["kind"] == "LinearLayer":
                target += self._linear(name, nodes["body"])
            else:
                target += self._mixing(name, target)
        return nodes["top"][-1]

    def _leaves(self, model: dict[str, Any], prefix: str, x: Array) -> list[Array]:
        """Log values of the leaves: log densities of their variables, added up."""
        blocks = [f"{prefix}leaf.blocks.{number}." for number in range(len(model["blocks"]))]
        count = 1 + max(self._tensors[block + "leaves"].max() for block in blocks)
        values = [np.zeros((model["num_leaves"], len(x))) for _ in range(count)]
        for block, number in zip(blocks, model["blocks"], strict=True):
            support, density = FAMILIES[model["families"][number]["name"]]
            group = self._under(f"{prefix}leaf.groups.{number}.")
            leaves, columns, stored = (
                self._tensors[block + name] for name in ("leaves", "columns", "stored")
            )
            for row, leaf in enumerate(leaves):
                for position, column in enumerate(columns[row]):
                    hyper = {name: of_variables[column] for name, of_variables in group.items()}
                    cells = x[:, hyper["variables"]]
                    parameters = stored[:, row * columns.shape[1] + position].T[:, :, None]
                    inside = support(cells, hyper)
                    values[leaf][:, inside] += density(cells[inside], hyper, *parameters)
                    values[leaf][:, ~inside & ~np.isnan(cells)] = -np.inf
        return values

    def _under(self, prefix: str) -> dict[str, Array]:
        names = [name for name in self._tensors if name.startswith(prefix)]
        return {name.removeprefix(prefix): self._tensors[name] for name in names}

    def _einsum(self, name: str, body: list[Array]) -> list[Array]:
        """log Σ_ij W_kij exp(first_i + second_j) for every node of the layer."""
        result = []
        for weight, left, right in zip(
            self._tensors[f"{name}.weight"],
            self._tensors[f"{name}.left"],
            self._tensors[f"{name}.right"],
            strict=True,
        ):
            first = body[left]
            second = body[right] if right >= 0 else np.zeros_like(first[:1])
            products = np.concatenate([entry + second for entry in first])
            result.append(log_sum_exp(log(weight)[:, :, None] + products, axis=1))
        return result

    def _linear(self, name: str, body: list[Array]) -> list[Array]:
        """log Σ_i W_ki exp(Σ_c child_ci) for every node of the layer."""
        index, result = iter(self._tensors[f"{name}.children_index"]), []
        for weight, count in zip(
            self._tensors[f"{name}.weight"], self._tensors[f"{name}.counts"], strict=True
        ):
            product = sum(body[next(index)] for _ in range(count))
            result.append(log_sum_exp(log(weight)[:, :, None] + product, axis=1))
        return result

    def _mixing(self, name: str, target: list[Array]) -> list[Array]:
        """log Σ_c w_ck exp(child_ck) for every node of the layer."""
        weight, index = self._tensors[f"{name}.weight"], self._tensors[f"{name}.children_index"]
        result, edge = [], 0
        for count in self._tensors[f"{name}.counts"]:
            edges = slice(edge, edge + count)
            children = np.stack([target[child] for child in index[edges]])
            result.append(log_sum_exp(log(weight[edges])[:, :, None] + children, axis=0))
            edge += count
        return result
