"""What a page, a post, or an executed notebook shows."""

from pathlib import Path
from typing import Any, TextIO

import bs4
import nbformat
from built import ROOT


def soup(markup: str) -> bs4.BeautifulSoup:
    return bs4.BeautifulSoup(markup, "html.parser")


def plain(markup: str) -> str:
    """The words of it, with single spaces."""
    return " ".join(soup(markup).get_text(" ").split())


def alts(page: Path) -> list[str]:
    """The alternative texts of a page's images, as a browser reads them."""
    return [image["alt"] for image in soup(page.read_text()).find_all("img")]


def cells(notebook: str, kind: str = "code") -> list[str]:
    """The cells of a kind of one of the lab's notebooks."""
    found = nbformat.read(ROOT / "notebooks" / f"{notebook}.ipynb", as_version=4).cells
    return [cell.source for cell in found if cell.cell_type == kind]


def outputs(notebook: Path | TextIO, kind: str = "") -> list[Any]:
    """What the cells of a notebook show.

    Of a kind of data, such as image/png, where one is named.
    """
    found = nbformat.read(notebook, as_version=4).cells
    every = [output for cell in found if cell.cell_type == "code" for output in cell.outputs]
    return [output for output in every if not kind or kind in output.get("data", {})]


def texts(notebook: Path) -> str:
    """What the cells of a notebook show beside pictures."""
    return " ".join(
        each.data["text/plain"]
        for each in outputs(notebook, "text/plain")
        if "image/png" not in each.data
    )
