"""k6's raw samples (`--out json=FILE`, plain or .gz) -> typed tables and the numbers that invariants compare.

Facts of k6's source that this rests on (lib/netext/httpext/tracer.go, the same in 1.8.1 and 2.2.0): `time` is the
request's end in wall clock; `http_req_blocked` lasts from asking for a connection to having it, so it contains
`http_req_connecting` and `http_req_tls_handshaking`; `http_req_duration` = sending + waiting + receiving begins where
connecting ends.
"""

from __future__ import annotations

import math
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from runner.digest.histogram import bucket_bounds_ms, bucket_index
from runner.digest.k6_damage import DamageError, rescue
from runner.digest.k6_points import Spools, Tally, connect, read_points
from runner.digest.k6_summary import K6Summary, TrendStats, read_summary
from runner.digest.spool import REQUESTS, Spool
from runner.digest.steady import Steady, steady_state
from runner.model import LabError
from runner.store import replacing

__all__ = ["K6Points", "K6Summary", "TrendStats", "digest_k6", "read_summary"]

BIN_NS = 100_000_000
"""Width of a bin of the throughput table."""

_LONGEST_NS = 30 * 86_400 * 10**9
"""Ends that lie further apart are no load but a broken clock; the tables have one row a bin."""

_QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)
_BUCKETS = 1 << 20
"""More than any latency's bucket (the largest double has 71,000): room for it beside the second in one key."""

_BLOCKED = (1110, 1111)
"""error_code of k6 for an address or a host's name that its options block (lib/netext/httpext/error_codes.go)."""

_PARTS = ("blocked_ms", "connecting_ms", "sending_ms", "waiting_ms", "receiving_ms")
_DOUBLES = ("t_s", "latency_ms", *_PARTS)
_REQUESTS = pa.schema(
    [
        *[(name, pa.float64()) for name in _DOUBLES],
        ("status", pa.int16()),
        ("error_code", pa.int16()),
        ("ok", pa.bool_()),
    ]
)


@dataclass(frozen=True)
class K6Points:
    """What the raw points say. Latencies are exact quantiles of http_req_duration in ms, whatever the mode.

    `ok` of a request: status 200 to 399 and no error_code. The load begins at `first_start_ns`.
    """

    points: dict[str, int]
    """Points by metric, users' own included."""
    requests: int
    failed: int
    """Requests that are not ok."""
    failed_points: int
    """Sum of http_req_failed: k6's own verdict, without requests whose responseCallback is null."""
    with_status: int
    """Responses received (status other than 0)."""
    iterations: int
    dropped_iterations: int
    script_runs: int
    """Points of data_sent: iterations, interrupted ones too, and one each for setup() and teardown()."""
    first_start_ns: int
    """Wall clock: the earliest end - duration - max(blocked, connecting + tls)."""
    last_end_ns: int
    latency_mean_ms: float
    latency_min_ms: float
    latency_p50_ms: float
    latency_p90_ms: float
    latency_p95_ms: float
    latency_p99_ms: float
    latency_p999_ms: float
    latency_max_ms: float
    worst_residual_ms: float
    """Largest |sending + waiting + receiving - duration|."""
    iteration_max_ms: float
    """Largest iteration_duration; 0 without a completed iteration."""
    steady: Steady | None
    """How many iterations were under way in the middle of the load; None without a completed one."""
    salvaged: bool
    """Whether the file's end was cut off and left out."""
    lines_lost: int
    """Lines left out at the end, the torn one included; what was never written is not known."""
    blocked: int = 0
    """Requests that k6 did not send, as their host was not allowed."""


def digest_k6(
    raw: Path,
    requests: Path,
    latency: Path,
    throughput: Path,
    *,
    trial_id: str,
    mode: str,
    scratch: Path,
    memory_mb: int = 400,
    threads: int = 2,
    salvage: bool = False,
) -> K6Points:
    """Digest k6's raw points into three Parquet tables, out of core, and return the numbers of the whole load.

    `latency_ms` of requests and histogram is http_req_duration with mode `keepalive`, and the time from asking for a
    connection to the last byte, max(blocked, connecting + tls) + duration, with mode `close`. Every request counts,
    failed ones too. Where the raw file is damaged, LabError (exit code 1) names it and the line, and no table is
    touched; with `salvage` a cut-off end only loses the requests that are not complete.
    """
    if mode not in {"keepalive", "close"}:
        raise ValueError(f"mode is keepalive or close, not {mode!r}")
    if not raw.is_file():
        raise LabError(f"{raw} does not exist or is not a regular file.", exit_code=1)
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="k6-", dir=scratch) as name:
        spools = Spools.within(Path(name))
        try:
            tally, lost = _read(raw, spools, memory_mb, threads, salvage)
        except DamageError as damage:
            raise LabError(f"{raw}, line {damage.line}: {damage.reason}.", exit_code=1) from None
        except duckdb.Error as error:
            why = str(error).splitlines()[0]
            raise LabError(f"{raw} could not be digested with {memory_mb} MB: {why}.", exit_code=1) from None
        if tally.requests == 0:
            raise LabError(f"{raw} holds no complete request in its {tally.lines} lines.", exit_code=1)
        facts = _survey(spools.requests)
        if facts.last_end_ns - facts.first_start_ns > _LONGEST_NS:
            raise LabError(f"{raw} holds requests more than 30 days apart: its clock was set.", exit_code=1)
        quantiles = _exact_quantiles(spools.requests, tally.requests, memory_mb, threads)
        iterations = _iterations(spools.iterations)
        with ExitStack() as stack:
            targets = [stack.enter_context(replacing(path)) for path in (requests, latency, throughput)]
            histogram, bins = _write_requests(spools.requests, targets[0], facts.first_start_ns, mode == "close")
            _write_latency(targets[1], trial_id, histogram)
            _write_throughput(targets[2], trial_id, bins)
    return _points(tally, facts, quantiles, iterations, lost)


def _read(raw: Path, spools: Spools, memory_mb: int, threads: int, salvage: bool) -> tuple[Tally, int | None]:
    """Return the counts and the number of lines lost, None where nothing is missing."""
    try:
        return read_points(raw, spools, memory_mb=memory_mb, threads=threads), None
    except DamageError as damage:
        if not (salvage and damage.cut):
            raise
    rescued = spools.requests.with_name("rescued.json")
    torn = rescue(raw, rescued).damage is not None
    if rescued.stat().st_size == 0:
        raise DamageError(1, "the file ends within its first line", cut=True)
    tally = read_points(rescued, spools, memory_mb=memory_mb, threads=threads, cut=True)
    rescued.unlink()
    return tally, tally.incomplete + torn


# --- numbers of the whole load ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Facts:
    first_start_ns: int
    last_end_ns: int
    failed: int
    with_status: int
    sum_ms: float
    min_ms: float
    max_ms: float
    worst_residual_ms: float
    blocked: int


def _occupied_ms(rows: dict[str, NDArray[Any]]) -> NDArray[np.float64]:
    """Time from asking for a connection to the last byte, in ms.

    Blocked contains connecting and TLS, but is 0 where the connection was made and then not handed over.
    """
    connect_ms = np.maximum(rows["blocked_ms"], rows["connecting_ms"] + rows["tls_ms"])
    return np.asarray(connect_ms + rows["duration_ms"], dtype=np.float64)


def _is_ok(rows: dict[str, NDArray[Any]]) -> NDArray[np.bool_]:
    status = rows["status"]
    return np.asarray((status >= 200) & (status < 400) & (rows["error_code"] == 0), dtype=np.bool_)


def _survey(spool: Path) -> _Facts:
    """Return sums and extremes over all requests in one pass."""
    parts = []
    for rows in Spool(spool):
        duration = rows["duration_ms"]
        residual = rows["sending_ms"] + rows["waiting_ms"] + rows["receiving_ms"] - duration
        starts = rows["end_ns"] - np.round(_occupied_ms(rows) * 1e6).astype(np.int64)
        parts.append(
            _Facts(
                first_start_ns=int(starts.min()),
                last_end_ns=int(rows["end_ns"].max()),
                failed=int((~_is_ok(rows)).sum()),
                with_status=int((rows["status"] != 0).sum()),
                sum_ms=math.fsum(duration),
                min_ms=float(duration.min()),
                max_ms=float(duration.max()),
                worst_residual_ms=float(np.abs(residual).max()),
                blocked=int(np.isin(rows["error_code"], _BLOCKED).sum()),
            )
        )
    return _Facts(
        first_start_ns=min(part.first_start_ns for part in parts),
        last_end_ns=max(part.last_end_ns for part in parts),
        failed=sum(part.failed for part in parts),
        with_status=sum(part.with_status for part in parts),
        sum_ms=math.fsum(part.sum_ms for part in parts),
        min_ms=min(part.min_ms for part in parts),
        max_ms=max(part.max_ms for part in parts),
        worst_residual_ms=max(part.worst_residual_ms for part in parts),
        blocked=sum(part.blocked for part in parts),
    )


def _exact_quantiles(spool: Path, count: int, memory_mb: int, threads: int) -> list[float]:
    """Return _QUANTILES of http_req_duration by k6's formula (metrics/sink.go, TrendSink.P): linear interpolation.

    The values are sorted by DuckDB, which spills to disk where they exceed its memory.
    """
    ranks = [q * (count - 1) for q in _QUANTILES]
    wanted = sorted({whole for rank in ranks for whole in (math.floor(rank), math.ceil(rank))})
    schema = pa.schema([REQUESTS.field("duration_ms")])
    with connect(spool.parent, memory_mb // 2, threads) as connection:
        durations = Spool(spool, "duration_ms").batches()
        connection.register("durations", pa.RecordBatchReader.from_batches(schema, durations))
        connection.execute("CREATE TABLE sorted AS SELECT duration_ms FROM durations ORDER BY duration_ms")
        found = connection.execute(
            "SELECT rowid, duration_ms FROM sorted WHERE list_contains($wanted, rowid)", {"wanted": wanted}
        ).fetchall()
    values = dict(found)
    return [
        values[math.floor(rank)] + (values[math.ceil(rank)] - values[math.floor(rank)]) * (rank - math.floor(rank))
        for rank in ranks
    ]


def _iterations(spool: Path) -> tuple[float, Steady | None]:
    """Return the longest iteration's length in ms, 0 without any, and the steady part of the load."""
    rows = Spool(spool)
    longest_ms = max((float(each["length_ms"].max(initial=0.0)) for each in rows), default=0.0)
    return longest_ms, steady_state(rows)


def _points(
    tally: Tally, facts: _Facts, quantiles: list[float], iterations: tuple[float, Steady | None], lost: int | None
) -> K6Points:
    p50, p90, p95, p99, p999 = quantiles
    return K6Points(
        points=dict(sorted(tally.points.items())),
        requests=tally.requests,
        failed=facts.failed,
        failed_points=tally.failed_points,
        with_status=facts.with_status,
        iterations=tally.iterations,
        dropped_iterations=tally.dropped,
        script_runs=tally.points["data_sent"],
        first_start_ns=facts.first_start_ns,
        last_end_ns=facts.last_end_ns,
        latency_mean_ms=facts.sum_ms / tally.requests,
        latency_min_ms=facts.min_ms,
        latency_p50_ms=p50,
        latency_p90_ms=p90,
        latency_p95_ms=p95,
        latency_p99_ms=p99,
        latency_p999_ms=p999,
        latency_max_ms=facts.max_ms,
        worst_residual_ms=facts.worst_residual_ms,
        iteration_max_ms=iterations[0],
        steady=iterations[1],
        salvaged=lost is not None,
        lines_lost=lost or 0,
        blocked=facts.blocked,
    )


# --- tables -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Counts:
    """Counts by integer key, ascending, as NumPy arrays."""

    keys: NDArray[np.int64]
    requests: NDArray[np.int64]
    failed: NDArray[np.int64]

    @classmethod
    def of(cls, keys: NDArray[np.int64], requests: NDArray[np.int64], failed: NDArray[np.int64]) -> _Counts:
        """Add up the counts of equal keys."""
        unique, inverse = np.unique(keys, return_inverse=True)
        sums = (
            np.bincount(inverse, weights=part, minlength=unique.size).astype(np.int64) for part in (requests, failed)
        )
        return cls(unique, *sums)


class _Counting:
    """Counts requests by key while they pass by.

    What has come is merged once it outweighs what had come before: merging with each batch would take a time that grows
    with the square of the trial's length.
    """

    def __init__(self) -> None:
        nothing = np.empty(0, np.int64)
        self._parts = [_Counts(nothing, nothing, nothing)]
        self._size = 0

    def add(self, keys: NDArray[np.int64], failed: NDArray[np.bool_]) -> None:
        """Count one request more at each of `keys`."""
        part = _Counts.of(keys, np.ones(keys.size, np.int64), failed.astype(np.int64))
        self._parts.append(part)
        self._size += part.keys.size
        if self._size > 2 * self._parts[0].keys.size:
            self.total()

    def total(self) -> _Counts:
        """Return what was counted."""
        columns = ([getattr(part, name) for part in self._parts] for name in ("keys", "requests", "failed"))
        self._parts = [_Counts.of(*(np.concatenate(column) for column in columns))]
        self._size = self._parts[0].keys.size
        return self._parts[0]


def _write_requests(spool: Path, target: Path, first_start_ns: int, close: bool) -> tuple[_Counts, _Counts]:
    """Write the requests table; return counts by second and bucket in one key, and by bin of 0.1 s."""
    histogram, bins = _Counting(), _Counting()
    options = {"use_dictionary": ["status", "error_code"], "use_byte_stream_split": list(_DOUBLES)}
    with pq.ParquetWriter(target, _REQUESTS, compression="zstd", compression_level=1, **options) as writer:
        for rows in Spool(spool):
            since_ns = rows["end_ns"] - first_start_ns
            latency_ms = _occupied_ms(rows) if close else rows["duration_ms"]
            ok = _is_ok(rows)
            columns = [since_ns / 1e9, latency_ms, *(rows[part] for part in _PARTS)]
            columns += [rows["status"], rows["error_code"], ok]
            writer.write_batch(pa.record_batch([pa.array(column) for column in columns], schema=_REQUESTS))
            histogram.add(since_ns // 1_000_000_000 * _BUCKETS + bucket_index(latency_ms * 1000), ~ok)
            bins.add(since_ns // BIN_NS, ~ok)
    return histogram.total(), bins.total()


def _write_latency(target: Path, trial_id: str, histogram: _Counts) -> None:
    seconds, buckets = np.divmod(histogram.keys, _BUCKETS)
    lower, upper = bucket_bounds_ms(buckets)
    columns = {
        "trial_id": pa.array([trial_id] * seconds.size, pa.string()),
        "second": pa.array(seconds.astype(np.int32)),
        "bucket": pa.array(buckets.astype(np.int32)),
        "lower_ms": pa.array(lower),
        "upper_ms": pa.array(upper),
        "count": pa.array(histogram.requests),
    }
    pq.write_table(pa.table(columns), target, compression="zstd")


def _write_throughput(target: Path, trial_id: str, bins: _Counts) -> None:
    """Every bin from the begin of the load to its last request has a row: a stall shows as zeros."""
    size = int(bins.keys[-1]) + 1
    filled = np.zeros((2, size), np.int64)
    filled[:, bins.keys] = np.stack([bins.requests, bins.failed])
    columns = {
        "trial_id": pa.array([trial_id] * size, pa.string()),
        "t_s": pa.array(np.arange(size) / (1_000_000_000 // BIN_NS)),
        "requests": pa.array(filled[0]),
        "failed": pa.array(filled[1]),
    }
    pq.write_table(pa.table(columns), target, compression="zstd")
