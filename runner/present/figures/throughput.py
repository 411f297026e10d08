"""Figure of k6's requests per second over time."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from runner.present.chart import Axis, Cell, Chart, Shared, cells, chart, empty, points
from runner.present.chart.describing import head
from runner.present.chart.sentences import by_value, degrees, ends, fit, in_loads
from runner.present.chart.sentences import pale as pale_ones
from runner.present.figures.seconds import FINE_S, bin_width
from runner.present.frames import Tables, server_bound
from runner.present.look import captions
from runner.present.look.palette import Identity, identities, pale


def rates(trials: pd.DataFrame, throughput: pd.DataFrame) -> pd.DataFrame:
    """Return requests/s of each trial of one load: server, trial_id, t_s (a bin's start), rps.

    Bins without requests count as 0. Every trial of a server ends with the shortest one, so that each median is
    one of the same trials; the last 0.1 s of a load is hardly ever a full bin, and is left out. Lengths come from
    the bins themselves: the trials' `duration_s` need not count a generator's start-up, as `t_s` does.
    """
    width = bin_width(trials)
    by_trial = dict(list(throughput[throughput["trial_id"].isin(trials["trial_id"])].groupby("trial_id")))
    parts = []
    for server, own in trials.groupby("server"):
        chosen = [(trial_id, by_trial[trial_id]) for trial_id in own["trial_id"] if trial_id in by_trial]
        shortest = min((float(rows["t_s"].max()) for _, rows in chosen), default=0.0)
        bins = max(1, int(np.floor(shortest / width + 1e-6)))
        for trial_id, rows in chosen:
            # Bin starts are multiples of 0.1 s that floats miss by a hair: half a fine bin makes floor safe.
            number = np.floor((rows["t_s"] + FINE_S / 2) / width).astype(int)
            counts = rows["requests"].groupby(number).sum().reindex(range(bins), fill_value=0)
            parts.append(
                pd.DataFrame(
                    {"server": server, "trial_id": trial_id, "t_s": counts.index * width, "rps": counts / width}
                )
            )
    columns = ["server", "trial_id", "t_s", "rps"]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


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
    frame = pd.concat([_curve(cell, found[cell.panel]) for cell in cells(tables, trials)], ignore_index=True)
    ends = {
        (str(load), str(server)): (float(rows["x"].iloc[-1]), float(rows["y"].iloc[-max(1, len(rows) // 4) :].median()))
        for (load, server), rows in frame.dropna(subset="y").groupby(["panel", "server"])
    }
    return Chart(
        title,
        frame,
        Axis("seconds since the load began", "seconds since the load began"),
        Axis("requests/s", "requests per second", "/s"),
        identities(tables.trials),
        captions.caption(tables, tables.of("k6"), words),
        headings=captions.load_headings(trials, "throughput"),
        shared=Shared(left_in=1.12, nothing="The throughput table has no requests of this load."),
        xlabels={load: f"seconds since the load began (bins of {bin_width(own):g} s)" for load, own in loads.items()},
        ends=ends,  # the last bins of a load are noisy: the label points at the level of its last quarter
        mark=_draw,
        hollow="Pale lines do not rank: the server was not the limit in every trial.",
        describe=_describe,
    )


def _curve(cell: Cell, found: pd.DataFrame) -> pd.DataFrame:
    by_time = found.loc[found["server"] == cell.server].groupby("t_s")["rps"]
    curve = by_time.agg(["median", "min", "max"])
    bound = server_bound(cell.trials)
    return points(cell, "median", curve.index, curve["median"], curve["min"], curve["max"], bound)


def _draw(ax: Axes, rows: pd.DataFrame, look: Identity, label: str) -> None:
    color = look.color if rows["solid"].all() else pale(look.color)
    ax.fill_between(rows["x"], rows["low"], rows["high"], color=color, alpha=0.18, lw=0)
    ax.plot(rows["x"], rows["y"], color=color, ls=look.dash, label=label)


def _describe(chart: Chart) -> str:
    """Describe each line's median over time, its lowest and highest point."""
    clauses = {}
    for panel in chart.panels:
        curves = chart.of_panel(panel)
        lines = {server: own for server, rows in curves.items() if len(own := rows.dropna(subset="y"))}
        levels = by_value({server: float(rows["y"].median()) for server, rows in lines.items()}, rising=False)
        texts = {server: chart.y.say(level) for server, level in levels.items()}
        wide = {server: f"{text} ({ends(lines[server]['y'])})" for server, text in texts.items()}
        bound = {server: bool(rows["solid"].all()) for server, rows in lines.items()}
        rest = f"; {pale_ones(bound)}" if lines else ""
        clauses[panel] = [said + rest for said in degrees("typical rate", "highest first", texts, wide, curves)]
    return fit(head(chart), in_loads(clauses, "In brackets: the lowest and highest point of a line."))
