"""The columns of a run's tables, as columns.csv describes them.

This module imports nothing from this project.
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
    "profiles": "profiled slice and call stack; only in a run with profiles",
    "profile_slices": "slice of a profile; only in a run with profiles",
    "counters": "profile and event; only in a run with profiles",
    "timeline_windows": "interval of the sampler in a timeline; only in a run with timelines",
    "timeline_samples": "sample of perf in a timeline; only in a run with timelines",
    "endpoints": "trial and endpoint, group or scenario of a k6 script",
    "checks": "trial and check of a k6 script",
    "users": "trial and second of a k6 script",
    "thresholds": "trial and threshold of an imported file's script",
    "metrics": "trial and metric of an imported file; metrics of HTTP requests are left out",
}
"""For each table, words for what one row describes, which follow `One row per` in docs/data.md."""


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    table: str
    name: str
    type: str  # Arrow's name of the type: `string`, `int64`, `double`, `bool`
    unit: str
    optional: str
    """`yes` if older runs, or runs made elsewhere, may lack the column.

    If a run lacks the column, the column's values are unknown.
    """
    meaning: str


@functools.cache
def columns(table: str) -> tuple[Column, ...]:
    """Return the columns of a table, in the order of columns.csv."""
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as lines:
        return tuple(
            column for row in csv.DictReader(lines) if (column := Column(**row)).table == table
        )


@functools.cache
def schema_of(table: str) -> pa.Schema:
    """Return the Arrow schema of a table."""
    return pa.schema([(column.name, pa.type_for_alias(column.type)) for column in columns(table)])


def markdown() -> str:
    """Return a list of the columns of each table, as Markdown for docs/data.md."""
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
