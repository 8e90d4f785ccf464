"""Rows per second of one and two processes on this machine, and what they wait for each other.

Weak scaling: every process has its own mini-batch of 500 rows, and one thread.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from einet.data.batch import Batch
from einet.distributed.launching import run_workers
from einet.distributed.team import Team
from einet.learning.em import StochasticEM
from scale_tasks._models import MODELS, made

_STEPS, _ROUNDS = 5, 9


def measure(quick: bool) -> Iterator[dict[str, Any]]:
    for name, (_, batch) in MODELS.items():
        base = None
        for processes in (1, 2):
            with tempfile.TemporaryDirectory() as folder:
                out = Path(folder) / "out.json"
                given = (name, batch, 1 if quick else _ROUNDS, str(out))
                run_workers(processes, torch.device("cpu"), step_many, *given)
                told = json.loads(out.read_text())
            base = told["rows_per_second"] if base is None else base
            yield {
                "model": name,
                "batch": batch,
                "processes": processes,
                **told,
                "speed_up": round(told["rows_per_second"] / base, 3),
            }


def step_many(name: str, batch: int, rounds: int, out: str) -> None:
    """Steps of one process: the best of all rounds, which others on the machine disturb least."""
    torch.set_num_threads(1)
    with Team.of_all() as team:
        model, x = made(name, batch * team.size)
        rows = Batch(x[team.share(len(x))])
        learner = StochasticEM(0.1)
        if team.size > 1:
            learner.team = team
        for _ in range(3):
            learner.step(model, rows)
        seconds, shares, worked = [], [], []
        for _ in range(rounds):
            team.any(False)
            team.waited, began, before = 0.0, time.perf_counter(), time.process_time()
            for _ in range(_STEPS):
                learner.step(model, rows)
            seconds.append((time.perf_counter() - began) / _STEPS)
            shares.append(team.waited / _STEPS / seconds[-1])
            worked.append((time.process_time() - before) / _STEPS)
        best = min(range(rounds), key=seconds.__getitem__)
        if team.first:
            sent = sum(t.nbytes for t in model.e_step(rows).tensors())
            told = {
                "step_ms": round(1e3 * seconds[best], 3),
                "median_step_ms": round(1e3 * statistics.median(seconds), 3),
                # What a core works for it, sending included: others on the machine do not count.
                "core_ms": round(1e3 * min(worked), 3),
                "rows_per_second": round(batch * team.size / seconds[best]),
                "share_of_waiting": round(shares[best], 4),
                "statistics_mib": round(sent / 2**20, 3),
            }
            Path(out).write_text(json.dumps(told))
