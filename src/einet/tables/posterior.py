"""What can be asked of a table given evidence, in the terms of the table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import torch
from jaxtyping import Float, Int

from einet._checks import as_int, check_choice, check_flag
from einet.models.base import Model
from einet.tables.alternatives import weighted_pieces
from einet.tables.binned_marginal import BinnedMarginal, BinnedPart
from einet.tables.columns import Binned, Constant, Identifier, Number, Spiked, States
from einet.tables.evidence import Evidence
from einet.tables.frames import ARRAY, usable_backend
from einet.tables.marginal import Marginal, Part
from einet.tables.piece import Piece
from einet.tables.schema import Table

__all__ = ["Filling", "TablePosterior"]

#: What missing cells are filled with; see :meth:`TablePosterior.impute`.
Filling: TypeAlias = Literal["mean", "median", "mode", "sample"]


class TablePosterior:
    """p(· | e) of a table for rows of evidence; made by ``TableModel.given``.

    Where evidence leaves several alternatives, a spike or a number, this is the mixture of the
    posteriors of all of them, weighted by their probabilities: exact all the same.

    Args:
        model, table: The model and its schema.
        evidence: What is known of each row.

    Example:
        >>> import einet, numpy, pandas
        >>> frame = pandas.DataFrame({"sex": ["f"] * 30 + ["m"] * 30})
        >>> frame["height"] = numpy.linspace(155.0, 195.0, 60)
        >>> model = einet.TableModel.fit(frame, epochs=5)
        >>> posterior = model.given({"sex": "f"})
        >>> bool(160 < posterior.mean("height")[0] < posterior.quantile("height", 0.9)[0] < 180)
        True
        >>> lower, upper = posterior.interval("height", 0.9)
        >>> chance = posterior.cdf("height", upper) - posterior.cdf("height", lower)
        >>> float(chance[0].round(3)), bool(lower < posterior.median("height") < upper)
        (0.9, True)
        >>> posterior.sample(2, seed=0)["sex"].tolist()
        ['f', 'f']
        >>> posterior.unknown("sex"), posterior.unknown("height")
        (array([False]), array([ True]))
    """

    def __init__(self, model: Model, table: Table, evidence: Evidence) -> None:
        self.table, self.evidence = table, evidence
        #: One posterior of the model's variables for each alternative, and how many continuous
        #: columns these hold at one value, in each row.
        self.pieces, logs, self.points = weighted_pieces(model, table, evidence)
        largest = np.maximum(logs.max(0), -1e300)
        total = np.exp(logs - largest).sum(0)
        with np.errstate(divide="ignore"):
            self._log_evidence = np.log(total) + largest
        self._impossible = np.flatnonzero(np.isneginf(self._log_evidence))
        #: The probability of each alternative given the evidence, ``[alternatives, rows]``.
        self.shares = np.exp(logs - largest) / np.where(total > 0, total, 1.0)
        self.model = model

    def __len__(self) -> int:
        return len(self.evidence.z)

    @property
    def log_evidence(self) -> Float[np.ndarray, " rows"]:
        """log p(e): log densities, in the units of the columns, and log probabilities of events.

        Example:
            >>> import einet, pandas
            >>> frame = pandas.DataFrame({"a": ["x", "y"] * 30, "b": ["x", "y"] * 30})
            >>> model = einet.TableModel.fit(frame, epochs=3)
            >>> float(np.exp(model.given({"a": "x"}).log_evidence)[0].round(1))
            0.5
            >>> float(model.given({"a": ["x", "y"]}).log_evidence[0].round(4))
            0.0
        """
        return self._log_evidence + self.evidence.log_change

    @property
    def log_model_evidence(self) -> Float[np.ndarray, " rows"]:
        """The same as :attr:`log_evidence`, with cells of rows on the model's scale.

        Example:
            >>> import einet, pandas
            >>> frame = pandas.DataFrame({"a": ["x", "y"] * 30, "b": ["x", "y"] * 30})
            >>> posterior = einet.TableModel.fit(frame, epochs=3).given({"a": "x"})
            >>> bool(posterior.log_model_evidence[0] == posterior.log_evidence[0])  # no numbers
            True
        """
        return self._log_evidence

    # -- one column ------------------------------------------------------------------------------

    def probabilities(self, column: Any) -> Any:
        """The probability of each value of a column of categories or states, as a data frame.

        It has a column for each value, in their order.

        Args:
            column: The name of the column.

        Example:
            >>> import einet, pandas
            >>> frame = pandas.DataFrame({"a": ["x", "y"] * 30, "b": ["x", "y"] * 30})
            >>> model = einet.TableModel.fit(frame, epochs=5)
            >>> model.given(pandas.DataFrame({"a": ["x", "y"]})).probabilities("b") > 0.5
                   x      y
            0   True  False
            1  False   True
        """
        coding = self.table.coding(column)
        if not isinstance(coding, States):
            raise ValueError(
                f"column {column!r} has no finite list of values ({coding.describe()}); ask for "
                "its mean, quantiles or cdf"
            )
        shares = self.state_probabilities(column)
        backend = usable_backend(self.evidence.backend)
        if backend == ARRAY:
            return shares
        values = [float(value) if coding.is_number else value for value in coding.values]
        if backend == "pandas":
            import pandas as pd

            return pd.DataFrame(shares, columns=pd.Index(values))
        import narwhals.stable.v2 as nw

        columns: Any = {str(value): shares[:, n] for n, value in enumerate(values)}
        library: Any = backend
        return nw.from_dict(columns, backend=library).to_native()

    def state_probabilities(self, column: Any) -> Float[np.ndarray, "rows values"]:
        """The same as :meth:`probabilities`, as an array.

        Args:
            column: The name of the column.

        Returns:
            ``[rows, values]``; the rows add up to 1.

        Example:
            >>> import einet, pandas
            >>> frame = pandas.DataFrame({"a": ["x", "y"] * 30, "b": ["x", "y"] * 30})
            >>> model = einet.TableModel.fit(frame, epochs=3)
            >>> model.given({"a": "x"}).state_probabilities("b").shape
            (1, 2)
        """
        variable = self.table.variables(column).start
        return self._of_states(variable)

    def mean(self, column: Any) -> np.ndarray:
        """E[column | e] of each row; of dates and times as such.

        Args:
            column: A column of numbers, dates or times.

        Returns:
            ``[rows]``.
        """
        return self.marginal(column).mean_cells()

    def quantile(self, column: Any, q: float | Sequence[float]) -> np.ndarray:
        """The smallest value that the column does not exceed with probability q or more.

        Args:
            column: A column of numbers, dates or ordered categories.
            q: A probability, or several.

        Returns:
            ``[rows]``, or ``[len(q), rows]`` for several.
        """
        marginal = self.marginal(column)
        several = np.atleast_1d(np.asarray(q, dtype=np.float64))
        if bool(((several < 0) | (several > 1)).any()):
            raise ValueError(f"q must lie between 0 and 1, got {q!r}")
        answers = marginal.quantile_cells(several.tolist())
        return answers[0] if np.ndim(q) == 0 else answers

    def median(self, column: Any) -> np.ndarray:
        """The same as :meth:`quantile` for q = ½.

        Args:
            column: A column of numbers, dates or ordered categories.

        Returns:
            ``[rows]``.
        """
        return self.quantile(column, 0.5)

    def interval(self, column: Any, mass: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """The ends between which a column lies with probability ``mass``, as much on each side.

        Args:
            column: A column of numbers, dates or ordered categories.
            mass: That probability, between 0 and 1.

        Returns:
            The lower and the upper ends, ``[rows]`` each.
        """
        if not 0 < mass < 1:
            raise ValueError(f"mass must lie between 0 and 1, got {mass!r}")
        lower, upper = self.quantile(column, [(1 - mass) / 2, (1 + mass) / 2])
        return lower, upper

    def cdf(self, column: Any, x: Any) -> Float[np.ndarray, " rows"]:
        """P(column ≤ x | e) of each row.

        Args:
            column: A column of numbers.
            x: A number for all rows, or one for each.

        Returns:
            ``[rows]``.
        """
        marginal = self.marginal(column)
        at = np.broadcast_to(np.asarray(x, dtype=np.float64), (len(self),))
        return marginal.cdf(at)

    # -- all columns -----------------------------------------------------------------------------

    def sample(self, n: int = 1, seed: int | None = None, beyond: bool = True) -> Any:
        """Draws of whole rows as a data frame; known cells keep their values.

        Args:
            n: How many for each row of evidence; these follow one another in the frame.
            seed: Seed of all that is random.
            beyond: Whether numbers may lie beyond all that were learnt from, as tails of densities
                do. Otherwise they become the outermost that was seen, but for columns that the
                evidence says an interval of.
        """
        check_flag("beyond", beyond)
        n = as_int("n", n, minimum=0)
        generator = torch.Generator().manual_seed(_seed(seed))
        rows, variables = self.evidence.z.shape
        draws = torch.empty(rows, n, variables, dtype=torch.float64)
        chosen = torch.zeros(rows, n, dtype=torch.int64)
        if len(self.pieces) == 1:
            drawn = self.pieces[0].sample(n, seed=_seed_from(generator))
            draws[:] = drawn.transpose(0, 1)
        else:
            self.check_possible()
            shares = torch.from_numpy(self.shares.T.copy())
            chosen = torch.multinomial(shares, max(n, 1), True, generator=generator)[:, :n]
            for number, piece in enumerate(self.pieces):
                taken = chosen == number
                most = int(taken.sum(1).max()) if n else 0
                if most:
                    drawn = piece.sample(most, seed=_seed_from(generator))
                    place = taken.cumsum(1) - 1
                    row, draw = taken.nonzero().unbind(1)
                    draws[row, draw] = drawn[place[row, draw], row]
        known = np.repeat(self.evidence.z, n, 0)
        z = draws.reshape(rows * n, variables).numpy()
        z = z if beyond else self._within_seen(z)
        z = np.where(np.isnan(known), z, known)
        return self._decoded(z, self._cells_in_bins(z, chosen.flatten().numpy(), generator))

    def _cells_in_bins(
        self,
        z: Float[np.ndarray, "draws variables"],
        chosen: Int[np.ndarray, " draws"],
        generator: torch.Generator,
    ) -> dict[Any, Float[np.ndarray, " draws"]]:
        """Draws of columns in bins, each given its bin and alternative; known cells are kept."""
        cells: dict[Any, np.ndarray] = {}
        for name, coding in self.table.codings.items():
            if not isinstance(coding, Binned):
                continue
            random = np.random.default_rng(_seed_from(generator))
            variable = self.table.variables(name).start
            drawn = np.full(len(z), np.nan)
            for number, alternative in enumerate(self.evidence.alternatives):
                taken = chosen == number
                event = alternative.get(variable)
                drawn[taken] = coding.draw(z[taken, variable], event, random)
            if name in self.evidence.cells and len(self):
                known = np.repeat(self.evidence.cells[name], len(z) // len(self))
                drawn = np.where(np.isnan(known), drawn, known)
            cells[name] = drawn
        return cells

    def _within_seen(self, z: np.ndarray) -> np.ndarray:
        """Draws of columns without events, within what was seen of them."""
        asked = {variable for piece in self.pieces for variable in piece.events}
        parts = []
        for name in self.table.modelled:
            where = self.table.variables(name)
            part = z[:, where.start : where.stop]
            is_free = asked.isdisjoint(where)
            parts.append(self.table.coding(name).within_seen(part) if is_free else part)
        return np.concatenate(parts, 1)

    def impute(self, method: Filling = "mean", seed: int | None = None) -> Any:
        """The evidence with its missing cells filled in, as a data frame.

        Args:
            method: What a missing cell gets.

                * ``"mean"``: the expectation of numbers, rounded where the type has no fractions,
                  and the most probable category;
                * ``"median"``: the median of numbers and ordered categories, and the most probable
                  category of others;
                * ``"mode"``: the most probable category; of numbers in bins the middle of the
                  densest; of other numbers the median, but the most probable spike where it is
                  more likely than all numbers beside the spikes;
                * ``"sample"``: one draw of all missing cells of a row together.

            seed: Seed of ``"sample"``.

        Example:
            >>> import einet, pandas
            >>> frame = pandas.DataFrame({"a": ["x", "y"] * 30, "b": ["x", "y"] * 30})
            >>> model = einet.TableModel.fit(frame, epochs=5)
            >>> model.given(pandas.DataFrame({"a": ["x", None], "b": [None, "y"]})).impute()
               a  b
            0  x  x
            1  y  y
        """
        check_choice("method", method, get_args(Filling))
        if method == "sample":
            return self.sample(1, seed)
        if seed is not None:
            raise ValueError(f"seed is for method 'sample', but method is {method!r}")
        cells: dict[Any, np.ndarray] = {}
        for name, coding in self.table.codings.items():
            if isinstance(coding, Identifier):
                continue
            known, unknown = None, np.zeros(len(self), dtype=bool)
            if not isinstance(coding, Constant):
                unknown = self.unknown(name)
            if not bool(unknown.all()) or not len(self):
                known = self._known_cells(name)
            if bool(unknown.any()):
                filled = self.marginal(name).fill(method, self.table.types[name])
                known = filled if known is None else np.where(unknown, filled, known)
            assert known is not None
            cells[name] = known
        return self.table.build(cells, len(self), self.evidence.backend)

    def unknown(self, column: Any) -> np.ndarray:
        """Which rows do not say what a column is.

        Args:
            column: The name of the column.

        Returns:
            True or False, ``[rows]``.
        """
        where = self.table.variables(column)
        return np.asarray(np.isnan(self.evidence.z[:, where.start : where.stop]).all(1))

    # -- parts -----------------------------------------------------------------------------------

    def _of_states(self, variable: int) -> Float[np.ndarray, "rows states"]:
        """The probabilities of a discrete variable's states, over all alternatives."""
        self.check_possible()
        parts = [
            share[:, None] * piece.probabilities(variable)
            for piece, share in zip(self.pieces, self.shares, strict=True)
        ]
        return np.sum(parts, axis=0)

    def marginal(self, column: Any) -> Marginal:
        """The distribution of one column in each row.

        Args:
            column: The name of the column.

        Example:
            >>> import einet, numpy, pandas
            >>> frame = pandas.DataFrame({"sex": ["f"] * 30 + ["m"] * 30})
            >>> frame["height"] = numpy.linspace(155.0, 195.0, 60)
            >>> model = einet.TableModel.fit(frame, epochs=3)
            >>> height = model.given({"sex": "f"}).marginal("height")
            >>> bool(height.quantile_cells([0.25])[0, 0] < height.mean_cells()[0])
            True
        """
        self.check_possible()
        coding, where = self.table.coding(column), self.table.variables(column)
        if not isinstance(coding, Number | Spiked | States | Binned):
            raise ValueError(f"column {column!r} has no distribution: it is {coding.describe()}")
        kind, start = self.table.types[column], where.start
        if isinstance(coding, States):
            return Marginal(column, coding, kind, self._of_states(start))
        known = None
        if not bool(self.unknown(column).all()):
            known = self._known_cells(column)
        if isinstance(coding, Binned):
            events = [alternative.get(start) for alternative in self.evidence.alternatives]
            binned = [
                BinnedPart(share, piece.probabilities(start), event)
                for share, piece, event in zip(self.shares, self.pieces, events, strict=True)
            ]
            return BinnedMarginal(column, coding, kind, binned, known)
        if isinstance(coding, Number):
            certain = np.ones((len(self), 1))
            return Marginal(column, coding, kind, certain, self._parts(start, self.shares), known)
        # The number beside the spikes: given that there is no spike.
        none = [piece.probabilities(start)[:, 0] for piece in self.pieces]
        weights = self.shares * np.stack(none)
        weights /= np.maximum(weights.sum(0), np.finfo(np.float64).tiny)
        parts = self._parts(start + 1, weights, beside=start)
        return Marginal(column, coding, kind, self._of_states(start), parts, known)

    def _known_cells(self, column: Any) -> np.ndarray:
        """The cells of a column that are known, missing elsewhere."""
        if column in self.evidence.cells:
            return self.evidence.cells[column]
        where = self.table.variables(column)
        return self.table.coding(column).decode(self.evidence.z[:, where.start : where.stop])

    def _parts(
        self,
        variable: int,
        weights: Float[np.ndarray, "alternatives rows"],
        beside: int | None = None,
    ) -> list[Part]:
        return [
            Part(
                weight,
                self._ends(piece, variable),
                partial(piece.leaves, variable, beside),
            )
            for weight, piece in zip(weights, self.pieces, strict=True)
        ]

    def _ends(self, piece: Piece, variable: int) -> tuple[float, float]:
        """Between what a continuous variable is known to lie in an alternative."""
        if variable in piece.events:
            event: Any = piece.events[variable]
            return float(event.lower), float(event.upper)
        if piece.z is not self.evidence.z and len(self) == 1:
            # Alternatives may hold it at a value where the rows leave it open.
            value = float(piece.z[0, variable])
            if not math.isnan(value) and math.isnan(self.evidence.z[0, variable]):
                return value, value
        return -math.inf, math.inf

    def _decoded(self, z: np.ndarray, cells: Mapping[Any, np.ndarray]) -> Any:
        return self.table.decode(z, self.evidence.backend, cells)

    def check_possible(self) -> None:
        """Raise where the evidence of a row cannot be.

        Example:
            >>> import einet, pandas
            >>> frame = pandas.DataFrame({"a": ["x", "y"] * 30, "b": [1.5, 2.5] * 30})
            >>> einet.TableModel.fit(frame, epochs=1).given({"a": "x"}).check_possible()
        """
        rows = self._impossible
        if len(rows):
            raise ValueError(
                f"the evidence has probability 0 in {len(rows)} of {len(self)} rows (first: row "
                f"{rows[0]}), which have no posterior"
            )


def _seed(seed: int | None) -> int:
    if seed is None:
        return int(torch.randint(1 << 31, ()).item())
    return as_int("seed", seed, minimum=0)


def _seed_from(generator: torch.Generator) -> int:
    return int(torch.randint(1 << 31, (), generator=generator).item())
