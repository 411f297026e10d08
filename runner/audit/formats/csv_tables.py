"""Read tables: CSV, tables in Markdown, and Locust's statistics."""

import csv
import io
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from runner.audit.formats.values import NUMBERS, PRINTED_QUANTILES, TEXTS, Row, as_number
from runner.model import LabError

ALIASES = {
    "rate": (
        "rps",
        "requests_per_second",
        "requests_per_second_median",
        "req_per_sec",
        "requests/s",
        "requests/sec",
    ),
    "connections": ("concurrency", "clients", "vus", "connections"),
    "subject": ("framework", "server", "name", "subject"),
    "test": ("test", "scenario", "workload"),
    "mean_ms": ("latency_mean_ms", "latency_avg_ms", "mean_ms", "avg_ms"),
    "duration_s": ("duration", "seconds"),
    "language": ("language",),
}
"""Headings by which each of our columns is recognized in a CSV, unless `--map` names a heading."""


def _csv_rows(text: str) -> Iterator[dict[str, str]]:
    """Yield the rows of a CSV as dicts by column name; raise LabError if the CSV is broken.

    If semicolons separate the columns, a comma in a number is a decimal comma, because spreadsheets
    write semicolons for languages that have a decimal comma.
    """
    delimiter = delimiter_of(text)
    reader = csv.DictReader(io.StringIO(text.lstrip("\n")), restkey="", delimiter=delimiter)
    try:
        for row in reader:
            texts = {
                str(name).strip(): value for name, value in row.items() if isinstance(value, str)
            }
            if delimiter == ";":
                texts = {name: DECIMAL_COMMA.sub(r"\1.\2", value) for name, value in texts.items()}
            yield texts
    except csv.Error as error:
        raise LabError(
            f"The CSV cannot be read from line {reader.line_num} on: {error}.", exit_code=1
        ) from None


DELIMITERS = (",", ";", "\t")
DECIMAL_COMMA = re.compile(r"^(\s*-?\d+),(\d+\s*[^\d,]*)$")


def _first_line(text: str) -> str:
    """Return the first non-empty line of a text."""
    return re.split(r"[\r\n]", text[:20_000].lstrip("\r\n"), maxsplit=1)[0][:10_000]


def delimiter_of(text: str) -> str:
    """Return the delimiter that divides the first line of a CSV into the most names."""
    first = _first_line(text)
    return max(DELIMITERS, key=lambda each: len(next(csv.reader([first], delimiter=each), [])))


def header_of(text: str) -> list[str]:
    """Return the names in the first line of a CSV."""
    names = next(csv.reader([_first_line(text)], delimiter=delimiter_of(text)), [])
    return [name.strip() for name in names]


def is_csv(text: str) -> bool:
    """Return True if the first line of a text has several names, and the text is not JSON."""
    return len({*header_of(text)} - {""}) > 1 and not text.lstrip().startswith(("{", "["))


PUBLISHED = {
    "rps": "rate",
    **{f"latency_p{q}": f"p{q}_ms" for q in PRINTED_QUANTILES},
    "cpu_peak": "cpu_pct",
}


def published(text: str, _source: str, _columns: Mapping[str, str]) -> Iterator[Row]:
    """Yield a row for each load and server of a CSV like data/published.csv.

    data/published.csv has only one number per line, so several lines make a row.
    """
    cells: dict[tuple[str, ...], Row] = {}
    for row in _csv_rows(text):
        key = tuple(
            row.get(name, "")
            for name in ("source", "scenario", "load", "server", "mode", "connections")
        )
        cell = cells.setdefault(
            key,
            {
                "test": f"{key[1]} ({key[0]})",
                "subject": key[3],
                "mode": key[4],
                "connections": key[5],
                "language": row.get("language"),
                "load_model": "open" if "ramping" in key[2] else "closed",
            },
        )
        if (column := PUBLISHED.get(row.get("metric", ""))) is not None:
            cell[column] = row.get("value")
    yield from cells.values()


def named_columns(text: str, source: str, renamed: Mapping[str, str]) -> Iterator[Row]:
    """Yield the rows of a CSV with column names.

    A column is recognized in one of three ways: `renamed` (from `--map`) names the column, the
    column's name is one of the ALIASES, or it is our own name of a numeric column, of `load_model`
    or of `day`. Raise LabError if `renamed` names a column that the CSV does not have, or a
    quantity that is unknown. Also raise LabError if no column is recognized as the rate.
    """
    header = header_of(text)
    by_name = {name.lower(): name for name in reversed(header)}
    columns = {
        ours: by_name[name]
        for ours, names in ALIASES.items()
        for name in reversed(names)
        if name in by_name
    }
    columns |= {name: name for name in (*NUMBERS, "load_model", "day") if name in header}
    for name, theirs in renamed.items():
        ours = {"rps": "rate"}.get(name, name.removeprefix("latency_"))
        if theirs not in header or ours not in (*NUMBERS, *TEXTS):
            what = f"no column {theirs!r}" if theirs not in header else f"no quantity {ours!r}"
            raise LabError(
                f"--map: {source} has {what}; its columns are {', '.join(header)}.", exit_code=1
            )
        columns[ours] = theirs
    if "rate" not in columns:
        what = (
            f"{source} has no column whose name is known to mean a rate: name the column of the "
            "rate by --map rps=NAME"
        )
        raise LabError(f"{what}. The columns are {', '.join(header)}.", exit_code=1)
    versions = [
        name
        for name in ("mode", "version", "framework_version")
        if name in set(header) - {*columns.values()}
    ]
    expected = tuple(name for name in columns if name in NUMBERS)
    units = {ours: unit_of(theirs) for ours, theirs in columns.items() if ours.endswith("_ms")}
    for row in _csv_rows(text):
        found: Row = {ours: row.get(theirs) for ours, theirs in columns.items()}
        found |= {ours: _with_unit(found[ours], unit) for ours, unit in units.items()}
        subject = " ".join(
            [found.get("subject") or "", *(row.get(name) or "" for name in versions)]
        ).strip()
        yield {**found, "mode": row.get("mode"), "subject": subject, "expected": expected}


UNIT_AT_END = re.compile(r"[\s_(\[/](ns|us|µs|μs|ms|s|secs?|seconds?)[)\]]?$", re.IGNORECASE)


def unit_of(heading: str) -> str:
    """Return the unit of time at the end of a column's name, as in `avg (us)`.

    If the name ends with no unit, return `ms`.
    """
    found = UNIT_AT_END.search(heading.strip())
    return found[1].lower().replace("seconds", "s").replace("second", "s") if found else "ms"


def _with_unit(value: str | None, unit: str) -> str | None:
    """Append `unit` to a value that ends with a digit. Return any other value unchanged."""
    return f"{value.strip()}{unit}" if value and value.strip()[-1:].isdigit() else value


# --- tables in Markdown ---------------------------------------------------------------------------

_RULE = re.compile(r"^\s{0,3}\|?\s*:?-{2,}:?\s*(\|\s*:?-{2,}:?\s*)+\|?\s*$")


def has_markdown_table(text: str) -> bool:
    """Return True if a text has a Markdown table, with a line of dashes below the column names."""
    return any(_RULE.match(line) for line in text.splitlines()[1:5000])


def markdown(text: str, source: str, renamed: Mapping[str, str]) -> Iterator[Row]:
    """Yield the rows of the tables in a Markdown text.

    Only tables that seem to have a column of rates are read. If there is no such table, the first
    table is read, so that the error message names the columns of this table. If a table has no
    column for the test, the heading above the table is the name of the test.
    """
    tables = list(_markdown_tables(text))
    rated = [table for table in tables if _has_rate(table.names, renamed)]
    for table in rated or tables[:1]:
        for row in named_columns(table.as_csv(), source, renamed):
            yield row if row.get("test") else row | {"test": table.heading or source}


@dataclass(frozen=True)
class _MarkdownTable:
    """A table in Markdown, and the heading above it."""

    heading: str
    names: list[str]
    rows: list[list[str]]

    def as_csv(self) -> str:
        """Return the table as CSV."""
        out = io.StringIO()
        csv.writer(out).writerows([self.names, *self.rows])
        return out.getvalue()


def _markdown_tables(text: str) -> Iterator[_MarkdownTable]:
    lines = text.splitlines()
    heading = ""
    for number, line in enumerate(lines[:-1]):
        if line.startswith("#"):
            heading = line.strip("# \t")
        if _RULE.match(lines[number + 1]) and "|" in line:
            rows = []
            for below in lines[number + 2 :]:
                if "|" not in below:
                    break
                rows.append(_cells(below))
            yield _MarkdownTable(heading, _cells(line), rows)


def _cells(line: str) -> list[str]:
    """Return the cells of a line, without the Markdown marks of bold text and code."""
    return [cell.strip(" \t*`_") for cell in line.strip().strip("|").split("|")]


def _has_rate(names: Sequence[str], renamed: Mapping[str, str]) -> bool:
    """Return True if a table has a column of rates, known by the column's name or by `--map`."""
    by_option = {renamed.get("rps"), renamed.get("rate")} & set(names)
    return bool(by_option or {name.lower() for name in names} & set(ALIASES["rate"]))


# --- Locust ---------------------------------------------------------------------------------------

LOCUST = {
    "requests": "Request Count",
    "errors": "Failure Count",
    "rate": "Requests/s",
    "mean_ms": "Average Response Time",
    "min_ms": "Min Response Time",
    "max_ms": "Max Response Time",
    "p50_ms": "50%",
    "p90_ms": "90%",
    "p95_ms": "95%",
    "p99_ms": "99%",
    "answer_bytes": "Average Content Size",
}


def is_locust(header: Collection[str]) -> bool:
    """Return True if a CSV is the file *_stats.csv that Locust writes (option `--csv`)."""
    return {"Request Count", "Failure Count", "Requests/s", "Average Response Time"} <= set(header)


def locust(text: str, source: str, _columns: Mapping[str, str]) -> Iterator[Row]:
    """Yield a row for each kind of request in Locust's statistics.

    The line `Aggregated` is left out, because it sums up the other lines. Locust rounds percentiles
    to two digits. For example, a percentile above 100 ms is rounded to a multiple of 10 ms, and a
    percentile above 1 s is rounded to a multiple of 100 ms.
    """
    for row in _csv_rows(text):
        if row.get("Name") == "Aggregated" and not row.get("Type"):
            continue
        found: Row = {ours: row.get(theirs) for ours, theirs in LOCUST.items()}
        slowest_ms = as_number(row.get("Max Response Time"))
        step_ms = next((step for step in (1.0, 10.0, 100.0) if slowest_ms < 100 * step), 1000.0)
        yield found | {
            "test": source,
            "subject": " ".join(filter(None, (row.get("Type"), row.get("Name")))),
            "tool": "locust",
            "load_model": "unknown",
            "resolution_ms": step_ms / 2,
        }
