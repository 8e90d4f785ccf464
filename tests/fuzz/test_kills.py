"""Processes that are killed while they save a model."""

import os
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import numpy as np
import torch

import einet
from einet import Einet
from tests.fuzz.campaign import Campaign

SAVER = """
import sys
import einet
graph = einet.random_trees(8, 2, 4)
models = [einet.Einet(graph, einet.Gaussian(), 16, seed=seed) for seed in range(2)]
print("ready", flush=True)
while True:
    for number, model in enumerate(models):
        model.save(sys.argv[1], {"seed": number})
"""


@cache
def _saved(seed: int) -> Einet:
    return Einet(einet.random_trees(8, 2, 4), einet.Gaussian(), 16, seed=seed)


def test_killed_while_saving(campaign: Campaign):
    """The file is one of the two that were being written, whole; the next save tidies up."""

    def case(random: np.random.Generator, folder: Path) -> str:
        path = folder / "model.einet"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        process = subprocess.Popen(
            [sys.executable, "-c", SAVER, str(path)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        while not path.exists():
            assert process.poll() is None
            time.sleep(0.001)
        time.sleep(float(random.uniform(0, 0.1)))
        process.kill()
        process.communicate()
        found = einet.load(path).state_dict()
        expected = _saved(einet.load_metadata(path)["seed"]).state_dict()
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, rtol=0, atol=0, equal_nan=True)
        left = len(list(folder.iterdir())) - 1
        _saved(0).save(path)
        assert [file.name for file in folder.iterdir()] == ["model.einet"]
        return f"{left} left behind"

    campaign.run("killed_while_saving", case, 1)
