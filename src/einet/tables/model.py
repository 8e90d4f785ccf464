"""A model of a table: a circuit, and the schema by which it is asked in the table's terms."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int

from einet._checks import as_int
from einet.learning.history import History
from einet.learning.report import Callback
from einet.models.base import Model
from einet.models.record import FormatError
from einet.storage import load, load_metadata
from einet.tables.averaging import average, members_for
from einet.tables.evidence import as_evidence
from einet.tables.frames import as_rows
from einet.tables.learning import learn, recipe_for, split
from einet.tables.posterior import TablePosterior
from einet.tables.schema import Table

if TYPE_CHECKING:
    from einet.tables.query import Answer
    from einet.tables.query.table_source import TableSource

__all__ = ["TableModel"]

# Under this name a file has the schema beside the model.
_KEY = "table"


class TableModel:
    """A model that is asked about a table in the table's own terms, exactly.

    Args:
        model: A model of ``table.num_variables`` variables of the table's families.
        table: The schema.

    Example:
        >>> import numpy, pandas
        >>> generator = numpy.random.default_rng(0)
        >>> female = generator.random(400) < 0.5
        >>> height = generator.normal(numpy.where(female, 165, 180), 7).round(1)
        >>> frame = pandas.DataFrame({"sex": numpy.where(female, "f", "m"), "height": height})
        >>> model = TableModel.fit(frame, epochs=10)
        >>> model.log_prob(frame).shape
        (400,)
        >>> posterior = model.given(pandas.DataFrame({"height": [160.0, 190.0]}))
        >>> posterior.probabilities("sex").round(1)
             f    m
        0  1.0  0.0
        1  0.0  1.0
        >>> bool(160 < model.given({"sex": "f"}).mean("height")[0] < 170)
        True
        >>> model.sample(2, given={"sex": "m"}, seed=0)["sex"].tolist()
        ['m', 'm']
    """

    #: How the model was learnt; None for one that was not, or came from a file.
    history: History | None = None
    #: The rows that it was validated on rather than learnt from, ascending; None as above, and for
    #: an average of several models.
    validation_rows: Int[np.ndarray, " valid"] | None = None
    _source: TableSource | None = None

    def __init__(self, model: Model, table: Table) -> None:
        if not isinstance(table, Table):
            raise TypeError(f"table must be an einet.Table, got {type(table).__name__}")
        if not isinstance(model, Model) or model.num_variables != table.num_variables:
            raise ValueError(
                f"model must have {table.num_variables} variables, as its table has, got "
                f"{getattr(model, 'num_variables', type(model).__name__)}"
            )
        self.model, self.table = model, table

    @classmethod
    def fit(
        cls,
        frame: Any,
        columns: Mapping[Any, Any] | None = None,
        *,
        num_sums: int | None = None,
        epochs: int | None = None,
        validation: float | int | None = None,
        seed: int = 0,
        device: torch.device | str | None = None,
        progress: bool = False,
        members: int | None = 1,
        weights: Float[np.ndarray, " rows"] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        resume: bool = False,
        callbacks: Callback | Sequence[Callback] = (),
    ) -> TableModel:
        """Learn a model of a data frame: its schema, a tree of its columns, and parameters.

        Args:
            frame: Rows with holes, of pandas, polars or Arrow.
            columns: What some columns are, where the data do not tell; see :meth:`Table.of`.
            num_sums: K, the states of each column's latent variable; by the number of rows if not
                given.
            epochs: The most passes through the rows; by their number if not given.
            validation: The share of rows by which to end before new rows become less likely; a
                tenth of 100 rows or more, if not given. With 0 the model learns from all rows for
                all epochs: its draws are then closest to the rows.
            seed: Seed of all that is random.
            device: Where to learn; a GPU if there is one, by default. The model ends up on the CPU.
            progress: Whether to show a progress bar.
            members: How many models to average, each learnt without a part of the rows: it costs as
                many times the time, in learning and in answers, and is worth it where rows are few.
                By their number if None.
            weights: How often each row counts; once by default.
            checkpoint, resume: A folder for the state of the training, and whether to go on from
                it; as in :func:`einet.fit`. Several members have folders inside it.
            callbacks: A function, or several, called after each epoch of each member, as in
                :func:`einet.fit`.
        """
        table = frame_table(frame, columns)
        rows, histories = len(as_rows(frame)[0]), []
        count = members_for(rows, members)

        def member(member_seed: int, valid_rows: Any) -> Any:
            folder = checkpoint
            if checkpoint is not None and count > 1:
                folder = Path(checkpoint) / f"member-{len(histories)}"
                folder.parent.mkdir(parents=True, exist_ok=True)
            z = table.encode(frame, strange="ignore", seed=member_seed)
            model, history = learn(
                table, z, num_sums=num_sums, epochs=epochs, validation=validation,
                seed=member_seed, device=device, progress=progress, weights=weights,
                valid_rows=valid_rows if validation is None else None,
                checkpoint=folder, resume=resume, callbacks=callbacks,
            )  # fmt: skip
            histories.append(history)
            return model.cpu()

        answer = cls(average(count, rows, seed, member), table)
        answer.history = histories[0]
        if count == 1:
            # Of several members each has learnt from rows that another was validated on.
            share = recipe_for(rows, num_sums, epochs, validation=validation).validation
            answer.validation_rows = split(rows, share, seed)[1].numpy()
        return answer

    # -- questions -------------------------------------------------------------------------------

    def log_prob(self, frame: Any) -> Float[np.ndarray, " rows"]:
        """log p of the known cells of each row, in nats and in the units of the columns.

        Columns of numbers count with their densities, states and categories with their
        probabilities. A number that its column cannot hold makes it −∞; what else a table does with
        strange cells is said in :class:`Table`.

        Args:
            frame: The rows; columns that it lacks are integrated out.

        Example:
            >>> import pandas
            >>> frame = pandas.DataFrame({"a": ["x", "y"] * 30, "b": ["x", "y"] * 30})
            >>> model = TableModel.fit(frame, epochs=3)
            >>> logs = model.log_prob(pandas.DataFrame({"a": ["x", "x"], "b": ["x", "y"]}))
            >>> bool(logs[0] > logs[1])
            True
        """
        data = as_rows(frame)[0]
        z = torch.from_numpy(self.table.encode(data))
        return self.model.log_prob(z).double().cpu().numpy() + self.table.log_density_change(data)

    def given(self, evidence: Any = None) -> TablePosterior:
        """The distribution of all columns, given what is known of some.

        Args:
            evidence: A data frame, each row of which is evidence by itself; absent columns and
                missing cells are unknown. Or a dict for one row: ``{"sex": "Female",
                "age": (30, 40), "size": ["S", "M"]}``, with a value, the two ends of an interval,
                which belong to it, or a list or set of values.
        """
        return TablePosterior(self.model, self.table, as_evidence(self.table, evidence))

    def sample(
        self, n: int = 1, given: Any = None, seed: int | None = None, beyond: bool = True
    ) -> Any:
        """New rows as a data frame of the table's library.

        Args:
            n: How many; for each row of evidence where there is more than one.
            given: What is known of them, as in :meth:`given`.
            seed: Seed of all that is random.
            beyond: Whether numbers may lie beyond the smallest and the largest that were learnt
                from; see :meth:`TablePosterior.sample`.
        """
        return self.given(given).sample(as_int("n", n, minimum=0), seed, beyond)

    def impute(self, frame: Any, method: Any = "mean", seed: int | None = None) -> Any:
        """The frame with its missing cells filled in; see :meth:`TablePosterior.impute`.

        Args:
            frame: Rows with holes.
            method, seed: As in :meth:`TablePosterior.impute`.

        Example:
            >>> import numpy, pandas
            >>> frame = pandas.DataFrame({"sex": ["f"] * 30 + ["m"] * 30})
            >>> frame["height"] = numpy.linspace(155.0, 195.0, 60)
            >>> model = TableModel.fit(frame, epochs=5)
            >>> model.impute(pandas.DataFrame({"sex": ["f", None], "height": [None, 190.0]})).round(
            ...     -1
            ... )
              sex  height
            0   f   160.0
            1   m   190.0
        """
        return self.given(frame).impute(method, seed)

    def query(self, text: str) -> Answer:
        """The exact answer to a question in words.

        Args:
            text: Such as ``P(income='>50K' | 30<=age<40, job in {nurse, clerk})``, ``E(age | …)``,
                ``median(hours)``, ``quantile(0.9, hours)``, ``interval(0.9, hours)``, ``mode(job)``
                or ``distribution(job)``.

        Example:
            >>> import numpy, pandas
            >>> frame = pandas.DataFrame({"sex": ["f"] * 30 + ["m"] * 30})
            >>> frame["height"] = numpy.linspace(155.0, 195.0, 60)
            >>> model = TableModel.fit(frame, epochs=5)
            >>> model.query("P(sex=f | height<170)").value > 0.9
            True
            >>> model.query("median(height | sex=m)").value > 180
            True
        """
        from einet.tables.query.table_source import query

        return query(self, text)

    @property
    def source(self) -> TableSource:
        """The model as questions in words see it, for :func:`einet.tables.ask`.

        Example:
            >>> import pandas
            >>> from einet.tables import ask
            >>> frame = pandas.DataFrame({"a": ["x", "y"] * 30, "b": ["x", "y"] * 30})
            >>> model = TableModel.fit(frame, epochs=3)
            >>> list(model.source.columns)
            ['a', 'b']
            >>> ask(model.source, "P(a=x | b=x)").value == model.query("P(a=x | b=x)").value
            True
        """
        from einet.tables.query.table_source import TableSource

        source = self._source
        if source is None or source.model is not self.model or source.table is not self.table:
            source = self._source = TableSource(self.model, self.table)
        return source

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_source"}

    # -- files -----------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], metadata: Mapping[Any, Any] | None = None) -> None:
        """Write model and schema to one file, with nothing in it that could run.

        It is a file of the model like any other: :func:`einet.load` reads the model without its
        schema.

        Args:
            path: The file; its folder must exist.
            metadata: What else the file shall tell; ``"table"`` is taken.

        Example:
            >>> import pandas, tempfile
            >>> frame = pandas.DataFrame({"a": ["x", "y"] * 30, "b": ["x", "y"] * 30})
            >>> model = TableModel.fit(frame, epochs=1)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     model.save(f"{folder}/table.einet", metadata={"rows": len(frame)})
            ...     load_metadata(f"{folder}/table.einet")["rows"]
            60
        """
        if metadata is not None and _KEY in metadata:
            raise ValueError(f"metadata must not have the name {_KEY!r}, under which the schema is")
        self.model.save(path, {**(metadata or {}), _KEY: self.table.to_dict()})

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], device: torch.device | str | None = None
    ) -> TableModel:
        """Read what :meth:`save` wrote: the same answers, bit by bit.

        Args:
            path: The file.
            device: Where to put the model; on the CPU by default.

        Raises:
            FormatError: The file is no model of a table, or damaged.

        Example:
            >>> import pandas, tempfile
            >>> frame = pandas.DataFrame({"a": ["x", "y"] * 30, "b": ["x", "y"] * 30})
            >>> model = TableModel.fit(frame, epochs=1)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     model.save(f"{folder}/table.einet")
            ...     again = TableModel.load(f"{folder}/table.einet")
            >>> bool((again.log_prob(frame) == model.log_prob(frame)).all())
            True
        """
        metadata = load_metadata(path)
        if _KEY not in metadata:
            raise FormatError(
                f"{path} is a model without the schema of a table; einet.load reads it"
            )
        try:
            return cls(load(path, device), Table.from_dict(metadata[_KEY]))
        except ValueError as error:
            raise FormatError(
                f"{path} is no model of a table that can be loaded: {error}"
            ) from error

    def __repr__(self) -> str:
        return f"TableModel({self.model.num_parameters:,} parameters) of a {self.table!r}"


def frame_table(frame: Any, columns: Mapping[Any, Any] | None) -> Table:
    """The schema of a frame, with room for at least one variable."""
    table = Table.of(frame, columns)
    if not table.num_variables:
        raise ValueError("frame must have a column that there is something to learn from, got none")
    return table
