"""Compute rates from cumulative counters, for example CPU use in % of a core from CPU time.

Each rate is computed over the time that actually passed between two samples, not over the
sampler's planned interval.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from runner.columns import schema_of
from runner.model import STATS_COLUMNS, LabError

Floats = npt.NDArray[np.float64]


class Window(NamedTuple):
    """The time span of a load, and the time span of the generator's process.

    The load begins at `begin_mono_ns` and lasts `seconds`. The process lives longer than the load,
    from `started_mono_ns` to `ended_mono_ns`.
    """

    begin_mono_ns: int
    seconds: float
    started_mono_ns: int
    ended_mono_ns: int


@dataclass(frozen=True)
class Counter:
    """The samples of one subject, such as the server or the host."""

    t_s: Floats
    """Times of the samples in ascending order, in seconds since the load began.

    In a counter that `stitched` returns, the times do not include the pauses between slices.
    """
    columns: Mapping[str, Floats]
    """The values of all samples, by column; unknown values are NaN.

    Some columns are cumulative, such as the CPU time `cpu_s`. Other columns are levels, such as
    `rss_bytes`. Which columns have values depends on the subject:

    - The host alone has `steal_s` (CPU time that the hypervisor gave to other guests),
      `interrupts_s` (CPU time of interrupts), `ran_s` (CPU time of all programs) and `switches`
      (number of switches between tasks).
    - The other subjects have `throttled_s`, `threads` and `foreign_cpus` (number of CPUs that the
      subject may use in addition to the CPUs that it was given).
    - The server also has `waited_s` (time that the server's threads waited for a CPU),
      `busiest_thread_pct` (CPU use of the server's busiest thread since the previous sample),
      `stopped` (1 if SIGSTOP or a similar signal had paused the server), and the STATS_COLUMNS,
      which come from the server's /stats.
    """
    seams: tuple[float, ...] = ()
    """Times at which one slice ends and the next slice begins, in seconds since the load began.

    `peak_pct` ignores each window that contains such a time, because the window would combine the
    CPU time of two slices.
    """

    def level(self, name: str, begin_s: float, end_s: float) -> Floats:
        """Return the known values of a column from `begin_s` to `end_s`.

        The column must not be cumulative.
        """
        values = self.column(name)[(self.t_s >= begin_s) & (self.t_s <= end_s)]
        return values[~np.isnan(values)]

    def column(self, name: str) -> Floats:
        """Return the column of this name, or NaN for each sample if there is no such column."""
        return self.columns.get(name, np.full(len(self.t_s), np.nan))

    def between(self, begin_s: float, end_s: float, name: str = "cpu_s") -> float:
        """Return the increase of a cumulative column between two times.

        Values are interpolated between samples. Before the first sample and after the last sample,
        the value is assumed to be constant. Return NaN if the column has no values.
        """
        first, last = np.interp([begin_s, end_s], self.t_s, self.column(name))
        return float(last - first)

    def mean_pct(self, begin_s: float, end_s: float) -> float:
        """Return the mean CPU use from `begin_s` to `end_s`, in % of a core."""
        return 100 * self.between(begin_s, end_s) / (end_s - begin_s)

    def peak_pct(self, begin_s: float, end_s: float, window_s: float) -> float:
        """Return the highest mean CPU use in any window of `window_s`, in % of a core.

        The windows lie between `begin_s` and `end_s`. Only windows that begin or end at a sample,
        or that begin at `begin_s`, are considered. Return NaN if there is no such window.
        """
        if end_s - begin_s < window_s * 0.999:
            return float("nan")
        starts = np.concatenate([self.t_s, self.t_s - window_s, [begin_s]])
        starts = starts[(starts >= begin_s) & (starts <= end_s - window_s)]
        for seam in self.seams:
            starts = starts[(starts + window_s <= seam + 1e-9) | (starts >= seam - 1e-9)]
        if not len(starts):
            return float("nan")
        cpu_s = self.column("cpu_s")
        used = np.interp(starts + window_s, self.t_s, cpu_s) - np.interp(starts, self.t_s, cpu_s)
        return float(100 * used.max() / window_s)


CUMULATIVE = ("cpu_s", "throttled_s", "waited_s", "steal_s", "switches", "interrupts_s", "ran_s")
EDGE_S = 0.1
"""`_at_begin` measures the rate of a counter outside a load over this many seconds.

The sampler takes two samples in this time.
"""
SHORTEST_EDGE_S = EDGE_S / 4
"""A rate is computed only from samples that are at least this many seconds apart."""
IDLE_OUTSIDE = frozenset({"server", "database"})
"""The subjects that are idle before and after a load."""
MARGIN_S = 0.1
"""The samples of a slice begin this many seconds before its generator starts.

They end this many seconds after the generator ends. The sampler takes two samples in this time.
"""


def read_counters(
    path: Path,
    zero_mono_ns: int,
    *,
    throttled_known: bool = False,
) -> dict[str, Counter]:
    """Read the raw counters in resources.parquet, by subject.

    The times of the counters are in seconds since `zero_mono_ns`. A null in the file's column of
    throttled times means that the throttled time is unknown. With `throttled_known`, a null means
    0, which is right for files that were written before the lab recorded quotas. Raise LabError if
    the file cannot be read.
    """
    try:
        table = pq.read_table(path)
        subjects = np.asarray(table["subject"].to_pylist(), dtype=object)
        t_s = (table["mono_ns"].to_numpy() - zero_mono_ns) / 1e9
        cpu_s = table["cpu_ns"].to_numpy() / 1e9
        names = ("rss_bytes", "switches", "threads", "foreign_cpus", "stopped", *STATS_COLUMNS)
        columns = {"cpu_s": cpu_s, **{name: _floats(table, name) for name in names}}
        columns |= {
            f"{name}_s": _floats(table, f"{name}_ns") / 1e9
            for name in ("interrupts", "ran", "waited")
        }
        busiest_thread_s = _floats(table, "busiest_thread_ns") / 1e9
        columns["steal_s"] = np.nan_to_num(_floats(table, "steal_ns")) / 1e9
        throttled_ns = _floats(table, "throttled_ns")
        if throttled_known:
            throttled_ns = np.nan_to_num(throttled_ns)
        columns["throttled_s"] = throttled_ns / 1e9
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise LabError(f"{path} cannot be read: {error}.", exit_code=1) from None
    rows_of = {str(subject): subjects == subject for subject in dict.fromkeys(subjects.tolist())}
    found = {}
    for subject, rows in rows_of.items():
        values = {name: each[rows] for name, each in columns.items()}
        values["busiest_thread_pct"] = _use_pct(busiest_thread_s[rows], t_s[rows])
        found[subject] = Counter(t_s[rows], values)
    return found


def _use_pct(used_s: Floats, t_s: Floats) -> Floats:
    """Return the CPU use in each row, in % of a core.

    `used_s` is the CPU time since the previous row. The first row has no previous row, so its value
    is NaN.
    """
    passed_s = np.diff(t_s, prepend=np.nan)
    passed_s[passed_s <= 0] = np.nan
    return np.asarray(100 * used_s / passed_s, dtype=np.float64)


def _floats(table: pa.Table, name: str) -> Floats:
    """Return a column with NaN instead of nulls.

    If the table has no column of this name, all values are NaN.
    """
    if name not in table.column_names:
        return np.full(table.num_rows, np.nan)
    return np.asarray(
        table[name].cast(pa.float64()).fill_null(float("nan")).to_numpy(), dtype=np.float64
    )


def with_edges(raw: Mapping[str, Counter], window: Window) -> dict[str, Counter]:
    """Return counters with one more sample at the beginning and one at the end of a window.

    `raw` is the result of read_counters, with times in seconds since the window began. In the two
    new samples, the values of the cumulative columns come from `_at_edges`. The value of
    `rss_bytes` is copied from the previous sample. The other columns are NaN.
    """
    edges = np.array([0.0, window.seconds])
    found = {}
    for subject, counter in raw.items():
        at = np.searchsorted(counter.t_s, edges)
        columns = {}
        for name, values in counter.columns.items():
            if name in CUMULATIVE:
                at_edges = _at_edges(subject, counter.t_s, values, (0.0, window.seconds))
                added = np.array(at_edges)
            elif name == "rss_bytes":
                added = values[np.clip(at - 1, 0, None)]
            else:
                added = np.full(2, np.nan)
            columns[name] = np.insert(values, at, added)
        found[subject] = Counter(np.insert(counter.t_s, at, edges), columns)
    return found


def _at_edges(
    subject: str, t_s: Floats, values: Floats, edges_s: tuple[float, float]
) -> tuple[float, float]:
    """Return the values of a subject's cumulative column at the beginning and end of a window.

    `edges_s` has the times of the beginning and the end.
    """
    begin_s, end_s = edges_s
    # A server or database is idle before and after the load, so all its CPU time near the edges
    # belongs to the load. Under a quota, its rate near an edge may be higher than any rate within
    # the window, because the quota lets it use CPU time that it saved while it was idle. So no
    # highest rate is assumed.
    is_idle_outside = subject in IDLE_OUTSIDE
    highest_rate = math.inf if is_idle_outside else _highest_rate(t_s, values, begin_s, end_s)
    begun = _at_begin(t_s, values, begin_s, highest_rate)
    # With the signs and the order of the samples reversed, time runs backwards, and the end of the
    # window becomes its beginning.
    ended = -_at_begin(-t_s[::-1], -values[::-1], -end_s, highest_rate)
    return begun, max(begun, ended)


def _highest_rate(t_s: Floats, values: Floats, begin_s: float, end_s: float) -> float:
    """Return the highest rate of a cumulative column between two samples within a window.

    Pairs of neighbouring samples that are less than SHORTEST_EDGE_S apart are ignored. Return
    infinity if no pair remains.
    """
    within = (t_s >= begin_s) & (t_s <= end_s)
    passed_s = np.diff(t_s[within])
    added = np.diff(values[within])
    is_long = passed_s >= SHORTEST_EDGE_S
    if not is_long.any():
        return math.inf
    return float(np.max(added[is_long] / passed_s[is_long]))


def _at_begin(t_s: Floats, values: Floats, begin_s: float, highest_rate: float) -> float:
    """Return the value of a cumulative column at the beginning of a window.

    The window begins between two samples, called the earlier and the later sample. The value is
    extrapolated from the earlier sample, at the rate measured before the earlier sample. The result
    is at most the value of the later sample.

    An interpolation between the two samples would be wrong for a server that was idle before the
    load. It would ascribe some CPU time of the load to the time before the window: at 20 Hz, 8 ms
    of a whole core on average.

    A generator is often busy both before and after the window begins. So the result is also large
    enough that the rate from the beginning of the window to the later sample is at most
    `highest_rate`. For a generator, this is the highest rate between two samples in the window.

    If there is no earlier sample, the value is extrapolated backwards from the first sample, at the
    rate measured after the first sample. `_at_edges` also calls this function for the end of a
    window, with reversed time. There, no earlier sample exists if the process ended with the load.

    If no rate can be measured (see `_rate`), the value is interpolated.
    """
    before = int(np.searchsorted(t_s, begin_s, side="right")) - 1
    after = min(before + 1, len(t_s) - 1)
    if before < 0:
        rate = _rate(t_s, values, t_s[0], t_s[0] + EDGE_S)
        continued = values[0] + rate * (begin_s - t_s[0])
    else:
        rate = _rate(t_s, values, t_s[before] - EDGE_S, t_s[before])
        continued = values[before] + rate * (begin_s - t_s[before])
        continued = max(continued, values[after] - highest_rate * (t_s[after] - begin_s))
        continued = min(continued, values[after])
    if math.isnan(rate):
        continued = np.interp(begin_s, t_s, values)
    return float(continued)


def _rate(t_s: Floats, values: Floats, first_s: float, last_s: float) -> float:
    """Return the rate of a cumulative column between two times.

    Return NaN if the samples between these times span less than SHORTEST_EDGE_S. Return NaN also if
    the column decreases between them, because then a new process replaced the subject's process.
    """
    within = (t_s >= first_s) & (t_s <= last_s)
    times_s = t_s[within]
    span_s = times_s[-1] - times_s[0]
    added = values[within][-1] - values[within][0]
    if span_s < SHORTEST_EDGE_S or added < 0:
        return math.nan
    return float(added / span_s)


def stitched(
    raw: Mapping[str, Counter], windows: Sequence[Window], *, edges_continued: bool
) -> dict[str, Counter]:
    """Return the counters of several loads as if the loads had followed each other without a pause.

    `raw` is the result of read_counters, with times in seconds since the first window began. The
    values of the cumulative columns at the edges of a load come from `_at_edges`. If
    `edges_continued` is false, as for older runs, these values are interpolated.
    """
    offsets = np.cumsum([0.0, *(window.seconds for window in windows)])
    zero_mono_ns = windows[0].begin_mono_ns
    found = {}
    for subject, counter in raw.items():
        pieces: list[dict[str, Floats]] = []
        for number, offset in enumerate(offsets[:-1]):
            window = windows[number]
            begin_s = (window.begin_mono_ns - zero_mono_ns) / 1e9
            near = _near(subject, counter, windows, number, edges_continued)
            edges_s = (begin_s, begin_s + window.seconds)
            piece = _piece(subject, near, edges_s, edges_continued)
            pieces += [{**piece, "t_s": piece["t_s"] + offset}] if piece else []
        if pieces:
            whole = {name: _joined(name, [piece[name] for piece in pieces]) for name in pieces[0]}
            found[subject] = Counter(whole.pop("t_s"), whole, tuple(offsets[1:-1]))
    return found


def _near(
    subject: str,
    counter: Counter,
    windows: Sequence[Window],
    number: int,
    edges_continued: bool,
) -> Counter:
    """Return a subject's samples from shortly before a slice until shortly after it.

    `number` is the number of the slice in `windows`, counted from 0. If `edges_continued` is True,
    no sample is from the time of the previous slice or of the next slice.
    """
    zero_mono_ns = windows[0].begin_mono_ns
    window = windows[number]
    # Each slice has a new generator process, so the generator's counters begin at 0 again. Samples
    # from before this process belong to the process of the previous slice. Therefore the margin of
    # a generator is smaller than that of other subjects.
    margin_s = MARGIN_S / 5 if subject.startswith("generator") else MARGIN_S
    margin_after_s = margin_s if edges_continued else MARGIN_S
    earliest_s = (window.started_mono_ns - zero_mono_ns) / 1e9 - margin_s
    latest_s = (window.ended_mono_ns - zero_mono_ns) / 1e9 + margin_after_s
    # The rate beside a slice must not include the load of a neighbouring slice.
    if edges_continued and number > 0:
        ended_s = (windows[number - 1].ended_mono_ns - zero_mono_ns) / 1e9
        earliest_s = max(earliest_s, ended_s)
    if edges_continued and number + 1 < len(windows):
        started_s = (windows[number + 1].started_mono_ns - zero_mono_ns) / 1e9
        latest_s = min(latest_s, started_s)
    near = (counter.t_s >= earliest_s) & (counter.t_s <= latest_s)
    columns = {name: values[near] for name, values in counter.columns.items()}
    return Counter(counter.t_s[near], columns)


def _piece(
    subject: str, counter: Counter, edges_s: tuple[float, float], edges_continued: bool
) -> dict[str, Floats]:
    """Return a subject's samples within one window, with one more sample at each end.

    `edges_s` has the beginning and the end of the window. The result has the values of the samples
    by column. The times, in the column `t_s`, count from the beginning of the window, and the
    cumulative columns begin at 0. Return an empty dictionary if the counter has no samples.
    """
    begin_s, end_s = edges_s
    t_s = counter.t_s
    if not len(t_s):
        return {}
    at = np.concatenate([[begin_s], t_s[(t_s > begin_s) & (t_s < end_s)], [end_s]])
    row = np.clip(np.searchsorted(t_s, at, side="right") - 1, 0, None)
    piece = {"t_s": at - begin_s}
    for name, values in counter.columns.items():
        if name in CUMULATIVE:
            cumulated = np.interp(at, t_s, values)
            if edges_continued:
                cumulated[[0, -1]] = _at_edges(subject, t_s, values, edges_s)
            piece[name] = cumulated - cumulated[0]
        elif name == "rss_bytes":
            piece[name] = values[row]
        else:
            piece[name] = np.concatenate([[np.nan], values[row][1:-1], [np.nan]])
    return piece


def _joined(name: str, pieces: Sequence[Floats]) -> Floats:
    """Join the pieces of one column.

    In a cumulative column, each piece continues from the last value of the piece before it.
    """
    begun = (
        np.cumsum([0.0, *(each[-1] for each in pieces[:-1])])
        if name in CUMULATIVE
        else np.zeros(len(pieces))
    )
    return np.concatenate([each + before for each, before in zip(pieces, begun, strict=True)])


def tick_coverage(host: Counter, windows: Sequence[Window], hz: float) -> float:
    """Return the share of the due samples that the sampler took within the windows.

    The sampler should take a sample of `host` `hz` times per second. One missing sample per window
    is tolerated, because a window that begins between two samples may contain one sample fewer than
    the window's length suggests.
    """
    expected = taken = 0
    for window in windows:
        begin_s = (window.begin_mono_ns - windows[0].begin_mono_ns) / 1e9
        within = (host.t_s >= begin_s) & (host.t_s < begin_s + window.seconds)
        expected += max(1, int(window.seconds * hz))
        taken += int(within.sum()) + 1
    return min(1.0, taken / expected)


def rates(trial_id: str, counters: Mapping[str, Counter]) -> pa.Table:
    """Return one row per interval between two samples, for tables/resources.parquet.

    docs/data.md describes the columns of this table.
    """
    return pa.concat_tables(
        _subject_rates(trial_id, subject, counter) for subject, counter in counters.items()
    )


def _subject_rates(trial_id: str, subject: str, counter: Counter) -> pa.Table:
    dt = np.diff(counter.t_s)
    kept = dt > 0.001  # the sampler writes two rows at the same time when it adds a subject
    dt = dt[kept]

    def added(name: str) -> Floats:
        return np.diff(counter.column(name))[kept]

    columns = {
        "trial_id": np.full(len(dt), trial_id),
        "subject": np.full(len(dt), subject),
        "t_s": counter.t_s[1:][kept],
        "dt_s": dt,
        "cpu_pct": 100 * added("cpu_s") / dt,
        "throttled_ms": 1000 * added("throttled_s"),
        "waited_ms": 1000 * added("waited_s"),
        "switches_per_s": added("switches") / dt,
        "steal_ms": 1000 * added("steal_s") if subject == "host" else np.full(len(dt), np.nan),
        **{
            name: counter.column(name)[1:][kept]
            for name in ("rss_bytes", "threads", "busiest_thread_pct", "stopped", *STATS_COLUMNS)
        },
    }
    schema = schema_of("resources")
    return pa.table(
        [pa.array(columns[each.name], each.type, from_pandas=True) for each in schema], schema
    )
