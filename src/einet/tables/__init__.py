"""Tables with columns of all kinds and with holes: from a data frame to exact answers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from einet.tables.model import TableModel
from einet.tables.posterior import TablePosterior
from einet.tables.query import Answer, AskedColumn, Mass, QueryError, Source, ask
from einet.tables.schema import Table, TableWarning
from einet.tables.specification import Column
from einet.tables.surprise import cell_surprise

if TYPE_CHECKING:
    from einet.tables.estimators import (
        EinetClassifier,
        EinetDensity,
        EinetImputer,
        EinetOutlierDetector,
        EinetRegressor,
    )

__all__ = [
    "Answer",
    "AskedColumn",
    "Column",
    "EinetClassifier",
    "EinetDensity",
    "EinetImputer",
    "EinetOutlierDetector",
    "EinetRegressor",
    "Mass",
    "QueryError",
    "Source",
    "Table",
    "TableModel",
    "TablePosterior",
    "TableWarning",
    "ask",
    "cell_surprise",
]


def __getattr__(name: str) -> Any:
    """The estimators, which need scikit-learn, when they are asked for."""
    if name in __all__:
        return getattr(import_module("einet.tables.estimators"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
