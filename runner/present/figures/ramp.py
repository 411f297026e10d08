"""Make the figures of loads with rising arrival rates.

There is a panel for each quantity, with a line for each server.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from runner.model import setting_text
from runner.present.chart.sentences import LIMIT, fit, said
from runner.present.chart.value import (
    Axis,
    Chart,
    Fact,
    ServerLoad,
    cells,
    chart,
    of_trials,
    points,
    tidy,
)
from runner.present.figures import seconds
from runner.present.figures.seconds import OfferedSteps
from runner.present.frames import Tables, given_pct, limit_words
from runner.present.look import captions, style
from runner.present.look.numbers import number
from runner.present.look.palette import Identity
from runner.present.statistics.stats import Floats, spread

ACROSS = 2
"""Number of panels side by side."""
PANEL_IN = 1.55  # height of a panel with few servers
LABEL_IN = 0.215  # height that each server's name beside a panel needs
LEFT_IN = 0.72
GAP_IN = 0.68
SPARE = 1.12
"""Factor by which the y axis extends beyond the highest value."""
TABLE = "The answer"
SECONDS = Axis("seconds; requests/s offered", "seconds since the load began", " s")
DASHED = "dashed"
"""The name of a series ends with this word if its line is dashed.

A dashed line shows the bound of a quantity, such as the offered rate.
"""
Bound = Callable[[ServerLoad, Tables, OfferedSteps], tuple[Floats, ArrayLike]]
"""Type of a function that returns the x values and the y values of a dashed line."""


@dataclass(frozen=True)
class Quantity:
    """A quantity that is drawn over the seconds of a ramp.

    `values` is a function of the module `seconds`, which returns the points of the quantity's line.
    `bound` is a function that returns the points of a dashed line, such as the offered rate. If the
    quantity has no bound, `bound` is None.
    """

    heading: str
    """Heading of the quantity's panel, with the unit."""
    peak: str
    """Noun that names a server's highest value in a sentence, for example `answer peak`."""
    unit: str
    values: Callable[[pd.DataFrame, Tables], pd.DataFrame]
    bound: Bound | None = None
    log: bool = False


def _offered(_: ServerLoad, __: Tables, steps: OfferedSteps) -> tuple[Floats, ArrayLike]:
    return np.repeat(steps.edges_s, 2)[1:-1], np.repeat(steps.rates_rps, 2)


def _given(
    cell: ServerLoad, tables: Tables, steps: OfferedSteps, subject: str
) -> tuple[Floats, ArrayLike]:
    """Return a horizontal line at the CPU that a program could use in a cell, in % of a core."""
    return steps.edges_s[[0, -1]], given_pct(tables, cell.trials, subject).iloc[0]


def _size(cell: ServerLoad, _: Tables, steps: OfferedSteps) -> tuple[Floats, ArrayLike]:
    return steps.edges_s[[0, -1]], cell.trials["pool_size"].iloc[0]


def _cpu(heading: str, subject: str) -> Quantity:
    return Quantity(
        heading,
        f"{subject} CPU peak",
        " %",
        partial(seconds.cpu, subject=subject),
        partial(_given, subject=subject),
    )


ANSWERED = Quantity("answers/s", "answer peak", "/s", seconds.answered, _offered)
P90 = Quantity(
    "p90, ms (log scale)", "p90 peak", " ms", partial(seconds.latency, quantile=0.9), log=True
)
SERVER_CPU = _cpu("CPU of the server, %", "server")
DATABASE_CPU = _cpu("CPU of PostgreSQL, %", "database")
POOL = Quantity(
    "pool: connections in use",
    "pool peak",
    "",
    partial(seconds.sampled, column="pool_in_use"),
    _size,
)
MEMORY = Quantity(
    "memory of the server, MiB",
    "memory peak",
    " MiB",
    partial(seconds.sampled, column="rss_bytes", unit=2.0**20),
)


def _register(
    name: str, title: str, quantities: Sequence[Quantity], key: str, *, database: bool
) -> None:
    """Register a figure that shows quantities over the seconds of ramps.

    With `database`, the figure shows the ramps with a database. Otherwise it shows the ramps
    without a database.
    """

    def make(tables: Tables) -> Chart:
        trials = tables.ramps(database=database)
        shown = cells(tables, trials)
        drawn = partial(_draw, quantities=quantities)
        return of_trials(
            tables,
            trials,
            title,
            tidy(part for each in quantities for part in _curves(each, shown, tables)),
            SECONDS,
            Axis("", "", ""),
            "Line: median of the trials, a point for each second.",
            "trial with rising rates",
            key=key,
            headings={
                load: (
                    load,
                    _sustained_words([cell for cell in shown if cell.panel == load], tables),
                )
                for load in dict.fromkeys(cell.panel for cell in shown)
            },
            nothing="The tables of this run have no samples of these loads.",
            draw=drawn,
            describe=partial(_describe, quantities=quantities),
        )

    chart(
        name,
        notebook="postgres",
        needs=lambda tables: not tables.ramps(database=database).empty,
        table=TABLE if database else "",
    )(make)


def _curves(quantity: Quantity, shown: Sequence[ServerLoad], tables: Tables) -> list[pd.DataFrame]:
    """Return the points of a quantity in each cell, and the points of its bound.

    Cells in which the quantity was not measured are left out.
    """
    parts = list[pd.DataFrame]()
    for cell in shown:
        found = _by_second(quantity.values(cell.trials, tables), cell.trials)
        by_time = found.groupby("t_s")["value"]
        # Interrupt the line with NaN where fewer than half of the trials have a point.
        curve = by_time.agg(["median", "min", "max"]).where(2 * by_time.count() >= len(cell.trials))
        if not curve["median"].notna().any():
            continue
        parts.append(
            points(cell, quantity.heading, curve.index, curve["median"], curve["min"], curve["max"])
        )
        if quantity.bound:
            steps = seconds.offered_steps(cell.trials)
            bound = quantity.bound(cell, tables, steps)
            parts.append(points(cell, f"{quantity.heading} {DASHED}", *bound))
    return parts


def _by_second(found: pd.DataFrame, trials: pd.DataFrame) -> pd.DataFrame:
    """Return the mean of the points in each second, for each trial.

    A second may consist of several bins. It is left out if fewer than half of its bins have points.
    """
    width_s = seconds.bin_width(trials)
    fewest = 0.5 * seconds.SECOND_S / width_s
    second = np.floor(found["t_s"]) + seconds.SECOND_S / 2
    is_fine = not np.isclose(found["t_s"] % seconds.SECOND_S, seconds.SECOND_S / 2).all()
    grouped = found.assign(t_s=second).groupby(["trial_id", "t_s"])["value"]
    means = grouped.mean()
    if is_fine:
        means = means[grouped.count() >= fewest]
    return means.reset_index()


def _sustained_words(shown: Sequence[ServerLoad], tables: Tables) -> str:
    """Return words for the highest rate that each server sustained under a load.

    If a server did not sustain the whole ramp, the words also name the limit of its trials.
    """
    by_rate: dict[float, list[str]] = {}
    for cell in shown:
        rate_rps = spread(seconds.sustained_rps(cell.trials, tables.throughput)).median
        is_whole = rate_rps == cell.trials["rate_rps"].iloc[0]
        limit = "" if is_whole else f" (limit: {limit_words(cell.trials)})"
        words = f"{cell.server}{limit}"
        by_rate.setdefault(rate_rps, []).append(words)
    texts = [
        f"sustained to {setting_text(rate)}/s: {', '.join(by_rate[rate])}"
        if rate
        else f"never sustained: {', '.join(by_rate[rate])}"
        for rate in sorted(by_rate, reverse=True)
    ]
    return "; ".join(texts)


# --- drawing the panels ---------------------------------------------------------------------------


def _draw(chart: Chart, quantities: Sequence[Quantity]) -> Figure:
    """Draw a group of panels for each load.

    The servers' names are written to the right of the last panel of each row.
    """
    rows = list[style.PanelRow]()
    plans = list[tuple[str, tuple[Quantity, ...], tuple[str, str] | None]]()
    for load, (_, sustained) in chart.headings.items():
        of_load = chart.frame[chart.frame["panel"] == load]
        workload, _, rest = load.partition(", ")
        known = [each for each in quantities if of_load["series"].eq(each.heading).any()]
        height_in = max(PANEL_IN, LABEL_IN * of_load["server"].nunique())
        lines = style.wrap(f"{rest}\n{sustained}", style.SMALL_PT, style.WIDTH_IN - 0.3)
        several = [tuple(known[at : at + ACROSS]) for at in range(0, len(known), ACROSS)]
        for place, group in enumerate(several):
            first = place == 0
            last = place == len(several) - 1
            head_in = 0.66 + len(lines) * style.LINE_IN if first else 0.4
            plans.append((load, group, (workload, "\n".join(lines)) if first else None))
            rows.append(
                style.PanelRow(
                    ACROSS,
                    height_in,
                    head_in,
                    0.72 if last else 0.22,
                    LEFT_IN,
                    style.label_room(chart.servers),
                    GAP_IN,
                )
            )
    figure, grid = style.page(chart.title, chart.caption, rows, key=chart.key)
    for axes, (load, group, heading), row in zip(grid, plans, rows, strict=True):
        if heading:
            style.heading(axes[0], *heading, above_in=0.38)
        for ax, quantity in zip(axes, group, strict=False):
            is_last = quantity is group[-1]
            _panel(ax, chart, load, quantity, named=is_last, ticks=row.axis_in > 0.5)
        for ax in axes[len(group) :]:
            ax.remove()
    return figure


def _panel(
    ax: Axes, chart: Chart, load: str, quantity: Quantity, *, named: bool, ticks: bool
) -> None:
    """Draw the panel of a quantity under a load, with a line for each server and dashed bounds.

    With `named`, the servers' names are written beside the ends of the lines. With `ticks`, the x
    axis has labels.
    """
    of_load = chart.frame[chart.frame["panel"] == load]
    own = of_load[of_load["series"] == quantity.heading]
    bounds = of_load[of_load["series"] == f"{quantity.heading} {DASHED}"]
    style.heading(ax, quantity.heading, "", LEFT_IN - 0.1)
    for _, rows in bounds.drop_duplicates(["x", "y"]).groupby("server", sort=False):
        ax.plot(
            rows["x"], rows["y"], color=style.INK, lw=1.2, ls=(0, (4, 2.5)), label="bound", zorder=1
        )
    ends = list[tuple[str, Identity, float, float]]()
    for server, rows in own.groupby("server", sort=False):
        look = chart.looks[str(server)]
        ax.plot(rows["x"], rows["y"], color=look.color, ls=look.dash, lw=1.6, label=str(server))
        last = rows.dropna(subset="y").iloc[-1]
        at = float(last["x"]), float(last["y"])
        ax.plot(*at, marker=look.marker, ms=5.5, color=look.color, clip_on=False, label="_end")
        ends.append((str(server), look, *at))
    values = pd.concat([own["y"], bounds["y"]]).dropna()
    high = float(values.max()) or 1.0
    if quantity.log:
        low = float(values.min())
        style.limit(ax, "y", low / SPARE**2, max(high, 1.5 * low) * SPARE**2, log=True)
    else:
        style.limit(ax, "y", 0.0, high * SPARE)
    steps = of_load.loc[of_load["series"].str.endswith(DASHED), "x"]
    ax.set_xlim(0, float(pd.concat([own["x"], steps]).max()))
    _offered_ticks(ax, of_load, ticks=ticks)
    if named:
        style.label_ends(ax, ends)


def _offered_ticks(ax: Axes, of_load: pd.DataFrame, *, ticks: bool) -> None:
    """Label the x axis at the instants at which the offered rate rose.

    A label consists of the seconds and, below them, the new rate. Without `ticks`, the axis has no
    labels.
    """
    offered = of_load[of_load["series"] == f"{ANSWERED.heading} {DASHED}"]
    labels = {float(x): y for x, y in zip(offered["x"], offered["y"], strict=True)}
    labels.pop(max(labels, default=0.0), None)
    texts = {x: f"{setting_text(x)} s\n{setting_text(y)}/s" for x, y in sorted(labels.items())}
    if texts:
        style.ticks_across(ax, list(texts), texts.__getitem__)
    ax.tick_params(labelbottom=ticks)
    if ticks and not texts:
        ax.set_xlabel("seconds")


# --- the alternative text of a figure -------------------------------------------------------------


def _describe(chart: Chart, quantities: Sequence[Quantity]) -> str:
    """Return the alternative text, with the sustained rates and the peaks of each quantity.

    If the text would be too long, the last quantities are left out.
    """
    count = captions.plural(len(chart.servers), "server")
    head = f"Line charts (up) by seconds of rising rates (across), of {count}."
    parts = []
    for load, (_, sustained) in chart.headings.items():
        of_load = chart.frame[chart.frame["panel"] == load]
        facts = [sustained, *filter(None, (_peaks(of_load, each) for each in quantities))]
        while len(part := f"In “{load}” {'; '.join(facts)}.") + len(head) >= LIMIT:
            facts.pop()
        parts.append(part)
    return fit(head, parts, chart.noun)


def _peaks(of_load: pd.DataFrame, quantity: Quantity) -> str:
    """Return words for the servers' highest values of a quantity, and for the quantity's bound.

    Return an empty text if the quantity has no points.
    """
    rows = of_load[of_load["series"] == quantity.heading]
    known = {str(server): curve for server, curve in rows.groupby("server", sort=False)}
    if not known:
        return ""
    fact = Fact(quantity.peak, lambda curve: float(curve["y"].max()), quantity.unit)
    if quantity is ANSWERED:  # the load's name already says the offered rates
        return said(fact, known, list(known), short=True)
    bound = of_load.loc[of_load["series"] == f"{quantity.heading} {DASHED}", "y"].max()
    limit = f" (dashed: {number(bound)}{quantity.unit})" if math.isfinite(bound) else ""
    return said(fact, known, list(known), short=True) + limit


_register(
    "inserts-over-time",
    "Inserts while the offered rate rises",
    (ANSWERED, P90, SERVER_CPU, DATABASE_CPU),
    "Dashed: the rate offered, and the CPU that the server or PostgreSQL may use; 100 % is one "
    "core. Across: seconds and, below them, the requests/s offered from then on.",
    database=True,
)
_register(
    "inserts-pool-and-memory",
    "Pool and memory while the offered rate rises",
    (POOL, MEMORY),
    "Dashed: the pool's size. The servers themselves say how many connections they use.",
    database=True,
)
_register(
    "static-over-time",
    "Without a database: requests while the offered rate rises",
    (ANSWERED, P90, SERVER_CPU),
    "Dashed: the rate offered, and the CPU that the server may use; 100 % is one core. Across: "
    "seconds and, below them, the requests/s offered from then on.",
    database=False,
)
