"""Links of a page that lead out of `docs/`, made to work on the site as they do in the repository.

Pages link to results, scripts and other documents of the repository. On the site a file that lies
outside of `docs/` is a download, a folder is its name, and the root's documents are pages of their
own, whose text is read from where it lies.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util import logging

__all__ = ["ROOT_PAGES", "rewrite", "setup"]

ROOT_PAGES = {
    "CHANGELOG.md": "changelog",
    "CONTRIBUTING.md": "contributing",
    "README.md": "index",
}

# A link or picture of Markdown that is no address and no heading of the same page.
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!\w+:|#)([^)\s#]+)(#[^)\s]*)?\)")
_FENCED = re.compile(r"(^ *(`{3,}|~{3,}).*?^ *\2 *$)", re.MULTILINE | re.DOTALL)


def rewrite(text: str, folder: Path, docs: Path, target_folder: Path | None = None) -> str:
    """The text of a page with its links as the site needs them.

    Args:
        text: Markdown.
        folder: where the text lies, against which its links are relative.
        docs: the folder of the site's sources.
        target_folder: where the page is on the site, if that is another folder.

    Raises:
        FileNotFoundError: a link leads to nothing; the message names it.
    """
    target_folder = target_folder or folder

    def link(match: re.Match[str]) -> str:
        picture, words, target, heading = match.groups(default="")
        path = Path(os.path.normpath(folder / target))
        if not path.exists():
            raise FileNotFoundError(f"a link to {target!r} leads to nothing")
        inside = path.is_relative_to(docs)
        if inside and folder == target_folder:
            return match.group()
        page = ROOT_PAGES.get(path.name) if path.parent == docs.parent else None
        if page:
            path, inside = docs / f"{page}.md", True
        relative = os.path.relpath(path, target_folder)
        if picture or inside:
            return f"{picture}[{words}]({relative}{heading})"
        if path.is_dir():
            return words
        return f"{{download}}`{words.replace('`', '')} <{relative}>`"

    # Every second piece is a fenced block, with no links in it.
    pieces = re.split(_FENCED, text)
    return "".join(
        piece if index % 3 == 1 else "" if index % 3 == 2 else _LINK.sub(link, piece)
        for index, piece in enumerate(pieces)
    )


def _read(app: Sphinx, docname: str, source: list[str]) -> None:
    docs = Path(app.srcdir)
    page = Path(app.env.doc2path(docname))
    if page.suffix != ".md":
        return
    root_file = next((docs.parent / k for k, v in ROOT_PAGES.items() if v == docname), None)
    try:
        if root_file is not None and docname != "index":
            app.env.note_dependency(str(root_file))
            text = root_file.read_text(encoding="utf-8")
            source[0] = rewrite(text, docs.parent, docs, docs)
        else:
            source[0] = rewrite(source[0], page.parent, docs)
    except FileNotFoundError as error:
        logging.getLogger(__name__).warning(str(error), location=docname, type="repository")


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx: rewrite each page as it is read."""
    app.connect("source-read", _read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
