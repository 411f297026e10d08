"""Functions that make cells for tests, from the values of the cells' columns."""

from dataclasses import replace
from typing import Any

from runner.flat import CellColumns
from runner.model import Cell

OPEN_COLUMNS = {"first_rate_rps", "objective"}
"""Columns that only open loads have. Each open load has at least one of these columns."""


def cell_of(**columns: Any) -> Cell:
    """Return a cell with these columns. By default, k6 loads gin in a closed load."""
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
    """Return a copy of a cell in which the columns named in `columns` have the given values."""
    return Cell.from_columns(replace(cell.columns(), **columns))
