"""One trial in full: its row, the probe's samples beside it, and which trial a reader is shown first."""

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd

from runner.model import CALIBRATION, OWN_SCRIPT, LabError
from runner.present.frames import Tables, is_sealed, sealed_trials


@dataclass(frozen=True, eq=False)
class Case:
    """One sealed trial and its probe's samples within the load; None where there was no probe."""

    tables: Tables
    row: dict[str, Any]
    probe: pd.DataFrame | None

    @property
    def trial_id(self) -> str:
        """The trial's name."""
        return str(self.row["trial_id"])

    @property
    def tool(self) -> str:
        """The load generator's name."""
        return str(self.row["tool"])

    @property
    def frame(self) -> pd.DataFrame:
        """The trial as a table of one row."""
        return self.tables.trials.loc[self.tables.trials["trial_id"] == self.trial_id]

    @property
    def peers(self) -> pd.DataFrame:
        """All sealed trials of its servers' kind under the same load, this one too: calibration stands for itself."""
        trials = sealed_trials(self.tables.trials)
        kind = trials["tier"].eq(CALIBRATION) == (self.row["tier"] == CALIBRATION)
        rate = trials["rate_rps"].fillna(0) == self.frame["rate_rps"].fillna(0).iloc[0]
        alike: pd.DataFrame = trials[trials["load"].eq(self.row["load"]) & kind & rate]
        return alike

    def given(self, subject: str) -> float:
        """Return the CPU that a subject was given, in % of a core, as `given_pct` does."""
        return given_pct(self.tables, subject, float(self.row["threads"]))


def given_pct(tables: Tables, subject: str, threads: float) -> float:
    """Return the CPU that a subject was given, in % of a core; NaN where the manifest does not say.

    Of it, a generator with `threads` (wrk; NaN for k6) can use as many cores as it has of them.
    """
    cpus = len((tables.manifest.get("placement") or {}).get(subject) or ())
    limited = subject == "generator" and math.isfinite(threads)
    return 100.0 * (min(cpus, int(threads)) if limited else cpus) if cpus else math.nan


def candidates(tables: Tables) -> pd.DataFrame:
    """Return the sealed trials of closed loads by k6, with a column `times`: their median over the probe's.

    Not among them are those of a user's script, which did not send what the probe did.
    """
    trials = tables.timed("k6")
    trials = trials[trials["workload"] != OWN_SCRIPT]
    return trials.assign(times=trials["latency_p50_ms"] / trials["probe_p50_ms"])


def probed(tables: Tables) -> bool:
    """Return whether a run has a closed load by k6 with a probe beside it."""
    return bool(candidates(tables)["times"].notna().any())


def choose(tables: Tables, trial: str = "") -> Case | None:
    """Return the trial named, or the closed load by k6 in which generator and probe differ most.

    None where a run has no closed load by k6. LabError for a trial that the run does not have, or that was not sealed.
    """
    if trial:
        chosen = tables.trials[tables.trials["trial_id"] == trial]
        if chosen.empty:
            raise LabError(f"This run has no trial {trial!r}.")
        if not is_sealed(chosen).iloc[0]:
            raise LabError(f"The trial {trial!r} was not sealed: {chosen['error'].iloc[0]}")
    else:
        chosen = candidates(tables).sort_values(["times", "latency_p50_ms"], ascending=False)
        if chosen.empty:
            return None
    row = {str(name): value for name, value in chosen.iloc[0].items()}
    probe = tables.samples("probe", row["trial_id"])
    within = probe[(probe["t_s"] >= 0) & (probe["t_s"] < row["duration_s"])].reset_index(drop=True)
    return Case(tables, row, within if len(probe) else None)
