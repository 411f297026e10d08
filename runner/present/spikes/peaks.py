"""List the CPU peaks of servers over all trials of a run, with the cause of each spike."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from runner.model import CALIBRATION
from runner.present.figures.seconds import usage
from runner.present.frames import Tables, has_no_quota, sealed_trials
from runner.present.look.numbers import number
from runner.present.spikes.cause_words import cause_words
from runner.present.spikes.causes import explain
from runner.present.spikes.coincidence import events_of, seen
from runner.present.spikes.found import ROUNDING_S, Track, track
from runner.present.spikes.hindrance import hindrances
from runner.present.spikes.view import surroundings
from runner.store import Values

PEAK_COLUMNS = (
    *("trial_id", "server", "language", "load", "at_s", "length_s", "is_spike"),
    *("height_pct", "baseline_pct", "peak_100ms_pct", "peak_1s_pct", "cause", "meanwhile"),
)
WINDOWS_S = {"peak_100ms_pct": 0.1, "peak_1s_pct": 1.0}
"""Lengths of time, in seconds, over which CPU use is averaged, by the column of the peak."""
SHOWN = 10
"""The table on the page shows at most this many rows. The table's file contains all rows."""


def peaks(tables: Tables) -> pd.DataFrame:
    """Return a row for each counted spike, and a row for each trial without a spike.

    The row of a trial without a spike is about the trial's highest CPU use, its peak. Spikes come
    first, sorted by their height above the baseline. The first second of a load or slice is left
    out. Trials on a share of a core are left out, because the quota limits their peaks. Trials of
    calibration servers are left out, too.

    The columns are PEAK_COLUMNS:

    - `at_s` says when the spike begins, in seconds since the load began. In a trial without a
      spike, it says when the 0.1 s with the highest CPU use begin.
    - `height_pct` is the height above the baseline, in % of a core.
    - `peak_100ms_pct` and `peak_1s_pct` are the highest mean CPU use over any 0.1 s and over any
      1 s of the spike, in % of a core. If the spike is shorter than 0.1 s (or 1 s), the value is
      the highest mean over any 0.1 s (or 1 s) that contains the whole spike.
    - `cause` is the cause of a spike in words, and `meanwhile` names the events during the spike.
      Both are empty if the trial has no spike.
    """
    trials = sealed_trials(tables.trials)
    whole = trials[has_no_quota(trials) & (trials["tier"] != CALIBRATION)]
    by_trial = dict(list(tables.resources.groupby("trial_id")))
    rows = [
        row
        for trial in whole.to_dict("records")
        if trial["trial_id"] in by_trial
        for row in _of_trial(trial, by_trial[trial["trial_id"]])
    ]
    found = pd.DataFrame(rows, columns=list(PEAK_COLUMNS))
    return found.sort_values(
        ["is_spike", "height_pct", "peak_100ms_pct"], ascending=False, kind="stable"
    ).reset_index(drop=True)


def _of_trial(trial: dict[Any, Any], samples: pd.DataFrame) -> Iterator[Values]:
    """Yield the rows of one trial; `samples` are the trial's rows of the resources table."""
    server = samples[samples["subject"] == "server"]
    if server.empty:
        return
    duration_s = float(trial["duration_s"])
    name = {key: trial[key] for key in ("trial_id", "server", "language", "load")}
    found = track(server, duration_s, float(trial["slices_kept"]))
    if found.counted:
        for row in _of_spikes(samples, found, duration_s):
            yield name | row
        return
    curve = usage(server, WINDOWS_S["peak_100ms_pct"], duration_s)
    settled = curve[found.is_settled(curve["t_s"].to_numpy() - WINDOWS_S["peak_100ms_pct"])]
    for end_s, peak_pct in settled.nlargest(1, "cpu_pct").to_numpy():
        at_s = float(end_s) - WINDOWS_S["peak_100ms_pct"]
        baseline_pct = _baseline_at(found, at_s)
        yield name | {
            "at_s": at_s,
            "length_s": WINDOWS_S["peak_100ms_pct"],
            "is_spike": False,
            "height_pct": float(peak_pct) - baseline_pct,
            "baseline_pct": baseline_pct,
            **_peaks_within(server, at_s, float(end_s), duration_s),
            "cause": "",
            "meanwhile": "",
        }


def _of_spikes(samples: pd.DataFrame, found: Track, duration_s: float) -> Iterator[Values]:
    """Yield a row for each counted spike of a trial, with its cause."""
    server = samples[samples["subject"] == "server"]
    around = surroundings(samples, found, hindrances(samples, duration_s), duration_s)
    events = events_of(samples, {"server": found}, duration_s)
    for spike in found.counted:
        yield {
            "at_s": spike.start_s,
            "length_s": spike.length_s,
            "is_spike": True,
            "height_pct": spike.height_pct,
            "baseline_pct": spike.baseline_pct,
            **_peaks_within(server, spike.start_s, spike.end_s, duration_s),
            "cause": cause_words(spike, explain(spike, around)),
            "meanwhile": ", ".join(seen(events, spike)),
        }


def _baseline_at(found: Track, at_s: float) -> float:
    """Return the baseline of the window that contains `at_s`, or NaN if there is no such window."""
    start_s, end_s, _ = found.windows
    within = found.baseline[(start_s <= at_s) & (end_s > at_s)]
    return float(within[0]) if len(within) else float("nan")


def _peaks_within(
    server: pd.DataFrame, start_s: float, end_s: float, duration_s: float
) -> dict[str, float]:
    """Return the highest mean CPU use over each length of time in WINDOWS_S, in % of a core.

    The means are taken within the stretch from `start_s` to `end_s`. If this stretch is shorter
    than the length of time, the means are taken over any time of this length that contains the
    stretch.
    """
    found = {}
    for column, window_s in WINDOWS_S.items():
        curve = usage(server, window_s, duration_s + ROUNDING_S)
        first_end_s, last_end_s = sorted((start_s + window_s, end_s))
        there = curve["t_s"].between(first_end_s - ROUNDING_S, last_end_s + ROUNDING_S)
        found[column] = float(curve.loc[there, "cpu_pct"].max())
    return found


def peak_words(found: pd.DataFrame) -> str:
    """Return sentences that say how many spikes and trials the table of peaks lists."""
    if found.empty:
        return "No trial gave its server a whole core, so a quota capped every peak."
    spikes = int(found["is_spike"].sum())
    trials = found["trial_id"].nunique()
    said = f"{trials} trials gave their server a whole core"
    if not spikes:
        return f"{said}; no server spiked in them. The rows are each trial's highest peak."
    return (
        f"{said}. The table lists {spikes} spikes first, then the highest peak of each trial "
        "without a spike."
    )


def peak_table(found: pd.DataFrame) -> pd.DataFrame:
    """Return the first SHOWN rows of the table of peaks, as texts."""
    shown = found.head(SHOWN)
    columns = {
        "server": shown["server"],
        "load": shown["load"],
        "at, s": shown["at_s"].map("{:.2f}".format),
        "cause": shown["cause"].mask(~shown["is_spike"].astype(bool), "no spike"),
        "above baseline, %": shown["height_pct"].map(number),
        "baseline, %": shown["baseline_pct"].map(number),
        "over 0.1 s, %": shown["peak_100ms_pct"].map(number),
        "over 1 s, %": shown["peak_1s_pct"].map(number),
        "meanwhile": shown["meanwhile"].mask(shown["meanwhile"] == "", "–"),
        "trial": shown["trial_id"],
    }
    return pd.DataFrame(columns)
