"""What processes do in the tests; the same functions make what one process alone arrives at."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pandas
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import einet
from einet.data.files import read_tensors
from einet.distributed.team import Team
from einet.learning.checkpoint_file import CHECKPOINT, checkpoints_in
from einet.learning.history import History

ROWS, VARIABLES = 101, 4


def data(rows: int = ROWS) -> Tensor:
    """Rows with a structure, and with holes."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, VARIABLES, generator=generator, dtype=torch.float64).cumsum(1)
    x[torch.rand(x.shape, generator=generator) < 0.1] = torch.nan
    return x


def weights() -> Tensor:
    return torch.rand(ROWS, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.1


def model(num_classes: int = 1, seed: int = 0, num_sums: int = 3) -> einet.Einet:
    graph = einet.random_trees(VARIABLES, depth=2, replicas=2, seed=0)
    return einet.Einet(
        graph, einet.Gaussian(), num_sums, num_classes=num_classes, dtype=torch.float64, seed=seed
    )


def numbers(of: einet.Model) -> list[Tensor]:
    """All that was learnt."""
    return [tensor.clone() for tensor in of.state_dict().values() if tensor.is_floating_point()]


def told(history: History) -> dict[str, Any]:
    return {**history.to_dict(), "seconds": len(history.seconds)}


def fitted(of: einet.Model, rows: Any, *arguments: Any, **options: Any) -> tuple[Any, Any]:
    history = einet.fit(of, rows, *arguments, progress=False, **options)
    return numbers(of), told(history)


# -- one process and many arrive at the same ------------------------------------------------------


def full_batch(rank: int, size: int) -> Any:
    optimizer = einet.EM(einet.Prior(sums=2.0, leaves=0.5))
    return fitted(model(), data(), data(37), epochs=4, batch_size=30, optimizer=optimizer)


def stochastic(rank: int, size: int) -> Any:
    optimizer = einet.StochasticEM(einet.linear(0.5, 0.1), einet.Prior(sums=2.0, leaves=0.5))
    return fitted(
        model(), data(), data(37), epochs=3, batch_size=20, optimizer=optimizer, hide=0.2,
        weights=weights(), finish=2,
    )  # fmt: skip


def gradient(rank: int, size: int) -> Any:
    optimizer = einet.Gradient(torch.optim.Adam, lr=0.05)
    return fitted(model(), data(), epochs=2, batch_size=25, optimizer=optimizer, weights=weights())


def several_looks(rank: int, size: int) -> Any:
    optimizer = einet.Gradient(torch.optim.LBFGS, lr=0.5, max_iter=4)
    return fitted(model(), data(), epochs=1, batch_size=60, optimizer=optimizer)


def discriminative(rank: int, size: int) -> Any:
    labels = torch.arange(ROWS) % 3 - 1
    first = fitted(model(2), data(), labels=labels, epochs=2, batch_size=40)
    second = fitted(
        model(2), data(), labels=labels, epochs=2, batch_size=40, objective="discriminative"
    )
    return first, second


def mixture(rank: int, size: int) -> Any:
    parts = einet.Mixture([model(seed=0), model(seed=1)], [0.3, 0.7])
    return fitted(parts, data(), epochs=2, batch_size=30, optimizer=einet.StochasticEM(0.4))


def few_rows(rank: int, size: int) -> Any:
    """Fewer than processes, so that some have none."""
    return (
        fitted(model(), data(3), data(2), epochs=3, batch_size=2),
        fitted(model(), data(3), epochs=3, optimizer=einet.EM()),
        fitted(
            model(), data(3), epochs=2, batch_size=1,
            optimizer=einet.Gradient(torch.optim.SGD, lr=0.1),
        ),
    )  # fmt: skip


def early(rank: int, size: int) -> Any:
    """Validation rows of another kind: it stops early, after the same epoch everywhere."""
    return fitted(
        model(), data(), data(20) * 3 + 5, epochs=30, batch_size=30, patience=2,
        optimizer=einet.EM(),
    )  # fmt: skip


def many_layers(rank: int, size: int) -> Any:
    """Statistics of several buckets, so that some set out while the backward pass runs."""
    return fitted(model(num_sums=24), data(), epochs=2, batch_size=50)


def clustered(num_clusters: int = 5) -> einet.ClusteredEinet:
    graph = einet.random_trees(VARIABLES, depth=1, replicas=2, seed=0)
    return einet.ClusteredEinet(graph, einet.Gaussian(), 3, num_clusters, dtype=torch.float64)


def whole_clusters(rank: int, size: int) -> Any:
    """Every process trains some of them; then all refine the mixture together."""
    of = clustered()
    options: Any = {"batch_size": 20, "progress": False}
    first = of.fit(data(), data(37), epochs=2, finish=1, **options)
    parts = numbers(of)
    second = of.refine(data(), data(37), epochs=1, **options)
    record = {**first.to_dict(), "clustering_seconds": 0, "training_seconds": 0}
    return parts, record, numbers(of), told(second)


def one_cluster(rank: int, size: int) -> Any:
    """Nothing to hand out but rows."""
    of = clustered(1)
    of.fit(data(), data(37), epochs=3, finish=1, batch_size=20, hide=0.1, progress=False)
    return numbers(of)


def files(rank: int, size: int, optimizer: einet.Learner | None = None, **more: Any) -> Any:
    """Every process reads its part of a file: those of full-batch EM add up to the same."""
    import pyarrow
    import pyarrow.parquet

    with tempfile.TemporaryDirectory() as folder:
        path, x = Path(folder) / "rows.parquet", data()
        columns = {f"x{n}": pyarrow.array(x[:, n].numpy(), from_pandas=True) for n in range(4)}
        pyarrow.parquet.write_table(pyarrow.table(columns), path, row_group_size=17)
        start = model().initialize(x)
        options = {"epochs": 3, "batch_size": 30, "initialize": False, **more}
        return fitted(start, path, path, optimizer=optimizer or einet.EM(), **options)


CASES = {
    case.__name__: case
    for case in (
        full_batch, stochastic, gradient, several_looks, discriminative, mixture, few_rows, early,
        many_layers, whole_clusters, one_cluster, files,
    )
}  # fmt: skip


# -- what there is only with several --------------------------------------------------------------


class _Loader(DataLoader):
    """Rows in batches of given sizes, which need not be alike."""

    def __init__(self, rows: Tensor, sizes: list[int]) -> None:
        super().__init__(TensorDataset(rows), batch_size=None)
        self._parts = rows.split(sizes)

    def __iter__(self) -> Any:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)


def loaders(rank: int, size: int) -> Any:
    """Each process has a loader of its own; the last one's has nothing where there are four."""
    x = data(60)
    mine = [step[rank::size] for step in x.split(20)]
    if size == 4:
        # The first process has what the last would have.
        more = [step[3::4] for step in x.split(20)]
        mine = [torch.cat(pair) for pair in zip(mine, more, strict=True)] if rank == 0 else mine
        mine = [] if rank == 3 else mine
    if size > 1 and rank < 2:
        # The second process ends a step before the others; the first has its rows.
        mine = mine[:2] if rank else [*mine[:2], torch.cat([mine[2], x[40:][1::size]])]
    rows = torch.cat(mine) if mine else x[:0]
    loader = _Loader(rows, [len(part) for part in mine])
    start = model().initialize(x)
    optimizer = einet.StochasticEM(0.4, einet.Prior(sums=1.0, leaves=0.5))
    return fitted(start, loader, loader, epochs=2, optimizer=optimizer)


def loaders_alone() -> Any:
    x = data(60)
    start = model().initialize(x)
    optimizer = einet.StochasticEM(0.4, einet.Prior(sums=1.0, leaves=0.5))
    loader = _Loader(x, [20, 20, 20])
    return fitted(start, loader, loader, epochs=2, optimizer=optimizer)


class _Frames(_Loader):
    def __init__(self, frames: list[Any]) -> None:
        super().__init__(torch.zeros(1), [1])
        self._parts = frames


def named_loaders(rank: int, size: int) -> Any:
    """Frames whose columns come in another order in the last process."""
    names = ["a", "b", "c", "d"]
    order = names if rank < size - 1 else names[::-1]
    loader = _Frames([pandas.DataFrame(data(20).numpy(), columns=order)])
    return fitted(model().initialize(data()), loader, epochs=1)


def callbacks(rank: int, size: int) -> Any:
    """Only the first process is called back, and its word counts for all."""
    called: list[int] = []

    def call(report: einet.EpochReport) -> None:
        called.append(report.epoch)
        if report.epoch == 1:
            report.stop()

    return *fitted(model(), data(), epochs=5, batch_size=30, callbacks=call), called


def interrupted(rank: int, size: int) -> Any:
    """Ctrl-C in the last process ends all of them after the same step."""
    of, steps = model(), 0

    class Counting(einet.StochasticEM):
        @property
        def joins(self) -> bool:
            return True

        def step(self, model: Any, batch: Any, progress: float = 0.0) -> Tensor:
            nonlocal steps
            steps += 1
            if rank == size - 1 and steps == 7:
                os.kill(os.getpid(), signal.SIGINT)
            return super().step(model, batch, progress)

    return *fitted(of, data(), epochs=50, batch_size=20, optimizer=Counting(0.3)), steps


def another_graph(rank: int, size: int) -> Any:
    other = model(num_sums=3 if rank == 0 else 4)
    return fitted(other, data(), epochs=1)


def another_setting(rank: int, size: int) -> Any:
    return fitted(model(), data(50 if rank else 51), epochs=1 if rank == 0 else 2)


def fails_alone(rank: int, size: int) -> Any:
    """One process cannot read its rows: the others are told so at once."""
    if rank == size - 1:
        return fitted(model(), [["a"] * VARIABLES])
    return fitted(model(), data(), epochs=1)


def unknown_learner(rank: int, size: int) -> Any:
    class Own(einet.Learner):
        def step(self, model: Any, batch: Any, progress: float = 0.0) -> Tensor:
            return model.em_step(batch)

    return fitted(model(), data(), optimizer=Own())


def alone_among_others(rank: int, size: int) -> Any:
    return fitted(model(), data(40 + rank), epochs=1, distributed=False)


def resumed(folder: Path, rank: int, size: int) -> Any:
    """Four processes stop on the way; two go on from there, and so does one."""

    def stop(report: einet.EpochReport) -> None:
        if report.epoch == 1 and report.cluster in (None, 4):
            report.stop()

    of, parts = model(), clustered()
    options: Any = {"batch_size": 30, "progress": False, "distributed": size > 0}
    results: list[Any] = []
    for name, learning in (("fit", partial(einet.fit, of)), ("clusters", parts.fit)):
        path = folder / f"{name}-{size}"
        calls = stop if size == 4 else ()
        given = {} if not size else {"checkpoint": path, "resume": True}
        history = learning(data(), data(37), epochs=3, callbacks=calls, **given, **options)
        results.append(history.stopped)
        if size == 4 and rank == 0:
            for fewer in (1, 2):
                shutil.copytree(path, folder / f"{name}-{fewer}")
    return results, numbers(of), numbers(parts)


LEARNERS = {"all": einet.EM(), "some": einet.StochasticEM(0.3)}


class BrokenOff(Exception):
    """Ends a run in the middle of an epoch."""


def broken_off(folder: Path) -> None:
    """Runs of one process that end after seven steps, in the middle of their second epoch."""
    for name in LEARNERS:
        with suppress(BrokenOff):
            within(ending(name), checkpoint=folder / name, every=0)
        for size in (1, 2, 4):
            shutil.copytree(folder / name, folder / f"{name}-{size}")


def ending(name: str, after: int = 7) -> einet.Learner:
    """A learner that ends its run after so many steps."""
    kind, steps = type(LEARNERS[name]), 0

    class Ending(kind):
        @property
        def joins(self) -> bool:
            return True

        def step(self, model: Any, batch: Any, progress: float = 0.0) -> Tensor:
            nonlocal steps
            steps += 1
            if steps > after:
                raise BrokenOff
            return super().step(model, batch, progress)

    # Its name is among the settings that must be the same.
    Ending.__name__ = kind.__name__
    return Ending() if name == "all" else Ending(0.3)


def within(learner: einet.Learner, **options: Any) -> Any:
    return fitted(
        model(), data(), data(37), epochs=3, batch_size=21, hide=0.2, optimizer=learner, **options
    )


def resumed_within(folder: Path, rank: int, size: int) -> Any:
    """Any number of processes go on in the middle of an epoch that one process has begun."""
    return [
        within(learner, checkpoint=folder / f"{name}-{size}", resume=True)
        for name, learner in LEARNERS.items()
    ]


def saved_within(folder: Path, rank: int, size: int) -> Any:
    """Processes that end in the middle of an epoch, and go on there."""
    results = []
    for name, learner in LEARNERS.items():
        path = folder / f"joint-{name}-{size}"
        with suppress(BrokenOff, einet.distributed.ProcessesError):
            # What one asks for, all do two steps later.
            within(ending(name, 8), checkpoint=path, every=0)
        with Team.of_all() as team:
            is_within = team.from_first(lambda path=path: ends_within(path))
        results.append((is_within, within(learner, checkpoint=path, resume=True)))
    return results


def ends_within(path: Path) -> bool:
    """Whether the last state of a run is from the middle of an epoch."""
    header, _ = read_tensors([*checkpoints_in(path).values()][-1], CHECKPOINT)
    return header["state"]["within"] is not None


def files_within(folder: Path, rank: int, size: int) -> Any:
    """Four processes end in the middle of an epoch over a file; as many go on, and fewer do."""
    if size == 4:
        with suppress(BrokenOff, einet.distributed.ProcessesError):
            files(rank, size, ending("all", 5), checkpoint=folder / "files-4", every=0)
        with Team.of_all() as team:
            team.from_first(lambda: [copy_files(folder, fewer) for fewer in (1, 2)])
    return files(rank, size, checkpoint=folder / f"files-{size}", resume=True)


def copy_files(folder: Path, fewer: int) -> None:
    shutil.copytree(folder / "files-4", folder / f"files-{fewer}")


def teams(rank: int, size: int) -> Any:
    with Team.of_all() as team:
        sums = [torch.ones(2) * (rank + 1), torch.tensor(1.0)]
        team.sum_(sums)
        tensors = [torch.full((3,), float(rank))]
        team.copy_from_(tensors, size - 1)
        return {
            "sums": [each.tolist() for each in sums],
            "copied": tensors[0].tolist(),
            "first": team.from_first(lambda: os.getpid()) == team.from_each(os.getpid())[0],
            "each": team.from_each(rank),
            "any": (team.any(rank == size - 1), team.any(False)),
            "share": (team.share(10).start, team.share(10).stop),
        }


def first_fails(rank: int, size: int) -> Any:
    def make() -> None:
        raise FileNotFoundError(2, "no such file", "x")

    with Team.of_all() as team:
        team.from_first(make)


OTHERS = {
    case.__name__: case
    for case in (
        named_loaders, loaders, callbacks, interrupted, another_graph, another_setting, fails_alone,
        unknown_learner, alone_among_others, teams, first_fails,
    )
}  # fmt: skip
