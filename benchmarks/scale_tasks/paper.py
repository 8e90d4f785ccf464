r"""What many GPUs would bring, on paper: from measured steps and the bytes of statistics.

Every GPU has 500 rows of the joint mini-batch. A ring sends 2 (n − 1) / n times the bytes of all
statistics through each GPU's link of b bits a second; they set out while the backward pass runs, so
that a step takes

.. math:: t_n = t_{up} + \max(t_{down},\; 2 \tfrac{n-1}{n} \cdot 8\,\text{bytes} / b)

and n GPUs learn from n t₁ / tₙ times the rows. Latencies are left out, and so is what an M-step by
itself takes longer than one within the backward pass. What would help past the knee is counted the
same way: statistics in bf16; H local steps between two sums; and sums whose weights are cut
between the GPUs, which exchange values and flows of the joint rows in place of statistics.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_RESULTS = Path(__file__).parent.parent / "results"
_GPUS, _GBITS = (8, 64, 512), (25, 400)
# An efficiency below this is past the knee.
_KNEE = 0.8


def measure(quick: bool) -> Iterator[dict[str, Any]]:
    for about in (_random_trees(), _hidden_trees(256), _hidden_trees(1024)):
        for gpus in _GPUS:
            for gbit in _GBITS:
                yield {**about, "gpus": gpus, "gbit": gbit, **predicted(about, gpus, gbit)}


def predicted(about: dict[str, Any], gpus: int, gbit: int) -> dict[str, Any]:
    """Speed-ups of so many GPUs: as it is, and with what would have to change."""

    def speed_up(nbytes: float, steps: int = 1) -> float:
        sent = 2 * (gpus - 1) / gpus * nbytes / (gbit * 1e9 / 8) * 1e3
        up, step = about["up_ms"], about["step_ms"]
        # Of H steps, the last one's backward pass has company.
        together = (steps - 1) * step + up + max(step - up, sent)
        return gpus * steps * step / together

    full = about["weight_bytes"] + about["leaf_bytes"]
    sent = 2 * (gpus - 1) / gpus * full / (gbit * 1e9 / 8) * 1e3
    step, up = about["step_ms"], about["up_ms"]
    # H t / ((H − 1) t + up + sent) ≥ 0.8, and m t / (m up + sent) ≥ 0.8 with m times the rows.
    steps = max(0.0, up + sent - step) * _KNEE / (1 - _KNEE) / step
    times = 1 if speed_up(full) >= _KNEE * gpus else _KNEE * sent / (step - _KNEE * up)
    return {
        "sent_ms": round(sent, 2),
        "speed_up": round(speed_up(full), 1),
        "efficiency": round(speed_up(full) / gpus, 3),
        "speed_up_bf16": round(speed_up(full / 2 - about["leaf_bytes"] / 4), 1),
        "local_steps_for_80_percent": max(1, math.ceil(steps)),
        "rows_for_80_percent": about["batch"] * max(1, math.ceil(times)),
        "speed_up_cut_sums": round(speed_up(about["value_bytes"] * gpus), 1),
    }


def _random_trees() -> dict[str, Any]:
    """512 Gaussian variables, depth 4, 10 replicas, K 64."""
    rows = json.loads((_RESULTS / "goals-cuda.json").read_text())
    row = next(
        r for r in rows
        if r["implementation"] == "einet" and r["K"] == 64 and r["precision"] == "highest"
    )  # fmt: skip
    densities = 64 * 512 * 10
    # Each replica has 16 leaves and 15 sums; all of a batch's values and flows.
    values = 500 * 10 * 31 * 64 * 4 * 2
    return {
        "model": "random trees, K 64",
        "precision": row["precision"],
        "batch": row["batch"],
        "step_ms": round(row["train_ms"], 3),
        # Forward passes were measured with 100 rows there; a third of a step is counted.
        "up_ms": round(row["train_ms"] / 3, 3),
        "weight_bytes": 4 * (row["parameters"] - 2 * densities),
        "leaf_bytes": 8 * 3 * densities,
        "value_bytes": values,
    }


def _hidden_trees(K: int) -> dict[str, Any]:
    """784 pixels of 256 states in a Chow–Liu tree."""
    rows = json.loads((_RESULTS / "trees-cuda.json").read_text())
    wanted = {"implementation": "einet", "leaves": "categorical", "K": K, "precision": "highest"}
    rows = [row for row in rows if wanted.items() <= row.items()]
    # Of the present kernels, where both were measured.
    row = min(rows, key=lambda row: row.get("earlier", False))
    densities = K * row["variables"]
    return {
        "model": f"hidden tree, K {K}",
        "precision": row["precision"],
        "batch": row["batch"],
        "step_ms": round(row["train_ms"], 3),
        "up_ms": round(row["forward_ms"], 3),
        "weight_bytes": 4 * (row["parameters"] - 256 * densities),
        "leaf_bytes": 8 * 257 * densities,
        "value_bytes": 500 * (row["sums"] + row["variables"]) * K * 4 * 2,
    }
