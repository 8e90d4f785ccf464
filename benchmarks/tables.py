"""Models of tables beside their usual choices: synthetic data, imputation, prediction, density, …

    python benchmarks/tables.py                                     # all of it, five seeds: hours
    python benchmarks/tables.py --tasks density prediction --tables titanic mpg --seeds 0 1
    python benchmarks/tables.py --tasks imputation --methods einet knn --tables penguins
    python benchmarks/tables.py --rows 500 --tasks density          # a quick look, printed only
    python benchmarks/tables.py --missing                           # what is not stored yet
    python benchmarks/tables.py --print                             # the stored rows as tables
    python benchmarks/tables.py --device cuda --draw draws          # synthetic rows, measured by
    python benchmarks/tables.py --tasks synthetic --drawn draws     # this, on another machine too
    python benchmarks/tables.py --join runs --note "12 runs at once"    # of files of `--output`

Rows of results (table, task, method, metric, value, seed, seconds) go to `results/tables.json`
after every measurement and replace earlier ones of the same key. Where numbers depend on how models
are learnt, they tell the recipe (`table_tasks/recipe.py`), and a table's rows of an earlier one go
as soon as the first of the present one comes; `--missing` goes on where a run ended.
`results/tables-machine.json` has the machine and the command lines. The tables are read from
`$EINET_DATA/tabular`.

What einet is compared and measured with needs packages that are no dependencies of it. SDMetrics
does not take pandas 3 yet, so that they have an environment of their own:

    python3 -m venv benchmarks/.envs/tables
    grep -v '^pandas==' constraints.txt > benchmarks/.envs/constraints.txt
    benchmarks/.envs/tables/bin/pip install -c benchmarks/.envs/constraints.txt -e '.[tables]' \\
        -r benchmarks/table_tasks/requirements.txt
    benchmarks/.envs/tables/bin/python benchmarks/tables.py

A method whose package is missing, or that fails on a table, is named as absent, on the screen and
beside the results.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import time
import warnings
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
TASKS = ("density", "prediction", "imputation", "outliers", "latency", "synthetic")
#: What a method, or a whole task, needs beside einet and scikit-learn.
_NEEDS = {"miceforest": ("miceforest",), "synthetic": ("sdmetrics", "xgboost")}


def main() -> None:
    args = parse_arguments()
    if args.print:
        import store
        from table_tasks.results import published, summary

        print(summary(store.load(args.output)), published(), sep="\n\n")
        return
    if args.join is not None:
        from table_tasks.joining import join

        print(f"{join(args.join, args.output, args.note)} rows joined to {args.output.name}")
        return
    if args.threads:
        # Before torch and the libraries of the others are loaded, which read it once.
        os.environ["OMP_NUM_THREADS"] = str(args.threads)
    if args.draw is not None:
        from table_tasks.data import PROTOCOL
        from table_tasks.draws import draw

        tables = [name for name in args.tables or PROTOCOL if name in PROTOCOL]
        draw(args.draw, tables, args.seeds, args.rows, args.device)
        return
    run(args)


def run(args: argparse.Namespace) -> None:
    """Measure what the arguments ask for, and keep each result as soon as it is there."""
    import store
    from table_tasks.results import is_stored, keep, published, summary

    output = args.output if args.rows is None or args.output != _default() else None
    absent: dict[str, str] = {}
    rows: list[dict[str, Any]] = []
    for task in args.tasks:
        module = importlib.import_module(f"table_tasks.{task}")
        for table in [name for name in args.tables or module.TABLES if name in module.TABLES]:
            for seed in args.seeds:
                for method in args.methods or module.METHODS:
                    if method not in module.METHODS or is_absent(task, method, args.drawn, absent):
                        continue
                    if args.missing and is_stored(
                        store.load(args.output), task, table, method, seed
                    ):
                        continue
                    try:
                        new = measure(module, task, table, method, seed, args)
                    except Exception as error:
                        if method.startswith("einet"):
                            raise
                        # What others refuse or fail at is told, and the rest goes on.
                        what = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
                        absent[f"{method}, {task} of {table}, seed {seed}"] = what[:200]
                        print(f"{task} {table} {method} seed {seed}: {what[:200]}", flush=True)
                        new = []
                    rows += new
                    keep(output, new, args.device, absent, args.drawn)
    for name, reason in absent.items():
        print(f"absent: {name}: {reason}")
    print(summary(rows))
    if "synthetic" in args.tasks:
        print(published())


def measure(
    module: Any, task: str, table: str, method: str, seed: int, args: argparse.Namespace
) -> list[dict[str, Any]]:
    """The rows of one method on one table with one seed."""
    from table_tasks.recipe import RECIPES, depends

    began, rows = time.perf_counter(), []
    with warnings.catch_warnings():
        # Of columns left out and of models that have not converged: each would be said many times.
        warnings.simplefilter("ignore")
        more = {"drawn_in": args.drawn} if task == "synthetic" else {}
        measures = module.measure(table, method, seed, args.rows, args.device, **more)
        for metric, value, seconds in measures:
            row = {"table": table, "task": task, "method": method, "metric": metric}
            row |= {"value": value, "seed": seed, "seconds": round(seconds, 3)}
            rows.append({**row, "recipe": RECIPES[task]} if depends(row) else row)
    print(f"{task} {table} {method} seed {seed}: {time.perf_counter() - began:.1f} s", flush=True)
    for row in rows:
        print(f"    {row['metric']}: {row['value']:.4g}", flush=True)
    return rows


def is_absent(task: str, method: str, drawn: Path | None, absent: dict[str, str]) -> bool:
    """Whether a package or a folder of rows is missing; what for is noted."""
    if method == "einet on a GPU" and drawn is None:
        absent[method] = "no folder of rows was given (--drawn)"
        return True
    for what in (task, method):
        for package in _NEEDS.get(what, ()):
            if importlib.util.find_spec(package) is None:
                absent[what] = f"the package {package} is not installed"
                return True
    return False


def _default() -> Path:
    return RESULTS / "tables.json"


def parse_arguments() -> argparse.Namespace:
    from table_tasks.data import TABLES

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    add("--tables", nargs="+", choices=tuple(TABLES), help="those of each task by default")
    add("--methods", nargs="+", metavar="METHOD", help="those of each task by default")
    add("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    add("--rows", type=int, help="learn from and ask about so many rows at most; prints only")
    add("--device", default="cpu", help="where einet learns")
    add("--draw", type=Path, metavar="FOLDER", help="draw synthetic rows there; measure nothing")
    add("--drawn", type=Path, metavar="FOLDER", help="where rows drawn on a GPU are")
    add("--threads", type=int, help="of torch and the libraries of the others; all by default")
    add("--output", type=Path, default=_default())
    add("--missing", action="store_true", help="measure only what is not stored yet")
    add("--print", action="store_true", help="measure nothing, and print what is stored")
    add("--join", type=Path, metavar="FOLDER", help="put the rows of other runs into the file")
    add("--note", help="with --join: what else is to be known of how those were measured")
    return parser.parse_args()


if __name__ == "__main__":
    main()
