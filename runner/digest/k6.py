"""k6's raw samples (`--out json=FILE`, plain or .gz) -> typed tables and the numbers that invariants compare.

Facts of k6's source that this rests on (lib/netext/httpext/tracer.go, the same in 1.8.1 and 2.2.0): `time` is the
request's end in wall clock; `http_req_blocked` lasts from asking for a connection to having it, so it contains
`http_req_connecting` and `http_req_tls_handshaking`; `http_req_duration` = sending + waiting + receiving begins where
connecting ends.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from runner.digest.histogram import bucket_bounds_ms, bucket_index
from runner.digest.k6_damage import DamageError, rescue
from runner.digest.k6_latency import Latency, Quantiles, answered_until, mode_of, occupied_ms
from runner.digest.k6_points import Spools, Tally, read_points
from runner.digest.k6_summary import K6Summary, TrendStats, read_summary
from runner.digest.k6_survey import Facts, is_ok, survey
from runner.digest.spool import Spool
from runner.digest.steady import Steady, steady_state
from runner.model import LabError
from runner.store import replacing

__all__ = ["K6Points", "K6Summary", "Latency", "TrendStats", "digest_k6", "mode_of", "read_summary"]

BIN_NS = 100_000_000
"""Width of a bin of the throughput table."""

_LONGEST_NS = 30 * 86_400 * 10**9
"""Ends that lie further apart are no load but a broken clock; the tables have one row a bin."""

_BUCKETS = 1 << 20
"""More than any latency's bucket (the largest double has 71,000): room for it beside the second in one key."""

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
    """What the raw points say. `latency_*` are exact quantiles of http_req_duration in ms, whatever the mode.

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
    opened: int = 0
    """Requests that opened a connection."""
    mode: str = "keepalive"
    """What happened to the connections: `keepalive`, `close` or `mixed`, whatever was asked for."""
    answered_by_end: int = 0
    """Responses received until the load was to end; all of them where that is not known."""
    of_mode: Latency | None = None
    """The latency that the mode implies; None where that is http_req_duration."""

    @property
    def latency(self) -> Latency:
        """The latency that is published: http_req_duration where connections were reused, else with connecting."""
        return self.of_mode or Latency(
            self.latency_mean_ms,
            self.latency_p50_ms,
            self.latency_p90_ms,
            self.latency_p95_ms,
            self.latency_p99_ms,
            self.latency_p999_ms,
            self.latency_max_ms,
        )


def digest_k6(
    raw: Path,
    requests: Path,
    latency: Path,
    throughput: Path,
    *,
    trial_id: str,
    mode: str,
    scratch: Path,
    held: int | None = None,
    window_s: float | None = None,
    memory_mb: int = 400,
    threads: int = 2,
    salvage: bool = False,
) -> K6Points:
    """Digest k6's raw points into three Parquet tables, out of core, and return the numbers of the whole load.

    `mode` is the one asked for; by the connections that the load may hold (`held`), `mode_of` says which one it was.
    `latency_ms` of requests and histogram is http_req_duration with mode `keepalive`, else the time from asking for a
    connection to the last byte, max(blocked, connecting + tls) + duration. Every request counts, failed ones too. An
    open load lasts `window_s` from its first request's begin. Where the raw file is damaged, LabError (exit code 1)
    names it and the line, and no table is touched; with `salvage` a cut-off end only loses the requests that are not
    complete.
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
        facts = survey(spools.requests)
        if facts.last_end_ns - facts.first_start_ns > _LONGEST_NS:
            raise LabError(f"{raw} holds requests more than 30 days apart: its clock was set.", exit_code=1)
        happened = mode_of(mode, facts.opened, facts.connected, held)
        quantiles = Quantiles(spools.requests, tally.requests, memory_mb, threads)
        durations_ms = quantiles.durations_ms()
        of_mode = None if happened == "keepalive" else _with_connecting(quantiles, facts)
        answered = facts.with_status
        if window_s is not None:
            answered = answered_until(spools.requests, facts.first_start_ns + round(window_s * 1e9))
        iterations = _iterations(spools.iterations)
        with ExitStack() as stack:
            targets = [stack.enter_context(replacing(path)) for path in (requests, latency, throughput)]
            histogram, bins = _write_requests(spools.requests, targets[0], facts.first_start_ns, of_mode is not None)
            _write_latency(targets[1], trial_id, histogram)
            _write_throughput(targets[2], trial_id, bins)
    points = _points(tally, facts, durations_ms, iterations, lost)
    return replace(points, mode=happened, of_mode=of_mode, answered_by_end=answered)


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


def _with_connecting(quantiles: Quantiles, facts: Facts) -> Latency:
    """Return the latency from asking for a connection to the last byte."""
    p50, p90, p95, p99, p999 = quantiles.occupied_ms()
    return Latency(facts.occupied_sum_ms / quantiles.count, p50, p90, p95, p99, p999, facts.occupied_max_ms)


def _iterations(spool: Path) -> tuple[float, Steady | None]:
    """Return the longest iteration's length in ms, 0 without any, and the steady part of the load."""
    rows = Spool(spool)
    longest_ms = max((float(each["length_ms"].max(initial=0.0)) for each in rows), default=0.0)
    return longest_ms, steady_state(rows)


def _points(
    tally: Tally, facts: Facts, quantiles: list[float], iterations: tuple[float, Steady | None], lost: int | None
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
        opened=facts.opened,
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


def _write_requests(spool: Path, target: Path, first_start_ns: int, connecting: bool) -> tuple[_Counts, _Counts]:
    """Write the requests table; return counts by second and bucket in one key, and by bin of 0.1 s."""
    histogram, bins = _Counting(), _Counting()
    options = {"use_dictionary": ["status", "error_code"], "use_byte_stream_split": list(_DOUBLES)}
    with pq.ParquetWriter(target, _REQUESTS, compression="zstd", compression_level=1, **options) as writer:
        for rows in Spool(spool):
            since_ns = rows["end_ns"] - first_start_ns
            latency_ms = occupied_ms(rows) if connecting else rows["duration_ms"]
            ok = is_ok(rows)
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
