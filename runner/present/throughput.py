"""Figure of k6's requests per second over time."""

from __future__ import annotations

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from runner.present import captions, style
from runner.present.frames import Tables
from runner.present.palette import Identity, identities, pale

SHORT_LOAD_S = 20.0
FINE_S = 0.1
"""Width of the bins of the throughput table."""


def bin_width(trials: pd.DataFrame) -> float:
    """Return the bins' width in seconds for loads of this length: 0.1 under 20 s, else 1."""
    return FINE_S if trials["duration_s"].min() < SHORT_LOAD_S else 1.0


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


@style.styled
def over_time(tables: Tables) -> Figure:
    """Draw requests/s over time: a line a server, the median of its trials, with their min–max band."""
    title = "Requests per second over time"
    trials = tables.sealed("k6")
    if trials.empty:
        return style.no_data(title, captions.nothing(tables, "k6"))
    looks, loads = identities(tables.trials), list(dict.fromkeys(trials["load"]))
    words = (
        "Line: median of the trials; band: minimum to maximum; up to the end of the server's shortest trial. "
        "Pale: the server was not the limit in every trial; do not rank."
    )
    figure, axes = style.canvas(
        title,
        captions.caption(tables, tables.of("k6"), words),
        rows=len(loads),
        panel_in=max(2.3, 0.22 * len(looks)),
        right_in=style.label_room(list(looks)),
        left_in=1.08,
    )
    for ax, load in zip(axes, loads, strict=True):
        of_load = trials[trials["load"] == load]
        style.heading(ax, of_load["workload"].iloc[0], captions.load_heading(of_load, "throughput"))
        bound = {server for server, own in of_load.groupby("server") if captions.server_bound(own)}
        _draw(ax, rates(of_load, tables.throughput), looks, bound)
        ax.set_xlabel(f"seconds since the load began (bins of {bin_width(of_load):g} s)")
    return figure


def _draw(ax: Axes, points: pd.DataFrame, looks: dict[str, Identity], bound: set[str]) -> None:
    shown = [name for name in looks if name in set(points["server"])]
    if not shown:
        ax.set_axis_off()
        ax.text(0, 0.5, "The throughput table has no requests of this load.", transform=ax.transAxes)
        return
    for server in shown:
        sns.lineplot(
            points[points["server"] == server],
            x="t_s",
            y="rps",
            estimator="median",
            errorbar=("pi", 100),
            color=looks[server].color if server in bound else pale(looks[server].color),
            ls=looks[server].dash,
            label=server,
            legend=False,
            err_kws={"alpha": 0.18, "lw": 0},
            ax=ax,
        )
    ax.set_ylim(0, points["rps"].max() * 1.08 or 1)
    ax.set_xlim(0, max(points["t_s"].max(), FINE_S))
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    ax.set_ylabel("requests/s")
    ends = []
    for server in shown:
        median = points[points["server"] == server].groupby("t_s")["rps"].median()
        # The last bins of a load are noisy: the label points at the level of its last quarter.
        level = median.iloc[-max(1, len(median) // 4) :].median()
        ends.append((server, looks[server], float(median.index[-1]), float(level)))
    style.label_ends(ax, ends)
