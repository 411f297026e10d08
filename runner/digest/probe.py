"""Read the probe's samples, and decide how far they can be trusted.

The probe is a second client. It measures response times without queueing in the client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from runner.digest.resources import Window
from runner.measurement import LEAST_PROBED, PROBE_COLUMNS, PROBE_CONNECTIONS, Measurement
from runner.model import OWN_SCRIPT, Cell, LabError
from runner.store import replacing

ENOUGH = {"p50": LEAST_PROBED, "p95": 100, "p99": 500}
"""Smallest number of samples from which each percentile is computed.

With this number, five samples lie above the percentile. With fewer samples, the column of the
percentile is empty.
"""

LATE_NS = 100_000_000
"""A request of the probe counts as sent late if it was sent more than this time after it was due.

A delay of some milliseconds is normal, because on a busy machine even a process with priority has
to wait. The limit is four times the interval between requests at the probe's highest rate.
"""
CONNECTING_NS = 1_000_000_000
"""The probe abandons a connection that is not accepted within this time."""
AS_OFTEN = 0.1
"""Allowed difference between load and probe in the share of requests that opened a connection.

If the shares of load and probe differ by at most this number, the lab assumes that the server
closed the connections of load and probe equally often. Requests that could not reuse a connection,
because their client had opened no connection before, are not counted.
"""
PACKED: dict[str, object] = {
    "compression": "zstd",
    "compression_level": 9,
    "use_dictionary": False,
    "use_byte_stream_split": ["t_s", "latency_ms", "service_ms"],
    "write_statistics": False,
    "store_schema": False,
}
"""Options for compressing the files of tables/probe.

Each trial has one file, and many of these files have only a few rows. The metadata are a large
share of such a small file, so some options keep the metadata small.
"""


@dataclass(frozen=True)
class ProbeSamples:
    """The probe's raw samples, one per request, in the order in which the requests were due.

    Times are in ns of CLOCK_MONOTONIC.
    """

    scheduled_ns: npt.NDArray[np.int64]
    sent_ns: npt.NDArray[np.int64]
    received_ns: npt.NDArray[np.int64]
    status: npt.NDArray[np.int64]  # HTTP status; 0 without an answer
    opened: npt.NDArray[np.int64]  # 1 if the request opened a connection
    series: npt.NDArray[np.int64]  # number of the load during which a request was sent, from 0
    cpu_share: float | None = None  # the probe's own CPU use, as a share of a core

    @property
    def loads(self) -> int:
        """Number of loads during which the probe sent requests. Each slice is a load of its own."""
        return int(self.series.max(initial=0)) + 1

    def due_within(self, window: Window) -> npt.NDArray[np.bool_]:
        """Return a mask of the samples whose requests were due within the time of a load."""
        due_s = (self.scheduled_ns - window.begin_mono_ns) / 1e9
        within: npt.NDArray[np.bool_] = (due_s >= 0) & (due_s < window.seconds)
        return within

    def only(self, load: int) -> ProbeSamples:
        """Return the samples of one load. `load` is the number of the load, counted from 0."""
        of_load = self.series == load
        return replace(
            self, **{name: getattr(self, name)[of_load] for name in (*PROBE_COLUMNS, "series")}
        )


def read_probe(raw: Path) -> ProbeSamples | None:
    """Read probe.parquet; return None if the trial has no probe.

    Raise LabError if the file cannot be read.
    """
    if not raw.is_file():
        return None
    try:
        table = pq.read_table(raw)
        cost = {name: int((table.schema.metadata or {})[name]) for name in (b"cpu_ns", b"lived_ns")}
        columns = {name: table[name].to_numpy() for name in PROBE_COLUMNS}
        # Files that an older version of the lab wrote have only one load and no column `series`.
        series = (
            table["series"].to_numpy()
            if "series" in table.column_names
            else np.zeros(len(table), np.int64)
        )
        return ProbeSamples(
            **columns, series=series, cpu_share=cost[b"cpu_ns"] / max(1, cost[b"lived_ns"])
        )
    except (OSError, pa.ArrowException, KeyError, ValueError) as error:
        raise LabError(f"{raw} cannot be read: {error}.", exit_code=1) from None


def late_share(probe: ProbeSamples, windows: Sequence[Window], hz: float) -> float:
    """Return the share of due requests that the probe, by its own fault, sent late or not at all.

    Each of the `windows` is the time of one load, and `hz` is the probe's planned rate. The share
    is computed for each window, from the requests that were due within the window. The result is
    the mean of these shares, weighted by the lengths of the windows.

    While the probe waits for the server, a delay is not the probe's fault. The probe waits until
    the server accepts a connection. It also waits while about the maximum number of its requests is
    under way (`_held_up`).

    In two cases, the share is computed from the requests that were sent, not from those that were
    due: if fewer than ten requests were due, and if the probe waits for the server at the end of
    the window, because then it could not send all due requests. If the share is computed from
    fewer than ten requests that were sent, it is assumed to be 0.
    """
    punctual = (probe.sent_ns - probe.scheduled_ns <= LATE_NS) | _held_up(probe, probe.scheduled_ns)
    late = []
    for window in windows:
        # In each period of 1 / hz seconds, one request is due, at a random time. The window may
        # contain only a part of its first and last period, and the request of such a period may be
        # due outside the window. So the lab expects one request fewer than the rate demands.
        due = window.seconds * hz - 1
        t_s = (probe.scheduled_ns - window.begin_mono_ns) / 1e9
        within = (t_s >= 0) & (t_s < window.seconds)
        in_time = int(punctual[within].sum())
        sent = int(within.sum())
        if (
            due < 10
            or _held_up(probe, np.array([window.begin_mono_ns + window.seconds * 1e9])).any()
        ):
            late.append(1 - in_time / sent if sent >= 10 else 0.0)
        else:
            late.append(max(0.0, 1 - in_time / due))
    return float(np.average(late, weights=[window.seconds for window in windows]))


def _held_up(probe: ProbeSamples, at_ns: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return a mask of the times `at_ns`: True for each time at which the probe was held up.

    The probe is held up if it cannot send a request, because it waits for the server.
    """

    def under_way(begin_ns: npt.NDArray[Any], end_ns: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.searchsorted(np.sort(begin_ns), at_ns) - np.searchsorted(np.sort(end_ns), at_ns)

    opened = probe.opened == 1
    begun_ns = probe.sent_ns[opened]
    ended_ns = probe.received_ns[opened]
    connecting = under_way(begun_ns, np.minimum(ended_ns, begun_ns + CONNECTING_NS))
    waiting = under_way(probe.sent_ns, probe.received_ns)
    return np.asarray((waiting >= PROBE_CONNECTIONS - 1) | (connecting > 0))


def reopened_share(probe: ProbeSamples | None) -> float:
    """Return the share of the probe's requests that had to open a new connection.

    A request is counted only if the probe had opened more connections than there were requests
    under way. Such a request could reuse a connection, so it opens a new one only if the server has
    closed a connection. The first requests of each load are not counted, because the probe begins
    each load without connections. Return 0 if fewer than ten requests are counted, or if there is
    no probe.
    """
    if probe is None:
        return 0.0
    known: list[int] = []
    for load in range(probe.loads):
        series = probe.only(load)
        made = (series.opened == 1) & (series.status > 0)
        before = np.cumsum(made) - made
        under_way = np.arange(len(made)) - np.searchsorted(
            np.sort(series.received_ns), series.sent_ns, side="right"
        )
        known += series.opened[before > under_way].tolist()
    return float(np.mean(known)) if len(known) >= ENOUGH["p50"] else 0.0


def without_probe(measurement: Measurement, probe: ProbeSamples | None) -> Measurement:
    """Return a load's measurement without the probe's requests and connections."""
    if probe is None:
        return measurement
    # Subtract only answered requests. If a request was not answered, the server may never have
    # accepted the connection, so the server may not have counted the request.
    answered = int((probe.status > 0).sum())
    opened = int(probe.opened[probe.status > 0].sum())
    after = measurement.counters_after
    less = {"requests": answered, "connections": opened, "passive_opens": opened}
    counts = {
        name: None if (count := getattr(after, name)) is None else count - less[name]
        for name in less
    }
    return replace(measurement, counters_after=replace(after, **counts))


def probe_percentiles(
    probe: ProbeSamples | None, out: Path, windows: Sequence[Window]
) -> dict[str, float | int | None]:
    """Write tables/probe/<trial_id>.parquet, and return the probe's columns of trials.parquet.

    If there was no probe, write nothing and return no columns. The probe's columns summarize the
    requests that were due within the load. The table has one row per request, with these columns:

    - `t_s` is the time at which the request was due, in seconds since the load began. The pauses
      between slices are not counted.
    - `latency_ms` is the time from when the request was due to the answer.
    - `service_ms` is the time from when the request was sent to the answer.
    - `status` and `ok` say whether the request succeeded.
    """
    if probe is None:
        return {}
    dues_s = [(probe.scheduled_ns - window.begin_mono_ns) / 1e9 for window in windows]
    counted = [probe.due_within(window) for window in windows]
    # For a load without slices, the table also has the requests that were due before the load began
    # or after the load ended.
    shown = [each | (len(windows) == probe.loads == 1) for each in counted]
    # In the table, a slice begins at the end of the slice before it.
    begins_s = np.cumsum([0.0, *(window.seconds for window in windows)])
    t_s = np.concatenate(
        [due_s[each] + begun for due_s, each, begun in zip(dues_s, shown, begins_s, strict=False)]
    )
    chosen = np.concatenate([np.flatnonzero(each) for each in shown])
    within = np.concatenate([each[seen] for each, seen in zip(counted, shown, strict=True)])
    latency_ms = (probe.received_ns - probe.scheduled_ns)[chosen] / 1e6
    service_ms = (probe.received_ns - probe.sent_ns)[chosen] / 1e6
    ok = ((probe.status >= 200) & (probe.status < 400))[chosen]
    status = pa.array(probe.status[chosen], pa.int16())
    columns = {
        "t_s": t_s,
        "latency_ms": latency_ms,
        "service_ms": service_ms,
        "status": status,
        "ok": ok,
    }
    with replacing(out) as temporary:
        pq.write_table(pa.table(columns), temporary, **PACKED)
    answered = latency_ms[ok & within]
    return {
        "probe_requests": int(within.sum()),
        "probe_failed": int((within & ~ok).sum()),
        "probe_reopened_pct": 100 * reopened_share(probe),
        "probe_cpu_mean_pct": None if probe.cpu_share is None else 100 * probe.cpu_share,
        **{
            f"probe_{name}_ms": float(np.percentile(answered, float(name[1:])))
            if len(answered) >= enough
            else None
            for name, enough in ENOUGH.items()
        },
    }


def saw_the_same(cell: Cell, mode: str, metrics: Mapping[str, float | int | None]) -> bool:
    """Return whether the response times of probe and load are comparable.

    `mode` is the observed use of the load's connections. The response times of a user's script are
    not comparable with those of the probe, because the script may request anything, but the probe
    requests only one path.

    If the load reuses its connections (mode `keepalive`), the response times are comparable. In the
    other modes, the latency of the load includes the time for opening new connections, but the
    probe opens a new connection only if the server has closed an earlier connection. So in these
    modes, the response times are comparable only if the server closes the connections of load and
    probe equally often.
    """
    if cell.workload == OWN_SCRIPT:
        return False
    if mode == "keepalive":
        return True
    requests = metrics.get("requests") or 0
    opened_pct = metrics.get("opened_pct")
    reopened_pct = metrics.get("probe_reopened_pct")
    if opened_pct is None or reopened_pct is None:
        return False
    opened = round(requests * opened_pct / 100)
    first = min(cell.sockets, opened) if cell.mode == "keepalive" else 0
    if requests <= first:
        return abs(opened_pct - reopened_pct) <= 100 * AS_OFTEN
    return abs((opened - first) / (requests - first) - reopened_pct / 100) <= AS_OFTEN
