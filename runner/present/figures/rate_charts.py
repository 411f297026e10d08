"""Charts of constant arrival rates: response times by offered rate, and the highest rates that keep an objective."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from runner.model import OWN_SCRIPT
from runner.present.chart import Axis, Chart, ServerLoad, cells, chart, empty, points
from runner.present.chart.drawing import sheet
from runner.present.chart.sentences import Form, by_value, degrees, fit, head, in_loads, said, scope, within
from runner.present.chart.value import Facet, FacetSizes, tidy
from runner.present.figures import objectives, rates
from runner.present.figures.rates import KNEE_OF, SERIES, Sweep
from runner.present.frames import Tables, rate_unit, sealed_trials
from runner.present.look import captions, scales, style
from runner.present.look.palette import DOTS, PROBE, Identity, identities, pale
from runner.present.look.style import number
from runner.present.statistics.stats import BEYOND

TABLE = "The answer"
Limits = tuple[tuple[float, float], tuple[float, float]]
"""Of the axes across and up."""


# --- response times by offered rate -----------------------------------------------------------------------


@chart("rates-latency", notebook="rates", needs=lambda tables: not tables.sweeps().empty, table=TABLE)
def latency(tables: Tables) -> Chart:
    """Return response times by offered rate: generator and probe, what became of each rate, and the knee."""
    title, about = "Response times by offered rate", "response times by offered rate"
    trials, unit = rates.swept(tables), rate_unit(tables.sweeps()["workload"])
    sweeps = {cell: Sweep(cell.trials) for cell in cells(tables, trials, by="sweep")}
    if not sweeps:
        return empty(title, about, captions.unsealed(trials, "trial at a constant arrival rate"))
    frame = tidy([part for cell, sweep in sweeps.items() for part in _curves(cell, sweep)])
    if frame.empty:
        return empty(title, about, f"No rate of this run has {BEYOND} requests beyond a percentile.")
    return Chart(
        title,
        frame,
        Axis(f"{unit} offered (log scale)", f"{unit} offered", "/s", log=True),
        Axis("ms (log scale)", "response time in ms", " ms", log=True),
        identities(tables.trials),
        captions.caption(tables, trials, _words(trials)),
        "Coloured: the generator's p50, p90 and p99. Grey, dashed: the probe's p50 and p95. Filled: verdict "
        "offered in every trial. Hollow: not, and a letter says the limit (S server, G generator, ? unknown). ×: the "
        "rate was not sustained in half of the trials or more. Upright line: the knee.",
        facets=tuple(Facet(cell.panel, cell.server, sweep.notes) for cell, sweep in sweeps.items()),
        sizes=FacetSizes(1, (2.1, 2.1), 0.92, (0.7, 0.5), 0.36, 0.28),
        statistic="the generator's p50, p90 and p99, the probe's p50 and p95, medians of trials; upright line: the "
        "knee",
        noun="sweep",
        draw=_draw_sweeps,
        describe=partial(_describe_sweeps, sweeps),
    )


def _curves(cell: ServerLoad, sweep: Sweep) -> list[pd.DataFrame]:
    """Return a sweep's curves; then, as `outcome`, what became of each rate; then, where there is one, the `knee`."""
    table = sweep.outcomes.set_index("rate_rps")

    def part(series: str, rates_rps: ArrayLike, y: ArrayLike, low: ArrayLike, high: ArrayLike) -> pd.DataFrame:
        then = table.loc[np.asarray(rates_rps)]
        more = {"sustained": then["sustained"], "letter": then["letter"]}
        return points(cell, series, rates_rps, y, low, high, then["offered"], **more)

    found = {str(series): own for series, own in sweep.curves.groupby("series")}
    curves = {series: found[series] for series in SERIES if series in found}
    knee = points(cell, "knee", [sweep.knee.rate_rps], [math.nan], sustained=True, letter="")
    return [
        *(part(series, own["rate_rps"], own["median"], own["low"], own["high"]) for series, own in curves.items()),
        *(part("outcome", table.index, np.full(len(table), np.nan), np.nan, np.nan), knee),
    ]


def _words(trials: pd.DataFrame) -> str:
    enough = sealed_trials(trials).groupby(["server", "load"]).size().min() >= 6
    bars = "95 % interval of the median" if enough else "minimum to maximum"
    words = (
        f"Points: median of the trials; bars: {bars}. A percentile is left out where the trials of a rate have fewer "
        f"than {BEYOND} requests beyond it together. Knee: the greatest rate / p90 (Kleinrock's power); where the "
        "generator is the first limit beyond it, the knee is the generator's."
    )
    if OWN_SCRIPT in set(trials["workload"]):
        words += " The probe asked for one path alone, not for what the script does."
    return words


def _draw_sweeps(chart: Chart) -> Figure:
    figure, axes = sheet(chart)
    curves = chart.frame[chart.frame["y"].notna()]
    low, high = float(curves["low"].clip(lower=1e-3).min()), float(curves["high"].max())
    across = chart.frame["x"].min() / 1.25, chart.frame["x"].max() * 1.25
    # Room for letters above the curves.
    limits = across, (low / 1.4, high * (high / low) ** 0.16 * 1.2)
    for facet, ax in axes.items():
        _draw_sweep(ax, chart, chart.of_panel(facet.panel)[facet.server], chart.looks[facet.server], limits)
    return figure


def _draw_sweep(ax: Axes, chart: Chart, own: pd.DataFrame, look: Identity, limits: Limits) -> None:
    ends = []
    for series, rows in own.groupby("series", sort=False):
        if series in SERIES:
            probe = str(series).startswith("probe")
            shown = PROBE if probe else replace(look, marker="o", dash="-")
            _draw_curve(ax, str(series), rows, shown, probe=probe)
            last = rows.iloc[-1]
            ends.append((str(series).removeprefix("probe "), shown, float(last["x"]), float(last["y"])))
    knee = float(own.loc[own["series"] == "knee", "x"].iloc[0])
    if math.isfinite(knee):
        ax.axvline(knee, color=style.INK, lw=1.1, ymax=0.84, label="knee", zorder=1)
    ax.set(xscale="log", yscale="log", xlim=limits[0], ylim=limits[1])
    letters = own[own["series"] == "outcome"].set_index("x")["letter"]
    _write_letters(ax, letters)
    scales.log_axis(ax, "y")
    scales.ticks_across(ax, [float(str(rate)) for rate in letters.index])
    ax.set_ylabel(chart.y.label)
    style.label_ends(ax, ends)


def _draw_curve(ax: Axes, series: str, rows: pd.DataFrame, look: Identity, *, probe: bool) -> None:
    """Draw a curve; where the rate was not sustained it is pale: those response times grow with the load's length."""
    found = rows.to_dict("records")
    for a, b in pairwise(found):
        ax.plot(
            [a["x"], b["x"]], [a["y"], b["y"]], lw=1.1 if probe else 1.7, ls=look.dash, label="", zorder=2,
            color=look.color if a["sustained"] and b["sustained"] else pale(look.color),
        )  # fmt: skip
    for row in found:
        marker = "." if probe else "o" if row["sustained"] else "x"
        bars = np.array([[row["y"] - row["low"]], [row["high"] - row["y"]]])
        ax.errorbar(
            [row["x"]], [row["y"]], yerr=np.clip(bars, 0, None), color=look.color, capsize=2, lw=0.9,
            marker=marker, ms=3 if probe else 4.6, markeredgewidth=1.1, label=series,
            markerfacecolor=look.color if row["solid"] or probe else "white", zorder=3,
        )  # fmt: skip


def _write_letters(ax: Axes, letters: pd.Series[str]) -> None:
    """Write each rate's letter at the top of its panel; one that repeats its neighbour's needs room for itself."""
    left, right = ax.get_xlim()
    decade_in = style.size_in(ax)[0] / math.log10(right / left)
    last, written = 0.0, ""
    for rate, letter in letters.items():
        at = float(str(rate))
        if letter and (letter != written or decade_in * math.log10(at / last) >= 0.16):
            last, written = at, letter
            ax.text(at, 0.98, letter, transform=ax.get_xaxis_transform(), ha="center", va="top", size=style.SMALL_PT)


def _describe_sweeps(sweeps: Mapping[ServerLoad, Sweep], chart: Chart) -> str:
    """Describe p90 at the outermost rates and the knee, and what was sustained."""
    said = []
    for panel in chart.panels:
        own = {cell.server: sweep for cell, sweep in sweeps.items() if cell.panel == panel}
        kept = {name: sweep.sustained_words(" (then: {})") for name, sweep in own.items()}
        lines = "; ".join(f"{_line(name, sweep)}, {kept[name]}" for name, sweep in own.items())
        knees = "; ".join(f"{name} has {_knee(sweep)}, {kept[name]}" for name, sweep in own.items())
        said.append([within(panel, clause) for clause in (lines, knees, _outermost(own))])
    return fit(head(chart), [Form(parts, chart.noun) for parts in zip(*said, strict=True)])


def _whose(sweep: Sweep) -> str:
    return f"{sweep.trials['tool'].iloc[0]}'s" if sweep.is_generators else "its"


def _line(name: str, sweep: Sweep) -> str:
    """Return `axum's p90 is 0.318 ms at 250/s, 0.658 ms at its knee of 4,000/s and 1,500 ms at 8,000/s`."""
    ms, knee = sweep.knee_ms, sweep.knee.rate_rps
    if ms.empty:
        return f"{name}'s {KNEE_OF} is not known, with {_knee(sweep)}"
    places = sorted({float(ms.index[0]), float(ms.index[-1]), *({knee} if knee in ms.index else ())})
    texts = [
        f"{number(float(ms[at]))} ms at {f'{_whose(sweep)} knee of ' if at == knee else ''}{at:,.10g}/s"
        for at in places
    ]
    missing = "" if math.isfinite(knee) else f", with {_knee(sweep)}"
    return f"{name}'s {KNEE_OF} is {captions.joined(texts)}{missing}"


def _knee(sweep: Sweep) -> str:
    if math.isnan(sweep.knee.rate_rps):
        return f"no knee ({sweep.knee.why})"
    return f"its knee at {sweep.knee.rate_rps:,.10g}/s{f' ({_whose(sweep)})' if sweep.is_generators else ''}"


def _outermost(own: Mapping[str, Sweep]) -> str:
    """Return the outermost knees and sustained rates, and how many servers have none."""
    facts = {
        "knee": {name: sweep.knee.rate_rps for name, sweep in own.items()},
        "highest sustained rate": {name: sweep.sustained_rps for name, sweep in own.items()},
    }
    foreign = [_whose(sweep) for sweep in own.values() if sweep.is_generators and math.isfinite(sweep.knee.rate_rps)]
    words = []
    for noun, values in facts.items():
        known = by_value(values, rising=False)
        texts = {name: f"{rate:,.10g}/s" for name, rate in known.items()}
        without = len(values) - len(known)
        none = f", and {captions.plural(without, 'server')} without one" if without and known else ""
        whose = f", {len(foreign)} of them {foreign[0]}" if foreign and noun == "knee" else ""
        words.append(said(noun, "highest first", texts, short=True) + whose + none)
    return "; ".join(words)


# --- objectives -------------------------------------------------------------------------------------------


@chart("rates-objective", notebook="rates", needs=lambda tables: not tables.searches().empty, table=TABLE)
def kept(tables: Tables) -> Chart:
    """Return the highest rate that keeps each objective, with every search's bracket."""
    title, about = "The highest rate that keeps the objective", "the highest rates that keep an objective"
    trials, table = tables.searches(), objectives.answers(tables)
    if table.empty:
        return empty(title, about, captions.unsealed(trials, "step of a search"))
    sure = table["confidence"].notna().all()
    few = f"minimum to maximum of the searches ({objectives.FEW} for an interval)"
    bars = "its exact 95 % interval" if sure else few
    note = (
        "A search bisects between two rates in each block, a trial a step. Dotted, with an arrow: the server may keep "
        "more, since the generator or something else than the server was the limit where the objective broke."
    )
    return Chart(
        title,
        tidy(_answers(tables, table)),
        y=Axis("requests/s (log scale)", "the highest requests/s that keep an objective", log=True),
        looks=identities(tables.trials),
        caption=captions.caption(tables, trials, note),
        key=f"Mark: median of the searches. Bar: {bars}. Pale: each search, from the highest rate that kept the "
        "objective to the lowest that broke it.",
        noun="objective",
        draw=partial(_draw_kept, _searched(tables, trials)),
        describe=partial(_describe_kept, "the 95 % interval of the median" if sure else "minimum to maximum"),
    )


def _answers(tables: Tables, table: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Return the `median` of each search and server with its interval and both as texts, and every `search`.

    Solid: the median is known. low and high of a search are the rates that enclose what the server keeps.
    """
    rows = {(str(row["search"]), str(row["server"])): row for row in table.to_dict("records")}
    for cell in cells(tables, tables.searches()):
        row = rows[cell.panel, cell.server]
        known = row["kept_rps"] > 0 and math.isfinite(row["broken_rps"])
        texts = {"words": objectives.words(row), "interval": objectives.interval(row)}
        kept_rps, low, high = ([row[name]] for name in ("kept_rps", "low_rps", "high_rps"))
        yield points(cell, "median", [math.nan], kept_rps, low, high, known, **texts)
        for number_, (_, steps) in enumerate(cell.trials.groupby("block"), 1):
            found = objectives.outcome(steps)
            ends = [found.low_rps], [found.high_rps]
            yield points(cell, "search", [number_], [math.nan], *ends, words="", interval="")


def _searched(tables: Tables, trials: pd.DataFrame) -> tuple[float, float]:
    """Return the range of rates: that which was searched, else that of the steps."""
    loads = (tables.manifest.get("campaign") or {}).get("loads") or []
    ends = [load[end] for load in loads if load.get("objective") for end in ("from_rps", "to_rps") if load.get(end)]
    found = [*ends, *trials["rate_rps"].dropna()]
    return min(found) / 1.15, max(found) * 1.15


def _draw_kept(limits: tuple[float, float], chart: Chart) -> Figure:
    """Draw a row for each server, with every search's bracket behind it."""
    figure, axes = style.canvas(
        chart.title, chart.caption, key=chart.key, rows=len(chart.panels), panel_in=0.2 + 0.5 * len(chart.servers),
        heading_in=0.36, left_in=max(0.95, style.label_room(chart.servers)), right_in=2.2,
    )  # fmt: skip
    for ax, panel in zip(axes, chart.panels, strict=True):
        style.heading(ax, panel)
        own = chart.of_panel(panel)
        for place, (server, rows) in enumerate(own.items()):
            _draw_searches(ax, place, rows[rows["series"] == "search"], chart.looks[server], limits)
            _draw_answer(ax, place, rows.iloc[0], chart.looks[server], limits)
        scales.limit(ax, "x", *limits, log=True)
        style.name_rows(ax, list(own), chart.looks)
        ax.set_xlabel(chart.y.label)
    return figure


def _draw_searches(ax: Axes, place: int, rows: pd.DataFrame, look: Identity, limits: tuple[float, float]) -> None:
    """Draw the brackets of single searches below each other, pale; dotted where they are open at the top."""
    for number_, low, high in zip(rows["x"], rows["low"], rows["high"], strict=True):
        y = place + 0.12 + 0.28 * number_ / (len(rows) + 1)
        ends, dash = (max(low, limits[0]), min(high, limits[1])), DOTS if math.isinf(high) else "-"
        ax.plot(ends, [y, y], color=pale(look.color), lw=2, ls=dash, dash_capstyle="butt", label="search")


def _draw_answer(ax: Axes, place: int, row: pd.Series, look: Identity, limits: tuple[float, float]) -> None:
    """Draw median and interval; dotted is what is not known, from the median on or, without one, from the left."""
    y, known = place - 0.08, math.isfinite(row["high"])
    low = max(row["low"], limits[0])
    high = min(row["high"], limits[1]) if known else max(row["y"], low)
    ax.plot([low, high], [y, y], color=look.color, lw=1.6, label="interval")
    if row["y"] > 0:
        ax.plot([row["y"]], [y], color=look.color, marker=look.marker, ms=8, ls="", label=row["server"])
    if not known:
        ax.plot([high, limits[1]], [y, y], color=look.color, lw=1.6, ls=DOTS, label="_not known")
        ax.plot([limits[1]], [y], color=look.color, marker=">", ms=7, ls="", clip_on=False, label="open")
    text, _, why = row["words"].replace("at least", "≥").replace("less than", "<").partition(" (")
    below = why.rstrip(")") or (row["interval"] if row["y"] > 0 else "")
    ax.annotate(
        f"{text}\n{below}" if below else text, (1.03, y), xycoords=ax.get_yaxis_transform(), va="center",
        size=style.SMALL_PT, linespacing=1.15,
    )  # fmt: skip


def _describe_kept(bars: str, chart: Chart) -> str:
    """Describe what each server kept, with its interval, the highest first."""
    clauses: dict[str, Sequence[str]] = {}
    medians = chart.frame[chart.frame["series"] == "median"].sort_values(["y", "server"], ascending=[False, True])
    for panel in chart.panels:
        rows = medians[medians["panel"] == panel].to_dict("records")
        texts = {str(row["server"]): str(row["words"]) for row in rows}
        wide = {row["server"]: f"{row['words']} ({row['interval']})" if row["solid"] else row["words"] for row in rows}
        clauses[panel] = degrees("highest rate", "fastest first", texts, wide, texts)
    words = (
        f"Dot plot of {chart.y.words} (across, logarithmic), {scope(chart)}: the median of the searches with a bar, "
        "and pale each search from the highest rate that kept the objective to the lowest that broke it."
    )
    return fit(words, in_loads(clauses, f"In brackets: the bar, {bars}."))
