"""Rules that end a run before its last session.

A run ends early if its time budget is used up, or if no load needs a further session.
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
    """Read the option --until: a half-width of intervals such as `5%`, or the word `decided`.

    Return 0.05 for `5%`, and None for `decided`. Raise LabError for any other text.
    """
    if until == "decided":
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)%", until)
    if found is None or not 0.1 <= (width_pct := float(found[1])) <= 100:
        raise LabError(
            "--until must be `decided`, or a half-width of the intervals such as `5%`, not "
            f"{until!r}."
        )
    return width_pct / 100


@dataclass(frozen=True)
class Settled:
    """The result of an interim look at a run's ratios, which is taken between two sessions."""

    loads: frozenset[str]
    """The loads that need no further session.

    A load is identified by the text that follows `sNN-` in the names of its sessions.
    """
    words: str
    """Text for the user that says how many loads need no further session.

    If ratios of the other loads have intervals, the text also gives the widest of these intervals.
    """


def settled(tables: Tables, until: str) -> Settled:
    """Return the loads that need no further session (see the docstring of `Stopping`).

    A load whose trials are in no sessions is never settled.
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
        )  # the widest half-width of the ratios' intervals; 0.05 means 5 %
        if math.isnan(reach) or (pairs["why"] == TOO_FEW_TRIALS).any():
            reach = math.inf
        if reach <= width if width is not None else apart and load not in undecided:
            done.add(str(load))
        elif math.isfinite(reach):
            widest = max(widest, reach)
    rest = (
        (f"; the widest interval of a ratio under the other loads is ±{100 * widest:.1f} %")
        if widest
        else ""
    )
    what = "decided" if width is None else f"within ±{100 * width:g} %"
    return Settled(
        loads=frozenset(names[load] for load in done),
        words=f"{len(done)} of {len(names)} loads are {what}{rest}",
    )


@dataclass(frozen=True)
class Stopping:
    """The rules by which a run ends before its last session.

    The run ends after `budget_s` seconds, or when no load needs a further session. `until` says
    when a load needs no further session:

    - `decided`: the interval of every ratio of servers under the load excludes 1, and every claim
      about the load is decided;
    - a half-width such as `5%`: no interval of the load's ratios has a greater half-width;
    - empty: never, so that all sessions are run.
    """

    budget_s: float = math.inf
    kept_s: float = 0.0
    """Seconds of the budget that are kept for the profiles after the trials."""
    until: str = ""
    clock: Callable[[], float] = time.monotonic
    """The clock that measures the budget, in seconds."""
    looks: Sequence[int] = LOOKS
    """After each of these numbers of sessions, the run takes an interim look at the ratios."""
    settled: Callable[[Tables, str], Settled] = settled
    """The function that returns the loads that need no further session."""

    def look(self, run: RunFolder, sessions: int) -> Settled | None:
        """Take the interim look that is due after this many sessions, and return its result.

        Return None if no look is due.
        """
        if not self.until or sessions not in self.looks:
            return None
        tables = tables_of(run.manifest(), map(trial_row, run.records()))
        return self.settled(tables, self.until)


TO_THE_END = Stopping()


def read_stopping(budget: str | None, until: str | None) -> Stopping:
    """Read the options --budget, such as `90s`, `60m` or `2h`, and --until (see `Stopping`).

    Raise LabError if an option cannot be read.
    """
    budget_s = math.inf
    if budget is not None:
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", budget)
        budget_s = float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]] if found else 0
        if not budget_s:
            raise LabError(f"--budget must be a time such as 90s, 60m or 2h, not {budget!r}.")
    if until is not None:
        _half_width(until)
    return Stopping(budget_s, until=until or "")
