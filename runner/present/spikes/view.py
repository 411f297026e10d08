"""One trial as the page about CPU spikes shows it: each side's CPU, what stands out, what else happened, and when."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from runner.model import LabError
from runner.present.case import Case, choose
from runner.present.frames import Tables
from runner.present.spikes.coincidence import Coincidence, Events, coincidences, events_of
from runner.present.spikes.found import Spike, Track, track

SUBJECTS = ("server", "generator", "database")


@dataclass(frozen=True, eq=False)
class View:
    """A trial, and the part of its load that is looked at, `start_s` to `stop_s`.

    Spikes, events and the test are of the whole load, whatever part of it is looked at.
    """

    case: Case
    why: str
    """Why it is this trial, in a sentence."""
    tracks: dict[str, Track]
    """By subject, the server first."""
    events: tuple[Events, ...]
    found: tuple[Coincidence, ...]
    start_s: float
    stop_s: float

    @property
    def server(self) -> Track:
        """The server's CPU."""
        return self.tracks["server"]

    @property
    def duration_s(self) -> float:
        """The length of the load."""
        return float(self.case.row["duration_s"])

    @property
    def samples(self) -> pd.DataFrame:
        """The trial's rows of the resources table."""
        return samples_of(self.case.tables, self.case.trial_id)

    @property
    def numbered(self) -> dict[int, Spike]:
        """The server's spikes within what is looked at, by their number in the load, from 1."""
        every = enumerate(self.server.spikes, start=1)
        return {number: spike for number, spike in every if spike.overlaps(self.start_s, self.stop_s)}


def samples_of(tables: Tables, trial_id: str) -> pd.DataFrame:
    """Return a trial's rows of the resources table."""
    own: pd.DataFrame = tables.resources[tables.resources["trial_id"] == trial_id]
    return own


def view(tables: Tables, trial_id: str, why: str, start_s: float = 0.0, stop_s: float = 0.0) -> View:
    """Return a sealed trial between two seconds of its load; 0 and 0 are all of it.

    LabError where there is no such trial, its server was not sampled, or the seconds are none of its load.
    """
    case = choose(tables, trial_id)
    samples = samples_of(tables, trial_id)
    if case is None or not (samples["subject"] == "server").any():
        raise LabError(f"The trial {trial_id!r} has no samples of its server's CPU.")
    duration_s = float(case.row["duration_s"])
    stop_s = stop_s or duration_s
    if not 0 <= start_s < stop_s or start_s >= duration_s:
        raise LabError(
            f"start_s and stop_s must be seconds of the load, 0 to {duration_s:.1f}, the first below the second "
            f"(0 and 0: all of it), not {start_s:g} and {stop_s:g}."
        )
    by_subject = {str(subject): rows for subject, rows in samples.groupby("subject")}
    tracks = {subject: track(by_subject[subject], duration_s) for subject in SUBJECTS if subject in by_subject}
    events = events_of(samples, tracks, duration_s)
    found = coincidences(tracks["server"], events)
    return View(case, why, tracks, events, found, start_s, min(stop_s, duration_s))
