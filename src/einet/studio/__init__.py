"""The studio: see and question a model in the browser, with exact answers as one moves.

One module for each part: :mod:`~einet.studio.app` (which address asks what),
:mod:`~einet.studio.guard` (who may ask), :mod:`~einet.studio.session` (what is open),
:mod:`~einet.studio.training` (a model that is learnt in a process of its own),
:mod:`~einet.studio.panels` (columns and their marginals), and ``page/``, what the browser loads.
The command ``einet studio`` starts it.

Nothing here is imported by ``import einet``: it needs the extra ``einet[studio]``.
"""

__all__: list[str] = []
