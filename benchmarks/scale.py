"""Training at scale: many processes, data larger than memory, checkpoints.

    python benchmarks/scale.py                        # every task, minutes to hours
    python benchmarks/scale.py processes paper        # some of them
    python benchmarks/scale.py memory --device cuda   # on a GPU; so does one_gpu
    python benchmarks/scale.py --print                # the stored rows

Each task is a module of `scale_tasks` with a function `measure(quick)` that yields rows, plain
values by name. They go to `results/scale.json`, where they replace the earlier rows of their task;
`results/scale-machine.json` has the machine and the command lines.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "scale.json"
TASKS = tuple(
    sorted(
        module.name
        for module in pkgutil.iter_modules([str(Path(__file__).parent / "scale_tasks")])
        # What others share begins with an underscore.
        if not module.name.startswith("_")
    )
)


def main() -> None:
    args = parse_arguments()
    if args.print:
        for row in load(args.output):
            print(json.dumps(row))
        return
    import store

    for task in args.tasks or TASKS:
        rows = []
        for row in importlib.import_module(f"scale_tasks.{task}").measure(args.quick):
            rows.append({"task": task, **row})
            print(json.dumps(rows[-1]), flush=True)
        if not rows:
            print(f"{task}: nothing can be measured here; what is stored stays")
        elif not args.quick:
            others = [row for row in load(args.output) if row["task"] != task]
            machine = store.describe(args.device, {})
            machine["command"] = f"python benchmarks/scale.py {task}"
            store.write(args.output, [*others, *rows], machine, append=True)


def load(path: Path) -> list[dict[str, Any]]:
    """The stored rows."""
    return json.loads(path.read_text()) if path.exists() else []


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("tasks", nargs="*", metavar="TASK", help=f"of {', '.join(TASKS)}; all by default")
    add("--quick", action="store_true", help="a quick look, printed only")
    add("--device", default="cpu", help="what the machine is named after: cpu or cuda")
    add("--output", type=Path, default=RESULTS)
    add("--print", action="store_true", help="measure nothing, and print what is stored")
    args = parser.parse_args()
    for task in args.tasks:
        if task not in TASKS:
            parser.error(f"there is no task {task!r}; choose from {', '.join(TASKS)}")
    return args


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
