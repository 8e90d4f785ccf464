"""Many processes that learn one model: the same script under ``torchrun``, on one machine or many.

:func:`start` joins the processes of a script; :func:`einet.fit` and ``ClusteredEinet.fit`` then
share their work. See docs/distributed.md.
"""

from einet.distributed.launching import is_first
from einet.distributed.starting import start
from einet.distributed.team import ProcessesError, Team

__all__ = ["ProcessesError", "Team", "is_first", "start"]
