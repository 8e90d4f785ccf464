"""Put the peers' packages, unpacked, into `.peers/`, where `efficiency.py` finds them.

    python benchmarks/fetch_peers.py    # PyJuice, SPFlow and what they import: 3 MiB

The folder can be carried to a machine that has torch, triton, numpy, numba, networkx and matplotlib
but no package index: its contents are pure Python, or built for every Python 3 on Linux x86-64.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent / ".peers"

PACKAGES = (
    "pyjuice==2.6.3",
    "spflow==1.1.0",
    "einops==0.8.2",  # SPFlow
    "fast_pytorch_kmeans==0.2.2",  # SPFlow
    "psutil==7.2.2",  # fast_pytorch_kmeans
    "tqdm==4.70.1",  # PyJuice
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=FOLDER)
    args = parser.parse_args()
    shutil.rmtree(args.folder, ignore_errors=True)
    # Without dependencies: what is left out is torch and its like, which the machine has.
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
    command += ["--only-binary=:all:", "--target", str(args.folder), *PACKAGES]
    subprocess.run(command, check=True)
    shutil.rmtree(args.folder / "bin", ignore_errors=True)
    size = sum(path.stat().st_size for path in args.folder.rglob("*") if path.is_file())
    print(f"{args.folder}: {', '.join(PACKAGES)} ({size / 2**20:.1f} MiB)")


if __name__ == "__main__":
    main()
