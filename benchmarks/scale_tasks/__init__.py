"""The tasks of `scale.py`, one module each."""
