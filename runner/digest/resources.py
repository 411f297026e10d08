"""Rates from cumulative counters: CPU in percent of one core, over the time that really passed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from runner.model import FIGURES, LabError

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Counter:
    """One subject's cumulative CPU time with its clock, both in seconds; `t_s` ascends from the load's begin."""

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
    foreign_cpus: Floats | None = None
    """How many CPUs the subject might use that were not its own, NaN where not looked at."""
    figures: dict[str, Floats] = field(default_factory=dict)
    """What the server itself said in /stats, by column (FIGURES); NaN in rows that no answer came before."""

    def told(self, figure: str, begin_s: float, end_s: float) -> Floats:
        """Return what the server said of `figure` between two instants."""
        values = self.figures[figure][(self.t_s >= begin_s) & (self.t_s <= end_s)]
        return values[~np.isnan(values)]

    def between(self, begin_s: float, end_s: float) -> float:
        """Return the CPU seconds used between two instants, linear between samples and constant outside them."""
        used = np.interp([begin_s, end_s], self.t_s, self.cpu_s)
        return float(used[1] - used[0])

    def stolen(self, begin_s: float, end_s: float) -> float:
        """Return the CPU seconds stolen between two instants, summed over all CPUs."""
        taken = np.interp([begin_s, end_s], self.t_s, self.steal_s)
        return float(taken[1] - taken[0])

    def interrupted(self, begin_s: float, end_s: float) -> float:
        """Return the CPU seconds in interrupts between two instants; NaN where they were not counted."""
        if self.interrupts_s is None:
            return float("nan")
        spent = np.interp([begin_s, end_s], self.t_s, self.interrupts_s)
        return float(spent[1] - spent[0])

    def strayed(self, begin_s: float, end_s: float) -> bool:
        """Return whether the subject might use another CPU than its own at any sample between two instants."""
        if self.foreign_cpus is None:
            return False
        return bool((self.foreign_cpus[(self.t_s >= begin_s) & (self.t_s <= end_s)] > 0).any())

    def throttled(self, begin_s: float, end_s: float) -> float:
        """Return the seconds between two instants in which a CPU quota held the subject back."""
        held = np.interp([begin_s, end_s], self.t_s, self.throttled_s)
        return float(held[1] - held[0])

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
        used = np.interp(starts + window_s, self.t_s, self.cpu_s) - np.interp(starts, self.t_s, self.cpu_s)
        return float(100 * used.max() / window_s)


def read_counters(path: Path, zero_mono_ns: int) -> dict[str, Counter]:
    """Read resources.parquet (raw counters) by subject, times relative to `zero_mono_ns`; LabError where unreadable."""
    try:
        table = pq.read_table(path)
        subjects = np.asarray(table["subject"].to_pylist(), dtype=object)
        mono, cpu = (table[name].to_numpy() for name in ("mono_ns", "cpu_ns"))
        rss = table["rss_bytes"].fill_null(-1).to_numpy()
        throttled, steal = (table[name].fill_null(0).to_numpy() for name in ("throttled_ns", "steal_ns"))
        switches, threads, interrupts = (_floats(table, name) for name in ("switches", "threads", "interrupts_ns"))
        foreign = _floats(table, "foreign_cpus")
        figures = {name: _floats(table, name) for name in FIGURES}
    except (OSError, pa.ArrowException, KeyError) as error:
        raise LabError(f"{path} cannot be read: {error}.", exit_code=1) from None
    counters = {}
    for subject in dict.fromkeys(subjects.tolist()):
        own = subjects == subject
        counters[str(subject)] = Counter(
            (mono[own] - zero_mono_ns) / 1e9,
            cpu[own] / 1e9,
            rss[own],
            throttled[own] / 1e9,
            steal[own] / 1e9,
            switches[own],
            threads[own],
            interrupts[own] / 1e9,
            foreign[own],
            {name: values[own] for name, values in figures.items()},
        )
    return counters


def _floats(table: pa.Table, name: str) -> Floats:
    """Return a column with NaN for nulls; all NaN where a file has no such column."""
    if name not in table.column_names:
        return np.full(table.num_rows, np.nan)
    return np.asarray(table[name].cast(pa.float64()).fill_null(float("nan")).to_numpy(), dtype=np.float64)


def tick_coverage(path: Path, begin_s: float, end_s: float, hz: float, counters: dict[str, Counter]) -> float:
    """Return the share of the sampler's ticks between two instants that it really took (of the subject `host`).

    One tick is granted: where a load begins between two ticks, it may hold one more or less than its length says.
    """
    host = counters.get("host")
    if host is None:
        raise LabError(f"{path} has no rows of the host.", exit_code=1)
    expected = max(1, int((end_s - begin_s) * hz))
    taken = int(((host.t_s >= begin_s) & (host.t_s < end_s)).sum())
    return min(1.0, (taken + 1) / expected)


def rates(trial_id: str, counters: dict[str, Counter]) -> pa.Table:
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
