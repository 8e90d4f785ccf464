"""k-means against brute force and scikit-learn."""

import warnings
from itertools import pairwise
from typing import Any

import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from torch import Tensor

from einet.data import kmeans as module
from einet.data.batch import Batch
from einet.data.kmeans import cluster_means, kmeans, nearest_centre
from einet.data.streams import Rows
from tests.budgets import limit

CPU = torch.device("cpu")
NAN = float("nan")


def source_of(x: Tensor, transform=None) -> Rows:
    return Rows(Batch(x), CPU, transform)


def blobs(clusters: int, each: int, variables: int = 5, spread: float = 0.3) -> tuple:
    generator = torch.Generator().manual_seed(3)
    centres = 10 * torch.randn(clusters, variables, generator=generator)
    label = torch.arange(clusters).repeat(each)
    noise = torch.randn(len(label), variables, generator=generator)
    return centres[label] + spread * noise, label


@pytest.fixture(scope="module")
def digits() -> Tensor:
    data: Any = load_digits()
    return torch.tensor(data.data[:500]).float()


def test_rows_belong_to_the_nearest_centre(digits: Tensor):
    found = kmeans(source_of(digits), 12, seed=1)
    distance = torch.cdist(digits.double(), found.centres)
    assert found.assignment.equal(distance.argmin(1))
    total = distance.min(1).values.square().sum().item()
    assert found.inertia[-1] == pytest.approx(total, rel=1e-5)
    assert found.assignment.unique().tolist() == list(range(12))


@pytest.mark.parametrize("seed", range(3))
def test_the_inertia_never_rises(digits: Tensor, seed: int):
    inertia = kmeans(source_of(digits), 20, seed=seed, tolerance=0.0).inertia
    assert len(inertia) > 3
    assert all(later <= earlier for earlier, later in pairwise(inertia))


def test_blobs_are_found():
    x, label = blobs(clusters=15, each=20)
    for seed in range(3):
        found = kmeans(source_of(x), 15, seed=seed).assignment
        pairs = set(zip(label.tolist(), found.tolist(), strict=True))
        assert len(pairs) == 15
        assert len(found.unique()) == 15


@pytest.mark.parametrize("clusters", [1, 10, 40])
def test_as_good_as_scikit_learn(digits: Tensor, clusters: int):
    mine = [kmeans(source_of(digits), clusters, seed=seed, tolerance=0.0) for seed in range(3)]
    best = min(found.inertia[-1] for found in mine)
    options: Any = dict(n_init=3, random_state=0, tol=0.0)
    peer: Any = KMeans(clusters, **options)
    expected = peer.fit(digits.numpy()).inertia_
    assert best <= 1.02 * expected
    if clusters == 1:
        assert best == pytest.approx(expected, rel=1e-5)


def test_from_the_same_centres_as_scikit_learn(digits: Tensor, monkeypatch):
    """Lloyd's iterations alone, step by step."""
    start = digits[:10]
    source = source_of(digits)
    monkeypatch.setattr(module, "_seeds", lambda *_: (start - source.mean).float())
    for iterations in (1, 2, 5):
        found = kmeans(source, 10, max_iterations=iterations + 1, tolerance=0.0)
        options: Any = dict(init=start.numpy(), n_init=1, max_iter=iterations, tol=0.0)
        peer: Any = KMeans(10, **options)
        with warnings.catch_warnings():
            # That it did not converge.
            warnings.simplefilter("ignore")
            peer.fit(digits.numpy())
        assert found.inertia[-1] == pytest.approx(peer.inertia_, rel=1e-5)


def test_a_seed_decides(digits: Tensor):
    one, same, other = (kmeans(source_of(digits), 8, seed=seed) for seed in (1, 1, 2))
    assert one.assignment.equal(same.assignment)
    assert one.centres.equal(same.centres)
    assert one.inertia == same.inertia
    assert one.inertia != other.inertia


def test_parts_do_not_matter(digits: Tensor, monkeypatch):
    whole = kmeans(source_of(digits), 8)
    limit(monkeypatch, "rows", 4 * 64 * 90)
    parts = kmeans(source_of(digits), 8)
    assert parts.assignment.equal(whole.assignment)
    torch.testing.assert_close(parts.centres, whole.centres, rtol=1e-5, atol=1e-5)


def test_types_of_data(digits: Tensor):
    expected = kmeans(source_of(digits), 8)
    for kind in (torch.uint8, torch.float64, torch.int64):
        assert kmeans(source_of(digits.to(kind)), 8).assignment.equal(expected.assignment)
    scaled = kmeans(source_of(digits.to(torch.uint8), transform=lambda x: x / 4), 8)
    torch.testing.assert_close(4 * scaled.centres, expected.centres, rtol=1e-4, atol=1e-4)


def test_far_from_the_origin():
    x, label = blobs(clusters=6, each=20)
    found = kmeans(source_of(1e5 + x), 6).assignment
    assert len(set(zip(label.tolist(), found.tolist(), strict=True))) == 6


def test_what_is_missing_counts_as_the_mean():
    x, label = blobs(clusters=4, each=30, variables=12, spread=0.1)
    holes = torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) < 0.1
    missing = x.masked_fill(holes, NAN)
    filled = torch.where(holes, missing.nanmean(0), x)
    found = kmeans(source_of(missing), 4)
    assert found.assignment.equal(kmeans(source_of(filled), 4).assignment)
    assert len(set(zip(label.tolist(), found.assignment.tolist(), strict=True))) == 4


def test_empty_clusters_begin_anew(monkeypatch):
    """Two centres far away from all rows get rows that are far from theirs."""
    x, _ = blobs(clusters=4, each=10)
    source = source_of(x)
    first = torch.cat([x[:2], torch.full((2, 5), 1e4)]) - source.mean
    monkeypatch.setattr(module, "_seeds", lambda *_: first.float())
    found = kmeans(source, 4)
    assert found.assignment.bincount(minlength=4).tolist() == [10, 10, 10, 10]
    assert all(later <= earlier for earlier, later in pairwise(found.inertia))


def test_fewer_different_rows_than_clusters():
    x = torch.tensor([[0.0], [1.0]]).repeat(5, 1)
    found = kmeans(source_of(x), 4)
    assert found.inertia[-1] == 0
    assert len(found.assignment.unique()) == 2
    assert found.centres.isfinite().all()


def test_rows_count_as_often_as_they_weigh():
    x, _ = blobs(clusters=4, each=15, spread=3.0)
    times = torch.arange(len(x)) % 3 + 1
    weighted = Rows(Batch(x, weights=times.double()), CPU)
    repeated = source_of(x.repeat_interleave(times, 0))
    one, two = kmeans(weighted, 4, tolerance=0.0), kmeans(repeated, 4, tolerance=0.0)
    assert one.inertia[-1] == pytest.approx(two.inertia[-1], rel=0.05)
    distance = torch.cdist(x.double(), one.centres)
    total = (distance.min(1).values.square() * times).sum().item()
    assert one.inertia[-1] == pytest.approx(total, rel=1e-5)
    for cluster in range(4):
        member = one.assignment == cluster
        mean = (x[member] * times[member, None]).sum(0) / times[member].sum()
        torch.testing.assert_close(one.centres[cluster], mean.double(), rtol=1e-4, atol=1e-4)


def test_the_cluster_of_other_rows():
    x, label = blobs(clusters=5, each=20)
    x = 1e5 + x.double()
    means = cluster_means(source_of(x), label, 6)
    for cluster in range(5):
        torch.testing.assert_close(means[cluster], x[label == cluster].mean(0))
    torch.testing.assert_close(means[5], x.mean(0))
    assert nearest_centre(source_of(x), means[:5]).equal(label)
    # Missing cells do not count, wherever the mean of their column lies.
    x[::3, 1] = NAN
    x[1::3, 2:] = NAN
    known = torch.where(x.isnan()[:, None], 0.0, x[:, None] - means[None, :5]).square().sum(2)
    assert nearest_centre(source_of(x), means[:5]).equal(known.argmin(1))


def test_bad_arguments(digits: Tensor):
    with pytest.raises(ValueError, match="num_clusters must not exceed the number of rows, 500"):
        kmeans(source_of(digits), 501)
    with pytest.raises(ValueError, match="num_clusters"):
        kmeans(source_of(digits), 0)
    with pytest.raises(ValueError, match="max_iterations"):
        kmeans(source_of(digits), 2, max_iterations=0)


@pytest.mark.gpu
def test_on_a_gpu(digits: Tensor):
    """The same clusters as on the CPU, and the same bits twice."""
    there = Rows(Batch(digits.to(torch.uint8)), torch.device("cuda", 0))
    one, two = (kmeans(there, 10, seed=1) for _ in range(2))
    assert one.assignment.equal(two.assignment)
    assert one.centres.equal(two.centres)
    distance = torch.cdist(digits.double(), one.centres.cpu())
    assert one.assignment.cpu().equal(distance.argmin(1))
    here = kmeans(source_of(digits), 10, seed=1)
    assert one.inertia[-1] == pytest.approx(here.inertia[-1], rel=0.02)
