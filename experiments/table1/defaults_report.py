"""What the defaults of `fit` reach, in Markdown: a table, and how near they are to what was sought.

    python -m experiments.table1.defaults_report

writes `defaults.md` beside `defaults.json` anew, and its place in `docs/table1.md`.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments.markdown import table
from experiments.table1.published import PUBLISHED
from experiments.table1.report import refreshed
from experiments.table1.store import read_json, write_text

__all__ = ["SETTLED_ON", "Reached", "main", "markdown", "page", "reached", "summary"]

#: The defaults were settled on validation rows of these sets.
SETTLED_ON = ("nltcs", "plants", "jester", "dna", "web-kb", "bbc", "ad")
_HEADER = (
    "data set", "valid, before", "valid, now", "test, before", "test, now",
    "test, paper's EiNet", "test, one Einsum Network, searched", "test, random trees, searched",
)  # fmt: skip


class Reached(NamedTuple):
    """Means over the seeds of one data set, in nats; None where nothing was measured."""

    valid_before: float | None
    valid_now: float | None
    test_before: float | None
    test_now: float | None


def reached(rows: Sequence[dict[str, Any]]) -> dict[str, Reached]:
    """What both variants reach on each data set."""

    def mean(name: str, variant: str, what: str) -> float | None:
        mine = [row for row in rows if (row["dataset"], row["variant"]) == (name, variant)]
        values = [row[what] for row in mine if what in row]
        return statistics.fmean(values) if values and len(values) == len(mine) else None

    return {
        name: Reached(
            mean(name, "before", "valid_ll"),
            mean(name, "now", "valid_ll"),
            mean(name, "before", "test_ll"),
            mean(name, "now", "test_ll"),
        )
        for name in dict.fromkeys(row["dataset"] for row in rows)
    }


def summary(rows: Sequence[dict[str, Any]], results: dict[str, dict[str, Any]]) -> str:
    """How near the defaults are, in sentences."""
    found = reached(rows)
    tested = {name: each for name, each in found.items() if each.test_now is not None}
    if not tested:
        return "No data set has been measured on its test rows yet."
    sentences = [f"On test rows of {len(tested)} data sets, means over seeds:"]
    both = [
        (each.test_now, each.test_before)
        for each in tested.values()
        if each.test_now is not None and each.test_before is not None
    ]
    if both:
        better = sum(now > before for now, before in both)
        gain = statistics.median(100 * (now - before) / -before for now, before in both)
        sentences.append(
            f"the defaults are better than those before on {better} of {len(both)} (by "
            f"{gain:.1f} % of the log-likelihood in the median)."
        )
    paper = {name: PUBLISHED[name].einet for name in tested}
    sentences.append(_standing("the paper's EiNets, whose settings were searched", tested, paper))
    for kind, title in (
        ("einsum", "our one Einsum Network after a search for each set"),
        ("rat", "our mixtures of random trees after a search for each set"),
    ):
        sought = {name: results[name][kind]["test_ll"] for name in tested if kind in results[name]}
        if sought:
            sentences.append(_standing(title, tested, sought))
    return " ".join(sentences)


def _standing(title: str, tested: dict[str, Reached], others: dict[str, float]) -> str:
    """On how many sets the defaults reach others' numbers, or nearly."""
    lag = [
        100 * (other - now) / -other
        for name, other in others.items()
        if (now := tested[name].test_now) is not None
    ]
    middle = statistics.median(lag)
    at_or_above, near, close = (sum(each <= most for each in lag) for most in (0, 1, 3))
    return (
        f"Beside {title}: at or above on {at_or_above} of {len(lag)}, at most 1 % below on {near}, "
        f"at most 3 % below on {close}; {abs(middle):.1f} % {'below' if middle > 0 else 'above'} "
        "in the median."
    )


def markdown(rows: Sequence[dict[str, Any]], results: dict[str, dict[str, Any]]) -> str:
    """All that ``defaults.json`` says, to read."""
    parts = [
        "# The defaults of `fit`: mean log-likelihood on binary data sets (nats)",
        summary(rows, results),
        "`fit(Einet(random_trees(variables, depth, replicas=10), Bernoulli(), 10), train, valid)`, "
        "depth 4 or what few variables allow; before: batches of 500, a step size that falls from "
        "0.5 to 0.05 over 25 epochs, random leaves, no prior. The defaults were settled on "
        f"validation rows of {', '.join(SETTLED_ON)}, with single seeds on a CPU; test rows are "
        "read once for each model.",
        _table(rows, results),
        "## Training",
        "Best epoch and epochs of the first seed, mean seconds of all.",
        table(("data set", "defaults", "best epoch", "epochs", "seconds", "device"), _runs(rows)),
    ]
    return "\n\n".join(parts) + "\n"


def page(rows: Sequence[dict[str, Any]], results: dict[str, dict[str, Any]]) -> str:
    """What the documentation tells of them."""
    return f"{summary(rows, results)}\n\n{_table(rows, results)}"


def _table(rows: Sequence[dict[str, Any]], results: dict[str, dict[str, Any]]) -> str:
    lines = []
    for name, each in reached(rows).items():
        sought = [results.get(name, {}).get(kind, {}).get("test_ll") for kind in ("einsum", "rat")]
        numbers = [*each, PUBLISHED[name].einet, *sought]
        lines.append([name, *("" if value is None else f"{value:.3f}" for value in numbers)])
    # A column of nothing would be a search that was not made.
    shown = [n for n in range(len(_HEADER)) if any(line[n] for line in lines) or n < 6]
    return table([_HEADER[n] for n in shown], [[line[n] for n in shown] for line in lines])


def _runs(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["dataset"], row["variant"]), []).append(row)
    return [
        [
            *key,
            f"{mine[0]['best_epoch'] + 1}",
            f"{mine[0]['epochs']}",
            f"{statistics.fmean(row['seconds'] for row in mine):.1f}",
            mine[0]["device"],
        ]
        for key, mine in groups.items()
    ]


def main() -> int:
    here = Path(__file__).resolve().parent
    rows, results = read_json(here / "defaults.json", []), read_json(here / "results.json", {})
    write_text(here / "defaults.md", markdown(rows, results))
    path = here.parents[1] / "docs" / "table1.md"
    text = path.read_text(encoding="utf-8")
    write_text(path, refreshed(text, page(rows, results), "defaults"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
