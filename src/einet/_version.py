"""The release; the only place that says so."""

__all__ = ["__version__"]

__version__ = "0.1.0"
