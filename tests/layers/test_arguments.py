"""What a network may be made of, and what no machine could hold."""

from typing import Any

import pytest
import torch

import einet
from einet.layers.arguments import check_dtype, check_room, check_sums

GRAPH = einet.random_trees(4, depth=2, replicas=2, seed=0)


def test_kinds_of_sums():
    check_sums("einsum", 3, 2)
    wrong: Any
    for wrong in ("mean", None, ["einsum"]):
        with pytest.raises(ValueError, match="sums must be one of 'einsum', 'linear'.*, got"):
            check_sums(wrong, 3, 3)


def test_types_of_parameters():
    check_dtype(torch.float64)
    wrong: Any
    for wrong in (torch.int64, torch.cfloat, torch.float8_e4m3fn, "float32", float):
        with pytest.raises(TypeError, match="dtype must be torch.float32 or torch.float64, got"):
            check_dtype(wrong)


@pytest.mark.parametrize(
    ("family", "sums", "num_sums", "num_leaves", "num_classes"),
    [
        (einet.Gaussian(), "einsum", 10**6, 10**6, 1),
        (einet.Gaussian(), "linear", 10**9, 10**9, 1),
        (einet.Gaussian(), "einsum", 2, 10**14, 1),
        (einet.Gaussian(), "einsum", 2, 2, 10**14),
        (einet.Categorical(2**30, min_probability=1e-12), "einsum", 10**4, 10**4, 1),
        (einet.Gaussian(), "einsum", 10**400, 10**400, 10**400),
    ],
)
def test_what_no_machine_could_hold(family, sums, num_sums, num_leaves, num_classes):
    with pytest.raises(ValueError, match="num_sums, num_leaves, num_classes and .* would take"):
        check_room(GRAPH, family, sums, num_sums, num_leaves, num_classes)
    with pytest.raises(ValueError, match="would take .* GiB of memory"):
        einet.Einet(
            GRAPH, family, num_sums, num_leaves=num_leaves, sums=sums, num_classes=num_classes
        )


@pytest.mark.parametrize("sums", ["einsum", "linear"])
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_no_more_is_counted_than_a_network_has(monkeypatch, sums, depth):
    counted = []
    monkeypatch.setattr(
        "einet.layers.arguments.check_memory", lambda _, nbytes: counted.append(nbytes)
    )
    graph = einet.random_trees(4, depth=depth, replicas=1)
    model = einet.Einet(graph, einet.Categorical(5), 3, sums=sums, num_classes=2)
    assert 0 < counted[0] <= 4 * (model.num_parameters + model.num_classes)
