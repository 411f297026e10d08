"""When a run ends before its last session: with its budget of time, or load by load where enough is
known.
"""

import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from runner.digest.tables import trial_row
from runner.model import LabError
from runner.present.comparison import ratios
from runner.present.comparison.compare import TOO_FEW_TRIALS
from runner.present.frames import Tables, sealed_trials, tables_of
from runner.present.published.judging import judge_all
from runner.present.published.outcomes import ABSENT, CLOSE, Finding
from runner.present.statistics.inference import LOOKS
from runner.store import RunFolder


def _half_width(until: str) -> float | None:
    """Return the half-width of `5%` as 0.05, None for `decided`; LabError for anything else."""
    if until == "decided":
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)%", until)
    if found is None or not 0.1 <= (width_pct := float(found[1])) <= 100:
        raise LabError(
            f"--until is `decided`, or the half-width of the intervals such as `5%`, not {until!r}."
        )
    return width_pct / 100


def settled(tables: Tables, until: str) -> tuple[set[str], str]:
    """Return the loads (by the names of their sessions) that need no further session, and words
    about all.

    Only what is measured in sessions is ever settled.
    """
    width = _half_width(until)
    trials = sealed_trials(tables.trials).query("session != ''")
    names = dict(
        zip(trials["load"], (name.partition("-")[2] for name in trials["session"]), strict=True)
    )
    found = ratios.frame(tables)
    undecided = {
        each.load
        for judged in (judge_all(tables) if width is None else ())
        if judged.found.outcome in (CLOSE, ABSENT)
        for part in judged.found.parts
        if part.finding in (Finding.AT_THE_BORDER, Finding.TOO_FEW_TRIALS)
        for each in part.cells
    }
    done = set()
    widest = 0.0
    for load, pairs in found[found["load"].isin(names)].groupby("load"):
        known = pairs[pairs["why"] == ""]
        apart = len(known) > 0 and bool(((known["low"] > 1) | (known["high"] < 1)).all())
        whole = known[(known["low"] > 0) & (known["high"] < math.inf)]
        reach = float(
            ((whole["high"] / whole["low"]) ** 0.5 - 1).max()
        )  # the widest half-width, 0.05 for 5 %
        if math.isnan(reach) or (pairs["why"] == TOO_FEW_TRIALS).any():
            reach = math.inf
        if reach <= width if width is not None else apart and load not in undecided:
            done.add(str(load))
        elif math.isfinite(reach):
            widest = max(widest, reach)
    rest = f"; the widest interval of the others is ±{100 * widest:.1f} %" if widest else ""
    what = "decided" if width is None else f"within ±{100 * width:g} %"
    return ({names[load] for load in done}, f"{len(done)} of {len(names)} loads are {what}{rest}")


@dataclass(frozen=True)
class Stopping:
    """When a run ends before its last session: after `budget_s` seconds, or load by load where
    enough is known.

    `until` says what is enough: `decided` (every ratio of a load's servers is apart from 1, and
    every claim about it is decided), or the half-width of the ratios' intervals such as `5%`.
    Empty: all sessions are run.
    """

    budget_s: float = math.inf
    until: str = ""
    clock: Callable[[], float] = time.monotonic
    """The clock of the budget, in seconds."""
    looks: Sequence[int] = LOOKS
    """The numbers of sessions after which the ratios are looked at."""
    settled: Callable[[Tables, str], tuple[set[str], str]] = settled
    """Returns the loads that need no further session."""

    def look(self, run: RunFolder, sessions: int) -> tuple[set[str], str] | None:
        """Return after so many sessions what `settled` does; None if it is not the time to look."""
        if not self.until or sessions not in self.looks:
            return None
        tables = tables_of(run.manifest(), map(trial_row, run.records()))
        return self.settled(tables, self.until)


TO_THE_END = Stopping()


def read_stopping(budget: str | None, until: str | None) -> Stopping:
    """Return what two options say: `90s`, `60m` or `2h`, and `until` as in `Stopping`.

    LabError for anything else.
    """
    budget_s = math.inf
    if budget is not None:
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", budget)
        budget_s = float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]] if found else 0
        if not budget_s:
            raise LabError(f"--budget is a time such as 90s, 60m or 2h, not {budget!r}.")
    if until is not None:
        _half_width(until)
    return Stopping(budget_s, until or "")
