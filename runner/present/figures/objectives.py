"""Make the figure of the highest rate at which each server keeps an objective."""

import math
from collections.abc import Iterator
from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from runner.present.chart.value import Axis, Chart, Fact, cells, chart, of_trials, points, tidy
from runner.present.comparison.searches import (
    TOO_FEW_SEARCHES,
    answers,
    interval,
    kept_words,
    outcome,
    words,
)
from runner.present.frames import Tables
from runner.present.look import style
from runner.present.look.palette import DOTS, pale


@chart(
    "rates-objective",
    notebook="rates",
    needs=lambda tables: not tables.searches().empty,
    table="The answer",
)
def kept(tables: Tables) -> Chart:
    """Return the chart of the highest rate at which each server keeps each objective.

    The chart also shows the bracket of each search. The bracket reaches from the highest rate that
    kept the objective to the lowest rate that broke it.
    """

    def said(rows: pd.DataFrame) -> str:
        median = rows.iloc[0]
        return (
            f"{median['words']} ({median['interval']})" if median["solid"] else str(median["words"])
        )

    title = "The highest rate that keeps the objective"
    trials = tables.searches()
    table = answers(tables)
    sure = table["confidence"].notna().all()
    bar = (
        "its exact 95 % interval"
        if sure
        else f"minimum to maximum of the searches ({TOO_FEW_SEARCHES} for an interval)"
    )
    ends = [
        end
        for load in tables.manifest.campaign.loads
        if load.objective
        for end in (load.from_rps, load.to_rps)
        if end
    ]
    searched = [*ends, *trials["rate_rps"].dropna()]
    note = (
        "Dotted, with an arrow: the highest rate may be higher, because something else was the "
        "limit when the objective broke."
    )
    searches = (
        "each search, from the highest rate that kept the objective to the lowest that broke it"
    )
    return of_trials(
        tables,
        trials,
        title,
        tidy(_curves(tables, table)),
        Axis(""),
        Axis("requests/s (log scale)", "the highest requests/s that keep an objective", log=True),
        note,
        "step of a search",
        key=f"Mark: median of the searches. Bar: {bar}. Pale: {searches}.",
        kind="Dot plot",
        statistic=f"the median of the searches with a bar, {bar}, in brackets, and pale {searches}",
        noun="objective",
        facts=(
            Fact(
                "highest rate",
                lambda rows: float(rows["y"].iloc[0]),
                text=said,
                order="fastest first",
            ),
        ),
        draw=partial(
            _draw, limits=(min(searched, default=1) / 1.15, max(searched, default=1) * 1.15)
        ),
    )


def _curves(tables: Tables, table: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Yield the points of each server and objective.

    The first point has the series `median`. Its value is the median of the searches, and its low
    and high are the ends of the median's interval. The row of this point also contains the rate and
    the interval as texts, and the reason if the upper bound of the rate is unknown. The point is
    solid if both a lower and an upper bound of the rate are known.

    The other points have the series `search`. There is one for each search, and its low and high
    are the ends of the search's bracket.
    """
    for cell, row in zip(cells(tables, tables.searches()), table.to_dict("records"), strict=True):
        known = row["kept_rps"] > 0 and math.isfinite(row["broken_rps"])
        texts = {
            "words": words(row),
            "interval": interval(row),
            "signs": kept_words(row, at_least="≥", less_than="<"),
            "why_open": row["why_open"] if math.isinf(row["broken_rps"]) else "",
        }
        yield points(
            cell,
            "median",
            [math.nan],
            row["kept_rps"],
            row["low_rps"],
            row["high_rps"],
            known,
            **texts,
        )
        for place, (_, steps) in enumerate(cell.trials.groupby("block"), 1):
            shown = outcome(steps)
            yield points(
                cell,
                "search",
                [place],
                [math.nan],
                shown.low_rps,
                shown.high_rps,
                **dict.fromkeys(texts, ""),
            )


def _draw(chart: Chart, limits: tuple[float, float]) -> Figure:
    """Draw a row for each server: the median with its interval and, below, each search's bracket.

    If the upper end of a bracket is unknown, the line of the bracket is dotted. If the upper end of
    the median's interval is unknown, a dotted arrow continues the interval to the panel's edge.
    """
    left_in = max(0.95, style.label_room(chart.servers))
    row_in = style.PanelRow(1, 0.2 + 0.5 * len(chart.servers), 0.36, left_in=left_in, right_in=2.2)
    figure, axes = style.page(
        chart.title, chart.caption, [row_in] * len(chart.panels), key=chart.key
    )
    for (ax,), panel in zip(axes, chart.panels, strict=True):
        style.heading(ax, panel)
        servers = chart.of_panel(panel)
        for place, (server, rows) in enumerate(servers.items()):
            look = chart.looks[server]
            row = rows.iloc[0]
            searches = rows[rows["series"] == "search"]
            line = partial(ax.plot, color=look.color, lw=1.6)
            for number, low, high in searches[["x", "low", "high"]].itertuples(index=False):
                y = place + 0.12 + 0.28 * number / (len(searches) + 1)
                dash = DOTS if math.isinf(high) else "-"
                ends = (max(low, limits[0]), min(high, limits[1]))
                ax.plot(
                    ends,
                    [y, y],
                    color=pale(look.color),
                    lw=2,
                    ls=dash,
                    dash_capstyle="butt",
                    label="search",
                )
            y = place - 0.08
            low = max(row["low"], limits[0])
            known = math.isfinite(row["high"])
            high = min(row["high"], limits[1]) if known else max(row["y"], low)
            line([low, high], [y, y], label="interval")
            if row["y"] > 0:
                line([row["y"]], [y], marker=look.marker, ms=8, ls="", label=server)
            if not known:
                line([high, limits[1]], [y, y], ls=DOTS, label="_not known")
                line([limits[1]], [y], marker=">", ms=7, ls="", clip_on=False, label="open")
            below = row["why_open"] or (row["interval"] if row["y"] > 0 else "")
            ax.annotate(
                f"{row['signs']}\n{below}".rstrip(),
                (1.03, y),
                xycoords=ax.get_yaxis_transform(),
                va="center",
                size=style.SMALL_PT,
                linespacing=1.15,
            )
        style.limit(ax, "x", *limits, log=True)
        style.name_rows(ax, list(servers), chart.looks)
        ax.set_xlabel(chart.y.label)
    return figure
