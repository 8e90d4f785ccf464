"""Leaves of one family and one size, and the variables that share a family."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int, Integer
from torch import Tensor, nn

from einet._memory import chunks
from einet.families import ExponentialFamily
from einet.kernels.leaf import evidence_of, fused_kernel, torch_kernel
from einet.kernels.leaf_kernel import Evidence, FusedEvidence, Pairs
from einet.kernels.memory import NodeRows, spacing
from einet.layers.base import copies
from einet.layers.leaf_statistics import LeafStatistics, next_parameters
from einet.layers.parameter import CanonicalParameter

__all__ = ["FamilyGroup", "LeafBlock", "LeafPrior", "LeafStatistics", "grouped"]


class FamilyGroup(nn.Module):
    """The variables of a model that share one kind of family."""

    variables: Int[Tensor, " V"]

    def __init__(self, family: ExponentialFamily, variables: Sequence[int]) -> None:
        super().__init__()
        self.register_buffer("variables", torch.tensor(list(variables)))
        self._spacing = (variables[0], spacing(variables))
        self.adopt(family.expand(len(variables)))

    def adopt(self, family: ExponentialFamily) -> None:
        """Take over a family's hyper-parameters (as buffers, so that they move with the model)."""
        self._family = family
        for name, value in family.hyper.items():
            old = getattr(self, name, None)
            place = value.device if old is None else old.device
            self.register_buffer(name, value.to(place, torch.float64))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> FamilyGroup:
        # Hyper-parameters stay float64 when a model is cast: a location that is rounded would move
        # all densities of its column.
        before = self.raw_hyper
        super()._apply(fn, recurse)
        for name, value in before.items():
            moved = self._buffers[name]
            assert moved is not None
            if moved.dtype != value.dtype:
                self._buffers[name] = value.to(moved.device)
        return self

    def repeated(self, times: int, num_variables: int) -> FamilyGroup:
        """The variables of as many copies of a model that has so many of them."""
        columns = torch.arange(len(self.variables), device=self.variables.device).repeat(times)
        variables = self.variables.tolist()
        numbers = [c * num_variables + variable for c in range(times) for variable in variables]
        return FamilyGroup(self.family.at(columns), numbers)

    def of_copy(self, number: int, times: int) -> list[Tensor]:
        """Hyper-parameters of one of as many copies, each as it is kept."""
        return [value.unflatten(0, (times, -1))[number] for value in self.raw_hyper.values()]

    @property
    def family(self) -> ExponentialFamily:
        """The family with the hyper-parameters of all variables."""
        values = {name: getattr(self, name).double() for name in self._family.hyperparameters}
        return self._family.with_hyperparameters(values)

    @property
    def kind(self) -> type[ExponentialFamily]:
        """The class of the family."""
        return type(self._family)

    @property
    def is_centred(self) -> bool:
        """Whether the kernel of its family is centred."""
        return torch_kernel(self._family.kernel).centred

    @property
    def num_statistics(self) -> int:
        """The length of T(x)."""
        return self._family.num_statistics

    @property
    def raw_hyper(self) -> dict[str, Tensor]:
        """The hyper-parameters as they are kept, for kernels that convert them as they read."""
        return {name: getattr(self, name) for name in self._family.hyperparameters}

    def evidence(
        self,
        x: Float[Tensor, "batch variables"] | Integer[Tensor, "batch variables"],
        observed: Bool[Tensor, "batch variables"] | None,
    ) -> Evidence:
        """What leaves of this family need to know of the data."""
        every, columns = slice(0, len(self.variables)), NodeRows(self.variables, *self._spacing)
        values = columns.take(x.T, every, "x").T.double()
        present = None if observed is None else columns.take(observed.T, every, "present").T
        if present is not None and bool(present.all()):
            present = None
        if present is not None:
            values = torch.where(present, values, self._family.filler)
        return evidence_of(self.family, values, present)

    def fused_evidence(
        self,
        x: Float[Tensor, "batch variables"] | Integer[Tensor, "batch variables"],
        observed: Bool[Tensor, "batch variables"] | None,
    ) -> FusedEvidence:
        """The same for the fused kernels."""
        from einet.kernels.triton import leaf as triton

        kernel = fused_kernel(self._family.kernel)
        # Most read hyper-parameters as they are kept, and spare themselves the conversion.
        family = self.family if kernel.by_family else self._family
        return triton.evidence(kernel, family, self.raw_hyper, self.variables, x, observed)


@dataclass(frozen=True, eq=False)
class LeafPrior:
    r"""Pseudo-counts of leaves: so many for each density, at φ₀ of its variable.

    This is the conjugate prior :math:`\exp(\beta\,(\theta^\top\phi_0 - A(\theta)))`, β being
    ``count``. ``centres[group][v]`` holds φ₀ of a variable with a 1 behind it, or zeros throughout
    for one that was never observed, where the prior then has no say. Of states it may be a multiple
    of that: so many times ``count``.
    """

    count: float | Tensor
    centres: Mapping[FamilyGroup, Float[Tensor, "V S_1"]]

    def at(self, group: FamilyGroup) -> Float[Tensor, "V S_1"]:
        """φ₀ of one family's variables, beside its parameters."""
        if group not in self.centres:
            raise ValueError("prior was made for another model; make one with pseudo_counts(model)")
        return self.centres[group].to(group.variables.device)

    def of(self, block: LeafBlock) -> LeafStatistics:
        """What is added to the statistics of each entry of a block: the same for all of them."""
        counts = self.at(block.group)[block.columns.reshape(-1)] * self.count
        return LeafStatistics(counts[None, :, -1], counts[None, :, :-1])


class LeafBlock(nn.Module):
    """Leaves with the same number of variables of one family: ``n`` leaves, ``s`` variables each.

    ``stored[k, pair]`` belongs to pair ``leaf · s + position``; ``columns[leaf, position]`` is
    the variable, counted within the family's group.
    """

    leaves: Int[Tensor, " n"]
    columns: Int[Tensor, "n s"]
    stored: Float[Tensor, "K pairs P"]

    def __init__(
        self,
        group: FamilyGroup,
        leaves: Sequence[int],
        columns: Sequence[Sequence[int]],
        num_entries: int,
    ) -> None:
        super().__init__()
        # A plain tuple hides the group from the module tree: the layer owns it.
        self._group = (group,)
        self._spacing = (leaves[0], spacing(leaves))
        self.register_buffer("leaves", torch.tensor(list(leaves)))
        self.register_buffer("columns", torch.tensor([list(row) for row in columns]))
        size = (num_entries, self.columns.numel(), group.family.num_parameters)
        self.stored = CanonicalParameter(torch.empty(size))

    def repeated(self, times: int, group: FamilyGroup) -> LeafBlock:
        """The leaves of as many copies, whose variables make up another group."""
        leaves = copies(self.leaves.tolist(), times)
        first = [c * len(self.group.variables) for c in range(times)]
        columns = [[at + column for column in row] for row in self.columns.tolist() for at in first]
        return LeafBlock(group, leaves, columns, self.stored.shape[0])

    def of_copy(self, number: int, times: int) -> Float[Tensor, "K n s P"]:
        """Parameters of one of as many copies, as :attr:`by_leaf` has those of a block."""
        K, _, P = self.stored.shape
        n, s = self.columns.shape
        return self.stored.view(K, n // times, times, s, P)[:, :, number]

    @property
    def by_leaf(self) -> Float[Tensor, "K n s P"]:
        """The parameters with an axis for leaves and one for their variables."""
        return self.stored.unflatten(1, self.columns.shape)

    @property
    def group(self) -> FamilyGroup:
        """The variables that its leaves are over."""
        return self._group[0]

    @property
    def rows(self) -> NodeRows:
        """The leaves as nodes of the circuit."""
        return NodeRows(self.leaves, *self._spacing)

    @property
    def family(self) -> ExponentialFamily:
        """The family with hyper-parameters for each pair."""
        return self.group.family.at(self.columns.reshape(-1))

    def natural(self) -> tuple[Float[Tensor, "K pairs S"], Float[Tensor, "K pairs"]]:
        """θ and A, as separate float64 tensors."""
        family = self.family
        if torch.is_grad_enabled() and self.stored.requires_grad:
            theta = family.theta_of(self.stored.double())
            return theta, family.A(theta)
        # A few entries at a time: what is computed on the way then stays in a core's cache.
        stored = self.stored
        K, pairs, _ = stored.shape
        theta = stored.new_empty(K, pairs, family.num_statistics, dtype=torch.float64)
        A = theta.new_empty(K, pairs)
        for some in chunks(K, "block", 2 * theta[0].nbytes, stored.device):
            theta[some] = family.theta_of(stored[some].double())
            A[some] = family.A(theta[some])
        return theta, A

    def log_peaks(self) -> Float[Tensor, "K pairs"]:
        """The log density of each pair at its mode."""
        stored, family = self.stored.double(), self.family
        return family.log_prob(family.mode(stored), stored)

    def from_phi(self, phi: Float[Tensor, "*K pairs S"]) -> Float[Tensor, "*K pairs P"]:
        """Stored parameters for given expectation parameters of all pairs, as they are kept."""
        family = self.family
        new = family.project(family.store(phi.to(self.columns.device)))
        return family.rounded(new, self.stored.dtype)

    @property
    def is_centred(self) -> bool:
        """Whether densities are (μ, σ²), and their statistics best counted from μ."""
        return self.group.is_centred

    def empty_statistics(self, centred: bool = False) -> LeafStatistics:
        """Statistics of no rows; where it is asked for, and pays, counted from the means."""
        K, pairs, _ = self.stored.shape
        size, kind = (K, pairs, self.group.num_statistics), torch.float64
        new = self.stored.new_zeros
        origin = None
        if centred and self.is_centred:
            origin = self.stored.detach()[..., 0].to(kind, copy=True)
        return LeafStatistics(new(size[:2], dtype=kind), new(size, dtype=kind), origin)

    def pairs_from(self, origin: Float[Tensor, "K pairs"] | None) -> Pairs:
        """This block as the fused kernels know it, with what statistics are counted from."""
        stored = self.stored.detach().contiguous()
        return Pairs(self.leaves, self.columns, stored, self.group.raw_hyper, origin)

    @property
    def pairs(self) -> Pairs:
        """This block as the fused kernels know it."""
        return self.pairs_from(None)

    def update_(
        self,
        statistic: LeafStatistics,
        step_size: float | Tensor,
        prior: LeafPrior | None = None,
    ) -> None:
        """The M-step of the leaves, given Σ p_L and Σ p_L T(x)."""
        family = self.family
        pseudo = None if prior is None else prior.of(self)
        bytes_each = 8 * statistic.sums[0].numel()
        size = step_size.to(statistic.total) if isinstance(step_size, Tensor) else step_size
        for some in chunks(len(self.stored), "update", bytes_each, self.stored.device):
            origin = None if statistic.origin is None else statistic.origin[some]
            total, sums = statistic.total[some], statistic.sums[some]
            if pseudo is not None:
                total, sums = total + pseudo.total, sums + pseudo.from_origin(origin)
            old = self.stored[some]
            part = LeafStatistics(total, sums, origin)
            old.copy_(next_parameters(family, old.detach(), part, size))

    def extra_repr(self) -> str:
        n, s = self.columns.shape
        return f"{self.group.kind.__name__}, leaves={n}, variables={s}"


def grouped(
    families: ExponentialFamily | Sequence[ExponentialFamily], num_variables: int
) -> list[FamilyGroup]:
    """Variables by the kind of their family; one that is given alone serves all of them."""
    if isinstance(families, ExponentialFamily):
        return [FamilyGroup(families, range(num_variables))]
    kinds: dict[tuple, list[int]] = defaultdict(list)
    for variable, family in enumerate(families):
        kinds[type(family), repr(family.config())].append(variable)
    groups = []
    for (kind, _), variables in kinds.items():
        stacked = kind.stack([families[variable] for variable in variables])
        groups.append(FamilyGroup(stacked, variables))
    return groups
