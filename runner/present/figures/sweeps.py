"""Make the figure and the table of sweeps: response times, knee and limits.

A sweep is a series of loads with constant arrival rates that differ only in the rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, product

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from runner.model import OWN_SCRIPT, REQUESTS_BEYOND
from runner.present.chart.dots import DotGroup, DotPanel, draw_dots
from runner.present.chart.drawing import sheet
from runner.present.chart.sentences import ends
from runner.present.chart.value import (
    Axis,
    Chart,
    Facet,
    Fact,
    ServerLoad,
    cells,
    chart,
    of_trials,
    points,
    tidy,
)
from runner.present.frames import (
    MODES,
    Tables,
    commonest_limits,
    limit_words,
    limits_of,
    rate_unit,
    sealed_trials,
)
from runner.present.look import style
from runner.present.look.numbers import number
from runner.present.look.palette import PROBE, Identity, pale
from runner.present.look.style import plain
from runner.present.statistics.inference import FEWEST_TRIALS, mean_of
from runner.present.statistics.stats import spread
from runner.verdict.limits import Limit

KNEE_OF = "p90"
"""Name of the curve from which the knee is computed.

p99 would be less reliable: in a trial with 2,500 requests, only 25 requests lie beyond p99.
"""
FEWEST_RATES = 3


@dataclass(frozen=True)
class Series:
    """A curve of response times by rate."""

    column: str
    label: str
    quantile: float | None
    """Quantile of a curve of the generator (0 to 1). It is None for a curve of the probe.

    A curve of the generator has a point at a rate only if the trials at this rate have enough
    requests for the quantile. A curve of the probe needs no such check, because its percentiles are
    NaN in the table if the probe had too few requests.
    """
    of_probe: bool = False


SERIES = {
    "p50": Series("latency_p50_ms", "p50", 0.5),
    "p90": Series("latency_p90_ms", "p90", 0.9),
    "p99": Series("latency_p99_ms", "p99", 0.99),
    "probe p50": Series("probe_p50_ms", "p50", None, of_probe=True),
    "probe p95": Series("probe_p95_ms", "p95", None, of_probe=True),
}
"""The curves of the figure, by their names in the chart's frame."""


def swept(tables: Tables) -> pd.DataFrame:
    """Return the trials of the sweeps, including failed trials.

    The additional column `sweep` is the name of the load without its rate.
    """
    trials = tables.sweeps()
    several = trials.groupby(["workload", "mode"])["vus"].transform("nunique") > 1
    modes = (", " + trials["mode"].replace(MODES)).mask(trials["mode"].isin(["keepalive", ""]), "")
    users = trials["vus"].map(", at most {:.0f} users".format).where(several, "")
    return trials.assign(sweep=trials["workload"] + modes + users)


@dataclass(frozen=True)
class Knee:
    """The rate beyond which response times grow faster than the rate.

    If the knee is unknown, the rate is NaN and `why` gives the reason.
    """

    rate_rps: float
    why: str = ""


def knee(rates_rps: ArrayLike, latency_ms: ArrayLike, sustained: ArrayLike) -> Knee:
    """Return the knee of one curve.

    The rates must be in ascending order. Points with a latency of NaN are ignored.

    The knee is the rate at which Kleinrock's power, rate / response time, is greatest (Kleinrock
    1979, Power and Deterministic Rules of Thumb for Probabilistic Problems in Computer
    Communications, ICC; Jain 1991, The Art of Computer Systems Performance Analysis, section 3.3).
    If the power still rises at the highest rate, there is no knee. docs/method-evidence.md
    compares this definition with two alternatives.

    The knee is below the first rate that was not sustained, because from this rate on the queue
    grows as long as the load lasts.
    """
    rates = np.asarray(rates_rps, dtype=float)
    latency = np.asarray(latency_ms, dtype=float)
    within = np.logical_and.accumulate(np.asarray(sustained, dtype=bool))
    candidates = within & np.isfinite(latency) & (latency > 0)
    if rates.size < FEWEST_RATES:
        return Knee(math.nan, f"too few rates ({rates.size})")
    if not within.any():
        return Knee(math.nan, f"below {plain(rates[0])}/s")
    if not candidates.any():
        return Knee(math.nan, "too few requests")
    rates = rates[candidates]
    power = rates / latency[candidates]
    best = int(np.argmax(power))
    if best == rates.size - 1 and within.all():
        return Knee(math.nan, f"none up to {plain(rates[-1])}/s")
    if best == 0:
        return Knee(math.nan, f"at or below {plain(rates[0])}/s")
    return Knee(float(rates[best]))


@dataclass(frozen=True, eq=False)
class Sweep:
    """One server's trials at the rates of a sweep, and the results of these trials."""

    trials: pd.DataFrame

    @cached_property
    def curves(self) -> pd.DataFrame:
        """Points of the server's curves, sorted by curve and rate.

        The columns are series, rate_rps, and mean, low and high in ms. The columns low and high are
        the ends of the mean's interval, or minimum and maximum if there are too few trials. A point
        of the generator's curves is left out if the trials of a rate together have fewer than
        `REQUESTS_BEYOND` requests beyond the percentile of the curve.
        """
        found = []
        for (name, series), (rate, trials) in product(
            SERIES.items(), self.trials.groupby("rate_rps")
        ):
            beyond = math.inf
            if series.quantile is not None:
                beyond = float(trials["requests"].sum()) * (1 - series.quantile)
            each = mean_of(trials[series.column])
            if each.trials and beyond >= REQUESTS_BEYOND - 1e-6:
                found.append((name, float(str(rate)), each.value, each.low, each.high))
        return pd.DataFrame(found, columns=["series", "rate_rps", "mean", "low", "high"])

    @cached_property
    def outcomes(self) -> pd.DataFrame:
        """The result at each rate, in ascending order of rates.

        The columns are rate_rps, sustained, offered and letter. `sustained` is True if more than
        half of the trials sustained the rate. `offered` is True if every trial has the verdict
        "offered". If some trials have other verdicts, `letter` abbreviates the most frequent one of
        these.
        """
        found = []
        for rate, trials in self.trials.groupby("rate_rps"):
            others = trials.loc[trials["verdict"] != Limit.NONE.verdict, "verdict"]
            letter = Limit.of(str(others.mode().iloc[0])).letter if len(others) else ""
            found.append(
                (
                    float(str(rate)),
                    bool((trials["sustained"] == 1).mean() > 0.5),
                    others.empty,
                    letter,
                )
            )
        return pd.DataFrame(found, columns=["rate_rps", "sustained", "offered", "letter"])

    @cached_property
    def knee(self) -> Knee:
        """The knee of the curve `KNEE_OF`, computed from the means of the trials."""
        rates = self.outcomes["rate_rps"]
        ms = self.curves[self.curves["series"] == KNEE_OF].set_index("rate_rps")
        return knee(rates, ms["mean"].reindex(rates), self.outcomes["sustained"])

    @property
    def sustained_rps(self) -> float:
        """The highest rate up to which all rates were sustained.

        It is NaN if the lowest rate was not sustained.
        """
        return float(self.outcomes.loc[self.outcomes["sustained"].cummin(), "rate_rps"].max())

    @property
    def first_beyond_knee(self) -> pd.DataFrame:
        """The trials that show what limits the server above the knee.

        These are the trials that met a limit, at the lowest rate above the knee at which a trial
        met a limit. That rate can be far above the knee: for example, the knee of a single queue is
        at half of its capacity. If no trial above the knee met a limit, these are the trials at the
        next rate above the knee.
        """
        above = self.trials["rate_rps"] > self.knee.rate_rps
        at_a_limit = above & (self.trials["verdict"] != Limit.NONE.verdict)
        trials = self.trials[at_a_limit] if at_a_limit.any() else self.trials
        return next_above(trials, self.knee.rate_rps)

    @property
    def knee_note(self) -> str:
        """The knee in words, with a remark if the generator was the limit beyond the knee."""
        words = (
            f"knee: {self.knee.why}" if self.knee.why else f"knee at {plain(self.knee.rate_rps)}/s"
        )
        limits = commonest_limits(self.first_beyond_knee)
        if limits and limits[0].limit is Limit.GENERATOR:
            words += ", the generator's"
        return words

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes above the server's panel.

        The knee is mentioned only if there are at least `FEWEST_RATES` rates.
        """
        has_enough = len(self.outcomes) >= FEWEST_RATES
        return (self.knee_note, self.sustained_note) if has_enough else (self.sustained_note,)

    @property
    def sustained_note(self) -> str:
        """The highest sustained rate, and the limit at the next rate, in words."""
        last = self.sustained_rps
        if math.isnan(last):
            return "not sustained at any rate"
        then = limit_words(next_above(self.trials, last))
        return f"sustained to {plain(last)}/s" + (f"; then: {then}" if then else "")


def next_above(trials: pd.DataFrame, rate_rps: float) -> pd.DataFrame:
    """Return the trials at the next rate above `rate_rps`, or no rows if there is no such rate."""
    above = trials[trials["rate_rps"] > rate_rps]
    following: pd.DataFrame = above[above["rate_rps"] == above["rate_rps"].min()]
    return following


def knee_table(tables: Tables) -> pd.DataFrame:
    """Return a table of texts with a row for each server and sweep.

    A row contains the knee, the range of the knee over the blocks, the highest sustained rate, the
    limits above the knee and above the sustained rate, and the highest rate at which response times
    can be compared.
    """
    rows = []
    unit = rate_unit(tables.sweeps()["workload"])
    column = SERIES[KNEE_OF].column
    for cell in cells(tables, swept(tables), by="sweep"):
        found = Sweep(cell.trials)
        lowest = cell.trials["rate_rps"].min()
        last = found.sustained_rps
        rising = cell.trials.sort_values("rate_rps").drop_duplicates(["block", "rate_rps"])
        by_block = [
            knee(b["rate_rps"], b[column], b["sustained"] == 1) for _, b in rising.groupby("block")
        ]
        blocks = spread(each.rate_rps for each in by_block)
        comparable = found.outcomes.loc[found.outcomes["offered"].cummin(), "rate_rps"]
        highest_sustained = 0.0 if math.isnan(last) else last
        row = {
            "sweep": cell.panel,
            "server": cell.server,
            "trials": str(len(cell.trials)),
            f"knee, {unit}": found.knee.why or plain(found.knee.rate_rps),
            "knee by block": f"{plain(blocks.low)}–{plain(blocks.high)} ({blocks.n})"
            if blocks.n
            else "–",
            "limit beyond the knee": limit_words(found.first_beyond_knee) or "–",
            "sustained up to": f"below {plain(lowest)}" if math.isnan(last) else plain(last),
            "limit beyond": limit_words(next_above(cell.trials, highest_sustained)) or "–",
            "response times compare up to": plain(comparable.max()) if len(comparable) else "–",
        }
        rows.append(row)
    return pd.DataFrame(rows)


@chart(
    "rates-latency",
    notebook="rates",
    needs=lambda tables: not tables.sweeps().empty,
    table="The answer",
)
def latency(tables: Tables) -> Chart:
    """Return the chart of response times by offered rate, measured by generator and probe.

    The chart also shows the result at each rate, and the knee.
    """

    def lowest(rows: pd.DataFrame) -> float:
        return float(rows.loc[rows["series"] == KNEE_OF, "y"].head(1).max())

    trials = swept(tables)
    found = {cell: Sweep(cell.trials) for cell in cells(tables, trials, by="sweep")}
    unit = rate_unit(trials["workload"])
    each = sealed_trials(trials).groupby(["server", "load"]).size().min()
    frame = tidy(part for cell, sweep in found.items() for part in _curves(cell, sweep))
    y = Axis("ms (log scale)", "response time in ms", " ms", log=True)
    are_dots = all(len(sweep.outcomes) < FEWEST_RATES for sweep in found.values())
    shape = _dots(frame, unit, y) if are_dots else _lines(found, unit)
    bars = "their 95 % intervals" if each >= FEWEST_TRIALS else "minimum to maximum"
    words = f"Points are means of the trials, and bars {bars}."
    of_script = "The probe requested only one path, but the script may send other requests."
    key = f"{shape.key} {of_script}" if OWN_SCRIPT in set(trials["workload"]) else shape.key
    return of_trials(
        tables,
        trials,
        shape.title,
        frame,
        Axis(f"{unit} offered (log scale)", f"{unit} offered", "/s", log=True),
        y,
        words,
        "trial at a constant arrival rate",
        key=key,
        facets=shape.facets,
        kind="Dot plot" if are_dots else "Line chart",
        statistic=shape.statistic,
        noun="sweep",
        facts=(Fact("p90", lowest, text=_course, rising=True, order="fastest first"),),
        nothing=f"No rate of this run has {REQUESTS_BEYOND} requests beyond a percentile.",
        draw=shape.draw,
    )


@dataclass(frozen=True, eq=False)
class Shape:
    """The properties of the chart that differ between a chart with lines and a chart with dots.

    Sweeps with many rates are drawn as lines, and sweeps with few rates as dots.
    """

    title: str
    key: str
    statistic: str
    draw: Callable[[Chart], Figure]
    facets: tuple[Facet, ...] = ()


def _lines(found: Mapping[ServerLoad, Sweep], unit: str) -> Shape:
    return Shape(
        _sustained_finding(found, unit),
        "Coloured: the generator's p50, p90 and p99. Grey, dashed: the probe's p50 and p95. "
        "Filled: all trials have the verdict offered. Hollow: a trial has another verdict, and the "
        "letter above names the limit (S server, G generator, ? unknown). ×: the rate was not "
        "sustained in half of the trials or more. Upright line: the knee, where rate / p90 is "
        "greatest.",
        "means of the generator's p50, p90 and p99 and the probe's p50 and p95; "
        "upright line: the knee",
        _draw,
        tuple(Facet(cell.panel, cell.server, sweep.notes) for cell, sweep in found.items()),
    )


def _sustained_finding(found: Mapping[ServerLoad, Sweep], unit: str) -> str:
    """Return a sentence that compares the servers with the highest and the lowest sustained rate.

    The sentence also names the generator if, at the next rate above each server's sustained rate,
    every trial was limited by the generator.
    """
    rates = {cell: sweep.sustained_rps for cell, sweep in found.items()}
    known = {cell: 0.0 if math.isnan(rate) else rate for cell, rate in rates.items()}
    if not any(known.values()):
        return "No server sustained a rate" if known else "Response times by offered rate"
    most, least = max(known, key=lambda cell: known[cell]), min(known, key=lambda cell: known[cell])
    text = f"{most.server} sustains {plain(known[most])} {unit}"
    if len(known) > 1 and known[most] == known[least]:
        text = f"Each server sustains {plain(known[most])} {unit}"
    elif known[most] > known[least]:
        text += f", {least.server} {plain(known[least]) if known[least] else 'none of the rates'}"
    beyond = [
        limit
        for cell, sweep in found.items()
        for limit in limits_of(next_above(sweep.trials, known[cell]))
    ]
    is_generators = bool(beyond) and set(beyond) == {Limit.GENERATOR}
    return f"{text}; then the generator is the limit" if is_generators else text


def _dots(frame: pd.DataFrame, unit: str, y: Axis) -> Shape:
    return Shape(
        _percentile_finding(frame, unit),
        "Numbers: the generator's p50, p90 and p99. Grey marks below: the probe's p50 and p95. "
        "Hollow: the rate was not sustained, or a trial has another verdict than offered.",
        "means of the generator's p50, p90 and p99 and the probe's p50 and p95",
        lambda chart: draw_dots(chart, _groups(chart, unit), [y]),
    )


def _percentile_finding(frame: pd.DataFrame, unit: str) -> str:
    """Return a sentence with the range of a percentile over the servers.

    The percentile is the highest of p99, p90 and p50 that is known for every server and rate.
    """
    servers = frame[["panel", "server", "x"]].dropna().drop_duplicates()
    for name, share in (("p99", 99), ("p90", 90), ("p50", 50)):
        known = frame[frame["series"].eq(name) & frame["y"].notna()]
        if len(known) == len(servers) > 0:
            rates = known["x"].unique()
            up_to = "At" if len(rates) == 1 else "At up to"
            return (
                f"{up_to} {plain(rates.max())} {unit}, {share} % of the requests take at most "
                f"{ends(known['y'])} ms"
            )
    return "Response times by offered rate"


def _groups(chart: Chart, unit: str) -> list[DotGroup]:
    """Return a group for each sweep and rate. Each group has one panel.

    In a panel, the server with the lowest p90 is on top.
    """
    curves = chart.frame[chart.frame["series"].isin(SERIES) & chart.frame["y"].notna()]
    found = []
    for _, rows in curves.groupby(["panel", "x"], sort=False):
        sweep, rate = rows[["panel", "x"]].iloc[0]
        of_probe = rows["series"].map(lambda name: SERIES[name].of_probe)
        ranked = rows[rows["series"] == KNEE_OF].sort_values("y")["server"]
        servers = list(dict.fromkeys([*ranked, *rows["server"]]))
        panel = DotPanel(rows[~of_probe], names_series=True, second=rows[of_probe])
        found.append(DotGroup(f"{sweep}: {plain(rate)} {unit}", servers, [panel]))
    return found


def _curves(cell: ServerLoad, sweep: Sweep) -> list[pd.DataFrame]:
    """Return the points of one server in a sweep.

    The server has the points of its curves, a point of the series `outcome` for each rate, and one
    point of the series `knee`, which is NaN if the knee is unknown.
    """
    outcomes = sweep.outcomes
    at = sweep.knee.rate_rps
    every = pd.concat([sweep.curves, outcomes[["rate_rps"]].assign(series="outcome")]).merge(
        outcomes
    )
    known = (every[name] for name in ("series", "rate_rps", "mean", "low", "high", "offered"))
    found = points(cell, *known, sustained=every["sustained"], letter=every["letter"])
    ms = every.loc[every["series"].eq(KNEE_OF) & every["rate_rps"].eq(at), "mean"].max()
    return [found, points(cell, "knee", [at], ms, sustained=True, letter="")]


def _course(rows: pd.DataFrame) -> str:
    """Return p90 at the lowest rate and at the knee: `0.3 ms at 250/s to 2 ms at 4,000/s`.

    If the knee is unknown, the second value is p90 at the highest rate.
    """
    p90, knee = (rows[rows["series"] == series] for series in (KNEE_OF, "knee"))
    shown = pd.concat([p90.head(1), p90.tail(1) if knee.empty else knee]).drop_duplicates("x")
    return " to ".join(
        f"{number(y)} ms at {plain(x)}/s" for x, y in zip(shown["x"], shown["y"], strict=True)
    )


def _draw(chart: Chart) -> Figure:
    axes = sheet(
        chart,
        alone=1,
        panel_in=(2.1, 2.1),
        left_in=0.92,
        right_in=(0.7, 0.5),
        axis_in=0.36,
        below_in=0.28,
    )
    low = max(float(chart.frame["low"].min()), 1e-3)
    high = float(chart.frame["high"].max())
    across = chart.frame["x"].min() / 1.25, chart.frame["x"].max() * 1.25
    for facet, ax in axes.items():
        # Leave space above the curves for the letters that name the limits.
        ax.set(
            xscale="log",
            yscale="log",
            xlim=across,
            ylim=(low / 1.4, high * (high / low) ** 0.16 * 1.2),
        )
        rows = chart.of_panel(facet.panel)[facet.server]
        look = chart.looks[facet.server]
        ends = []
        for name, curve in rows[rows["series"].isin(SERIES)].groupby("series", sort=False):
            series = SERIES[str(name)]
            shown = PROBE if series.of_probe else replace(look, marker="o", dash="-")
            _draw_curve(ax, str(name), curve, shown, probe=series.of_probe)
            last = curve.iloc[-1]
            ends.append((series.label, shown, float(last["x"]), float(last["y"])))
        for rate in rows.loc[rows["series"] == "knee", "x"].dropna():
            ax.axvline(rate, color=style.INK, lw=1.1, ymax=0.84, label="knee", zorder=1)
        outcomes = rows[rows["series"] == "outcome"]
        _write_letters(ax, outcomes)
        style.log_axis(ax, "y")
        style.ticks_across(ax, outcomes["x"].to_list())
        ax.set_ylabel(chart.y.label)
        style.label_ends(ax, ends)
    return style.figure_of(ax)


def _write_letters(ax: Axes, outcomes: pd.DataFrame) -> None:
    """Write the letter of each rate's limit at the top of the panel.

    A letter that equals the last written letter is written only if there is enough space.
    """
    left, right = ax.get_xlim()
    decade_in = style.size_in(ax)[0] / math.log10(right / left)
    last = 0.0
    written = ""
    for rate, letter in outcomes[["x", "letter"]].itertuples(index=False):
        if letter and (letter != written or decade_in * math.log10(rate / last) >= 0.16):
            last = rate
            written = letter
            at_top = ax.get_xaxis_transform()
            ax.text(
                rate, 0.98, letter, transform=at_top, ha="center", va="top", size=style.SMALL_PT
            )


def _draw_curve(ax: Axes, series: str, rows: pd.DataFrame, look: Identity, *, probe: bool) -> None:
    """Draw a curve. Its line is pale at rates that were not sustained.

    The response times at these rates mean little, because they grow as long as the load lasts.
    """
    found = rows.to_dict("records")
    for a, b in pairwise(found):
        ax.plot(
            [a["x"], b["x"]],
            [a["y"], b["y"]],
            lw=1.1 if probe else 1.7,
            ls=look.dash,
            label="",
            zorder=2,
            color=look.color if a["sustained"] and b["sustained"] else pale(look.color),
        )
    for row in found:
        marker = "." if probe else "o" if row["sustained"] else "x"
        bars = np.array([[row["y"] - row["low"]], [row["high"] - row["y"]]])
        ax.errorbar(
            [row["x"]],
            [row["y"]],
            yerr=np.clip(bars, 0, None),
            color=look.color,
            capsize=2,
            lw=0.9,
            marker=marker,
            ms=3 if probe else 4.6,
            markeredgewidth=1.1,
            label=series,
            markerfacecolor=look.color if row["solid"] or probe else "white",
            zorder=3,
        )
