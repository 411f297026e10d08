"""Every trial of a run looked through for spikes of its server: which to show first, how often each server spikes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from runner.model import CALIBRATION
from runner.present.frames import Tables, sealed_trials
from runner.present.look import captions, style
from runner.present.spikes.found import track

COLUMNS = (
    *("trial_id", "server", "language", "tier", "load", "load_order", "tool", "peak_pct", "gc_per_s"),
    *("seconds", "spikes", "spike_s", "settling", "deviations", "height_pct", "at_s"),
)


def has_samples(tables: Tables) -> bool:
    """Return whether a run has a sealed trial whose server's CPU was sampled."""
    sealed = sealed_trials(tables.trials)["trial_id"]
    own = tables.resources[tables.resources["subject"] == "server"]
    return bool(own["trial_id"].isin(sealed).any())


def survey(tables: Tables) -> pd.DataFrame:
    """Return one row a sealed trial with samples of its server, columns COLUMNS, in the order of the loads.

    `seconds` are those in which spikes are counted, `spikes` and `spike_s` how many and how long in all, `settling` how
    many began with the load; `deviations`, `height_pct` and `at_s` are of the most pronounced of those counted, NaN
    without one. `gc_per_s` is NaN where the server reports no garbage collector.
    """
    trials = sealed_trials(tables.trials).sort_values(["load_order", "trial_order"])
    server = tables.resources[tables.resources["subject"] == "server"]
    samples = {str(trial_id): rows for trial_id, rows in server.groupby("trial_id")}
    rows = [_row(row, samples[row["trial_id"]]) for row in trials.to_dict("records") if row["trial_id"] in samples]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _row(trial: dict[Any, Any], samples: pd.DataFrame) -> dict[str, Any]:
    found = track(samples, float(trial["duration_s"]))
    counted = found.counted
    most = max(counted, key=lambda spike: spike.deviations, default=None)
    return {
        **{name: trial[name] for name in ("trial_id", "server", "language", "tier", "load", "load_order", "tool")},
        "peak_pct": _peak(trial),
        "gc_per_s": _gc_per_s(samples),
        "seconds": found.settled_s,
        "spikes": len(counted),
        "spike_s": sum(spike.length_s for spike in counted),
        "settling": len(found.spikes) - len(counted),
        "deviations": most.deviations if most else math.nan,
        "height_pct": most.height_pct if most else math.nan,
        "at_s": most.start_s if most else math.nan,
    }


def _peak(trial: dict[Any, Any]) -> float:
    """Return the highest 0.1 s, or the mean of a load that is shorter."""
    peak = float(trial["server_cpu_peak_100ms_pct"])
    return peak if math.isfinite(peak) else float(trial["server_cpu_mean_pct"])


def _gc_per_s(samples: pd.DataFrame) -> float:
    told = samples.loc[samples["gc_cycles"].notna(), ["t_s", "gc_cycles"]].sort_values("t_s").to_numpy(dtype=np.float64)
    if len(told) < 2:
        return math.nan
    (begun, before), (ended, after) = told[0], told[-1]
    return float((after - before) / (ended - begun))


# --- which trial ------------------------------------------------------------------------------------------


def most_pronounced(found: pd.DataFrame) -> str:
    """Return the trial whose spike stands out most, or without any spike the one with the highest peak; '' if none.

    A trial that is too short to look for spikes is taken only where all are.
    """
    if found.empty:
        return ""
    ranked = found.assign(looked=found["seconds"] > 0).sort_values(
        ["looked", "deviations", "peak_pct"], ascending=False, kind="stable", na_position="last"
    )
    return str(ranked["trial_id"].iloc[0])


def why(found: pd.DataFrame, trial_id: str) -> str:
    """Say why a trial is the one that is shown where none was asked for."""
    row = found[found["trial_id"] == trial_id].iloc[0]
    short = int((found["seconds"] == 0).sum())
    looked = captions.plural(len(found), "trial") + (f" ({short} too short to look for spikes)" if short else "")
    if not math.isfinite(row["deviations"]):
        return (
            f"No server spiked in any of the {looked} of this run; of those that were looked at this one has the "
            f"highest CPU over 0.1 s, {style.number(row['peak_pct'])} %."
        )
    return (
        f"Of the {looked} of this run it has the spike that stands out most: {style.number(row['height_pct'])} % of a "
        f"core above its baseline, {style.number(row['deviations'])} deviations, {row['at_s']:.2f} s into the load."
    )


# --- the control ------------------------------------------------------------------------------------------


def control_table(found: pd.DataFrame) -> pd.DataFrame:
    """Return how often each server spikes over all its trials, as texts, in the order of figures: by language."""
    rows = [
        _control_row(str(server), own)
        for (_, server), own in found.groupby(["language", "server"], sort=True)
        if own["seconds"].sum() > 0
    ]
    return pd.DataFrame(rows)


def _control_row(server: str, own: pd.DataFrame) -> dict[str, str]:
    seconds, tier = float(own["seconds"].sum()), str(own["tier"].iloc[0])
    gc = float(own["gc_per_s"].mean())
    return {
        "server": f"{server} ({CALIBRATION})" if tier == CALIBRATION else server,
        "language": str(own["language"].iloc[0]),
        "GC cycles/s": style.number(gc) if math.isfinite(gc) else "none reported",
        "trials": str(len(own)),
        "minutes": style.number(seconds / 60),
        "spikes": f"{own['spikes'].sum():,}",
        "a minute": style.number(rate(own)),
        "share of time": f"{100 * own['spike_s'].sum() / seconds:.2f} %",
        "trials with one": str(int((own["spikes"] > 0).sum())),
        "highest, % of a core": style.number(float(own["height_pct"].max())),
        "with the load's begin": f"{own['settling'].sum():,}",
    }


def rate(own: pd.DataFrame) -> float:
    """Return the spikes a minute of some trials of a survey, NaN where there was no time to look."""
    seconds = float(own["seconds"].sum())
    return 60 * float(own["spikes"].sum()) / seconds if seconds > 0 else math.nan


def control_words(found: pd.DataFrame, trial_id: str) -> str:
    """Say how often the trial's server spikes under its load, beside those with and without a garbage collector."""
    row = found[found["trial_id"] == trial_id].iloc[0]
    of_load = found[found["load"] == row["load"]]
    own = of_load[of_load["server"] == row["server"]]
    others = of_load[(of_load["server"] != row["server"]) & (of_load["tier"] != CALIBRATION)]
    telling = set(found.loc[found["gc_per_s"].notna(), "server"])
    has = "reports a garbage collector" if row["server"] in telling else "reports no garbage collector"
    said = f"Under this load, {row['load']}: {_rates(own)}; it {has}."
    if not telling:
        return f"{said} No server of this run reports one: there is no control."
    groups = {
        "those that tell of none": others[~others["server"].isin(telling)],
        "those that tell of one": others[others["server"].isin(telling)],
    }
    beside = "; ".join(
        f"{kind}: {', '.join(_rates(each) for _, each in of.groupby('server', sort=True))}"
        for kind, of in groups.items()
        if not of.empty
    )
    return f"{said} Beside it {beside}." if beside else f"{said} No other server had it: there is no control."


def _rates(own: pd.DataFrame) -> str:
    server, seconds = own["server"].iloc[0], float(own["seconds"].sum())
    if not seconds:
        return f"{server} {captions.plural(len(own), 'trial')}, too short to look for spikes"
    spikes = captions.plural(int(own["spikes"].sum()), "spike")
    time = f"{style.number(seconds / 60)} minutes" if seconds >= 120 else f"{style.number(seconds)} s"
    return f"{server} {spikes} in {time}, {style.number(rate(own))} a minute"
