"""Searches for the highest arrival rate at which each server keeps an objective.

Each search (a server in a block) ends in a bracket: the highest rate that kept the objective, and
the lowest that broke it. If the server, or nothing, was the limit of the step that broke it, the
server's highest rate lies in this bracket. If the generator or the database was the limit, or the
limit is unknown, the server may keep a higher rate, so the bracket has no upper end. The same holds
if no step broke the objective. The median of the true rates lies between the median of the lower
ends and the median of the upper ends, which may be infinite.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from runner.planning.search import bracket
from runner.present.chart import Axis, Chart, Fact, cells, chart, points, tidy
from runner.present.chart.value import of_trials
from runner.present.frames import Tables, limits_of
from runner.present.look import style
from runner.present.look.palette import DOTS, pale
from runner.present.statistics.inference import sure_spread
from runner.verdict.limits import Limit

LIMITS_THAT_DECIDE = (Limit.SERVER, Limit.NONE)
"""Limits of a broken step that make the answer the server's: its CPUs were full, or nobody's were.
"""
RANGE_ENDS = "end of the search"
TOO_FEW_SEARCHES = "not enough trials"
ANSWER_COLUMNS = (
    *(
        "search",
        "server",
        "searches",
        "kept_rps",
        "broken_rps",
        "low_rps",
        "high_rps",
        "confidence",
    ),
    *("limit", "why_open", "probe_p95_ms"),
)
WHY: dict[str, str] = {
    **{limit: limit.why_not for limit in Limit},
    Limit.GENERATOR: "k6 was the limit",
    RANGE_ENDS: "the search ended there",
}
"""Limit of the step that broke the objective -> why the server may keep a higher rate."""


@dataclass(frozen=True)
class SearchOutcome:
    """Results of the sealed steps of one search."""

    low_rps: float
    """The highest rate at which the server kept the objective; 0 if it was shown at none."""
    high_rps: float
    """The lowest rate at which the server broke it; infinite if that was not shown."""
    limit: str
    """What limited the step at the lowest rate that broke the objective."""
    probe_p95_ms: float
    """The probe's 95th percentile in that step; NaN if no step broke the objective."""


def outcome(steps: pd.DataFrame) -> SearchOutcome:
    """Return the results of the sealed steps of one search."""
    known = bracket(zip(steps["rate_rps"].astype(float), steps["objective_kept"] == 1, strict=True))
    if math.isinf(known.broken_rps):
        return SearchOutcome(known.kept_rps, math.inf, RANGE_ENDS, math.nan)
    ended = steps[(steps["rate_rps"] == known.broken_rps) & (steps["objective_kept"] != 1)]
    limit = str(limits_of(ended).iloc[-1])
    return SearchOutcome(
        low_rps=known.kept_rps,
        high_rps=known.broken_rps if limit in LIMITS_THAT_DECIDE else math.inf,
        limit=limit,
        probe_p95_ms=float(ended["probe_p95_ms"].median()),
    )


def answers(tables: Tables) -> pd.DataFrame:
    """Return one row per search and server, with the columns `ANSWER_COLUMNS`.

    kept_rps and broken_rps enclose the median over the searches. From six searches on, low_rps and
    high_rps are its exact 95 % interval (`confidence`); with fewer, they are minimum and maximum
    with a confidence of NaN. 0 means that no rate was kept. inf means unknown, usually for the
    reason `why_open`.
    """
    rows = []
    for cell in cells(tables, tables.searches()):
        found = pd.DataFrame([outcome(search) for _, search in cell.trials.groupby("block")])
        least = sure_spread(found["low_rps"])
        most = sure_spread(found["high_rps"])
        rates = (least.median, most.median, least.low, most.high, least.confidence or math.nan)
        limits = Counter(sorted(found["limit"])).most_common()
        limit = ", ".join(word if len(limits) == 1 else f"{word} {count}" for word, count in limits)
        why_open = next((WHY[word] for word, _ in limits if word not in LIMITS_THAT_DECIDE), "")
        rows.append(
            (
                cell.panel,
                cell.server,
                len(found),
                *rates,
                limit,
                why_open,
                found["probe_p95_ms"].median(),
            )
        )
    return pd.DataFrame(rows, columns=ANSWER_COLUMNS)


def words(row: Mapping[Any, Any]) -> str:
    """Return the highest rate that a server keeps, and why it is not known better.

    `4,120`, `at least 1,542 (k6 was the limit)`, `less than 250` or `unknown (...)`.
    """
    kept = _kept_words(row, at_least="at least", less_than="less than")
    return f"{kept} ({row['why_open']})" if math.isinf(row["broken_rps"]) else kept


def _kept_words(row: Mapping[Any, Any], at_least: str, less_than: str) -> str:
    """Return the highest rate that a server keeps, with words or signs for an open end."""
    kept_rps = row["kept_rps"]
    if math.isinf(row["broken_rps"]):
        return f"{at_least} {kept_rps:,.0f}" if kept_rps > 0 else "unknown"
    return f"{kept_rps:,.0f}" if kept_rps > 0 else f"{less_than} {row['broken_rps']:,.0f}"


def interval(row: Mapping[Any, Any]) -> str:
    """Return `3,980–4,300` with `≥` and `<` for open ends."""
    low = row["low_rps"]
    high = row["high_rps"]
    if math.isinf(high):
        return f"≥ {low:,.0f}" if low > 0 else "–"
    return f"{low:,.0f}–{high:,.0f}" if low > 0 else f"< {high:,.0f}"


def printable(table: pd.DataFrame) -> pd.DataFrame:
    """Return `answers` as texts."""
    rows = table.to_dict("records")
    few = [
        f" (minimum–maximum; {TOO_FEW_SEARCHES})" * math.isnan(row["confidence"]) for row in rows
    ]
    texts = {
        "search": table["search"],
        "server": table["server"],
        "searches": table["searches"].astype(str),
        "highest rate that kept it, requests/s": [words(row) for row in rows],
        "lowest that broke it": table["broken_rps"].map(style.number),
        "95 % interval": [f"{interval(row)}{note}" for row, note in zip(rows, few, strict=True)],
        "limit where it broke": table["limit"],
        "probe's p95 there, ms": table["probe_p95_ms"].map(style.number),
    }
    return pd.DataFrame(texts)


def findings(tables: Tables) -> list[str]:
    """Return a sentence for each search, with the servers in descending order."""
    found = []
    for search, rows in answers(tables).groupby("search", sort=False):
        ordered = rows.sort_values(["kept_rps", "server"], ascending=[False, True]).to_dict(
            "records"
        )
        each = "; ".join(f"{row['server']} {words(row)}" for row in ordered)
        few = "" if rows["confidence"].notna().all() else f", {TOO_FEW_SEARCHES} for an interval"
        found.append(
            f"{search}: the highest rate that kept it, requests/s, median of the searches{few}: "
            f"{each}."
        )
    return found


@chart(
    "rates-objective",
    notebook="rates",
    needs=lambda tables: not tables.searches().empty,
    table="The answer",
)
def kept(tables: Tables) -> Chart:
    """Return the chart of the highest rate that keeps each objective, with all brackets."""

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
        "A search bisects between two rates in each block, a trial a step. Dotted, with an arrow: "
        "the server may keep more, since the generator or something else than the server was the "
        "limit where the objective broke."
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
    """Yield the `median` of each search and server with its interval, and every `search`.

    Both are also given as texts. A median is solid if it is known. low and high of a search are its
    bracket.
    """
    for cell, row in zip(cells(tables, tables.searches()), table.to_dict("records"), strict=True):
        known = row["kept_rps"] > 0 and math.isfinite(row["broken_rps"])
        texts = {
            "words": words(row),
            "interval": interval(row),
            "signs": _kept_words(row, at_least="≥", less_than="<"),
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
    """Draw a row for each server: the median with its interval, over every search's bracket.

    Unknown ranges are dotted: beyond an open bracket, and beyond an unknown median.
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
