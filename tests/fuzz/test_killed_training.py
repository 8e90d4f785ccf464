"""Training runs that are killed and go on, again and again, end as if nothing had happened."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import einet
from tests.fuzz.campaign import Campaign

# One process that has loaded everything forks those that are killed. It has no threads to think of.
SCRIPT = Path(__file__).with_name("killed_training.py")
KINDS = ("EM", "stochastic EM", "Adam", "mixture", "clusters", "together", "refine")
# So often each of them is killed or asked to end.
TIMES = 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
def test_killed_training(campaign: Campaign):
    source = Path(einet.__file__).parents[1]

    def case(random: np.random.Generator, folder: Path) -> str:
        seed = str(random.integers(1 << 30))
        done = subprocess.run(
            [sys.executable, str(SCRIPT), str(folder), seed, str(TIMES), *KINDS],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            env={**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"},
        )
        assert done.returncode == 0, done.stderr[-3000:]
        words = [line.split(": ") for line in done.stdout.splitlines()]
        assert [name for name, _ in words] == list(KINDS)
        assert sum(int(count) for _, count in words) >= 20
        return "same result"

    campaign.run("killed_training", case, 1)
