"""The rate that an open load offers, and how far a server kept it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from runner.present.statistics.stats import Floats

KEPT = 0.98
"""Share of a step's requests that must be answered well within that step for its rate to count as kept."""
SPARE = 2.0
"""Requests that a step may lack besides: those under way at its end."""


def offered_steps(trials: pd.DataFrame) -> tuple[Floats, Floats]:
    """Return the ramp of the trials of one load: the steps' edges in seconds (one more than steps), and their rates.

    A load without steps is one step as long as its shortest trial.
    """
    first = trials.iloc[0]
    number = 1 if np.isnan(first["steps"]) else int(first["steps"])
    low = first["rate_rps"] if np.isnan(first["first_rate_rps"]) else first["first_rate_rps"]
    step_s = trials["duration_s"].min() if np.isnan(first["step_s"]) else float(first["step_s"])
    return np.arange(number + 1) * step_s, np.linspace(low, first["rate_rps"], number)


def kept_rps(trials: pd.DataFrame, throughput: pd.DataFrame) -> list[float]:
    """Return for each trial of one load the rate of the last step up to which every step was kept; 0 where none was.

    A step is kept where `KEPT` of its requests were answered well while it lasted, but for `SPARE`.
    """
    edges, rates = offered_steps(trials)
    asked = rates * np.diff(edges)
    found = []
    for trial_id in trials["trial_id"]:
        bins = throughput[throughput["trial_id"] == trial_id]
        # The middle of a bin, so that rounding of its start cannot move it to the step before.
        number = np.searchsorted(edges, bins["t_s"] + 0.05, side="right") - 1
        good = (bins["requests"] - bins["failed"]).groupby(number).sum().reindex(range(len(rates)), fill_value=0)
        kept = good.to_numpy(dtype=float) >= KEPT * asked - SPARE
        steps = len(rates) if kept.all() else int(np.argmin(kept))
        found.append(float(rates[steps - 1]) if steps else 0.0)
    return found
