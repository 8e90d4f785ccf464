"""Writing models to files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from einet.models.base import Model

__all__ = ["save"]


def save(
    model: Model, path: str | os.PathLike[str], metadata: Mapping[Any, Any] | None = None
) -> None:
    """Write a model to one file that :func:`load` and other programs can read.

    The file appears in one step: whoever looks at ``path`` sees the file that was there before or
    the whole new one, also if writing fails midway. The same model always gives the same bytes.
    Within :func:`einet.unconstrained` the parameters written are the canonical ones.

    Args:
        model: An :class:`~einet.Einet` or an :class:`~einet.Mixture`.
        path: The file; its folder must exist.
        metadata: What else the file shall tell of the model, such as the units of its data:
            anything that JSON can say, by name. :func:`load_metadata` reads it back; the model
            itself has no use for it.

    Example:
        >>> import einet, tempfile, torch
        >>> model = einet.Einet(einet.random_trees(4, 1, 2), einet.Gaussian(), num_sums=3)
        >>> x = torch.randn(5, 4)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(model, f"{folder}/model.einet")
        ...     again = einet.load(f"{folder}/model.einet")
        >>> torch.equal(again.log_prob(x), model.log_prob(x))
        True
    """
    if not isinstance(model, Model):
        raise TypeError(f"model must be an Einet or a Mixture, got {type(model).__name__}")
    model.save(path, metadata)
