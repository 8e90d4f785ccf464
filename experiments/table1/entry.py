"""One data set with one kind of structure: the search, then the final models."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from experiments.table1.selection import choose
from experiments.table1.settings import Kind, Settings, plan
from experiments.table1.store import Store
from experiments.table1.train import Data, describe_test, measure_test, measure_valid, train

__all__ = ["SEARCH_SEED", "Job", "OutOfTime", "run"]

#: Final models have the seeds 1, 2, ...: none of them was there when settings were chosen.
SEARCH_SEED = 0


@dataclass(frozen=True)
class Job:
    """What to do for one entry of the table."""

    name: str
    kind: Kind
    root: str
    device: str
    seeds: int
    quick: bool
    workers: int = 1
    #: No training begins after this time, in seconds since the epoch.
    until: float = math.inf


class OutOfTime(Exception):
    """There is no time left to begin another training; what is done is written down."""


def run(job: Job, store: Store, say: Callable[[str], None]) -> dict[str, Any]:
    """Search, train the final models and measure them; go on where an earlier run ended.

    Everything is written down after each model. ``say`` hears of every one.

    Raises:
        OutOfTime: If a training should begin after the job's time.
    """
    _check_time(job)
    data = Data(job.name, job.root, job.device)
    state = store.unfinished(job.name, job.kind)
    # What failed may have failed for want of memory at the time.
    state["tried"] = [record for record in state["tried"] if "error" not in record]
    known: dict[tuple, dict[str, Any]] = {_key(record): record for record in state["tried"]}

    def score(stage: str, settings: Settings) -> float | None:
        key = _key({"settings": settings.to_dict(), "seed": SEARCH_SEED})
        if key not in known:
            _check_time(job)
            known[key] = {"stage": stage} | _attempt(data, settings)
            state["tried"].append(known[key])
            store.save(job.name, job.kind, state)
        record = known[key]
        value = record.get("valid_ll")
        shown = record["error"] if value is None else f"valid {value:.4f}"
        say(f"{stage}: {settings}: {shown} ({record['seconds']:.1f} s)")
        return value

    start, stages, members = plan(job.kind, data.num_variables, len(data.train), job.quick)
    chosen = replace(choose(start, stages, len(data.train), score), members=members)
    wanted = list(range(SEARCH_SEED + 1, SEARCH_SEED + 1 + job.seeds))
    kept = {model["seed"]: model for model in state["models"]}
    kept = {s: m for s, m in kept.items() if s in wanted and m["settings"] == chosen.to_dict()}
    # A mixture takes long, so its members are kept. The file of one Einsum Network may be large,
    # and what it says of every row is all that is needed of it.
    mixes = chosen.members > 1
    for seed in wanted:
        if seed not in kept or not (mixes or store.rows(job.name, job.kind, seed)):
            _check_time(job)
            folder = store.members(job.name, job.kind) if mixes else None
            trained = train(data, chosen, seed, folder)
            test = measure_test(trained.model, data)
            if not mixes:
                valid = measure_valid(trained.model, data)
                rows = {"valid": valid.tolist(), "test": test.tolist()}
                store.save_rows(job.name, job.kind, seed, rows)
            kept[seed] = trained.record | describe_test(test)
            state["models"] = list(kept.values())
            store.save(job.name, job.kind, state)
        model = kept[seed]
        say(f"final {seed}: valid {model['valid_ll']:.4f} ({model['seconds']:.1f} s)")
    result = _result(job, chosen, state["tried"], [kept[seed] for seed in wanted])
    if not mixes and len(wanted) > 1:
        result["mixed"] = _mixed([store.rows(job.name, job.kind, seed) for seed in wanted])
    return result


def _check_time(job: Job) -> None:
    if time.time() >= job.until:
        raise OutOfTime(f"no time is left for {job.name} {job.kind}")


def _mixed(models: Sequence[dict[str, list[float]] | None]) -> dict[str, Any]:
    """The equal mixture of the final models, beside the models themselves.

    It needs no model, only what each of them says of every row.
    """

    def mixed(split: str) -> Tensor:
        rows = torch.tensor([model[split] for model in models if model], dtype=torch.float64)
        return rows.logsumexp(0) - math.log(len(models))

    valid = float(mixed("valid").mean())
    return {"members": len(models), "valid_ll": valid} | describe_test(mixed("test"))


def _attempt(data: Data, settings: Settings) -> dict[str, Any]:
    """Train a candidate; one that cannot be trained must not end the search."""
    began = time.perf_counter()
    try:
        return train(data, settings, SEARCH_SEED).record
    except (RuntimeError, FloatingPointError) as error:  # out of memory, among others
        return {
            "settings": settings.to_dict(),
            "seed": SEARCH_SEED,
            "error": f"{type(error).__name__}: {error}".splitlines()[0][:200],
            "seconds": round(time.perf_counter() - began, 3),
        }


def _key(record: dict[str, Any]) -> tuple:
    return (record["seed"], *sorted(record["settings"].items()))


def _result(
    job: Job, chosen: Settings, tried: list[dict[str, Any]], models: list[dict[str, Any]]
) -> dict[str, Any]:
    """An entry of ``results.json``."""
    test = [model["test_ll"] for model in models]
    spread = statistics.stdev(test) / math.sqrt(len(test)) if len(test) > 1 else 0.0
    row_sd = statistics.fmean(model["test_row_sd"] for model in models)
    rows = models[0]["test_rows"]
    return {
        "test_ll": statistics.fmean(test),
        # Over seeds, and over test rows.
        "test_se": spread,
        "test_row_se": row_sd / math.sqrt(rows),
        "test_row_sd": row_sd,
        "test_rows": rows,
        "valid_ll": statistics.fmean(model["valid_ll"] for model in models),
        "seeds": [model["seed"] for model in models],
        "settings": chosen.to_dict(),
        "seconds": round(sum(record["seconds"] for record in [*tried, *models]), 1),
        "device": _device_name(job.device),
        "threads": torch.get_num_threads(),
        "workers": job.workers,
        "torch": torch.__version__,
        "models": [{k: v for k, v in model.items() if k != "settings"} for model in models],
        "tried": tried,
    }


def _device_name(device: str) -> str:
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device
