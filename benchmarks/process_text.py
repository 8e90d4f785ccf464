"""What docs/distributed.md and docs/large_data.md say of scale, from `results/scale.json`."""

from __future__ import annotations

from typing import Any

__all__ = ["from_files", "measured", "of_checkpoints", "on_one_gpu", "on_paper"]

Row = dict[str, Any]


def _lines(head: list[str], body: list[list[str]]) -> str:
    rule = ["---"] * len(head)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *body))


def from_files(rows: list[Row]) -> str:
    """Learning from Parquet files beside learning from the same rows in memory."""
    head = [
        "rows × 64", "file", "from it: peak memory", "rows a second", "in memory: peak memory",
        "rows a second", "from the file, of that", "by work",
    ]  # fmt: skip
    mine = {(row["source"], row["rows"]): row for row in rows if row["task"] == "sources"}
    body = []
    for count in sorted({count for _, count in mine}):
        file, memory = mine["parquet", count], mine["memory", count]
        shares = [
            f"{100 * file[speed] / memory[speed]:.0f} %"
            for speed in ("rows_per_second", "rows_per_core_second")
        ]
        size = f"{file['file_mb']:,.0f} MB"
        body.append([f"{count:,}", size, *_peak_and_speed(file), *_peak_and_speed(memory), *shares])
    return _lines(head, body)


def _peak_and_speed(row: Row) -> list[str]:
    return [f"{row['peak_mib']:,} MiB", f"{row['rows_per_second']:,}"]


def of_checkpoints(rows: list[Row]) -> str:
    """What it takes to write a state."""
    head = ["model", "learner", "a state", "by the clock", "share of an epoch of a minute"]
    body = [
        [f"{row['parameters']:,} parameters", row["learner"], f"{row['megabytes']:.3g} MB",
         f"{1e3 * row['seconds']:.0f} ms", f"{100 * row['share']:.2f} %"]
        for row in rows
        if row["task"] == "checkpoints"
    ]  # fmt: skip
    return _lines(head, body)


def measured(rows: list[Row]) -> str:
    """How many rows one and two processes learn from in a second; and the waiting."""
    head = ["model", "statistics", "1 process", "2 processes", "speed-up", "of a step, waiting"]
    mine = [row for row in rows if row["task"] == "processes"]
    body = []
    for name in dict.fromkeys(row["model"] for row in mine):
        one, two = (
            next(row for row in mine if (row["model"], row["processes"]) == (name, number))
            for number in (1, 2)
        )
        speeds = [f"{row['rows_per_second']:,}" for row in (one, two)]
        ratio, waiting = f"{two['speed_up']:.2f}×", f"{100 * two['share_of_waiting']:.1f} %"
        body.append([name, f"{two['statistics_mib']:.1f} MiB", *speeds, ratio, waiting])
    return _lines(head, body)


def on_one_gpu(rows: list[Row]) -> str:
    """Two processes on one device beside one process."""
    head = ["backend", "type", "how statistics are summed", "largest difference", "log-likelihood"]
    body = []
    for row in (row for row in rows if row["task"] == "one_gpu"):
        if "error" in row:
            body.append([row["backend"], "–", row["error"], "–", "–"])
            continue
        both = f"{row['log_likelihood']:.7g}, of one process {row['of_one_process']:.7g}"
        body.append(
            [row["backend"], row["dtype"], row["how"], f"{row['difference']:.1e}", both]
        )  # fmt: skip
    return _lines(head, body)


def on_paper(rows: list[Row]) -> str:
    """Speed-ups of many GPUs, as it is and with what would have to change."""
    head = [
        "model", "statistics", "Gbit/s", "8 GPUs", "64", "512", "512, sums in bf16",
        "rows of a GPU for 80 %",
    ]  # fmt: skip
    mine = [row for row in rows if row["task"] == "paper"]
    body = []
    for name, gbit in dict.fromkeys((row["model"], row["gbit"]) for row in mine):
        here = [row for row in mine if (row["model"], row["gbit"]) == (name, gbit)]
        size = (here[0]["weight_bytes"] + here[0]["leaf_bytes"]) / 1e6
        last = here[-1]
        speeds = [f"{row['speed_up']:.3g}×" for row in here]
        body.append(
            [name, f"{size:,.0f} MB", str(gbit), *speeds, f"{last['speed_up_bf16']:.3g}×",
             f"{last['rows_for_80_percent']:,}"]
        )  # fmt: skip
    return _lines(head, body)
