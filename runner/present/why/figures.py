"""Make the figure of a run's profiles: CPU time per request, by kind of work and server."""

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from runner.present.chart.sentences import fit
from runner.present.chart.value import POINT_COLUMNS, Axis, Chart, chart, empty
from runner.present.frames import Tables
from runner.present.look import captions, style
from runner.present.look.palette import identities
from runner.present.why.profiles import Profiles, ServerProfile, read_profiles
from runner.present.why.words import TOTAL, comparison_title, first_sentence, load_words, us

MOST_SERVERS = 4
"""The figure shows at most this many servers; the tables contain all servers."""
LEAST_SHARE = 0.01
"""The figure leaves out kinds of work that take little CPU time in all servers.

The CPU time is little if it is less than this share of the total CPU time per request of the most
expensive server.
"""
LEAST_COST = 0.02
"""If recording the profiles raised the CPU time by at least this share, the caption says so."""
BAR_IN = 0.15
APART_IN = 0.14
LABEL_IN = 2.85
NO_PROFILES = "This run has no profiles: measure with `bench run CAMPAIGN --profile`."


def profiles_of(tables: Tables) -> Profiles | None:
    """Return the profiles of a run's servers, or None if the run has no profiles."""
    return None if tables.folder is None else read_profiles(tables.folder)


def databases_of(tables: Tables) -> Profiles | None:
    """Return the profiles of the databases behind a run's servers, or None if there are none."""
    return None if tables.folder is None else read_profiles(tables.folder, "database")


def is_profiled(tables: Tables) -> bool:
    """Return True if a run has profiles."""
    return profiles_of(tables) is not None


def load_of_figure(profiles: Profiles) -> str:
    """Return the load with the most profiled servers.

    If several loads have equally many profiled servers, return the first of these loads.
    """
    return max(profiles.loads, key=lambda load: len(profiles.of(load)))


def first_sentences(tables: Tables, servers: Collection[str]) -> tuple[str, ...]:
    """Return a tuple with a sentence that compares the CPU time per request of two servers.

    If `servers` names two servers that the run profiled, these two are compared. Otherwise the most
    expensive server is compared with the cheapest server. The sentence names the kinds of work for
    which the more expensive server needs more, or less, CPU time per request. Return an empty tuple
    if the run has no profiles of two servers under one load.
    """
    profiles = profiles_of(tables)
    if profiles is None:
        return ()
    said = first_sentence(profiles, load_of_figure(profiles), servers)
    return (said,) if said else ()


def in_figure(servers: Sequence[ServerProfile]) -> list[ServerProfile]:
    """Return the servers that the figure shows.

    `servers` are sorted by CPU time per request, with the cheapest server first. If there are at
    most `MOST_SERVERS`, all are shown. Otherwise the cheapest `MOST_SERVERS` - 1 servers and the
    most expensive server are shown.
    """
    if len(servers) <= MOST_SERVERS:
        return list(servers)
    return [*servers[: MOST_SERVERS - 1], servers[-1]]


@chart("why-categories", notebook="why", needs=is_profiled, table="CPU time by kind of work")
def categories(tables: Tables) -> Chart:
    """Return the chart of CPU time per request, with a bar for each kind of work and server."""
    profiles = profiles_of(tables)
    if profiles is None:
        return empty("Where the CPU time of a request goes", NO_PROFILES)
    load = load_of_figure(profiles)
    servers = profiles.of(load)
    shown = in_figure(servers)
    words = "The bars of a server add up to its CPU time per request"
    cost = profiles.cost(load)
    if cost is not None and cost.mean >= LEAST_COST:
        words += f", and recording the profile raised this time by {100 * cost.mean:.0f} %"
    if len(servers) > len(shown):
        words += (
            f"; shown are the {len(shown) - 1} cheapest servers and the most expensive of "
            f"{len(servers)}"
        )
    made = Chart(
        comparison_title(profiles, load),
        _frame(shown, load_words(tables, load)),
        y=Axis("CPU time per request in µs", "CPU time per request", " µs"),
        looks=identities(tables.trials),
        caption=captions.caption(tables, f"{words}."),
        key=(
            f"{load_words(tables, load)}. Bar: mean of {len(shown[0].by_category)} profiled "
            "slices. Line: its 95 % interval."
        ),
        kind="Bar chart",
    )
    return replace(made, draw=_draw, describe=lambda made: _describe(made, shown))


def _frame(servers: list[ServerProfile], panel: str) -> pd.DataFrame:
    """Return a row for each kind of work and server.

    In a row, x is the position of the kind of work, counted from the top.
    """
    least_us = LEAST_SHARE * max(each.total.mean for each in servers)
    found = {each.server: {**each.categories, TOTAL: each.total} for each in servers}
    names = [
        name
        for name in found[servers[0].server]
        if any(each.get(name) and each[name].mean >= least_us for each in found.values())
    ]
    rows = [
        (panel, server, name, place, value.mean, value.low, value.high, True)
        for place, name in enumerate(names)
        for server, values in found.items()
        if (value := values.get(name)) is not None
    ]
    return pd.DataFrame(rows, columns=list(POINT_COLUMNS))


def _describe(made: Chart, servers: list[ServerProfile]) -> str:
    texts = [
        f"{each.server}: {us(each.total)} µs, of which "
        + ", ".join(
            f"{name} {us(value)}" for name, value in each.categories.items() if value.mean > 0
        )
        + "."
        for each in servers
    ]
    return fit(
        f"Bar chart of the CPU time per request by kind of work. {made.title}.", texts, "server"
    )


def _draw(made: Chart) -> Figure:
    names = list(dict.fromkeys(made.frame["series"]))
    servers = [server for server in made.looks if made.frame["server"].eq(server).any()]
    row_in = APART_IN + BAR_IN * len(servers)
    height = row_in * len(names)
    panel = style.PanelRow(
        panel_in=height, heading_in=0.1, left_in=LABEL_IN, right_in=0.75, axis_in=0.62
    )
    figure, ((ax,),) = style.page(made.title, made.caption, [panel], key=made.key)
    for number, server in enumerate(servers):
        rows = made.frame[made.frame["server"] == server]
        middle = row_in * rows["x"] + APART_IN / 2 + BAR_IN * (number + 0.5)
        color = made.looks[server].color
        ax.barh(
            middle,
            rows["y"],
            height=0.8 * BAR_IN,
            color=color,
            edgecolor=color,
            lw=0.4,
            label=server,
        )
        for y, row in zip(middle, rows.itertuples(), strict=True):
            _whisker(ax, y, row)
        last = rows.iloc[-1]
        ax.annotate(
            server,
            (np.nanmax([last["y"], last["high"]]), middle.iloc[-1]),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            size=style.SMALL_PT,
            color=made.looks[server].ink,
        )
    ax.set(ylim=(height, 0))
    ax.set_xlim(left=0)
    ax.set_yticks([row_in * (place + 0.5) for place in range(len(names))], names)
    ax.tick_params(axis="y", length=0, labelsize=style.SMALL_PT)
    ax.grid(visible=False, axis="y")
    style.even_axis(ax, "x")
    ax.set_xlabel(made.y.label)
    return figure


def _whisker(ax: Axes, y: float, row: object) -> None:
    """Draw the interval of a bar; the part of the interval below 0 is cut off."""
    low, high = (float(getattr(row, name)) for name in ("low", "high"))
    if math.isfinite(low):
        ax.plot([max(0.0, low), high], [y, y], color=style.INK, lw=1.2, label="_interval")
