"""A short trial of an installed einet, by the interpreter that it was installed for.

    python tools/smoke.py bare FOLDER       # as it is installed without extras
    python tools/smoke.py extras FOLDER     # with the extras ``cli`` and ``tables``

It runs outside of the repository, in FOLDER, with nothing but what was installed. The first trial
leaves a model there that the second one asks. What does not hold ends it with a message.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from importlib import metadata, resources
from pathlib import Path

__all__ = ["TRIALS", "main"]

MODEL, TABLE = Path("model.einet"), Path("people.csv")


def bare() -> None:
    """The library learns, saves and loads, and names the extra of whatever needs one."""
    import torch

    import einet

    home = Path(einet.__file__).resolve()
    require(home.is_relative_to(Path(sys.prefix).resolve()), f"einet is not the installed: {home}")
    require(metadata.version("einet") == einet.__version__, "metadata are of another version")
    require(resources.files("einet").joinpath("py.typed").is_file(), "py.typed is missing")

    x = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    x[0, 1] = torch.nan
    model = einet.Einet(einet.random_trees(4, depth=1, replicas=2), einet.Gaussian(), num_sums=3)
    history = einet.fit(model, x, epochs=3, batch_size=50, progress=False)
    require(history.train[-1] > history.train[0], "nothing was learnt")
    model.save(MODEL)
    require(torch.equal(einet.load(MODEL).log_prob(x), model.log_prob(x)), "a model has changed")

    said = command("--help", status=2)
    require("pip install 'einet[cli]'" in said, f"the command does not name its extra: {said}")
    try:
        einet.TableModel.fit(object())
    except ImportError as error:
        require("pip install 'einet[tables]'" in str(error), f"tables name no extra: {error}")
    else:
        raise SystemExit("a table was read without the packages that read tables")


def extras() -> None:
    """The command describes models, and models of tables answer."""
    said = command("--help")
    require("info" in said and "query" in said, f"commands are missing: {said}")
    require("Einet" in command("info", str(MODEL)), "einet info does not describe the model")
    command("info", "nothing.einet", status=2)

    lines = [f"{age},{'yes' if age % 3 else 'no'}" for age in range(20, 80)]
    TABLE.write_text("\n".join(["age,member", *lines, ",yes"]) + "\n", encoding="utf-8")
    command("fit", str(TABLE), "-o", "people.einet", "--epochs", "3")
    asked = command("query", "people.einet", "P(member=yes | 30<=age<50)")
    require(0 < float(asked.split()[-1]) < 1, f"no probability: {asked}")


TRIALS = {"bare": bare, "extras": extras}


def command(*arguments: str, status: int = 0) -> str:
    """What the installed ``einet`` prints, which has to end with this status."""
    program = Path(sysconfig.get_path("scripts")) / "einet"
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    said = done.stdout + done.stderr
    require(done.returncode == status, f"einet {arguments} ended with {done.returncode}: {said}")
    return said


def require(holds: bool, message: str) -> None:
    """End the trial where something does not hold. An assert would vanish under ``python -O``."""
    if not holds:
        raise SystemExit(message)


def main(arguments: list[str]) -> None:
    """Run one of the trials in a folder."""
    if len(arguments) != 2 or arguments[0] not in TRIALS:
        raise SystemExit(f"usage: smoke.py {'|'.join(TRIALS)} FOLDER")
    name, folder = arguments
    os.chdir(folder)
    TRIALS[name]()
    print(f"{name}: good")


if __name__ == "__main__":
    main(sys.argv[1:])
