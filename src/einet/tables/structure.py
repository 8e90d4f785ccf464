"""Hidden trees over the columns of a table, whatever their kinds."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int

from einet.structures import RegionGraph
from einet.structures.chow_liu import add_tree, maximum_spanning_tree
from einet.structures.gaussian_information import gaussian_information
from einet.structures.mutual_information import mutual_information
from einet.tables.columns import Number
from einet.tables.schema import Table

__all__ = ["column_information", "column_tree"]

_FEWEST_LEVELS, _MOST_LEVELS = 4, 32


def column_tree(
    table: Table,
    z: Float[np.ndarray, "rows variables"],
    labels: Int[np.ndarray, " rows"] | None = None,
) -> RegionGraph:
    """The tree of the columns that tell most about one another, as the structure of a hidden tree.

    It is a Chow–Liu tree (:func:`einet.chow_liu`) over columns: each has a latent variable, from
    which all variables of the column come, a spike and the number beside it.

    Args:
        table: The schema; at least one of its columns has variables.
        z: Encoded rows.
        labels: Classes of the rows, −1 where unknown. They become the root of the tree: classes
            are told apart by the columns right below it.

    Example:
        >>> import pandas
        >>> x = np.random.default_rng(0).normal(size=300)
        >>> frame = pandas.DataFrame({"a": x, "b": x > 0, "c": x**2, "d": x < 1})
        >>> table = Table.of(frame)
        >>> column_tree(table, table.encode(frame))
        RegionGraph(num_variables=4, regions=5, leaves=4, partitions=1, layers=2)
    """
    columns = table.modelled
    members = [tuple(table.variables(name)) for name in columns]
    information = column_information(table, z, labels)
    neighbours = maximum_spanning_tree(information.round(12))
    root = None
    if labels is not None:
        root = len(columns)
        if len(neighbours[root]) < 2:
            # With one column below it, the classes are those of that column's latent variable.
            (root,) = neighbours.pop()
            neighbours[root].remove(len(columns))
        else:
            members.append(())
    scopes = [(1 << table.num_variables) - 1]
    partitions: list[tuple[int, tuple[int, ...]]] = []
    add_tree(neighbours, scopes, partitions, members, root)
    return RegionGraph(table.num_variables, scopes, partitions)


def column_information(
    table: Table,
    z: Float[np.ndarray, "rows variables"],
    labels: Int[np.ndarray, " rows"] | None = None,
) -> Float[np.ndarray, "columns columns"]:
    """The mutual information of every pair of modelled columns, in nats; labels come last.

    Columns are cut into levels of about as many rows, the more of them the more rows there are,
    and what chance alone would tell is taken off (Miller and Madow). Two columns of numbers that
    determine one another tell more than levels can show: for them the information of normal
    variables with their correlation counts where it is larger.
    """
    columns, rows = table.modelled, len(z)
    count = int(np.clip(round((rows / 5) ** (1 / 3)), _FEWEST_LEVELS, _MOST_LEVELS))
    parts = []
    for name in columns:
        where = table.variables(name)
        parts.append(table.coding(name).levels(z[:, where.start : where.stop], count))
    if labels is not None:
        parts.append(np.where(labels < 0, np.nan, labels.astype(np.float64)))
    levels = torch.from_numpy(np.stack(parts, 1))
    information = mutual_information(levels, smoothing=0.0).numpy()
    known = ~levels.isnan()
    pairs = np.maximum((known.double().T @ known.double()).numpy(), 1)
    states = np.array([len(column[~column.isnan()].unique()) for column in levels.T])
    freedom = np.maximum(states - 1, 0)
    information = information - np.outer(freedom, freedom) / (2 * pairs)
    places = [n for n, name in enumerate(columns) if isinstance(table.coding(name), Number)]
    if len(places) > 1:
        variables = [table.variables(columns[n]).start for n in places]
        normal = gaussian_information(z[:, variables]).numpy()
        inside = np.ix_(places, places)
        information[inside] = np.maximum(information[inside], normal)
    np.fill_diagonal(information, 0.0)
    return information
