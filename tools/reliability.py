"""The counts of the last long attack, as the table of ``docs/reliability.md``.

make fuzz SECONDS=300                      # attack, and keep the counts in tests/fuzz/results
.venv/bin/python tools/reliability.py      # write them into the page
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

__all__ = ["ATTACKS", "PAGE", "RESULTS", "renewed", "table"]

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reliability.md"
RESULTS = ROOT / "tests" / "fuzz" / "results"
_BEGIN, _END = "<!-- attacks -->\n", "\n<!-- /attacks -->"

#: What each campaign tries, by its name.
ATTACKS = {
    "blind_damage": "model files with bits flipped, bytes replaced, cut off or added",
    "damage_that_the_checksum_does_not_know_of": (
        "model files changed in their parts, under the checksum of before"
    ),
    "hostile_files": "model files changed in their parts, with a checksum that fits",
    "hostile_files_unsigned": "the same without a checksum, as earlier releases wrote them",
    "killed_while_saving": "processes killed while they save over a file",
    "damaged_checkpoints": "checkpoints with bits flipped, bytes replaced, cut off or added",
    "forged_checkpoints": "checkpoints changed in their parts, with a checksum that fits",
    "killed_training": (
        "seven kinds of training, each killed or asked to end at four random moments, and resumed"
    ),
    "tables": "tables of odd types and extreme numbers",
    "extremes": "families on data at the ends of what floats can hold, learnt by EM",
    "misuse": "calls of public functions with hostile arguments",
    "damaged_image_files": "image files, archives and arrays, damaged or lying about their size",
    "hostile_command_lines": "command lines with hostile paths and numbers",
}


def table(results: Path = RESULTS) -> str:
    """A row for each campaign: what it tried, how often, and how it was answered."""
    rows = ["| tried | cases | answers |", "| --- | ---: | --- |"]
    for name, what in ATTACKS.items():
        counts = json.loads((results / f"{name}.json").read_text())
        totals: Counter[str] = Counter()
        for answer, count in counts["answers"].items():
            totals[_in_short(answer)] += count
        answers = sorted(totals.items(), key=lambda item: (-item[1], item[0]))
        shown = ", ".join(f"{count:,} {answer}" for answer, count in answers)
        rows.append(f"| {what} | {counts['tried']:,} | {shown} |")
    return "\n".join(rows)


# Answers that say how a case began, or what was found on the way, of which all were right.
_WORDS = {
    "0 left behind": "whole",
    "1 left behind": "whole, with a leftover that the next save removed",
    "a distribution": "another distribution, normalised",
    "random": "exact and never falling",
    "initialised": "exact and never falling",
    "initialised on other rows": "exact and never falling",
    "not to be carried so": "not possible in that type",
}


def _in_short(answer: str) -> str:
    """An answer without the kind of file, or the command, that gave it."""
    if answer in _WORDS:
        return _WORDS[answer]
    if status := re.search(r": (\d)$", answer):
        return f"ended with status {status[1]}"
    for short in ("refused", "read"):
        if re.search(rf"\b{short}\b", answer):
            return short
    return answer


def renewed(page: str) -> str:
    """The page with its table written anew."""
    pattern = re.escape(_BEGIN) + ".*?" + re.escape(_END)
    return re.sub(pattern, lambda _: _BEGIN + table() + _END, page, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
