"""From what a file says of a model to the model: planned first, and filled if all of it fits.

What a file says can be wrong in every way. Nothing here takes more memory than the tensors that the
file really has (a pruned layer: at most 64 times its bits): shapes are compared before anything is
made of them.
"""

from __future__ import annotations

from reprlib import repr as shortened
from typing import Any

import torch
from torch import Tensor

from einet.clusters.clustered import ClusteredEinet
from einet.clusters.stand_in import twin
from einet.data.files import FormatError
from einet.families import FAMILIES, ExponentialFamily, family_from_config
from einet.models.base import Model
from einet.models.einet import Einet
from einet.models.mixture import Mixture
from einet.models.record import MOST_LEVELS, is_typed
from einet.models.sparse import ENDINGS, KEPT, unpack
from einet.models.state import RECORD
from einet.structures import RegionGraph

__all__ = ["Content", "expect", "field"]

_PARTS_OF_A_GRAPH = (
    "num_variables",
    "num_regions",
    "root",
    "leaf_regions",
    "leaf_offsets",
    "leaf_variables",
    "partition_regions",
    "partition_offsets",
    "partition_children",
)


def expect(condition: bool, otherwise: str) -> None:
    """Raise a :class:`FormatError` unless a condition holds."""
    if not condition:
        raise FormatError(otherwise)


def field(description: dict[str, Any], name: str, kind: type) -> Any:
    """A field of a description, if it is of this kind."""
    value = description.get(name)
    # JSON's true is an int to Python.
    right = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    expect(
        right, f"its metadata are damaged: {name} must be {kind.__name__}, got {shortened(value)}"
    )
    return value


class Content:
    """The tensors of a file, which models are built from, and the graphs met so far.

    Args:
        tensors: All of them by name; those that went into a model are removed.
    """

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self.tensors = tensors
        # So that components share what they shared.
        self.graphs: dict[str, RegionGraph] = {}

    def model(self, description: dict[str, Any]) -> Model:
        """The model of a description, if it is filled by just these tensors."""
        model = self._build(description, "", 1)
        surplus = ", ".join(f"{name:.80}" for name in list(self.tensors)[:3])
        expect(not self.tensors, f"it holds {surplus}, which the model does not have")
        return model

    def _build(self, description: dict[str, Any], prefix: str, level: int) -> Model:
        """The model of a description, filled from the tensors under ``prefix``."""
        expect(level <= MOST_LEVELS, f"it has mixtures within mixtures, more than {MOST_LEVELS}")
        kind = field(description, "kind", str)
        if kind == "Einet":
            return self._fill(self._plan(description, prefix), description, prefix)
        expect(kind == "Mixture", f"kind must be Einet or Mixture, got {shortened(kind)}")
        return self._fill(self._mixture(description, prefix, level), description, prefix)

    def _mixture(self, description: dict[str, Any], prefix: str, level: int) -> Mixture:
        # Files of earlier releases do not say.
        clustered = field({"clustered": False, **description}, "clustered", bool)
        parts: list[Any] = []
        plan: Einet | None = None
        descriptions = field(description, "components", list)
        for number, part in enumerate(descriptions):
            expect(isinstance(part, dict), "its metadata are damaged: a component is no object")
            start = f"{prefix}components.{number}."
            if clustered and _alike(part, descriptions[0]):
                # Copying a plan is faster than compiling the structure once more.
                plan = self._plan(part, start) if plan is None else plan
                copied = twin(plan)
                copied.initialized = field(part, "initialized", bool)
                parts.append(self._fill(copied, part, start))
            else:
                parts.append(self._build(part, start, level + 1))
        return ClusteredEinet.of(parts) if clustered else Mixture(parts)

    def _plan(self, description: dict[str, Any], prefix: str) -> Einet:
        """The Einet of a description, without values."""
        graph = self._graph(field(description, "graph", str))
        classes = field(description, "num_classes", int)
        self._check_shape(f"{prefix}log_class_prior", [classes])
        # A deep graph becomes many layers, and each of them is more work than its few numbers.
        layers = field(description, "layers", list)
        expect(
            len(graph.layers()) - 1 <= len(layers),
            "its layers are not what this release of einet compiles from its graph",
        )
        for number in range(len(layers)):
            name = f"{prefix}circuit.layers.{number}.weight"
            self._look_at(name + KEPT if name + KEPT in self.tensors else name)
        families = field(description, "families", list)
        model = Einet.unfilled(
            graph,
            self._families(families, graph.num_variables, prefix),
            num_sums=field(description, "num_sums", int),
            num_leaves=field(description, "num_leaves", int),
            # The first version knows of one kind only.
            sums=field({"sums": "einsum", **description}, "sums", str),
            num_classes=classes,
        )
        model.initialized = field(description, "initialized", bool)
        for part, order in model.compiled_order().items():
            expect(
                description.get(part) == order,
                f"its {part} are not what this release of einet compiles from its graph",
            )
        return model

    def _graph(self, name: str) -> RegionGraph:
        if name not in self.graphs:
            names = [f"{name}.{part}" for part in _PARTS_OF_A_GRAPH]
            arrays = {
                part: self.tensors.pop(full).numpy()
                for part, full in zip(_PARTS_OF_A_GRAPH, names, strict=True)
                if full in self.tensors
            }
            self.graphs[name] = RegionGraph.from_arrays(arrays)
        return self.graphs[name]

    def _families(
        self, descriptions: list[Any], num_variables: int, prefix: str
    ) -> ExponentialFamily | list[ExponentialFamily]:
        """One family for all variables where there is one group, else one for each variable."""
        result: list[ExponentialFamily | None] = [None] * num_variables
        for number, description in enumerate(descriptions):
            expect(isinstance(description, dict), "its metadata are damaged: a family is no object")
            start = f"{prefix}leaf.groups.{number}."
            family, variables = self._family(description, start)
            if len(descriptions) == 1:
                return family
            for column, variable in enumerate(variables):
                expect(
                    0 <= variable < num_variables,
                    f"{start}variables holds {variable}, which is no variable of the model",
                )
                result[variable] = family.at(torch.tensor(column))
        complete = [family for family in result if family is not None]
        expect(len(complete) == num_variables, "its families do not cover all variables")
        return complete

    def _family(
        self, description: dict[str, Any], start: str
    ) -> tuple[ExponentialFamily, list[int]]:
        """The family of a group of variables, and these."""
        name, config = field(description, "name", str), field(description, "config", dict)
        variables = self._look_at(f"{start}variables")
        expect(
            variables.dtype == torch.int64 and variables.ndim == 1,
            f"{start}variables must be torch.int64 with one axis, got {variables.dtype} of shape "
            f"{list(variables.shape)}",
        )
        hyperparameters = FAMILIES[name].hyperparameters if name in FAMILIES else ()
        hyper = {key: self._look_at(start + key) for key in hyperparameters}
        for key, value in hyper.items():
            expect(
                value.is_floating_point() and value.shape == variables.shape,
                f"{start}{key} must hold a number for each of {len(variables)} variables, "
                f"got {value.dtype} of shape {list(value.shape)}",
            )
        family = family_from_config(name, config, hyper)
        try:
            same = family.config() == config
        except (AttributeError, TypeError):
            same = False
        expect(
            same, f"its metadata are damaged: {shortened(config)} does not describe a {name} family"
        )
        family.check_hyperparameters()
        return family, variables.tolist()

    def _look_at(self, name: str) -> Tensor:
        expect(name in self.tensors, f"the tensor {name} is missing")
        return self.tensors[name]

    def _check_shape(self, name: str, shape: list[int]) -> None:
        given = list(self._look_at(name).shape)
        expect(given == shape, f"{name} must be a tensor of shape {shape}, got {given}")

    def _unpack(self, name: str, built: Tensor) -> None:
        """Put a tensor in the place of those that say what is not 0 in it."""
        expect(name not in self.tensors, f"it holds {name} twice")
        kept, values, shape = (self._look_at(name + end) for end in ENDINGS)
        try:
            tensor = unpack(kept, values, shape, built.shape)
        except ValueError as error:
            raise FormatError(f"{name}: {error}") from error
        for end in ENDINGS:
            del self.tensors[name + end]
        self.tensors[name] = tensor

    def _fill(self, model: Any, description: dict[str, Any], prefix: str) -> Any:
        """The model, with tensors in the place of those planned, and their values checked.

        Whatever else it has must be what the file has as well: it was then built as the saved one
        was. A mixture's components are filled already.
        """
        dtype = field(description, "dtype", str)
        state = {}
        for name, built in model.state_dict().items():
            if name.startswith("components."):
                continue
            if name == RECORD:
                # Whether the model is initialised, which the description has told it.
                state[name] = built
                continue
            if prefix + name + KEPT in self.tensors:
                self._unpack(prefix + name, built)
            stored = self._look_at(prefix + name)
            kind = f"torch.{dtype}" if is_typed(name, built) else str(built.dtype)
            expect(
                stored.shape == built.shape and str(stored.dtype) == kind,
                f"{prefix}{name} must be {kind:.80} of shape {list(built.shape)}, "
                f"got {stored.dtype} of shape {list(stored.shape)}",
            )
            expect(
                built.is_floating_point() or torch.equal(stored, built.cpu()),
                f"{prefix}{name} is not what this release of einet compiles from its graph",
            )
            state[name] = self.tensors.pop(prefix + name)
        model.load_state_dict(state, strict=False, assign=True)
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            expect(not tensor.is_meta, f"{prefix}{name} is not in the file, and has no values")
        return model


def _alike(one: dict[str, Any], other: Any) -> bool:
    """Whether two Einets are to be built in the same way."""
    return (
        isinstance(other, dict)
        and one.get("kind") == "Einet"
        and {**one, "initialized": other.get("initialized")} == other
    )
