"""Read tables from files, stdin or https addresses into one tidy frame.

The size of a source, and the time to fetch it, are limited.
"""

from __future__ import annotations

import codecs
import contextlib
import http.client
import json
import math
import re
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import pandas as pd

from runner.audit.formats import jmeter
from runner.audit.formats.catalog import JSON_FORMATS, NAMES, TABLE_FORMATS, JsonFormat
from runner.audit.formats.csv_tables import header_of
from runner.audit.formats.json_reports import json_of_gatling_script
from runner.audit.formats.text_reports import TOOLS, rows_of_reports
from runner.audit.formats.values import (
    BELOW,
    NUMBERS,
    POSITIVE,
    TEXTS,
    Row,
    as_number,
    dict_of,
    list_of,
    value_of,
)
from runner.model import LabError

MOST_BYTES = 64 * 2**20
"""A source may have at most this many bytes.

Only a list of single requests, such as JMeter's, may be larger, because such a list is read line by
line.
"""
HEAD_BYTES = 2**16
"""Number of bytes that are read first, to recognize a list of single requests."""
LONGEST_LINE_BYTES = 2**20
MOST_ROWS = 500_000
SECURE = "https://"
FETCH_S = 60
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
BETWEEN_DOCUMENTS = re.compile(r"[\s\x1e]*")
"""Characters between two JSON documents: white space, or the record separator of RFC 7464."""
FIRST_OBJECT = re.compile(r"^[ \t]{0,8}[\[{]", re.M)
COLOURS = re.compile(r"\x1b\[[0-9;]{0,20}m")
SINGLE_REQUESTS = {
    frozenset({"type", "metric"}): "k6 wrote this file; `bench report FILE` makes a report of it",
    frozenset({"seq", "latency", "timestamp"}): (
        "give the report that `vegeta report` makes of this file"
    ),
}
"""Advice for files of single requests that cannot be audited.

Each key of this dictionary contains names of fields. A file with these fields gets the advice.
"""


def read_all(
    names: Iterable[str | Path],
    format_name: str = "",
    columns: str = "",
    connections: float | None = None,
    depth: float | None = None,
) -> pd.DataFrame:
    """Return the rows of all sources in one frame.

    A source is a file, `-` for stdin, or an https address. `columns` is the value of `--map`. For
    example, `rps=a,connections=b` means that our column `rps` has the name `a` in the CSV, and that
    our column `connections` has the name `b`. `connections` and `depth` apply to loads for which
    the source does not state these numbers. Raise LabError if a source cannot be read, is too
    large, or has no known format.
    """
    pairs = [part.partition("=") for part in columns.split(",") if part.strip()]
    if not all(separator and ours.strip() and theirs.strip() for ours, separator, theirs in pairs):
        raise LabError(
            "--map must have the form OURS=THEIRS, such as "
            f"rps=requests_per_second,connections=clients, not {columns!r}."
        )
    named = {ours.strip(): theirs.strip() for ours, _, theirs in pairs}
    options = Options(format_name, named, connections, depth)
    return pd.concat([_read(str(name), options) for name in names], ignore_index=True)


@dataclass(frozen=True)
class Options:
    """The user's options about the sources."""

    format_name: str = ""
    """Name of the only format to try. If it is empty, all formats are tried."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """The columns that `--map` names: the CSV's name of each column, by our name of the column."""
    connections: float | None = None
    depth: float | None = None
    """Number of requests that each connection has under way at once.

    `connections` and `depth` apply to loads for which the source does not state these numbers.
    """


def _read(name: str, options: Options) -> pd.DataFrame:
    """Return the rows of a source; raise LabError as `read_all` does."""
    if name == "-":
        return _read_stream(sys.stdin.buffer, "stdin", options)
    if name.startswith(SECURE):
        return _parsed(fetch(name), name.rstrip("/").rpartition("/")[2], options)
    try:
        with Path(name).open("rb") as file:
            return _read_stream(file, Path(name).name, options)
    except OSError as error:
        raise LabError(f"{name} cannot be read: {error.strerror}.", exit_code=1) from None


def _read_stream(stream: BinaryIO, name: str, options: Options) -> pd.DataFrame:
    """Return the rows of a stream.

    JMeter's list of single requests is read line by line, because it may be long. Any other content
    is read at once.
    """
    head = stream.read(HEAD_BYTES)
    may_be_requests = options.format_name in ("", "jmeter") and not head.startswith(UTF_16)
    if may_be_requests and jmeter.is_jmeter(header_of(_text_of(head))):
        return _completed(jmeter.rows_of_requests(_lines(head, stream), name), name, options)
    return _parsed(head + stream.read(MOST_BYTES + 1 - len(head)), name, options)


def _lines(head: bytes, stream: BinaryIO) -> Iterator[str]:
    """Yield the lines of a stream whose first bytes `head` were read already.

    A line that is longer than LONGEST_LINE_BYTES is yielded in several parts.
    """
    *whole, cut_off = head.removeprefix(codecs.BOM_UTF8).split(b"\n")
    yield from (f"{line.decode('utf-8', errors='replace')}\n" for line in whole)
    yield (cut_off + stream.readline(LONGEST_LINE_BYTES)).decode("utf-8", errors="replace")
    while line := stream.readline(LONGEST_LINE_BYTES):
        yield line.decode("utf-8", errors="replace")


class _Secure(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        if not newurl.startswith(SECURE):
            raise urllib.error.URLError(f"it redirects to {newurl}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def fetch(address: str) -> bytes:
    """Return the content of an https address, but at most `MOST_BYTES` + 1 bytes.

    The additional byte shows the caller that the content is too large. Follow only redirections to
    https. Raise LabError if the download fails, if it takes longer than `FETCH_S` seconds in all,
    or if the server is silent for `FETCH_S` seconds.
    """
    began = time.monotonic()
    data = bytearray()
    try:
        with urllib.request.build_opener(_Secure).open(address, timeout=FETCH_S) as answer:
            while len(data) <= MOST_BYTES and (more := answer.read1(2**20)):
                data += more
                if time.monotonic() - began > FETCH_S:
                    raise LabError(
                        f"{address} could not be downloaded within {FETCH_S} s: download it "
                        "yourself, and give the file.",
                        exit_code=1,
                    )
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise LabError(f"{address} cannot be downloaded: {reason}.", exit_code=1) from None
    return bytes(data[: MOST_BYTES + 1])


def parse(
    data: bytes,
    source: str,
    format_name: str = "",
    columns: Mapping[str, str] | None = None,
    connections: float | None = None,
    depth: float | None = None,
) -> pd.DataFrame:
    """Return the rows of a file's content, with the columns TEXTS and NUMBERS.

    Each key of `columns` is our name of a column, and its value is the CSV's name of this column.
    `connections` and `depth` apply to loads for which the file does not state these numbers. Raise
    LabError as `read_all` does.
    """
    return _parsed(data, source, Options(format_name, columns or {}, connections, depth))


def _parsed(data: bytes, source: str, options: Options) -> pd.DataFrame:
    """Return the rows of a file's content; raise LabError as `read_all` does."""
    if len(data) > MOST_BYTES:
        raise LabError(
            f"{source} has more than {MOST_BYTES // 2**20} MiB, which is too much: audit a "
            "part of the file.",
            exit_code=1,
        )
    if options.format_name and options.format_name not in NAMES:
        raise LabError(f"--format must be one of {', '.join(NAMES)}, not {options.format_name!r}.")
    return _completed(_rows(_text_of(data), source, options), source, options)


def _completed(rows: Iterable[Row], source: str, options: Options) -> pd.DataFrame:
    """Return rows as a frame; take connections and depth from the options if a row lacks them.

    `depth` is the number of requests that each connection has under way at once. If neither the row
    nor the options state the depth, it is 1. But if the row has a `protocol`, such as `h2`, the
    depth is then NaN, because a connection may carry any number of requests at once.
    """
    found = _tidy(rows, source)
    found["depth"] = found["depth"].fillna(options.depth or math.nan)
    # Without a `protocol`, nothing hints at several requests per connection, so assume one request.
    found["depth"] = found["depth"].mask(found["depth"].isna() & found["protocol"].eq(""), 1.0)
    return found.fillna({"connections": options.connections or math.nan})


def _text_of(data: bytes) -> str:
    """Return the text of a file, without the control codes that colour text in a terminal.

    The text is read as UTF-16 if the file begins with the byte order mark of UTF-16, which
    PowerShell writes. Otherwise it is read as UTF-8.
    """
    text = data.decode("utf-16" if data.startswith(UTF_16) else "utf-8", errors="replace")
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    return COLOURS.sub("", text) if "\x1b" in text else text


def _rows(text: str, source: str, options: Options) -> Iterable[Row]:
    """Return the rows of a text, read by the first format that fits.

    Raise LabError if no format fits.
    """
    name = options.format_name
    text = json_of_gatling_script(text) or text
    if text.lstrip().startswith(("{", "[")):
        try:
            return _rows_of_json(text, source, name)
        except LabError:
            # A text that begins with a bracket is not always JSON. The bracket may belong to a link
            # in Markdown, or to the time at the beginning of a log's line.
            if found := _rows_of_text(text, source, options):
                return found
            raise
    if (found := _rows_of_text(text, source, options)) is not None:
        return found
    if begin := FIRST_OBJECT.search(text):
        # The JSON may follow other text, such as the command that printed it.
        with contextlib.suppress(LabError):
            return _rows_of_json(text[begin.start() :], source, name)
    raise LabError(_unknown_text(text, source, name), exit_code=1)


def _rows_of_text(text: str, source: str, options: Options) -> Iterable[Row] | None:
    """Return the rows of the reports or the table in a text, or None if the text has neither."""
    name = options.format_name
    tools = [tool for tool in TOOLS if name in ("", tool.name)]
    if reports := rows_of_reports(text, source, tools):
        return reports
    for table in TABLE_FORMATS:
        if name in ("", table.name) and table.fits(text):
            return table.rows(text, source, options.columns)
    return None


def _rows_of_json(text: str, source: str, format_name: str) -> Iterable[Row]:
    """Return the rows of a file with one or several JSON documents.

    If no format fits the whole content, read each document, or each element of a list, by itself.
    Raise LabError if there is a document or an element that no format fits.
    """
    documents = _documents(text, source)
    content = documents[0] if len(documents) == 1 else documents
    formats = [known for known in JSON_FORMATS if format_name in ("", known.name)]
    if found := _fitting(formats, content):
        return found.rows(content, source)
    parts = list_of(content)
    if not parts or _fitting(formats, parts[0]) is None:
        raise LabError(_unknown_json(content, source, format_name), exit_code=1)
    return _rows_of_parts(formats, parts, source, format_name)


def _rows_of_parts(
    formats: Sequence[JsonFormat], parts: Sequence[Any], source: str, format_name: str
) -> Iterator[Row]:
    """Yield the rows of several documents, which may have different formats.

    Raise LabError if there is a document that no format fits.
    """
    for number, part in enumerate(parts, start=1):
        name = f"{source} [{number}]"
        known = _fitting(formats, part)
        if known is None:
            raise LabError(_unknown_json(part, name, format_name), exit_code=1)
        for row in known.rows(part, name):
            yield row | {"test": source if row.get("test") == name else row.get("test")}


def _fitting(formats: Iterable[JsonFormat], content: Any) -> JsonFormat | None:
    """Return the first format that fits the content, or None if no format fits."""
    return next((known for known in formats if known.fits(content)), None)


def _documents(text: str, source: str) -> list[Any]:
    """Return all JSON documents in a text, one after the other.

    Raise LabError if the text contains no document, is not valid JSON, is nested too deeply, has a
    number that is too long, or has too many documents. If the text is not valid JSON, the error
    names the line of the first fault.
    """
    decoder = json.JSONDecoder(parse_constant=lambda _: None)
    found: list[Any] = []
    place = _next_document(text, 0)
    try:
        while not found or place < len(text):
            content, end = decoder.raw_decode(text, place)
            found.append(content)
            place = _next_document(text, end)
            if len(found) > MOST_ROWS:
                raise LabError(_too_many_rows(source), exit_code=1)
    except RecursionError:
        raise LabError(
            f"{source} is JSON that is nested too deeply to be read.", exit_code=1
        ) from None
    except json.JSONDecodeError as error:
        raise LabError(
            f"{source} is not valid JSON from line {error.lineno} on: {error.msg}.", exit_code=1
        ) from None
    except ValueError:  # Python refuses numbers with thousands of digits
        raise LabError(f"{source} has a number that is too long.", exit_code=1) from None
    return found


def _next_document(text: str, place: int) -> int:
    """Return the offset of the first JSON document at or after `place`, or the end of the text."""
    space = BETWEEN_DOCUMENTS.match(text, place)
    return space.end() if space else place


def _too_many_rows(source: str) -> str:
    """Return the error message about a source that has too many rows."""
    return (
        f"{source} has more than {MOST_ROWS:,} rows, which is too much: audit a part of the file."
    )


def _unknown_json(content: Any, source: str, format_name: str) -> str:
    """Return the error message about JSON that no format fits.

    The message names the formats that were tried, and the fields of the JSON.
    """
    names = format_name or ", ".join(dict.fromkeys(each.name for each in JSON_FORMATS))
    first = content[0] if isinstance(content, list) and content else content
    for keys, advice in SINGLE_REQUESTS.items():
        if keys <= dict_of(first).keys():
            return f"{source} holds single requests instead of a table of results: {advice}."
    has = ", ".join(_clean(name) for name in list(dict_of(first))[:6])
    what = f"its first fields are {has}" if has else "it has no named fields"
    return f"{source} is JSON, but in none of the formats {names}: {what}."


def _unknown_text(text: str, source: str, format_name: str) -> str:
    """Return the error message about a text that no format fits.

    The message names the formats that were tried, and quotes the first line of the text.
    """
    tried = format_name or ", ".join(dict.fromkeys(each.name for each in (*TOOLS, *TABLE_FORMATS)))
    line = next((line for line in text.splitlines() if line.strip()), "")
    if not line:
        return f"{source} is empty."
    return (
        f'{source} has none of the formats {tried}: its first line is "{_clean(line)[:60]}". If '
        "the file is a CSV with other column names, name the columns by "
        "--map rps=NAME,connections=NAME."
    )


def _tidy(rows: Iterable[Row], source: str) -> pd.DataFrame:
    """Return rows as a frame with the columns TEXTS and NUMBERS.

    In texts, characters that cannot be printed are replaced. Numbers are finite or NaN. A number
    becomes NaN if it is -1, which means "unknown". In the columns POSITIVE, a number also becomes
    NaN if it is negative or 0. But two kinds of 0 are kept: a time that the tool rounds coarsely,
    and a number of requests in the report of a tool.

    The row's column `missing` names the columns whose numbers became NaN. If such a number was
    negative, but not -1, BELOW follows the column's name. `missing` also names expected columns
    without a value.

    Raise LabError if there are more than MOST_ROWS rows.
    """
    found = list(islice(rows, MOST_ROWS + 1))
    if len(found) > MOST_ROWS:
        raise LabError(_too_many_rows(source), exit_code=1)
    columns = {name: [_clean(row.get(name)) for row in found] for name in TEXTS}
    columns["source"] = [_clean(source)] * len(found)
    columns["row"] = [row or str(number) for number, row in enumerate(columns["row"], start=1)]
    frame = pd.DataFrame(columns, dtype=object)
    missing = pd.Series("", frame.index, dtype=object)
    is_coarse = pd.Series([as_number(row.get("resolution_ms")) > 0 for row in found], frame.index)
    for name in NUMBERS:
        said = pd.Series([value_of(name, row.get(name)) for row in found], frame.index, dtype=float)
        expected = pd.Series(
            [name in row.get("expected", ()) for row in found], frame.index, dtype=bool
        )
        is_rounded_to_0 = is_coarse & name.endswith("_ms")
        is_counted = (name == "requests") & frame["tool"].ne("")
        is_0 = said.eq(0) & (name in POSITIVE) & ~is_rounded_to_0 & ~is_counted
        void = said.eq(-1) | is_0 | (said.isna() & expected)
        below = said.lt(0) & ~void & (name in POSITIVE)
        missing += void.map({True: f" {name}", False: ""}) + below.map(
            {True: f" {name}{BELOW}", False: ""}
        )
        frame[name] = said.mask(void | below)
    return frame.assign(missing=missing.str.strip())


def _clean(value: Any) -> str:
    text = "" if value is None else str(value)[:120]
    return (
        text
        if text.isprintable()
        else "".join(letter if letter.isprintable() else "�" for letter in text)
    )
