"""What docs/studio.md says of waiting, from `results/studio.json`."""

from __future__ import annotations

from typing import Any

__all__ = ["waiting"]

Row = dict[str, Any]


def waiting(rows: list[Row]) -> str:
    """How long one waits for what, and what was to be kept to."""
    by_task = {row["task"]: row for row in rows}
    lines = [("what one waits for", "measured", "goal")]
    for table in ("titanic", "adult"):
        row = by_task[f"csv to first model, {table}"]
        what = f"csv to first model, {table} ({row['rows']:,} × {row['columns']})"
        lines.append((what, f"{row['seconds']:.1f} s", f"{row['goal_seconds']:g} s"))
    row = by_task["evidence to redrawn"]
    lines.append(
        (
            f"a click until {row['columns']} panels of adult are drawn: median, 95th percentile",
            f"{row['redrawn_median_ms']:.0f}, {row['redrawn_95th_ms']:.0f} ms",
            f"{row['goal_median_ms']:g}, {row['goal_95th_ms']:g} ms",
        )
    )
    row = by_task["evidence to answer, states and intervals"]
    lines.append(("of which the server", f"{row['server_median_ms']:.0f} ms", ""))
    row = by_task["inpainting"]
    what = f"{row['draws']} draws, mean and deviation of a half-covered image of {row['size']}"
    lines.append((what, f"{row['http_median_ms']:.0f} ms", f"{row['goal_ms']:g} ms"))
    row = by_task["first paint"]
    lines.append(("first paint", f"{row['paint_median_ms']:.0f} ms", f"{row['goal_ms']:,g} ms"))
    row = by_task["page weight"]
    weight, goal = (f"{number / 1e3:.0f} kB" for number in (row["bytes"], row["goal_bytes"]))
    lines.append(("what the page loads", weight, goal))
    rule = ("---",) * 3
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (lines[0], rule, *lines[1:]))
