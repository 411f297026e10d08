"""Cells for tests, by the names of their columns."""

from dataclasses import replace
from typing import Any

from runner.flat import CellColumns
from runner.model import Cell

OPEN_COLUMNS = {"first_rate_rps", "objective"}
"""An open load has one of them."""


def cell_of(**columns: Any) -> Cell:
    """A cell with these columns: of Gin, under k6, unless they say otherwise."""
    named = {
        "server": "gin",
        "language": "Go",
        "framework": "gin",
        "tier": "realistic",
        "workload": "experiments",
        "tool": "k6",
        "load_model": "open" if OPEN_COLUMNS & columns.keys() else "closed",
        "mode": "keepalive",
        "path": "/x",
    }
    return Cell.from_columns(CellColumns(**{**named, **columns}))


def changed(cell: Cell, **columns: Any) -> Cell:
    """The same cell, but for these columns."""
    return Cell.from_columns(replace(cell.columns(), **columns))
