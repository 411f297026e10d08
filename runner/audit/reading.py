"""Read tables from files, stdin or https addresses into one tidy frame.

Size and time are limited.
"""

from __future__ import annotations

import http.client
import json
import math
import re
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

from runner.audit.formats import BELOW, FORMATS, NUMBERS, POSITIVE, TEXTS, Row, as_number
from runner.model import LabError

MOST_BYTES = 64 * 2**20
MOST_ROWS = 500_000
SECURE = "https://"
FETCH_S = 60
MS = {
    **{"ns": 1e-6, "ms": 1.0, "m": 6e4, "h": 3.6e6},
    **dict.fromkeys(("us", "µs", "μs"), 1e-3),
    **dict.fromkeys(("s", "sec", "secs"), 1e3),
}
PREFIXES = {
    "": 1,
    "K": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}
UNITS = {
    "_ms": MS,
    "bytes_per_s": {
        f"{prefix}{letter}": factor for prefix, factor in PREFIXES.items() for letter in "bB"
    },
    "_s": {unit: ms / 1e3 for unit, ms in MS.items()},
    "_pct": {"%": 1.0},
}
"""By suffix of a column's name: units in texts, with their factors."""
MEASURE = re.compile(r"\s*(-?\d[\d.,]{0,30}(?:[eE][+-]?\d{1,3})?)\s*([A-Za-zµμ%]{0,6})(?:/s)?\s*")


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
    text = data.decode("utf-8", errors="replace").removeprefix("\ufeff")
    known = [each for each in FORMATS if format_name in ("", each.name)]
    if not known:
        raise LabError(
            f"--format must be one of {', '.join(each.name for each in FORMATS)}, not "
            f"{format_name!r}."
        )
    content = None
    try:
        if text.lstrip().startswith(("{", "[")):
            content = json.loads(text, parse_constant=lambda _: None)
    except RecursionError:
        raise LabError(f"{source} is nested too deeply.", exit_code=1) from None
    except ValueError:
        pass  # not JSON
    for each in known:
        subject = content if each.of_json else text
        if subject is not None and each.fits(subject):
            found = _tidy(each.rows(subject, source, columns or {}), source)
            return found.fillna({"connections": connections or math.nan, "depth": depth or 1.0})
    names = ", ".join(each.name for each in known)
    raise LabError(
        f"{source} has none of the formats {names}: for another CSV name its columns by --map.",
        exit_code=1,
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
    for name in NUMBERS:
        said = pd.Series([value_of(name, row.get(name)) for row in found], frame.index, dtype=float)
        expected = pd.Series(
            [name in row.get("expected", ()) for row in found], frame.index, dtype=bool
        )
        void = said.eq(-1) | (said.eq(0) & (name in POSITIVE)) | (said.isna() & expected)
        below = said.lt(0) & ~void & (name in POSITIVE)
        missing += void.map({True: f" {name}", False: ""}) + below.map(
            {True: f" {name}{BELOW}", False: ""}
        )
        frame[name] = said.mask(void | below)
    return frame.assign(missing=missing.str.strip())


def value_of(column: str, value: Any) -> float:
    """Return a column's number from a value in a file, such as `1.71ms`, `3.99GB/s` or `12 %`."""
    units = next((units for end, units in UNITS.items() if column.endswith(end)), None)
    if units is None or not isinstance(value, str):
        return as_number(value)
    found = MEASURE.fullmatch(value[:64])
    return (
        as_number(found[1]) * (units.get(found[2], math.nan) if found[2] else 1.0)
        if found
        else math.nan
    )


def _clean(value: Any) -> str:
    text = "" if value is None else str(value)[:120]
    return (
        text
        if text.isprintable()
        else "".join(letter if letter.isprintable() else "�" for letter in text)
    )
