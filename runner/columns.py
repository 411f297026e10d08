"""The columns of a run's tables, as columns.csv lists them: the digest writes them, the readers ask
for them.

Imports nothing of ours.
"""

import csv
import functools
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

ROWS = {
    "trials": "trial",
    "requests": "request of k6; one file per trial, `requests/<trial_id>`",
    "probe": "request of the probe; one file per trial, `probe/<trial_id>`",
    "slices": "slice of a trial in a session",
    "latency": "trial, second and bucket",
    "throughput": "trial and 0.1 s (k6)",
    "resources": "trial, subject and interval",
}  # what each table has one row per


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    table: str
    name: str
    type: str  # as Arrow calls it: `string`, `int64`, `double`, `bool`
    unit: str
    optional: str
    """`yes` if a run may lack it: an older one, or one made elsewhere.

    Its values are then unknown.
    """
    meaning: str


@functools.cache
def columns(table: str) -> tuple[Column, ...]:
    """Return the columns of a table in their order."""
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as lines:
        return tuple(
            column for row in csv.DictReader(lines) if (column := Column(**row)).table == table
        )


@functools.cache
def schema_of(table: str) -> pa.Schema:
    """Return the schema in which a table is written."""
    return pa.schema([(column.name, pa.type_for_alias(column.type)) for column in columns(table)])


def markdown() -> str:
    """Return all tables for docs/data.md."""
    parts = []
    for table, row in ROWS.items():
        head = (
            f"### {table}\n\nOne row per {row}.\n\n| column | type | unit | meaning "
            "|\n|---|---|---|---|"
        )
        lines = [
            f"| `{each.name}`{'*' if each.optional else ''} | {each.type} | {each.unit} | "
            f"{each.meaning} |"
            for each in columns(table)
        ]
        parts.append("\n".join([head, *lines]))
    return "\n\n".join(parts)
