"""All formats of files that can be audited, in the order in which they are tried.

A format is recognized by the content of a file, not by the file's name.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from runner.audit.formats import boards, csv_tables, jmeter, json_reports, k6_summaries
from runner.audit.formats.text_reports import TOOLS
from runner.audit.formats.values import JsonObject, Row, dict_of


@dataclass(frozen=True)
class JsonFormat:
    """A JSON format: how to recognise its content, and how to read it."""

    name: str
    fits: Callable[[Any], bool]
    rows: Callable[[Any, str], Iterable[Row]]
    """Function that gets a file's content and the file's name, and returns the rows."""


@dataclass(frozen=True)
class TableFormat:
    """A format of tables in text: how to recognise its content, and how to read it."""

    name: str
    fits: Callable[[str], bool]
    rows: Callable[[str, str, Mapping[str, str]], Iterable[Row]]
    """Function that returns the rows of a text.

    The second argument is the file's name. The third argument contains the columns that `--map`
    names: each key is our name of a column, and its value is the table's name of this column.
    """


def _reports(
    name: str,
    fits: Callable[[JsonObject], bool],
    rows: Callable[[JsonObject, str], Iterable[Row]],
) -> JsonFormat:
    """Return the format of files that contain one report of a tool, or a list of its reports."""

    def all_fit(data: Any) -> bool:
        return all(fits(each) for each in json_reports.objects(data))

    def all_rows(data: Any, source: str) -> Iterable[Row]:
        reports = json_reports.objects(data)
        for number, report in enumerate(reports, start=1):
            said = f"{source} [{number}]" if len(reports) > 1 else source
            for row in rows(report, said):
                yield row | {"test": source}

    return JsonFormat(name, all_fit, all_rows)


JSON_FORMATS = (
    JsonFormat(
        "techempower",
        lambda data: isinstance(dict_of(data).get("rawData"), dict),
        boards.techempower,
    ),
    JsonFormat(
        "web-frameworks",
        lambda data: isinstance(dict_of(data).get("metrics"), list),
        boards.web_frameworks,
    ),
    _reports("k6", k6_summaries.is_summary, k6_summaries.summary),
    _reports("k6", k6_summaries.is_schema_1, k6_summaries.schema_1),
    _reports("oha", json_reports.is_oha, json_reports.oha),
    _reports("bombardier", json_reports.is_bombardier, json_reports.bombardier),
    _reports("vegeta", json_reports.is_vegeta, json_reports.vegeta),
    _reports("autocannon", json_reports.is_autocannon, json_reports.autocannon),
    _reports("fortio", json_reports.is_fortio, json_reports.fortio),
    _reports("nighthawk", json_reports.is_nighthawk, json_reports.nighthawk),
    _reports("ghz", json_reports.is_ghz, json_reports.ghz),
    _reports("gatling", json_reports.is_gatling, json_reports.gatling),
    _reports("crank", json_reports.is_crank, json_reports.crank),
    JsonFormat(
        "httparena",
        lambda data: any({"rps", "framework"} <= {*row} for row in boards.arena_rows(data)),
        boards.arena,
    ),
)
TABLE_FORMATS = (
    TableFormat(
        "published",
        lambda text: {"server", "metric", "value", "scenario"} <= set(csv_tables.header_of(text)),
        csv_tables.published,
    ),
    TableFormat(
        "locust",
        lambda text: csv_tables.is_locust(csv_tables.header_of(text)),
        csv_tables.locust,
    ),
    TableFormat(
        "jmeter",
        lambda text: jmeter.is_jmeter(csv_tables.header_of(text)),
        lambda text, source, _: jmeter.rows_of_requests(jmeter.lines_of(text), source),
    ),
    TableFormat("markdown", csv_tables.has_markdown_table, csv_tables.markdown),
    TableFormat("csv", csv_tables.is_csv, csv_tables.named_columns),
)
NAMES = tuple(dict.fromkeys(each.name for each in (*JSON_FORMATS, *TOOLS, *TABLE_FORMATS)))
"""Names of all formats, for `--format`."""
