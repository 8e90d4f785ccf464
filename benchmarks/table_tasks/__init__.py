"""The tasks of the benchmark of tables, one file each; `benchmarks/tables.py` is the command."""
