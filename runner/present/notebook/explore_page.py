"""Define the page of the notebook in which readers explore the tables of a run with seaborn."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import matplotlib as mpl
import pandas as pd
import seaborn as sns
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from runner.generator_traits import traits_of
from runner.model import LabError
from runner.present.comparison.ratios import not_compared
from runner.present.frames import sealed_trials
from runner.present.look import style
from runner.present.look.markup import Paragraph, TextTable
from runner.present.look.palette import identities
from runner.present.notebook.pages import RunPage, has_reader, opener, show
from runner.present.statistics.stats import histogram_quantile

ROWS = {
    "trials": (
        "sealed trial",
        "server, tool, load, rps, latency_p99_ms, server_cpu_mean_pct, verdict",
    ),
    "latency": ("sealed trial, second and range of latencies", "second, lower_ms, upper_ms, count"),
    "throughput": ("sealed trial and 0.1 s (k6)", "t_s, requests, failed"),
    "resources": ("sealed trial, subject and interval", "t_s, dt_s, subject, cpu_pct, rss_bytes"),
    "requests()": ("request of the trial (k6)", "t_s, latency_ms, waiting_ms, status, ok"),
}
"""What a row of each table represents, and the most useful columns, by the table's name."""


class ExplorePage(RunPage):
    """The page of a run, with the run's tables, and methods that show tables and pictures.

    The tables contain only sealed trials. Each row of a table contains the `trial_id`, `server`,
    `tool` and `load` of a trial. docs/data.md describes the other columns.
    """

    def __init__(self, run: str, trial: str) -> None:
        super().__init__(run)
        mpl.rcParams.update(style.RC)
        self.live = has_reader()
        sealed = sealed_trials(self.tables.trials)
        if trial and trial not in set(sealed["trial_id"]):
            raise LabError(f"This run has no sealed trial {trial!r}.")
        # The colour of each server in all figures of the run, for seaborn's `palette`.
        self.colors = {
            server: look.color for server, look in identities(self.tables.trials).items()
        }
        # The table of sealed trials, with one row per trial, sorted by load. Its column `compared`
        # is True if means and ratios include the trial.
        placed = sealed.assign(
            place=sealed["server"].map(list(self.colors).index),
            compared=~not_compared(self.tables).loc[sealed.index],
        )
        placed = placed.sort_values(["load_order", "place", "trial_order"], ignore_index=True)
        self.trials = trials = placed.drop(columns="place")
        has_users = trials["tool"].map(lambda tool: traits_of(tool).runs_scripts).astype(bool)
        by_users = trials[has_users] if has_users.any() else trials
        timed = trials[trials["latency_p50_ms"].notna()]
        # The name of the load that the notebook examines. This is the load that has the most trials
        # with response times, if possible among loads of virtual users (k6). If no trial has
        # response times, it is the load with the most trials. The name is empty if the run has no
        # sealed trials.
        most = next(filter(len, (timed[has_users[timed.index]], timed)), by_users)
        self.load = str(most["load"].value_counts(sort=False).idxmax()) if len(most) else ""
        highest = by_users.sort_values("server_cpu_peak_100ms_pct", ascending=False)
        # The id of the trial that the notebook examines. If no trial was given, this is the trial
        # whose server had the highest CPU peak, if possible among k6's trials. The id is empty if
        # the run has no sealed trials.
        self.trial = trial or next(iter(highest["trial_id"]), "")
        # A table of response times. A row says how many of a trial's requests took `lower_ms` to
        # `upper_ms` in one second of the load. wrk does not record seconds, so `second` is null in
        # wrk's trials.
        self.latency = self._joined(self.tables.latency)
        # A table of rates. A row says how many of a k6 trial's requests were answered in the 0.1 s
        # after `t_s`.
        self.throughput = self._joined(self.tables.throughput)
        # A table of CPU use and memory. A row has the CPU use and the memory of one subject of a
        # trial (such as the server) in the `dt_s` seconds that end at `t_s`. A CPU use of 100 % is
        # one core.
        self.resources = self._joined(self.tables.resources)

    def requests(self, trial: str = "") -> pd.DataFrame:
        """Return the requests of a k6 trial, one row per request.

        The frame is empty if the run did not keep single requests.
        """
        return self._joined(self.tables.samples("requests", trial or self.trial))

    def _joined(self, table: pd.DataFrame) -> pd.DataFrame:
        return table.merge(self.trials[["trial_id", "server", "tool", "load"]], on="trial_id")

    def percentiles(
        self, rows: pd.DataFrame, by: Sequence[str], shares: Sequence[float] = (0.5, 0.95, 0.99)
    ) -> pd.DataFrame:
        """Return percentiles of response times for groups of rows of the table `latency`.

        Rows that are equal in all columns that `by` names form a group. The result has these
        columns, the column `percentile` (such as p95), and the column `ms`.
        """
        found = []
        for key, alike in rows.groupby(list(by)):
            ms = histogram_quantile(alike["lower_ms"], alike["upper_ms"], alike["count"], shares)
            found += [
                (*key, f"p{100 * share:g}", each) for share, each in zip(shares, ms, strict=True)
            ]
        return pd.DataFrame(found, columns=[*by, "percentile", "ms"])

    def show_tables(self) -> None:
        """Show which tables the run has, and what a row of each table represents."""
        frames = (self.trials, self.latency, self.throughput, self.resources)
        counts = [*map(len, frames), self.tables.number_of_samples("requests", self.trial)]
        rows = [(name, f"{count:,}", *ROWS[name]) for name, count in zip(ROWS, counts, strict=True)]
        show(
            [
                TextTable(
                    pd.DataFrame(
                        rows, columns=["table", "rows", "one row per", "columns, among others"]
                    )
                )
            ]
        )

    def show_drawn(self, name: str, drawn: Any, words: str) -> None:
        """Show a picture that seaborn has drawn, at the width of all figures, above `words`.

        `drawn` is the object that seaborn returned: a grid or axes. The alternative text consists
        of `words` and a description of the axes and the legend. Unless the page is live, the
        picture is saved as explore-NAME.png and .svg in the run's figures folder.
        """
        figure: Figure = drawn.figure
        figure.set_figwidth(style.WIDTH_IN)
        figure.set_layout_engine("constrained")
        if figure.legends:  # move the legend above the panels, so that panels fill a phone's width
            sns.move_legend(figure, "outside upper left", ncols=4, frameon=False, alignment="left")
        figure.draw_without_rendering()  # lay out the panels, because their sizes decide the ticks
        for ax, axis in product(figure.axes, "xy"):
            if getattr(ax, f"get_{axis}scale")() == "log":
                style.log_axis(ax, axis)
        self.show_picture(f"explore-{name}", figure, _described(figure, words))
        plt.close(figure)
        show([Paragraph(words)])


@opener
def open_tables(run: str, trial: str = "") -> ExplorePage:
    """Return the page with the tables of a run, for the notebook in which readers explore them.

    After the call, pictures have the lab's fonts and colours. If `trial` is empty, the trial whose
    server had the highest CPU peak is chosen, if possible among k6's trials. Raise LabError in the
    same cases as `RunPage`, and also if the trial is not sealed.
    """
    return ExplorePage(run, trial)


def _described(figure: Figure, words: str) -> str:
    """Return a picture's alternative text: `words`, then the panels, axes and legend in words."""
    axes = figure.axes
    parts = [words]
    if len(axes) > 1:
        parts.append(
            f"{len(axes)} panels: {', '.join(ax.get_title() for ax in axes if ax.get_title())}."
        )
    for side, axis in (("Across", "x"), ("Up", "y")):
        name = next((label for ax in axes if (label := getattr(ax, f"get_{axis}label")())), "")
        first = getattr(axes[0], f"{axis}axis")
        low, high = sorted(first.get_view_interval())
        ticks = [tick for tick in first.get_majorticklocs() if low <= tick <= high]
        labels = first.get_major_formatter().format_ticks(ticks)
        ends = f"labelled {labels[0]} to {labels[-1]}" if labels else ""
        parts.append(f"{side}: {', '.join(filter(None, (name, ends)))}.")
    named = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    return " ".join([*parts, f"Legend: {', '.join(named)}."] if named else parts)
