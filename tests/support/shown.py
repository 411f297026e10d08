"""Read what a page, a post, or an executed notebook shows."""

from pathlib import Path
from typing import Any, TextIO

import bs4
import nbformat
from built import ROOT


def soup(markup: str) -> bs4.BeautifulSoup:
    return bs4.BeautifulSoup(markup, "html.parser")


def plain(markup: str) -> str:
    """Return the words of a page, or of a part of a page, with single spaces between them."""
    return " ".join(soup(markup).get_text(" ").split())


def alts(page: Path) -> list[str]:
    """Return the alternative texts of a page's images, as a browser reads them."""
    return [image["alt"] for image in soup(page.read_text()).find_all("img")]


def cells(notebook: str, kind: str = "code") -> list[str]:
    """Return the sources of all cells of one kind in one of the lab's notebooks."""
    found = nbformat.read(ROOT / "notebooks" / f"{notebook}.ipynb", as_version=4).cells
    return [cell.source for cell in found if cell.cell_type == kind]


def outputs(notebook: Path | TextIO, kind: str = "") -> list[Any]:
    """Return the outputs of a notebook's cells.

    If `kind` names a kind of data, such as image/png, return only the outputs with such data.
    """
    found = nbformat.read(notebook, as_version=4).cells
    every = [output for cell in found if cell.cell_type == "code" for output in cell.outputs]
    return [output for output in every if not kind or kind in output.get("data", {})]


def texts(notebook: Path) -> str:
    """Return the texts that the cells of a notebook show, except the texts of pictures."""
    return " ".join(
        each.data["text/plain"]
        for each in outputs(notebook, "text/plain")
        if "image/png" not in each.data
    )
