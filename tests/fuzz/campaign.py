"""Many random cases of one kind of attack: counted, repeatable, and the failing one kept."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

__all__ = ["Campaign", "Case", "Report"]

#: One case: it draws what it tries from the generator, keeps the files it makes in the folder, and
#: says in a word or two how the library answered ("refused", "same content", ...). It raises where
#: a promise is broken.
Case = Callable[[np.random.Generator, Path], str]

# Cases of a short run have always the same seed: the tests of a change must not fail by chance.
_SEED = 20260716


@dataclass
class Report:
    """What a campaign tried, and how often it was answered how."""

    name: str
    seed: int
    tried: int = 0
    answers: Counter[str] = field(default_factory=Counter)

    def write(self, folder: Path) -> None:
        """Keep the counts in a file of the campaign's name."""
        folder.mkdir(parents=True, exist_ok=True)
        text = {
            "seed": self.seed,
            "tried": self.tried,
            "answers": dict(sorted(self.answers.items())),
        }
        (folder / f"{self.name}.json").write_text(json.dumps(text, indent=2) + "\n")


@dataclass
class Campaign:
    """Runs cases one after the other: a few of them, or as many as a time allows.

    Attributes:
        folder: Where a case keeps its files; the folder of a failing one stays.
        seconds: How long to go on; None for the number of cases that a test asks for.
        seed: What cases are drawn from, together with their number; None for the usual one in a
            short run and for one that was never used in a long one.
        only: The number of the one case to try.
        results: Where to keep the counts; None for nowhere.
    """

    folder: Path
    seconds: float | None = None
    seed: int | None = None
    only: int | None = None
    results: Path | None = None

    def run(self, name: str, case: Case, cases: int) -> Report:
        """Try cases until the time or their number is used up.

        Args:
            name: What the counts are filed under: how the test's name begins, without ``test_``.
            case: What to try.
            cases: How many there are in a run without a time.
        """
        report = Report(name, self._seed())
        print(f"{name}: --fuzz-seed {report.seed}")
        began, number = time.monotonic(), self.only or 0
        while report.tried == 0 or self._goes_on(began, report.tried, cases):
            folder = self.folder / f"{name}-{report.seed}-{number}"
            folder.mkdir(parents=True)
            try:
                answer = case(np.random.default_rng([report.seed, number]), folder)
            except BaseException as error:
                error.add_note(
                    f"case {number} of {name}; its files are in {folder}; to try it alone: "
                    f"pytest tests/fuzz -k {name} --fuzz-seed {report.seed} --fuzz-case {number}"
                )
                raise
            _remove(folder)
            report.tried, number = report.tried + 1, number + 1
            report.answers[answer] += 1
        print(f"{name}: {report.tried} tried: {dict(report.answers)}")
        if self.results is not None:
            report.write(self.results)
        return report

    def _seed(self) -> int:
        if self.seed is not None:
            return self.seed
        return _SEED if self.seconds is None else int(np.random.SeedSequence().generate_state(1)[0])

    def _goes_on(self, began: float, tried: int, cases: int) -> bool:
        if self.only is not None:
            return False
        if self.seconds is None:
            return tried < cases
        return time.monotonic() - began < self.seconds


def _remove(folder: Path) -> None:
    """Remove the files of a case that kept its promise; it may have made folders and FIFOs."""
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    folder.rmdir()
