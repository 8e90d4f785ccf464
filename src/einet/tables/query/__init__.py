"""Questions in words: ``P(income='>50K' | 30<=age<40)``, and exact answers."""

from einet.tables.query.columns import AskedColumn
from einet.tables.query.errors import QueryError
from einet.tables.query.evaluation import Answer, ask, condition_boxes
from einet.tables.query.source import Mass, Source

__all__ = ["Answer", "AskedColumn", "Mass", "QueryError", "Source", "ask", "condition_boxes"]
