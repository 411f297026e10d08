"""Which latency a k6 load has: with its connections' making or without, and its exact quantiles."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from runner.digest.k6_points import connect
from runner.digest.spool import Spool

_QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)
_VALUES = pa.schema([("value", pa.float64())])
CLOSED_SHARE = 0.99
"""From this share of requests that opened a connection on, connections are not reused; k6 reports no connecting where
it failed."""


@dataclass(frozen=True)
class Latency:
    """One latency of all requests in ms; quantiles are exact, linear between order statistics."""

    mean_ms: float
    p50_ms: float
    p90_ms: float
    p95_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


def mode_of(asked: str, opened: int, connected: int, held: int | None) -> str:
    """Return what happened to the connections of a load: `keepalive`, `close` or `mixed`, whoever closed them.

    `opened` of its requests opened a connection and `connected` had one. A load that keeps its connections opens no
    more than the `held` that it may hold at once, each user's first; where that is None, what was asked for counts.
    """
    if held is None:
        return asked
    if asked == "keepalive" and opened <= held:
        return "keepalive"
    return "close" if opened >= CLOSED_SHARE * connected else "mixed"


def occupied_ms(rows: dict[str, NDArray[Any]]) -> NDArray[np.float64]:
    """Time from asking for a connection to the last byte, in ms.

    Blocked contains connecting and TLS, but is 0 where the connection was made and then not handed over.
    """
    connect_ms = np.maximum(rows["blocked_ms"], rows["connecting_ms"] + rows["tls_ms"])
    return np.asarray(connect_ms + rows["duration_ms"], dtype=np.float64)


@dataclass(frozen=True)
class Quantiles:
    """Exact quantiles (0.5, 0.9, 0.95, 0.99, 0.999) over all `count` requests of a spool, out of core."""

    spool: Path
    count: int
    memory_mb: int
    threads: int

    def durations_ms(self) -> list[float]:
        """Return those of http_req_duration."""
        return self._exact(_durations(self.spool))

    def occupied_ms(self) -> list[float]:
        """Return those of the time from asking for a connection to the last byte."""
        return self._exact(_occupied(self.spool))

    def _exact(self, values: Iterator[Any]) -> list[float]:
        """Interpolate linearly, as k6 does (metrics/sink.go, TrendSink.P).

        The values are sorted by DuckDB, which spills to disk where they exceed its memory.
        """
        ranks = [q * (self.count - 1) for q in _QUANTILES]
        wanted = sorted({whole for rank in ranks for whole in (math.floor(rank), math.ceil(rank))})
        with connect(self.spool.parent, self.memory_mb // 2, self.threads) as connection:
            connection.register("given", pa.RecordBatchReader.from_batches(_VALUES, values))
            connection.execute("CREATE TABLE sorted AS SELECT value FROM given ORDER BY value")
            found = connection.execute(
                "SELECT rowid, value FROM sorted WHERE list_contains($wanted, rowid)", {"wanted": wanted}
            ).fetchall()
        at = dict(found)
        ends = ((at[math.floor(rank)], at[math.ceil(rank)], rank - math.floor(rank)) for rank in ranks)
        return [low + (high - low) * part for low, high, part in ends]


def _durations(spool: Path) -> Iterator[Any]:
    """Yield http_req_duration in batches of one column."""
    for batch in Spool(spool, "duration_ms").batches():
        yield pa.record_batch([batch.column("duration_ms")], schema=_VALUES)


def _occupied(spool: Path) -> Iterator[Any]:
    """Yield the time from asking for a connection to the last byte in batches of one column."""
    for rows in Spool(spool, "duration_ms", "blocked_ms", "connecting_ms", "tls_ms"):
        yield pa.record_batch([pa.array(occupied_ms(rows))], schema=_VALUES)


def answered_until(spool: Path, until_ns: int) -> int:
    """Return how many requests were answered until an instant."""
    rows = Spool(spool, "end_ns", "status")
    return sum(int(((each["status"] != 0) & (each["end_ns"] <= until_ns)).sum()) for each in rows)
