"""Pseudo-counts: what a conjugate prior adds to expected statistics (MAP-EM)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from einet._checks import as_number
from einet._memory import chunks
from einet.data.batch import Batch
from einet.data.streams import RowStream
from einet.kernels.leaf import add_statistics, torch_kernel
from einet.kernels.memory import NodeRows
from einet.layers import FamilyGroup, LeafBlock, LeafPrior, SumLayer

__all__ = ["PseudoCounts", "check_pseudo_counts", "leaf_centres"]


@dataclass(frozen=True, eq=False)
class PseudoCounts:
    """Pseudo-counts for some rows of data, as ``model.m_step`` adds them to expected statistics.

    :meth:`Prior.pseudo_counts` makes them for all training rows, :meth:`for_rows` for fewer.

    Args:
        sums: α of these rows; None for none.
        leaves: β of these rows with φ₀ of every family; None for none.
        rows: The weight of the rows they are meant for.

    Example:
        >>> import einet, torch
        >>> x = torch.randn(100, 4, generator=torch.manual_seed(0))
        >>> model = einet.Einet(einet.random_trees(4, 1, 2), einet.Gaussian(), 3).initialize(x)
        >>> counts = einet.Prior(sums=10.0, leaves=1.0).pseudo_counts(model, x)
        >>> before = model.log_prob(x).sum() + counts.log_density(model)
        >>> model.m_step(model.e_step(x), prior=counts)
        >>> (model.log_prob(x).sum() + counts.log_density(model) > before).item()
        True
        >>> mean = model.em_step(x[:20], step_size=0.5, prior=counts.for_rows(20))
    """

    sums: float | Tensor | None
    leaves: LeafPrior | None
    rows: float | int | Tensor

    def for_rows(self, weight: float | int | Tensor) -> PseudoCounts:
        """Those of rows of this total weight: α and β times their share in all rows.

        Args:
            weight: Their total weight: a number, or a tensor of shape ``[]``.
        """
        if not isinstance(weight, Tensor):
            weight = as_number("weight", weight, at_least=0, at_most=1 << 53)
        elif weight.ndim != 0 or not weight.is_floating_point():
            raise TypeError(
                f"weight must be a number or a floating tensor of shape [], got {weight.dtype} of "
                f"shape {list(weight.shape)}"
            )
        elif weight.device.type == "cpu":
            as_number("weight", weight.item(), at_least=0, at_most=1 << 53)
        share = weight / self.rows
        sums = None if self.sums is None else self.sums * share
        leaves = self.leaves
        if leaves is not None:
            leaves = replace(leaves, count=leaves.count * share)
        return PseudoCounts(sums, leaves, weight)

    def log_density(self, model: nn.Module) -> Float[Tensor, ""]:
        r"""The log density of a model's parameters under the prior, up to a constant.

        .. math:: \sum_{\text{sums}} \sum_k \frac{\alpha}{n} \log w_k
                  + \sum_{\text{leaves}} \beta \left(\theta^\top\phi_0 - A(\theta)\right)

        EM with a prior never decreases its sum with the log-likelihood of the rows. It is
        differentiable, and can be added to the objective of gradient learning too. Weights that
        are 0 were pruned, and are left out.

        Args:
            model: The model.
        """
        total = torch.zeros((), dtype=torch.float64, device=_device(model))
        for module in model.modules():
            if isinstance(module, SumLayer) and self.sums is not None:
                for w in module.simplices(module.weight):
                    logs = torch.where(w > 0, w, 1.0).double().log()
                    total = total + self.sums / w.shape[-1] * logs.sum()
            elif isinstance(module, LeafBlock) and self.leaves is not None:
                theta, A = module.natural()
                pseudo = self.leaves.of(module)
                total = total + (theta * pseudo.weighted).sum() - (A * pseudo.total).sum()
        return total

    def static(self, device: torch.device) -> PseudoCounts:
        """A copy on a device, all of it in tensors that can be changed in place.

        Args:
            device: Where the copy shall lie.

        Example:
            >>> import einet, torch
            >>> x = torch.randn(100, 2, generator=torch.manual_seed(0))
            >>> model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), 3).initialize(x)
            >>> counts = einet.Prior(sums=10.0).pseudo_counts(model, x)
            >>> counts.static(model.device).sums
            tensor(0., dtype=torch.float64)
        """

        def zero() -> Tensor:
            return torch.zeros((), dtype=torch.float64, device=device)

        leaves = self.leaves
        if leaves is not None:
            centres = {
                group: centre.to(device, copy=True) for group, centre in leaves.centres.items()
            }
            leaves = LeafPrior(zero(), centres)
        return PseudoCounts(None if self.sums is None else zero(), leaves, 1.0)


def check_pseudo_counts(prior: Any) -> None:
    """Raise where a model was given something else, such as a prior without its rows."""
    if prior is not None and not isinstance(prior, PseudoCounts):
        raise TypeError(
            "prior must be pseudo-counts, as prior.pseudo_counts(model, rows) makes them, "
            f"got {type(prior).__name__}"
        )


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


@torch.no_grad()
def leaf_centres(
    model: nn.Module, rows: Iterable[Batch]
) -> tuple[dict[FamilyGroup, Float[Tensor, "V S_1"]], float]:
    """φ₀ of every family of a model, from all training rows in parts, and the rows' weight.

    Components of a mixture mostly share theirs.
    """
    known: dict[tuple, _Centre] = {}
    centres: dict[FamilyGroup, _Centre] = {}
    for group in model.modules():
        if isinstance(group, FamilyGroup):
            family = group.family
            tensors = [group.variables, *family.hyper.values()]
            values = (tensor.cpu().numpy().tobytes() for tensor in tensors)
            key = (type(family), repr(family.config()), *values)
            centres[group] = known.setdefault(key, _Centre(group))
    total = 0.0
    for batch in rows:
        total += float(len(batch) if batch.weights is None else batch.weights.sum())
        for centre in known.values():
            centre.add_(batch)
    if isinstance(rows, RowStream):
        weight = torch.tensor(total, dtype=torch.float64)
        rows.joint_([weight, *(sums for centre in known.values() for sums in centre.sums)])
        total = float(weight)
    means = {centre: centre.mean() for centre in known.values()}
    return {group: means[centre] for group, centre in centres.items()}, total


class _Centre:
    """The mean of T(x) of each variable of a family over its observed cells.

    The statistics are those of one leaf that holds all variables and that every row reaches.
    """

    def __init__(self, group: FamilyGroup) -> None:
        self._group = group
        V, device = len(group.variables), group.variables.device
        self._total = torch.zeros(1, V, dtype=torch.float64, device=device)
        self._weighted = self._total.new_zeros(1, V, group.num_statistics)

    @property
    def sums(self) -> tuple[Tensor, Tensor]:
        """What the rows have added up to."""
        return self._total, self._weighted

    def add_(self, batch: Batch) -> None:
        """Add the statistics of some rows."""
        group, total = self._group, self._total
        V, device = total.shape[1], total.device
        leaf = NodeRows(torch.zeros(1, dtype=torch.long), 0, 1)
        columns = torch.arange(V, device=device).unsqueeze(0)
        numbers = 3 + torch_kernel(group.family.kernel).numbers(group.family)
        for rows in chunks(len(batch), "prior statistics", 8 * V * numbers, least=64):
            part = batch[rows].to(device)
            flow = total.new_ones(len(part)) if part.weights is None else part.weights.double()
            evidence = group.evidence(part.x, part.observed)
            add_statistics(flow.view(1, 1, -1), leaf, columns, evidence, total, self._weighted)

    def mean(self) -> Float[Tensor, "V S_1"]:
        """The means with a 1 behind them; zeros throughout for a variable never observed."""
        observed = (self._total > 0).unsqueeze(-1)
        mean = torch.where(observed, self._weighted / self._total.unsqueeze(-1), 0.0)
        return torch.cat([mean, observed.double()], -1)[0].contiguous()
