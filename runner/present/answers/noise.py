"""How far noise alone takes a ratio: one program under several labels (A/A), in the same run."""

from __future__ import annotations

from itertools import combinations

from runner.present.answers.summary import programs
from runner.present.frames import Tables, sealed_trials
from runner.present.statistics.inference import Sample, noise_floor, ratio


def floor(tables: Tables, load: str, column: str) -> float:
    """Return the largest ratio (>= 1) that noise makes of `column` under a load; 1 where none has two labels."""
    trials = tables.trials
    sealed = sealed_trials(trials[trials["load"] == load])
    alike = programs(tables.manifest, [str(label) for label in sealed["server"].unique()])
    if len(set(alike.values())) == len(alike):
        return 1.0
    by_label = {str(label): own for label, own in sealed.groupby("server")}
    floors = [1.0]
    for one, other in combinations(by_label, 2):
        if alike[one] == alike[other]:
            samples = [Sample.of(by_label[label][column], by_label[label]["block"]) for label in (one, other)]
            found = ratio(*samples)
            floors += [noise_floor(found)] if found else []
    return max(floors)
