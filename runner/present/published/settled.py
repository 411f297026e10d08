"""Which loads of a run that is going on need no further session: what `bench run --until` asks after some sessions."""

from __future__ import annotations

import math

from runner.model import LabError
from runner.present.figures import ratios
from runner.present.frames import Tables, is_sealed
from runner.present.published import judging
from runner.present.published.outcomes import ABSENT, CLOSE

DECIDED = "decided"
"""Stop a load where every ratio of its servers is apart from 1, and every claim about it is decided."""


def read_until(text: str) -> float | None:
    """Return the half-width of `5%` as 0.05, None for `decided`; LabError for anything else."""
    if text == DECIDED:
        return None
    try:
        width = float(text.removesuffix("%")) / 100
    except ValueError:
        width = math.nan
    if not (text.endswith("%") and 0.001 <= width <= 1):
        raise LabError(f"--until is `decided`, or the half-width of the intervals such as `5%`, not {text!r}.")
    return width


def settled(tables: Tables, until: str) -> tuple[set[str], str]:
    """Return the loads (by the names of their sessions) that need no further session, and words about all.

    Only what is measured in sessions is ever settled.
    """
    width = read_until(until)
    trials = tables.trials[is_sealed(tables.trials) & tables.trials["session"].ne("")]
    names = dict(zip(trials["load"], (name.partition("-")[2] for name in trials["session"]), strict=True))
    found = ratios.frame(tables)
    undecided = {
        each.load
        for judged in (judging.judge_all(tables) if width is None else ())
        if judged.found.outcome in (CLOSE, ABSENT)
        for part in judged.found.parts
        if part.outcome == CLOSE or part.why == judging.TOO_FEW
        for each in part.cells
    }
    done, widest = set(), 0.0
    for load, pairs in found[found["load"].isin(names)].groupby("load"):
        known = pairs[pairs["why"] == ""]
        apart = len(known) > 0 and bool(((known["low"] > 1) | (known["high"] < 1)).all())
        whole = known[(known["low"] > 0) & (known["high"] < math.inf)]
        reach = float(((whole["high"] / whole["low"]) ** 0.5 - 1).max())  # the widest half-width, 0.05 for 5 %
        if math.isnan(reach) or (pairs["why"] == ratios.FEW).any():
            reach = math.inf
        if reach <= width if width is not None else apart and load not in undecided:
            done.add(str(load))
        elif math.isfinite(reach):
            widest = max(widest, reach)
    rest = f"; the widest interval of the others is ±{100 * widest:.1f} %" if widest else ""
    what = "decided" if width is None else f"within ±{100 * width:g} %"
    return ({names[load] for load in done}, f"{len(done)} of {len(names)} loads are {what}{rest}")
