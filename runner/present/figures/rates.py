"""Sweeps of constant arrival rates: response times by offered rate, their knee, and what was the limit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from runner.limits import Limit
from runner.present.chart import cells
from runner.present.frames import MODES, Tables, limit_words, rate_unit
from runner.present.statistics.inference import median_interval
from runner.present.statistics.stats import BEYOND, spread

KNEE_OF = "p90"
"""p99 of a trial with 2,500 requests rests on 25."""
FEWEST_RATES = 3
SERIES = {
    "p50": ("latency_p50_ms", 0.5),
    "p90": ("latency_p90_ms", 0.9),
    "p99": ("latency_p99_ms", 0.99),
    "probe p50": ("probe_p50_ms", None),
    "probe p95": ("probe_p95_ms", None),
}
"""Name of a curve -> its column, and the quantile that must be carried; the probe's are empty where they are not."""


def swept(tables: Tables) -> pd.DataFrame:
    """Return the trials of the sweeps, failed ones too, with a column `sweep`: the load without its rate in words."""
    trials = tables.sweeps()
    several = trials.groupby(["workload", "mode"])["vus"].transform("nunique") > 1
    words = [
        ", ".join(
            [str(row["workload"]), *([] if row["mode"] in ("keepalive", "") else [MODES.get(row["mode"], row["mode"])])]
            + ([f"at most {row['vus']:.0f} users"] if each else [])
        )
        for row, each in zip(trials.to_dict("records"), several, strict=True)
    ]
    return trials.assign(sweep=words)


@dataclass(frozen=True)
class Knee:
    """Where response times begin to grow faster than the rate; where that is not known, NaN, and `why`."""

    rate_rps: float
    why: str = ""


def knee(rates_rps: ArrayLike, latency_ms: ArrayLike, sustained: ArrayLike) -> Knee:
    """Return the knee of one curve, whose rates rise; a rate with NaN is left out.

    It is the rate at which Kleinrock's power, rate / response time, is greatest (Kleinrock 1979, Power and
    Deterministic Rules of Thumb for Probabilistic Problems in Computer Communications, ICC; Jain 1991, The Art of
    Computer Systems Performance Analysis, section 3.3). Where the power still rises at the highest rate, there is none.
    `docs/method.md` compares it with two rivals.

    Rates from the first one on that was not sustained are no candidates: their response times are those of a queue that
    grows as long as the load lasts.
    """
    rates, latency = np.asarray(rates_rps, dtype=float), np.asarray(latency_ms, dtype=float)
    kept = np.asarray(sustained, dtype=bool)
    collapsed = not kept.all()
    within = np.arange(rates.size) < (int(np.argmin(kept)) if collapsed else rates.size)
    candidates = within & np.isfinite(latency) & (latency > 0)
    if rates.size < FEWEST_RATES:
        return Knee(math.nan, f"too few rates ({rates.size})")
    if not within.any():
        return Knee(math.nan, f"below {rates[0]:,.10g}/s")
    if not candidates.any():
        return Knee(math.nan, "too few requests")
    rates, power = rates[candidates], rates[candidates] / latency[candidates]
    best = int(np.argmax(power))
    if best == rates.size - 1 and not collapsed:
        return Knee(math.nan, f"none up to {rates[-1]:,.10g}/s")
    if best == 0:
        return Knee(math.nan, f"at or below {rates[0]:,.10g}/s")
    return Knee(float(rates[best]))


@dataclass(frozen=True, eq=False)
class Sweep:
    """What the trials of one server over the rates of a sweep show."""

    trials: pd.DataFrame

    @cached_property
    def curves(self) -> pd.DataFrame:
        """The points of its curves: series, rate_rps, n, median, low, high (ms), rising by rate.

        Low and high are the exact 95 % interval of the median from six trials on, else minimum and maximum. A
        percentile is left out where the trials of a rate have fewer than `BEYOND` requests beyond it, all together.
        """
        found = []
        for (rate, own), (series, (column, quantile)) in product(self.trials.groupby("rate_rps"), SERIES.items()):
            beyond = math.inf if quantile is None else float(own["requests"].sum()) * (1 - quantile)
            of, sure = spread(own[column]), median_interval(own[column])
            if of.n and beyond >= BEYOND - 1e-6:
                low, high = (sure.low, sure.high) if sure else (of.low, of.high)
                found.append((series, float(str(rate)), of.n, of.median, low, high))
        return pd.DataFrame(found, columns=["series", "rate_rps", "n", "median", "low", "high"])

    @cached_property
    def outcomes(self) -> pd.DataFrame:
        """What became of each rate, rising: rate_rps, sustained, offered, letter.

        sustained: in more than half of the trials; offered: the verdict in every trial; letter: of the most frequent
        other verdict, empty where there is none.
        """
        found = []
        for rate, own in self.trials.groupby("rate_rps"):
            others = own.loc[own["verdict"] != Limit.NONE.verdict, "verdict"]
            letter = Limit.of(str(others.mode().iloc[0])).letter if len(others) else ""
            found.append((float(str(rate)), bool((own["sustained"] == 1).mean() > 0.5), others.empty, letter))
        return pd.DataFrame(found, columns=["rate_rps", "sustained", "offered", "letter"])

    @cached_property
    def knee_ms(self) -> pd.Series[float]:
        """The response times of which the knee is taken, by rate."""
        return self.curves[self.curves["series"] == KNEE_OF].set_index("rate_rps")["median"]

    @cached_property
    def knee(self) -> Knee:
        """The knee, of the medians of the trials."""
        rates = self.outcomes["rate_rps"]
        return knee(rates, self.knee_ms.reindex(rates), self.outcomes["sustained"])

    @property
    def sustained_rps(self) -> float:
        """The highest rate up to which every one was sustained; NaN where the lowest was not."""
        kept = self.outcomes["sustained"].cummin()
        return float(self.outcomes.loc[kept, "rate_rps"].max()) if kept.any() else math.nan

    @property
    def limit_beyond(self) -> str:
        """What limited the rate after the last that was sustained; `–` where there is none."""
        return _limit_above(self.trials, self.sustained_rps)

    @property
    def limit_beyond_knee(self) -> str:
        """The limit that trials met first above the knee: at the rate whose letter the figure shows first.

        A knee comes before its limit: one queue has it at half of its capacity, where nobody is busy yet.
        """
        above = (self.trials["rate_rps"] > self.knee.rate_rps) & (self.trials["verdict"] != Limit.NONE.verdict)
        limited = self.trials[above]
        return _limit_above(self.trials if limited.empty else limited, self.knee.rate_rps)

    @property
    def is_generators(self) -> bool:
        """Whether the generator is the first limit beyond the knee: the knee is then the generator's."""
        return self.limit_beyond_knee.startswith(Limit.GENERATOR)

    @property
    def notes(self) -> tuple[str, str]:
        """The knee in words, and up to which rate the server sustained what was offered, and what limited the next."""
        found = self.knee
        first = f"knee at {_rate(found.rate_rps)}/s" if math.isfinite(found.rate_rps) else f"knee: {found.why}"
        first += ", the generator's" if self.is_generators else ""
        return first, self.sustained_words("; then: {}")

    def sustained_words(self, then: str) -> str:
        """Return up to which rate the server sustained what was offered; `then` says what limited the next."""
        if math.isnan(self.sustained_rps):
            return "not sustained at any rate"
        limit = "" if self.limit_beyond == "–" else then.format(self.limit_beyond)
        return f"sustained to {_rate(self.sustained_rps)}/s{limit}"


def _limit_above(trials: pd.DataFrame, rate_rps: float) -> str:
    """Return what limited the trials at the next rate above `rate_rps`; `–` where there is none."""
    above = trials.loc[trials["rate_rps"] > rate_rps, "rate_rps"]
    if above.empty or math.isnan(rate_rps):
        return "–"
    return limit_words(trials[trials["rate_rps"] == above.min()])


def _knee_of(block: pd.DataFrame) -> float:
    """Return the knee of a block of one server and sweep, of the block's own trials; NaN where it has none."""
    column, _ = SERIES[KNEE_OF]
    rising = block.sort_values("rate_rps").drop_duplicates("rate_rps")
    return knee(rising["rate_rps"], rising[column], rising["sustained"] == 1).rate_rps


def knee_table(tables: Tables) -> pd.DataFrame:
    """Return for each server and sweep, as texts: the knee, its range over the blocks, and what was sustained."""
    rows, unit = [], rate_unit(tables.sweeps()["workload"])
    for cell in cells(tables, swept(tables), by="sweep"):
        found = Sweep(cell.trials)
        blocks, last = spread(_knee_of(own) for _, own in cell.trials.groupby("block")), found.sustained_rps
        table, at = found.outcomes, found.knee.rate_rps
        comparable = table[table["offered"].cummin()]["rate_rps"]
        rows.append(
            {
                "sweep": cell.panel,
                "server": cell.server,
                "trials": str(len(cell.trials)),
                f"knee, {unit}": _rate(at) if math.isfinite(at) else found.knee.why,
                "knee by block": f"{_rate(blocks.low)}–{_rate(blocks.high)} ({blocks.n})" if blocks.n else "–",
                "limit beyond the knee": found.limit_beyond_knee,
                "sustained up to": _rate(last) if math.isfinite(last) else f"below {_rate(table['rate_rps'].min())}",
                "limit beyond": _limit_above(cell.trials, last if math.isfinite(last) else 0.0),
                "response times compare up to": _rate(comparable.max()) if len(comparable) else "–",
            }
        )
    return pd.DataFrame(rows)


def _rate(value: float) -> str:
    return f"{value:,.10g}" if math.isfinite(value) else "–"
