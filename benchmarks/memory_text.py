"""What docs/distributed.md says of memory on a GPU, from `results/scale.json`.

Before it is measured there is nothing to say, and nothing is said.
"""

from __future__ import annotations

from typing import Any

__all__ = ["halved", "said"]

Row = dict[str, Any]


def said(rows: list[Row]) -> str:
    """What `model.memory` said beside what was measured."""
    mine = [row for row in rows if row["task"] == "memory" and row["what"] == "said"]
    if not mine:
        return ""
    told = (
        f"On one {mine[0]['device']}, `fit` took the following at its peak (mini-batches of "
        f"{mine[0]['batch']} rows; what was there before, such as the rows, is left out):"
    )
    head = ["model", "learner", "`model.memory` says", "measured", "said, of that"]
    body = [
        [
            row["model"],
            f"`{row['learner']}`",
            f"{row['total_mib']:,.0f} MiB",
            f"{row['measured_mib']:,.0f} MiB",
            f"{row['said_of_measured']:.2f}×",
        ]
        for row in mine
    ]
    return f"{told}\n\n{_lines(head, body)}"


def halved(rows: list[Row]) -> str:
    """What came of learning where memory was short."""
    mine = [row for row in rows if row["task"] == "memory" and row["what"] == "halved"]
    if not mine:
        return ""
    told = (
        f"And the same training twice, on one {mine[0]['device']}: with room, and where the "
        "process was given less. Differences of parameters are relative to 1 + |parameter|:"
    )
    head = [
        "model", "type", "batch", "with room", "limit", "rows at a time, then",
        "largest difference", "log-likelihood",
    ]  # fmt: skip
    body = [
        [
            row["model"],
            row["dtype"],
            f"{row['batch']:,}",
            f"{row['with_room_mib']:,} MiB",
            f"{row['limit_mib']:,} MiB",
            ", ".join(f"{number:,}" for number in row["rows_at_a_time"]) or "all",
            f"{row['difference']:.1e}",
            f"{row['log_likelihood']:.7g}, with room {row['with_room']:.7g}",
        ]
        for row in mine
    ]
    return f"{told}\n\n{_lines(head, body)}"


def _lines(head: list[str], body: list[list[str]]) -> str:
    rule = ["---"] * len(head)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *body))
