"""The code of what is on the screen: Python that runs as it is and gives the same numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from einet.studio.answers import ApiError
from einet.studio.evidence import Known
from einet.studio.panels import Panels
from einet.studio.schema import corrections
from einet.studio.session import Session
from einet.tables.columns import Binned, Number, Spiked, States
from einet.tables.constraints import Interval, Values

__all__ = ["code_for"]


def code_for(session: Session, asked: Mapping[str, Any]) -> dict[str, str]:
    """Python for a view of the page.

    Args:
        session: What is open.
        asked: The ``view``: table, row, images, training, columns or model; and what is shown
            there.
    """
    view = asked.get("view", "table")
    makers = {"table": _table, "row": _row, "images": _images, "training": _training,
              "columns": _information, "model": _model}  # fmt: skip
    if view not in makers:
        raise ApiError(422, f"view must be one of {', '.join(makers)}, got {str(view)[:40]!r}")
    return {"python": "\n".join(makers[view](session, asked)) + "\n"}


def _load(session: Session) -> list[str]:
    opened = session.opened
    if opened.table_model is None:
        return ["import einet", "", f"model = einet.load({opened.path!r})"]
    return ["import einet", "", f"model = einet.TableModel.load({opened.path!r})"]


# -- tables --------------------------------------------------------------------------------------


def _table(session: Session, asked: Mapping[str, Any]) -> list[str]:
    panels = session.panels
    known = panels.known(asked.get("evidence"))
    names = list(panels.panels)
    if asked.get("columns"):
        names = [panels.panel(column).name for column in asked["columns"]]
    lines = _with_constraints(panels, _load(session), known)
    lines += _given(panels, known)
    points = int(panels.model.given(dict(known)).points[0]) if known else 0
    what = "density" if points else "probability"
    if known:
        lines += ["", f"{what} = float(numpy.exp(posterior.log_evidence[0]))",
                  f'print(f"{what} of the evidence: {{{what}:.6g}}")']  # fmt: skip
        lines[0] = "import numpy\n\nimport einet"
    for name in names:
        lines += ["", *_column(panels, name)]
    return lines


def _column(panels: Panels, name: Any) -> list[str]:
    """What a panel shows of a column."""
    coding = panels.panels[name].coding
    lines = []
    if isinstance(coding, States):
        lines.append(f"print(posterior.probabilities({name!r}))")
    if coding.is_number:
        numbers = ", ".join(
            f"posterior.{what}" for what in (f"mean({name!r})", f"median({name!r})",
                                             f"interval({name!r}, 0.9)")
        )  # fmt: skip
        lines.append(f"print({str(name)!r}, {numbers})")
    elif coding.ordered:
        lines.append(f"print({str(name)!r}, posterior.median({name!r})[0])")
    return lines


def _with_constraints(panels: Panels, lines: Sequence[str], known: Known) -> list[str]:
    """The same with imports of what evidence is written with."""
    written = " ".join(_evidence(panels, name, pieces) for name, pieces in known.items())
    used = [word for word in ("Interval", "Values") if f"{word}(" in written]
    if not used:
        return list(lines)
    return [lines[0], f"from einet.tables.constraints import {', '.join(used)}", *lines[1:]]


def _given(panels: Panels, known: Known) -> list[str]:
    if not known:
        return ["posterior = model.given()"]
    lines = ["posterior = model.given(", "    {"]
    for name, pieces in known.items():
        lines.append(f"        {name!r}: {_evidence(panels, name, pieces)},")
    return [*lines, "    }", ")"]


def _written(pieces: Sequence[Any]) -> str | None:
    """Evidence in plain values; None where it takes constraints."""
    if len(pieces) != 1:
        return None
    piece = pieces[0]
    if isinstance(piece, Values):
        return repr(sorted(piece.values, key=lambda value: (type(value).__name__, value)))
    ends = [None if abs(end) == float("inf") else end for end in (piece.lower, piece.upper)]
    is_closed = (piece.closed_lower or ends[0] is None) and (piece.closed_upper or ends[1] is None)
    return f"({_number(ends[0])}, {_number(ends[1])})" if is_closed else None


def _evidence(panels: Panels, name: Any, pieces: Sequence[Any]) -> str:
    """Evidence of a column as ``given`` takes it."""
    panel = panels.panels[name]
    number = panel.coding.number if isinstance(panel.coding, Spiked) else panel.coding
    is_continuous = isinstance(number, Number | Binned) and number.decimals is None
    plain = _written(pieces)
    is_temporal = panel.terms.cells.is_temporal and panel.coding.is_number
    if plain is not None and not is_temporal:
        piece = pieces[0]
        if isinstance(piece, Interval) and piece.is_point and is_continuous:
            # One value, which has a density.
            return f"[{_number(piece.lower)}]"
        return plain
    return "(" + " ".join(f"{_constraint(piece)}," for piece in pieces) + ")"


def _constraint(piece: Any) -> str:
    if isinstance(piece, Values):
        return f"Values({sorted(piece.values, key=lambda value: (type(value).__name__, value))!r})"
    parts = []
    if piece.lower != -float("inf"):
        parts.append(f"lower={_number(piece.lower)}")
        if not piece.closed_lower:
            parts.append("closed_lower=False")
    if piece.upper != float("inf"):
        parts.append(f"upper={_number(piece.upper)}")
        if not piece.closed_upper:
            parts.append("closed_upper=False")
    return f"Interval({', '.join(parts)})"


def _number(value: float | int | None) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return repr(value)


def _row(session: Session, asked: Mapping[str, Any]) -> list[str]:
    lines = _load(session)
    index = asked.get("index")
    if index is not None:
        if isinstance(index, bool) or not isinstance(index, int) or index < 0:
            raise ApiError(422, "index must be a whole number")
        lines[0] = "import einet\nfrom einet.tables.reading import read_table"
        lines += [f"row = read_table({session.data.path!r}).iloc[[{index}]]"]
    else:
        cells = asked.get("cells")
        if not isinstance(cells, Mapping):
            raise ApiError(422, "a row is given as cells, by the names of columns, or as an index")
        panels = session.panels
        lines[0] = "import pandas\n\nimport einet"
        shown = {}
        for column, value in cells.items():
            name = panels.panel(column).name
            if value is None:
                continue
            text = repr(value)
            if panels.panel(column).terms.is_date:
                text = f"pandas.Timestamp({value!r})"
            shown[name] = text
        inside = ", ".join(f"{name!r}: [{text}]" for name, text in shown.items())
        lines += [f"row = pandas.DataFrame({{{inside}}})"]
    return [
        *lines,
        "",
        "print(model.log_prob(row)[0])",
        "for column, surprise in einet.tables.cell_surprise(model, row).items():",
        "    print(column, surprise[0])",
        "",
        "print(model.impute(row, 'mean'))",
        "print(model.given(row).sample(20, seed=0))",
    ]


def _training(session: Session, asked: Mapping[str, Any]) -> list[str]:
    data = session.data
    columns, options = session.trained
    if asked.get("columns") is not None:
        columns = corrections(data, asked["columns"])
    given = [f"{{{', '.join(f'{name!r}: {kind!r}' for name, kind in columns.items())}}}"]
    given = given if columns else []
    given += [f"{name}={value!r}" for name, value in options.items()]
    inside = ", ".join(["table", *given])
    return [
        "import einet",
        "from einet.tables.reading import read_table",
        "",
        f"table = read_table({data.path!r})",
        f"model = einet.TableModel.fit({inside})",
        "print(model.history)",
        'model.save("model.einet")',
    ]


def _information(session: Session, asked: Mapping[str, Any]) -> list[str]:
    panels = session.panels
    known = panels.known(asked.get("evidence"))
    lines = _with_constraints(panels, _load(session), known)
    lines[0] = "import einet\nfrom einet.tables.bins import Bins"
    lines[0] += "\nfrom einet.tables.information import column_information"
    lines += _given(panels, known)
    lines += ["", "bins = {"]
    for name, panel in panels.panels.items():
        edges = [_number(edge) for edge in panel.bins.edges.tolist()]
        inside = f", [{', '.join(edges)}]" if edges else ""
        lines.append(f"    {name!r}: Bins(model.table.coding({name!r}){inside}),")
    return [*lines, "}", "print(column_information(posterior, bins))"]


# -- images and others ---------------------------------------------------------------------------


def _images(session: Session, asked: Mapping[str, Any]) -> list[str]:
    opened = session.opened
    if opened.pixels is None:
        raise ApiError(409, "the model that is open is not one of images")
    n, draws, seed = (asked.get(*each) for each in (("n", 16), ("draws", 8), ("seed", 0)))
    leaves = asked.get("leaves", "sample")
    numbers = (n, draws, seed)
    plain = all(isinstance(value, int) and not isinstance(value, bool) for value in numbers)
    if not plain or leaves not in ("sample", "mean"):
        raise ApiError(422, "n, draws and seed must be whole numbers, and leaves sample or mean")
    lines = [
        "import einet",
        "from einet.imaging import pictures",
        "from einet.imaging.pixels import load_with_pixels",
        "",
        f"model, pixels = load_with_pixels({opened.path!r})",
    ]
    if asked.get("covered") is None:
        return [
            *lines,
            f"samples = model.sample({n}, leaves={leaves!r}, seed={seed})",
            'pictures.save_png("samples.png", pictures.grid(pixels.to_pictures(samples), scale=4))',
        ]
    image, covered = session.images.cleaned(asked)
    lines[:2] = [
        "import base64",
        "",
        "import torch",
        "",
        "from einet.data.images import Framing",
        "from einet.imaging import inpaint, pictures",
    ]
    return [
        *lines,
        f'image = base64.b64decode("{image}")',
        f'covered = base64.b64decode("{covered}")  # white where covered',
        "",
        'row = torch.from_numpy(Framing(channels=pixels.channels)(image, "image").copy())',
        'mask = torch.from_numpy(Framing(channels=1)(covered, "covered")[..., 0] >= 128)',
        f"options = {{'samples': {draws}, 'leaves': {leaves!r}, 'seed': {seed}}}",
        "found = inpaint(model, pixels.to_model(row.reshape(1, -1)), mask, **options)",
        'pictures.save_png("mean.png", pixels.to_pictures(found.mean)[0])',
        "drawn = pixels.to_pictures(found.samples[:, 0])",
        'pictures.save_png("draws.png", pictures.grid(drawn, scale=4))',
    ]


def _model(session: Session, asked: Mapping[str, Any]) -> list[str]:
    lines = _load(session)
    if session.opened.table_model is not None:
        return [*lines, "print(model)", "print(model.model.num_parameters)"]
    return [*lines, "print(model)", "print(model.num_parameters)"]
