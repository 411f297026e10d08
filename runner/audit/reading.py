"""Read tables from files, stdin or https addresses into one tidy frame.

Size and time are limited.
"""

from __future__ import annotations

import http.client
import json
import math
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd

from runner.audit.formats.catalog import JSON_FORMATS, NAMES, TABLE_FORMATS
from runner.audit.formats.text_reports import TOOLS, rows_of_reports
from runner.audit.formats.values import (
    BELOW,
    NUMBERS,
    POSITIVE,
    TEXTS,
    Row,
    as_number,
    dict_of,
    value_of,
)
from runner.model import LabError

MOST_BYTES = 64 * 2**20
MOST_ROWS = 500_000
SECURE = "https://"
FETCH_S = 60


def read_all(
    names: Iterable[str | Path],
    format_name: str = "",
    columns: str = "",
    connections: float | None = None,
    depth: float | None = None,
) -> pd.DataFrame:
    """Return the rows of all sources in one frame.

    A source is a file, `-` for stdin, or an https address. `columns` maps those of a CSV, as
    `rps=a,connections=b`. Raise LabError if a source cannot be read, is too large, or has no known
    format.
    """
    pairs = [part.partition("=") for part in columns.split(",") if part.strip()]
    if not all(separator and ours.strip() and theirs.strip() for ours, separator, theirs in pairs):
        raise LabError(
            f"--map must be such as rps=requests_per_second,connections=clients, not {columns!r}."
        )
    named = {ours.strip(): theirs.strip() for ours, _, theirs in pairs}
    sources = map(_read_source, map(str, names))
    read = [
        parse(source.content, source.name, format_name, named, connections, depth)
        for source in sources
    ]
    return pd.concat(read, ignore_index=True)


@dataclass(frozen=True)
class _Source:
    """A source that was read."""

    content: bytes
    """At most one byte more than `MOST_BYTES`."""
    name: str
    """Its name on pages."""


def _read_source(name: str) -> _Source:
    """Return a source; raise LabError if it cannot be read."""
    if name == "-":
        return _Source(sys.stdin.buffer.read(MOST_BYTES + 1), "stdin")
    if name.startswith(SECURE):
        return _Source(fetch(name), name.rstrip("/").rpartition("/")[2])
    try:
        with Path(name).open("rb") as file:
            return _Source(file.read(MOST_BYTES + 1), Path(name).name)
    except OSError as error:
        raise LabError(f"{name} cannot be read: {error.strerror}.", exit_code=1) from None


class _Secure(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        if not newurl.startswith(SECURE):
            raise urllib.error.URLError(f"it redirects to {newurl}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def fetch(address: str) -> bytes:
    """Return the content of an https address, at most one byte more than `MOST_BYTES`.

    Follow redirections to https only. Take at most `FETCH_S` seconds, plus as long to connect.
    Raise LabError if that fails.
    """
    began = time.monotonic()
    data = bytearray()
    try:
        with urllib.request.build_opener(_Secure).open(address, timeout=FETCH_S) as answer:
            while len(data) <= MOST_BYTES and (more := answer.read1(2**20)):
                data += more
                if time.monotonic() - began > FETCH_S:
                    raise LabError(
                        f"{address} took more than {FETCH_S} s: save it, and give the file.",
                        exit_code=1,
                    )
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise LabError(f"{address} cannot be fetched: {reason}.", exit_code=1) from None
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

    `columns` maps those of a CSV (ours -> theirs). `connections` and `depth` apply to loads that do
    not state theirs. Raise LabError as `read_all` does.
    """
    if len(data) > MOST_BYTES:
        raise LabError(
            f"{source} has more than {MOST_BYTES // 2**20} MiB: audit a part of it.", exit_code=1
        )
    if format_name and format_name not in NAMES:
        raise LabError(f"--format must be one of {', '.join(NAMES)}, not {format_name!r}.")
    text = data.decode("utf-8", errors="replace").removeprefix("\ufeff").replace("\r\n", "\n")
    rows = _rows(text, source, format_name, columns or {})
    found = _tidy(rows, source)
    found["depth"] = found["depth"].fillna(depth or math.nan)
    # Without a word about it, a connection of HTTP/1 has one request under way.
    found["depth"] = found["depth"].mask(found["depth"].isna() & found["protocol"].eq(""), 1.0)
    return found.fillna({"connections": connections or math.nan})


def _rows(text: str, source: str, format_name: str, columns: Mapping[str, str]) -> Iterable[Row]:
    """Return the rows of a text by the first format that fits; raise LabError if none does."""
    if text.lstrip().startswith(("{", "[")):
        content = _json(text, source)
        for known in JSON_FORMATS:
            if format_name in ("", known.name) and known.fits(content):
                return known.rows(content, source)
        raise LabError(_unknown_json(content, source, format_name), exit_code=1)
    tools = [tool for tool in TOOLS if format_name in ("", tool.name)]
    if reports := rows_of_reports(text, source, tools):
        return reports
    for table in TABLE_FORMATS:
        if format_name in ("", table.name) and table.fits(text):
            return table.rows(text, source, columns)
    raise LabError(_unknown_text(text, source, format_name), exit_code=1)


def _json(text: str, source: str) -> Any:
    """Return the content of a JSON text; raise LabError with the line of its first fault."""
    try:
        return json.loads(text, parse_constant=lambda _: None)
    except RecursionError:
        raise LabError(f"{source} is nested too deeply.", exit_code=1) from None
    except json.JSONDecodeError as error:
        raise LabError(
            f"{source} is no valid JSON from line {error.lineno} on: {error.msg}.", exit_code=1
        ) from None
    except ValueError:  # a number of thousands of digits
        raise LabError(f"{source} has a number that is too long.", exit_code=1) from None


def _unknown_json(content: Any, source: str, format_name: str) -> str:
    """Return a sentence about JSON that no format fits: what was tried, and what it has."""
    names = format_name or ", ".join(dict.fromkeys(each.name for each in JSON_FORMATS))
    first = content[0] if isinstance(content, list) and content else content
    has = ", ".join(_clean(name) for name in list(dict_of(first))[:6])
    what = f"it has {has}" if has else "it has no names"
    return f"{source} is JSON of none of the formats {names}: {what}."


def _unknown_text(text: str, source: str, format_name: str) -> str:
    """Return a sentence about a text that no format fits: what was tried, and the first line."""
    tried = format_name or ", ".join(dict.fromkeys(each.name for each in (*TOOLS, *TABLE_FORMATS)))
    line = next((line for line in text.splitlines() if line.strip()), "")
    if not line:
        return f"{source} is empty."
    return (
        f'{source} has none of the formats {tried}: its first line is "{_clean(line)[:60]}". For a '
        "CSV of other names give --map rps=NAME,connections=NAME."
    )


def _tidy(rows: Iterable[Row], source: str) -> pd.DataFrame:
    """Return rows as a frame: texts cleaned, numbers finite, placeholders for "unknown" as NaN."""
    found = list(islice(rows, MOST_ROWS + 1))
    if len(found) > MOST_ROWS:
        raise LabError(
            f"{source} has more than {MOST_ROWS:,} rows: audit a part of it.", exit_code=1
        )
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
        is_0 = said.eq(0) & (name in POSITIVE) & ~is_rounded_to_0
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
