"""Trains models of all kinds in processes that are killed at random moments.

``python killed_training.py FOLDER SEED TIMES KIND …`` prints, for each kind, how often a run was
killed or asked to end before it was over. After each time the last checkpoint has to be whole. In
the end the parameters have to be those of a run that nothing happened to, bit by bit.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import einet
from einet.clusters import training
from einet.data.files import read_tensors
from einet.learning.checkpoint_file import CHECKPOINT, checkpoints_in, remove_checkpoints
from einet.models.base import Model

GRAPH = einet.random_trees(4, depth=1, replicas=2, seed=1)
X = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
WEIGHTS = 0.5 + torch.arange(60, dtype=torch.float64) % 3
OPTIONS: dict[str, Any] = {"batch_size": 10, "progress": False}


def one() -> einet.Einet:
    return einet.Einet(GRAPH, einet.Gaussian(), 2)


def mixture() -> einet.Mixture:
    return einet.Mixture([einet.Einet(GRAPH, einet.Gaussian(), 2, seed=s) for s in range(2)])


def clusters() -> einet.ClusteredEinet:
    return einet.ClusteredEinet(GRAPH, einet.Gaussian(), 2, num_clusters=2)


def of_fit(learner: Callable[[], einet.Learner], **more: Any) -> Callable[..., Any]:
    return lambda model, **o: einet.fit(model, X, optimizer=learner(), **OPTIONS, **more, **o)


def of_clusters(method: str, **more: Any) -> Callable[..., Any]:
    return lambda model, **o: getattr(model, method)(X, **OPTIONS, **more, **o)


RUNS: dict[str, tuple[Callable[[], Any], Callable[..., Any]]] = {
    "EM": (one, of_fit(lambda: einet.EM(einet.Prior(sums=1.0)), epochs=6)),
    "stochastic EM": (
        one, of_fit(einet.StochasticEM, valid=X[:20], hide=0.1, finish=2, epochs=5),
    ),
    "Adam": (
        one, of_fit(lambda: einet.Gradient(torch.optim.Adam, lr=0.01), valid=X[:20], epochs=3),
    ),
    "mixture": (mixture, of_fit(einet.EM, weights=WEIGHTS, epochs=3)),
    "clusters": (clusters, of_clusters("fit", finish=2, epochs=4, hide=0.1)),
    "together": (clusters, of_clusters("fit", together=2, epochs=6, hide=0.1)),
    "refine": (clusters, of_clusters("refine", epochs=3)),
}  # fmt: skip


def numbers(model: Model) -> dict[str, torch.Tensor]:
    return {name: tensor.nan_to_num() for name, tensor in model.state_dict().items()}


def killed(train: Callable[..., Any], model: Any, path: Path, after: float, number: int) -> bool:
    """Train in a process of its own, and end it; whether it was not over before."""
    child = os.fork()
    if not child:
        try:
            train(model, checkpoint=path, every=0, resume=True)
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
    time.sleep(after)
    os.kill(child, number)
    _, status = os.waitpid(child, 0)
    if number == signal.SIGTERM and not os.WIFSIGNALED(status):
        # Before and after fit it kills, as it does everywhere; within, fit comes to its end.
        assert os.WEXITSTATUS(status) == 0
        return True
    return os.WIFSIGNALED(status)


def check_folder(path: Path) -> None:
    """The last state is whole, and nothing piles up."""
    if path.exists():
        files = list(checkpoints_in(path).values())
        for file in files:
            read_tensors(file, CHECKPOINT)
        # One more where a run was killed before it removed the oldest.
        assert len(files) <= 3, files
        assert len(list(path.iterdir())) <= len(files) + 2


def attack(name: str, folder: Path, times: int) -> int:
    """Train, kill, go on; how often it was killed."""
    make, train = RUNS[name]
    path, whole = folder / name, make()
    began = time.perf_counter()
    train(whole, checkpoint=folder / "whole", every=0)
    seconds = time.perf_counter() - began
    longest, count = seconds / 3, 0
    while count < times:
        number = random.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])
        if killed(train, make(), path, random.uniform(0.0, longest), number):
            count += 1
            check_folder(path)
        else:
            # It was over before: another one begins, and has less time.
            remove_checkpoints(path)
            longest /= 2
    model = make()
    train(model, checkpoint=path, resume=True)
    expected, mine = numbers(whole), numbers(model)
    for key, value in expected.items():
        assert torch.equal(mine[key], value), (name, key)
    assert len(list(path.iterdir())) <= 3
    remove_checkpoints(folder / "whole")
    return count


if __name__ == "__main__":
    torch.set_num_threads(1)
    # What a process has written outlives it; only a machine that stops takes more than that.
    os.fsync = lambda descriptor: None
    random.seed(int(sys.argv[2]))
    training._SECONDS_BETWEEN_COPIES = random.choice([-1.0, 0.01, 1e9])
    for kind in sys.argv[4:]:
        print(f"{kind}: {attack(kind, Path(sys.argv[1]), int(sys.argv[3]))}", flush=True)
