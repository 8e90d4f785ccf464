"""How the columns of a table become variables of a model: one file a kind."""

from einet.tables.columns.base import Coding, coding_from_dict
from einet.tables.columns.binned import Binned
from einet.tables.columns.constant import Constant, Identifier
from einet.tables.columns.number import Number
from einet.tables.columns.spiked import Spiked
from einet.tables.columns.states import States

__all__ = [
    "Binned",
    "Coding",
    "Constant",
    "Identifier",
    "Number",
    "Spiked",
    "States",
    "coding_from_dict",
]
