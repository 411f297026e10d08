"""Figure of k6's requests per second over time."""

from __future__ import annotations

import pandas as pd

from runner.present.chart import Axis, Chart, Extreme, ServerLoad, Shared, cells, chart, empty, points
from runner.present.chart.describing import head, ranked
from runner.present.chart.sentences import ends, fit, in_loads
from runner.present.chart.sentences import pale as pale_ones
from runner.present.figures.seconds import bin_width, rates_in_bins
from runner.present.frames import Tables, server_bound
from runner.present.look import captions
from runner.present.look.palette import identities


def rates(trials: pd.DataFrame, throughput: pd.DataFrame) -> pd.DataFrame:
    """Return requests/s of each trial of one load: server, trial_id, t_s (a bin's start), rps.

    Bins without requests count as 0. Every trial of a server ends with the shortest one, so that each median is
    one of the same trials; the last 0.1 s of a load is hardly ever a full bin, and is left out. Lengths come from
    the bins themselves: the trials' `duration_s` need not count a generator's start-up, as `t_s` does.
    """
    width = bin_width(trials)
    parts = [pd.DataFrame(columns=["server", "trial_id", "t_s", "rps"])]
    for server, own in trials.groupby("server"):
        rows = throughput[throughput["trial_id"].isin(own["trial_id"])]
        shortest_s = rows.groupby("trial_id")["t_s"].max().min()
        for trial_id, each in rows.groupby("trial_id"):
            rps = rates_in_bins(each["t_s"], each["requests"], width, shortest_s)
            parts.append(pd.DataFrame({"server": server, "trial_id": trial_id, "t_s": rps.index, "rps": rps.values}))
    return pd.concat(parts[1:] or parts, ignore_index=True)


@chart("requests-over-time", notebook="report", table=captions.BY_LOAD)
def over_time(tables: Tables) -> Chart:
    """Return requests/s over time: the median of each server's trials, with minimum and maximum."""
    title, trials = "Requests per second over time", tables.sealed("k6")
    if trials.empty:
        return empty(title, "requests per second over time", captions.nothing(tables, "k6"))
    words = (
        "Line: median of the trials; band: minimum to maximum; up to the end of the server's shortest trial. "
        "Pale: the server was not the limit in every trial; do not rank."
    )
    loads = {str(load): own for load, own in trials.groupby("load", sort=False)}
    found = {load: rates(own, tables.throughput) for load, own in loads.items()}
    return Chart(
        title,
        pd.concat([_curve(cell, found[cell.panel]) for cell in cells(tables, trials)], ignore_index=True),
        Axis("seconds since the load began", "seconds since the load began"),
        Axis("requests/s", "requests per second", "/s"),
        identities(tables.trials),
        captions.caption(tables, tables.of("k6"), words),
        headings=captions.load_headings(trials, "throughput"),
        shared=Shared(left_in=1.12, nothing="The throughput table has no requests of this load."),
        xlabels={load: f"seconds since the load began (bins of {bin_width(own):g} s)" for load, own in loads.items()},
        hollow="Pale lines do not rank: the server was not the limit in every trial.",
        describe=_describe,
    )


def _curve(cell: ServerLoad, found: pd.DataFrame) -> pd.DataFrame:
    by_time = found.loc[found["server"] == cell.server].groupby("t_s")["rps"]
    curve = by_time.agg(["median", "min", "max"])
    bound = server_bound(cell.trials)
    return points(cell, "median", curve.index, curve["median"], curve["min"], curve["max"], bound)


def _describe(chart: Chart) -> str:
    """Describe each line's median over time, its lowest and highest point."""
    typical = Extreme("typical rate")
    clauses = {}
    for panel in chart.panels:
        curves = chart.of_panel(panel)
        bound = {server: bool(rows["solid"].all()) for server, rows in curves.items() if rows["y"].notna().any()}
        rest = f"; {pale_ones(bound)}" if bound else ""
        clauses[panel] = ranked(curves, typical, chart.y, _level, lambda rows: f" ({ends(rows['y'])})", rest)
    return fit(head(chart), in_loads(clauses, "In brackets: the lowest and highest point of a line."))


def _level(rows: pd.DataFrame) -> float:
    return float(rows["y"].median())
