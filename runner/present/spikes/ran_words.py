"""Say in sentences and in a table which functions ran in the spikes of a timeline."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from runner.present.look.captions import plural, printable
from runner.present.look.numbers import number
from runner.present.spikes.ran import FEWEST_SAMPLES, Function, Ran, Timeline
from runner.profiled import KERNEL

LONGEST_NAME = 60
"""A sentence shows at most this many characters of a function's name.

The table contains the whole name.
"""
CALLERS = 3
"""A row of the table names at most this many callers of a function."""
KINDS = 3
"""A row of the table names at most this many kinds of work."""


def short_function(name: str, longest: int = LONGEST_NAME) -> str:
    """Return a function's name without the suffix of kernel functions.

    If the name is too long, its beginning is cut off, because a name begins with the module and
    ends with the function itself.
    """
    plain = printable(name.removesuffix(KERNEL))
    return plain if len(plain) <= longest else f"…{plain[1 - longest :]}"


def timeline_words(timeline: Timeline, ran: Sequence[Ran], load: str) -> str:
    """Return sentences that say how a timeline was measured, and how many spikes it has.

    `load` is the load in words.
    """
    spikes = plural(len(ran), "spike") if ran else "no spike"
    return (
        f"{timeline.server} was loaded once more for {timeline.duration_s:.0f} s ({load}) while "
        f"perf recorded which function ran: {spikes} in {number(timeline.track.settled_s)} s. "
        "Recording itself takes CPU time, so this load is in no comparison."
    )


def ran_words(each: Ran) -> str:
    """Return a sentence that names the function with most of a spike's additional CPU time.

    If there is no such function, the sentence gives the reason.
    """
    spike = each.spike
    begin = (
        f"Spike {each.number} (at {spike.start_s:.2f} s, {spike.length_s:.2f} s long) took "
        f"{number(each.more_ms)} ms more CPU time than is usual around it"
    )
    if each.samples < FEWEST_SAMPLES:
        few = plural(each.samples, "sample")
        return f"{begin}; {few} of perf are too few to say which functions took that time."
    found = each.function
    if found is None:
        return f"{begin}; no single function took most of that time."
    part = f"{100 * found.more_ms / each.more_ms:.0f} %"
    if not found.stands_out:
        return f"{begin}, in the same functions as around it: more of the same work."
    return f"{begin}: {part} of it in {short_function(found.name)}, {_usual_words(found)}."


def _usual_words(found: Function) -> str:
    if found.usual_share == 0:
        return "which did not run around it"
    return f"which has {100 * found.usual_share:.1f} % of the CPU time around it"


def ran_table(ran: Sequence[Ran]) -> pd.DataFrame:
    """Return a table with a row for each spike, with the spike's function and kinds of work."""
    return pd.DataFrame([_row(each) for each in ran])


def _row(each: Ran) -> dict[str, str]:
    found = each.function
    kinds = [(name, ms) for name, ms in each.kinds.items() if ms > 0][:KINDS]
    return {
        "spike": str(each.number),
        "start, s": f"{each.spike.start_s:.2f}",
        "length, s": f"{each.spike.length_s:.2f}",
        "height, % of a core": number(each.spike.height_pct),
        "CPU ms more, by samples": number(each.more_ms),
        "function with most of it": (
            "–" if found is None else printable(found.name.removesuffix(KERNEL))
        ),
        "its share of the spike": "–" if found is None else f"{100 * found.share:.0f} %",
        "its share around it": "–" if found is None else f"{100 * found.usual_share:.1f} %",
        "called by": "–" if found is None else _callers(found),
        "kinds of work, ms more": ", ".join(f"{name} {number(ms)}" for name, ms in kinds) or "–",
    }


def _callers(found: Function) -> str:
    """Return the names of up to CALLERS callers of a function, with the direct caller first."""
    nearest = found.callers[: -CALLERS - 1 : -1]
    return " < ".join(short_function(name) for name in nearest) or "–"
