"""Rates from cumulative counters: CPU in percent of one core, over the time that really passed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from runner.model import STATS_COLUMNS, LabError

Floats = npt.NDArray[np.float64]


class Window(NamedTuple):
    """When a load was: its first `seconds` from `begin_mono_ns` on count; its generator ran from start to end."""

    begin_mono_ns: int
    seconds: float
    started_mono_ns: int
    ended_mono_ns: int


@dataclass(frozen=True)
class Counter:
    """One subject's cumulative CPU time with its clock, both in seconds; `t_s` ascends from the load's begin.

    Of a load in slices, `t_s` counts the time of the slices only, and no peak spans one of the `seams` between them.
    """

    t_s: Floats
    cpu_s: Floats
    rss_bytes: npt.NDArray[np.int64]
    throttled_s: Floats
    steal_s: Floats
    """CPU time that the hypervisor gave to others, cumulative over all CPUs; of the host only, else 0."""
    switches: Floats | None = None
    """Switches between tasks, cumulative, NaN where not counted: the kernel counts them of the host only."""
    threads: Floats | None = None
    """Threads of the subject's processes, NaN where not looked at."""
    interrupts_s: Floats | None = None
    """CPU time in interrupts, cumulative, NaN where not counted: of the host only."""
    ran_s: Floats | None = None
    """Exact CPU time of all programs, cumulative, NaN where the kernel does not have it: of the host only."""
    foreign_cpus: Floats | None = None
    """How many CPUs the subject might use beside those it was given, NaN where not looked at."""
    figures: dict[str, Floats] = field(default_factory=dict)
    """What the server itself said in /stats, by column (STATS_COLUMNS); NaN in rows that no answer came before."""
    seams: tuple[float, ...] = ()

    def said(self, figure: str, begin_s: float, end_s: float) -> Floats:
        """Return what the server said of `figure` between two instants."""
        values = self.figures[figure][(self.t_s >= begin_s) & (self.t_s <= end_s)]
        return values[~np.isnan(values)]

    def between(self, begin_s: float, end_s: float, name: str = "cpu_s") -> float:
        """Return how much was added to a cumulative column between two instants; NaN where it was not counted.

        Linear between samples and constant outside them. `cpu_s` is the CPU time used.
        """
        values = getattr(self, name)
        if values is None:
            return float("nan")
        first, last = np.interp([begin_s, end_s], self.t_s, values)
        return float(last - first)

    def strayed(self, begin_s: float, end_s: float) -> bool:
        """Return whether the subject might use a CPU that it was not given, at any sample between two instants."""
        if self.foreign_cpus is None:
            return False
        return bool((self.foreign_cpus[(self.t_s >= begin_s) & (self.t_s <= end_s)] > 0).any())

    def mean_pct(self, begin_s: float, end_s: float) -> float:
        """Return the mean CPU use from `begin_s` to `end_s`, 100 = one core busy."""
        return 100 * self.between(begin_s, end_s) / (end_s - begin_s)

    def peak_pct(self, begin_s: float, end_s: float, window_s: float) -> float:
        """Return the highest mean over any window of `window_s` inside the load that begins or ends at a sample.

        A load shorter than the window has no such peak: NaN.
        """
        if end_s - begin_s < window_s * 0.999:
            return float("nan")
        starts = np.concatenate([self.t_s, self.t_s - window_s, [begin_s]])
        starts = starts[(starts >= begin_s) & (starts <= end_s - window_s)]
        for seam in self.seams:
            starts = starts[(starts + window_s <= seam + 1e-9) | (starts >= seam - 1e-9)]
        if not len(starts):
            return float("nan")
        used = np.interp(starts + window_s, self.t_s, self.cpu_s) - np.interp(starts, self.t_s, self.cpu_s)
        return float(100 * used.max() / window_s)


def read_counters(path: Path, zero_mono_ns: int) -> dict[str, Counter]:
    """Read resources.parquet (raw counters) by subject, times relative to `zero_mono_ns`; LabError where unreadable."""
    try:
        table = pq.read_table(path)
        subjects = np.asarray(table["subject"].to_pylist(), dtype=object)
        columns: dict[str, Any] = {
            "t_s": (table["mono_ns"].to_numpy() - zero_mono_ns) / 1e9,
            "cpu_s": table["cpu_ns"].to_numpy() / 1e9,
            "rss_bytes": table["rss_bytes"].fill_null(-1).to_numpy(),
            "throttled_s": table["throttled_ns"].fill_null(0).to_numpy() / 1e9,
            "steal_s": table["steal_ns"].fill_null(0).to_numpy() / 1e9,
            "interrupts_s": _floats(table, "interrupts_ns") / 1e9,
            "ran_s": _floats(table, "ran_ns") / 1e9,
            **{name: _floats(table, name) for name in ("switches", "threads", "foreign_cpus")},
        }
        figures = {name: _floats(table, name) for name in STATS_COLUMNS}
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise LabError(f"{path} cannot be read: {error}.", exit_code=1) from None
    counters = {}
    for subject in dict.fromkeys(subjects.tolist()):
        rows = subjects == subject
        counters[str(subject)] = Counter(
            **{name: values[rows] for name, values in columns.items()},
            figures={name: values[rows] for name, values in figures.items()},
        )
    return counters


MARGIN_S = 0.1
"""How far beyond a slice's generator its rows are looked at: two ticks of the sampler."""
_CUMULATIVE = ("cpu_s", "throttled_s", "steal_s", "switches", "interrupts_s", "ran_s")
_LEVELS = ("threads", "foreign_cpus")


def stitched(raw: Mapping[str, Counter], windows: Sequence[Window]) -> dict[str, Counter]:
    """Return the counters of several loads as if they had followed each other without a pause.

    `raw` is as read_counters gives it with the first window's begin as zero.
    """
    lengths = [window.seconds for window in windows]
    offsets = np.concatenate([[0.0], np.cumsum(lengths)])
    parts: dict[str, list[Counter]] = {}
    for window, offset in zip(windows, offsets[:-1], strict=True):
        for subject, counter in raw.items():
            parts.setdefault(subject, [])
            piece = _piece(counter, window, windows[0].begin_mono_ns, subject)
            if piece is not None:
                parts[subject].append(replace(piece, t_s=piece.t_s + offset))
    return {subject: _joined(pieces, tuple(offsets[1:-1])) for subject, pieces in parts.items() if pieces}


def since(raw: Mapping[str, Counter], first: Window, window: Window) -> Mapping[str, Counter]:
    """Return counters whose zero is the begin of `first` with that of `window` as zero."""
    apart_s = (window.begin_mono_ns - first.begin_mono_ns) / 1e9
    return (
        {subject: replace(counter, t_s=counter.t_s - apart_s) for subject, counter in raw.items()} if apart_s else raw
    )


def _piece(counter: Counter, window: Window, zero_mono_ns: int, subject: str) -> Counter | None:
    """Return what a counter shows of one window, with rows at its very ends; None where it has no row near it."""
    begin, started, ended = (
        (at - zero_mono_ns) / 1e9 for at in (window.begin_mono_ns, window.started_mono_ns, window.ended_mono_ns)
    )
    # A slice's generator is another process than the one before, and counts from 0.
    low = started - (MARGIN_S / 5 if subject.startswith("generator") else MARGIN_S)
    near = (counter.t_s >= low) & (counter.t_s <= ended + MARGIN_S)
    if not near.any():
        return None
    t_s = counter.t_s[near]
    end = begin + window.seconds
    at = np.concatenate([[begin], t_s[(t_s > begin) & (t_s < end)], [end]])
    row = np.clip(np.searchsorted(t_s, at, side="right") - 1, 0, None)
    edge = np.ones(len(at), dtype=bool)
    edge[1:-1] = False

    def cumulative(name: str) -> Any:
        values = getattr(counter, name)
        return None if values is None else np.interp(at, t_s, values[near]) - np.interp(begin, t_s, values[near])

    def level(values: Floats | None) -> Any:
        return None if values is None else np.where(edge, np.nan, values[near][row])

    return Counter(
        t_s=at - begin,
        rss_bytes=counter.rss_bytes[near][row],
        **{name: cumulative(name) for name in _CUMULATIVE},
        **{name: level(getattr(counter, name)) for name in _LEVELS},
        figures={name: np.asarray(level(values)) for name, values in counter.figures.items()},
    )


def _joined(pieces: Sequence[Counter], seams: tuple[float, ...]) -> Counter:
    """Put the pieces of one subject together; what is cumulative goes on from piece to piece."""

    def level(name: str) -> Any:
        values = [getattr(piece, name) for piece in pieces]
        return None if any(each is None for each in values) else np.concatenate(values)

    def cumulative(name: str) -> Any:
        values = [getattr(piece, name) for piece in pieces]
        if any(each is None for each in values):
            return None
        before = np.concatenate([[0.0], np.cumsum([each[-1] for each in values])])
        return np.concatenate([each + begun for each, begun in zip(values, before[:-1], strict=True)])

    figures = {name: np.concatenate([piece.figures[name] for piece in pieces]) for name in pieces[0].figures}
    return Counter(
        **{name: level(name) for name in ("t_s", "rss_bytes", *_LEVELS)},
        **{name: cumulative(name) for name in _CUMULATIVE},
        figures=figures,
        seams=seams,
    )


def _floats(table: pa.Table, name: str) -> Floats:
    """Return a column with NaN for nulls; all NaN where a file has no such column."""
    if name not in table.column_names:
        return np.full(table.num_rows, np.nan)
    return np.asarray(table[name].cast(pa.float64()).fill_null(float("nan")).to_numpy(), dtype=np.float64)


def tick_coverage(host: Counter, windows: Sequence[Window], hz: float) -> float:
    """Return the share of the sampler's ticks in the windows that it really took, by the rows of the `host`.

    One tick is granted: where a load begins between two ticks, it may hold one more or less than its length says.
    """
    expected = taken = 0
    for window in windows:
        begin_s = (window.begin_mono_ns - windows[0].begin_mono_ns) / 1e9
        within = (host.t_s >= begin_s) & (host.t_s < begin_s + window.seconds)
        expected += max(1, int(window.seconds * hz))
        taken += int(within.sum()) + 1
    return min(1.0, taken / expected)


def rates(trial_id: str, counters: Mapping[str, Counter]) -> pa.Table:
    """Return one row an interval between two samples: columns of tables/resources.parquet (see docs/data.md)."""
    tables = [_subject_rates(trial_id, subject, counter) for subject, counter in counters.items()]
    return pa.concat_tables([table for table in tables if table.num_rows])


def _subject_rates(trial_id: str, subject: str, counter: Counter) -> pa.Table:
    dt = np.diff(counter.t_s)
    kept = dt > 0.001  # two rows at one instant: a subject was just added
    rss = counter.rss_bytes[1:][kept]
    columns: dict[str, Any] = {
        "trial_id": pa.array([trial_id] * int(kept.sum()), pa.string()),
        "t_s": counter.t_s[1:][kept],
        "dt_s": dt[kept],
        "subject": pa.array([subject] * int(kept.sum()), pa.string()),
        "cpu_pct": 100 * np.diff(counter.cpu_s)[kept] / dt[kept],
        "rss_bytes": pa.array(rss, pa.int64(), mask=rss < 0),
        "throttled_ms": 1000 * np.diff(counter.throttled_s)[kept],
        "switches_per_s": _known(np.diff(_or_unknown(counter.switches, counter))[kept] / dt[kept]),
        "threads": _known(_or_unknown(counter.threads, counter)[1:][kept]).cast(pa.int64()),
        "steal_ms": pa.array(1000 * np.diff(counter.steal_s)[kept], mask=np.full(int(kept.sum()), subject != "host")),
        **{name: _known(values[1:][kept]) for name, values in counter.figures.items()},
    }
    return pa.table(columns)


def _or_unknown(values: Floats | None, counter: Counter) -> Floats:
    return np.full(len(counter.t_s), np.nan) if values is None else values


def _known(values: Floats) -> pa.Array:
    """Return a column of floats with nulls for NaN."""
    return pa.array(values, pa.float64(), from_pandas=True)
