"""Figure of k6's requests per second over time."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from runner.present.figures import multiples
from runner.present.figures.seconds import FINE_S, bin_width
from runner.present.frames import Tables
from runner.present.look import captions, scales, style
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
    parts = [_part(trials[trials["load"] == load], tables.throughput, looks) for load in loads]
    return multiples.compose(title, captions.caption(tables, tables.of("k6"), words), parts)


def _part(trials: pd.DataFrame, throughput: pd.DataFrame, looks: dict[str, Identity]) -> multiples.Curves:
    points = rates(trials, throughput)
    bound = {server for server, own in trials.groupby("server") if captions.server_bound(own)}
    by_server = dict(list(points.groupby("server")["rps"]))
    spreads = {
        server: own.groupby(points["t_s"]).agg(["median", "min", "max"])
        for server in looks
        if (own := by_server.get(server)) is not None
    }
    medians = {server: of["median"] for server, of in spreads.items()}

    def draw(ax: Axes, server: str) -> None:
        look, of = looks[server], spreads[server]
        color = look.color if server in bound else pale(look.color)
        ax.fill_between(of.index, of["min"], of["max"], color=color, alpha=0.18, lw=0)
        ax.plot(of.index, of["median"], color=color, ls=look.dash, label=server)

    def finish(ax: Axes) -> None:
        ax.set_ylim(0, points["rps"].max() * 1.08 or 1)
        ax.set_xlim(0, max(points["t_s"].max(), FINE_S))
        scales.even_axis(ax, "x")
        scales.even_axis(ax, "y")

    return multiples.Curves(
        name=str(trials["workload"].iloc[0]),
        words=captions.load_heading(trials, "throughput"),
        looks=looks,
        lines={server: (of.index.to_numpy(float), of.to_numpy(float)) for server, of in medians.items()},
        draw=draw,
        finish=finish,
        xlabel=f"seconds since the load began (bins of {bin_width(trials):g} s)",
        ylabel="requests/s",
        # The last bins of a load are noisy: the label points at the level of its last quarter.
        ends={
            server: (float(of.index[-1]), float(of.iloc[-max(1, len(of) // 4) :].median()))
            for server, of in medians.items()
        },
        nothing="The throughput table has no requests of this load.",
        left_in=1.12,
    )
