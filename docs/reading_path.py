"""What to read next, drawn as a graph: `start.md` shows it."""

from __future__ import annotations

from html import escape

__all__ = ["EDGES", "PAGES", "drawing"]

# Where each page stands (column, row), what it is called, and its file without the ending.
PAGES: dict[str, tuple[int, float, str]] = {
    "start": (0, 2, "Start"),
    "tutorials/titanic": (1, 0, "A table: what if?"),
    "questions/index": (1, 2, "Questions"),
    "tutorials/digits": (1, 4, "Digits, inpainting"),
    "tutorials/imputation": (2, 0, "Honest intervals"),
    "choose": (2, 1.4, "Choose"),
    "tutorials/hidden_trees": (2, 2.7, "Hidden trees"),
    "images": (2, 4, "Images"),
    "tables": (3, 0, "Tables"),
    "tutorials/torchrun": (3, 1.4, "Many processes"),
    "tutorials/own_parts": (3, 2.7, "Your own parts"),
    "how_it_works": (3, 4, "How it works"),
}
EDGES = (
    ("start", "tutorials/titanic"),
    ("start", "questions/index"),
    ("start", "tutorials/digits"),
    ("tutorials/titanic", "tutorials/imputation"),
    ("tutorials/imputation", "tables"),
    ("questions/index", "choose"),
    ("questions/index", "tutorials/hidden_trees"),
    ("tutorials/digits", "images"),
    ("choose", "tutorials/torchrun"),
    ("tutorials/hidden_trees", "tutorials/own_parts"),
    ("tutorials/hidden_trees", "how_it_works"),
    ("images", "how_it_works"),
)

_WIDTH, _HEIGHT, _STEP, _LINE = 150, 34, 195, 52
_STYLE = """
.path a rect { fill: var(--color-background-secondary, #f8f9fb);
               stroke: var(--color-brand-primary, #0a4bff); stroke-width: 1.2 }
.path a:hover rect { fill: var(--color-background-hover, #efeff4) }
.path text { font: 14px sans-serif; fill: var(--color-foreground-primary, black) }
.path path { stroke: var(--color-foreground-muted, #6b6f76); fill: none; stroke-width: 1.3 }
.path marker path { fill: var(--color-foreground-muted, #6b6f76); stroke: none }
"""


def drawing() -> str:
    """The graph as SVG, for an HTML page: each box is a link to its page."""
    left, top = 10, 20
    boxes, arrows = [], []
    for page, (column, row, title) in PAGES.items():
        x, y = left + column * _STEP, top + row * _LINE
        boxes.append(
            f'<a href="{page}.html"><rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" '
            f'rx="8"/><text x="{x + _WIDTH / 2}" y="{y + 22}" text-anchor="middle">'
            f"{escape(title)}</text></a>"
        )
    for source, target in EDGES:
        (column, row, _), (to_column, to_row, _) = PAGES[source], PAGES[target]
        x, y = left + column * _STEP + _WIDTH, top + row * _LINE + _HEIGHT / 2
        to_x, to_y = left + to_column * _STEP - 4, top + to_row * _LINE + _HEIGHT / 2
        bend = (x + to_x) / 2
        arrows.append(
            f'<path d="M{x},{y} C{bend},{y} {bend},{to_y} {to_x},{to_y}" '
            'marker-end="url(#path-arrow)"/>'
        )
    columns = 1 + max(column for column, _, _ in PAGES.values())
    rows = 1 + max(row for _, row, _ in PAGES.values())
    width, height = left * 2 + columns * _STEP - (_STEP - _WIDTH), top + rows * _LINE
    return (
        f'<svg class="path" role="img" aria-label="What to read next" '
        f'viewBox="0 0 {width} {height:g}" style="width: 100%; min-width: 560px" '
        f'xmlns="http://www.w3.org/2000/svg"><style>{_STYLE}</style>'
        '<defs><marker id="path-arrow" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0,0 L10,5 L0,10 z"/></marker></defs>'
        + "".join(arrows + boxes)
        + "</svg>"
    )
