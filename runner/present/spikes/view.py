"""Prepare the data of the page about CPU spikes.

The page shows one trial in detail (`View`), and a survey of all trials with a row for each trial.
"""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from runner.model import LabError
from runner.present.frames import Case, Tables, choose, sealed_trials
from runner.present.spikes.causes import Explanation, Surroundings, explain
from runner.present.spikes.coincidence import Events, coincidences, events_of
from runner.present.spikes.found import Spike, Track, inside, track
from runner.present.spikes.hindrance import Hindrance, hindrances

SUBJECTS = ("server", "generator", "database")


@dataclass(frozen=True, eq=False)
class View:
    """A trial, and the seconds of its load that the page displays, from `start_s` to `stop_s`.

    Spikes and events are found in the whole load, even outside the displayed seconds. The test of
    coincidence covers the whole load, too.
    """

    case: Case
    why: str  # sentence that says why this trial is shown
    samples: pd.DataFrame  # the trial's rows of the resources table
    tracks: dict[str, Track]  # CPU use by subject, the server first
    events: tuple[Events, ...]
    hindrances: tuple[Hindrance, ...]  # what held the server back
    # the cause of each of the server's spikes, in the order of the spikes
    explanations: tuple[Explanation, ...]
    start_s: float
    stop_s: float
    duration_s: float  # length of the load

    @property
    def server(self) -> Track:
        """The server's CPU use and spikes."""
        return self.tracks["server"]

    @property
    def numbered(self) -> dict[int, Spike]:
        """The server's spikes in the displayed seconds, by number.

        Spikes are numbered from 1 over the whole load.
        """
        every = enumerate(self.server.spikes, start=1)
        return {
            number: spike for number, spike in every if spike.overlaps(self.start_s, self.stop_s)
        }

    @property
    def highest(self) -> int | None:
        """The number of the highest counted spike in the displayed seconds, or None."""
        counted = {
            number: spike.height_pct
            for number, spike in self.numbered.items()
            if not spike.settling
        }
        return max(counted, key=lambda number: counted[number], default=None)

    @property
    def peaks(self) -> list[tuple[float, float]]:
        """The server's known CPU peaks, as pairs.

        A pair consists of the highest mean CPU use over a length of time, in % of a core, and of
        this length in seconds.
        """
        every = [
            (float(self.case.row[f"server_cpu_peak_{name}_pct"]), s)
            for name, s in (("100ms", 0.1), ("1s", 1.0))
        ]
        return [(pct, window_s) for pct, window_s in every if math.isfinite(pct)]


def view(
    tables: Tables, trial_id: str, why: str, start_s: float = 0.0, stop_s: float = 0.0
) -> View:
    """Return the view of a sealed trial from `start_s` to `stop_s` of its load.

    If `start_s` and `stop_s` are 0, the view shows the whole load. `why` is a sentence that says
    why the trial is shown. Raise LabError if there is no such trial, if its server's CPU use was
    not sampled, or if `start_s` or `stop_s` is outside the load.
    """
    case = choose(tables, trial_id)
    samples = tables.resources[tables.resources["trial_id"] == trial_id]
    if case is None or not (samples["subject"] == "server").any():
        raise LabError(f"The trial {trial_id!r} has no samples of its server's CPU.")
    duration_s = float(case.row["duration_s"])
    stop_s = stop_s or duration_s
    if not 0 <= start_s < min(stop_s, duration_s):
        raise LabError(
            f"start_s and stop_s must be seconds of the load from 0 to {duration_s:.1f}, "
            f"with start_s below stop_s (or both 0 for the whole load), not {start_s:g} and "
            f"{stop_s:g}."
        )
    by_subject = dict(list(samples.groupby("subject")))
    tracks = {
        subject: track(by_subject[subject], duration_s, float(case.row["slices_kept"]))
        for subject in SUBJECTS
        if subject in by_subject
    }
    server = tracks["server"]
    held = hindrances(samples, duration_s)
    around = surroundings(samples, server, held, duration_s)
    return View(
        case=case,
        why=why,
        samples=samples,
        tracks=tracks,
        events=coincidences(server, events_of(samples, tracks, duration_s)),
        hindrances=held,
        explanations=tuple(explain(spike, around) for spike in server.spikes),
        start_s=start_s,
        stop_s=min(stop_s, duration_s),
        duration_s=duration_s,
    )


def surroundings(
    samples: pd.DataFrame, server: Track, held: tuple[Hindrance, ...], duration_s: float
) -> Surroundings:
    """Return the data from which a trial's spikes are explained.

    `samples` are the trial's rows of the resources table. `held` are the stretches in which
    something held the server back.
    """
    return Surroundings(
        server=server,
        samples=samples[samples["subject"] == "server"],
        stolen=inside(samples[samples["subject"] == "host"], "steal_ms", duration_s),
        hindrances=held,
    )


def windows(shown: View) -> pd.DataFrame:
    """Return a tidy frame of a trial, with a row for each subject in each window of the sampler.

    The frame has the columns of the resources table and two additional columns. `baseline_pct` is
    the baseline of the subject's CPU use, or NaN for a subject without a baseline. `spike` is the
    number of the server's spike to which the window belongs, or 0 if the window is in no spike.
    """
    frame = shown.samples.reset_index(drop=True).assign(baseline_pct=np.nan, spike=0)
    for subject, found in shown.tracks.items():
        baseline = dict(zip(found.windows.end_s, found.baseline, strict=True))
        rows = frame["subject"] == subject
        frame.loc[rows, "baseline_pct"] = frame.loc[rows, "t_s"].map(baseline)
    server = frame["subject"] == "server"
    for number, spike in enumerate(shown.server.spikes, start=1):
        middle_s = frame["t_s"] - frame["dt_s"] / 2
        frame.loc[server & middle_s.between(spike.start_s, spike.end_s), "spike"] = number
    return frame


OF_TRIAL = ("trial_id", "server", "language", "tier", "load", "load_order", "tool")
OF_SPIKE = ("deviations", "height_pct", "start_s")


def has_samples(tables: Tables) -> bool:
    """Return True if a run has a sealed trial in which the server's CPU use was sampled."""
    sampled = tables.resources.loc[tables.resources["subject"] == "server", "trial_id"]
    return bool(sampled.isin(sealed_trials(tables.trials)["trial_id"]).any())


def survey(tables: Tables) -> pd.DataFrame:
    """Return one row for each sealed trial in which the server's CPU was sampled, sorted by load.

    The frame is empty if there are no such trials. It has these columns, among others:

    - `peak_pct` is the highest CPU use over 0.1 s, or the mean CPU use if the peak is unknown.
    - `seconds` is the length of the part of the load in which spikes count. `spikes` is the number
      of counted spikes, and `spike_s` is the total length of these spikes in seconds.
    - `settling` is the number of spikes at the start of the load or of a slice.
    - The columns OF_SPIKE describe one counted spike: the spike whose height is the largest
      multiple of the deviation. These columns are NaN if no spike was counted.
    - `gc_per_s` is the number of garbage collections per second. It is NaN if the server reports no
      garbage collector.
    """
    trials = sealed_trials(tables.trials).sort_values(["load_order", "trial_order"])
    samples = dict(
        list(tables.resources[tables.resources["subject"] == "server"].groupby("trial_id"))
    )
    rows = []
    for trial in trials[trials["trial_id"].isin(list(samples))].to_dict("records"):
        found = track(
            samples[trial["trial_id"]], float(trial["duration_s"]), float(trial["slices_kept"])
        )
        counted = found.counted
        most = max(counted, key=lambda spike: spike.deviations, default=None)
        _, end_s, cycles = inside(samples[trial["trial_id"]], "gc_cycles", math.inf, -math.inf)
        peaks = trial["server_cpu_peak_100ms_pct"], trial["server_cpu_mean_pct"]
        row = {name: trial[name] for name in OF_TRIAL} | {
            "peak_pct": next(filter(math.isfinite, peaks), math.nan),
            "gc_per_s": np.ptp(cycles) / np.ptp(end_s) if len(cycles) > 1 else math.nan,
            "seconds": found.settled_s,
            "spikes": len(counted),
            "spike_s": sum(spike.length_s for spike in counted),
            "settling": len(found.spikes) - len(counted),
        }
        rows.append(row | {name: getattr(most, name, math.nan) for name in OF_SPIKE})
    return pd.DataFrame(rows)


def most_pronounced(found: pd.DataFrame) -> str:
    """Return the id of the trial of a survey that has the most pronounced spike.

    This is the spike whose height is the largest multiple of the trial's deviation. If no trial has
    a spike, return the id of the trial with the highest peak. A trial that is too short to look for
    spikes is considered only if all trials are too short. Return an empty text if there are no
    trials.
    """
    if found.empty:
        return ""
    by = ["looked", "deviations", "peak_pct"]
    return str(
        found.assign(looked=found["seconds"] > 0)
        .sort_values(by, ascending=False)["trial_id"]
        .iloc[0]
    )
