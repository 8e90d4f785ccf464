"""Estimators for scikit-learn's pipelines, of tables with columns of all kinds and with holes."""

from einet._checks import missing_package

try:
    import sklearn  # noqa: F401
except ImportError as error:
    raise missing_package("scikit-learn", "estimators of tables", "tables") from error

from einet.tables.estimators.classifier import EinetClassifier
from einet.tables.estimators.density import EinetDensity
from einet.tables.estimators.imputer import EinetImputer
from einet.tables.estimators.outliers import EinetOutlierDetector
from einet.tables.estimators.regressor import EinetRegressor

__all__ = [
    "EinetClassifier",
    "EinetDensity",
    "EinetImputer",
    "EinetOutlierDetector",
    "EinetRegressor",
]
