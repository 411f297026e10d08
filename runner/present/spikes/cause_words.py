"""Put into words what caused a CPU spike, and what held a server back."""

import math
from typing import assert_never

from runner.present.look.captions import plural
from runner.present.look.numbers import number
from runner.present.spikes.causes import Cause, Explanation
from runner.present.spikes.found import Spike
from runner.present.spikes.hindrance import Hindrance, Hold
from runner.present.spikes.view import View

ONE_THREAD = 0.8
"""A spike is attributed to one thread if this thread used at least this share of the CPU.

The thread's mean CPU use during the spike is compared with the CPU use of the server in the spike's
highest window.
"""


def cause_words(spike: Spike, found: Explanation) -> str:
    """Return the cause of a spike in a few words, with the numbers that show it."""
    match found.cause:
        case Cause.CAUGHT_UP:
            assert found.hindrance is not None
            words = f"caught up after {hold_words(found.hindrance)}"
        case Cause.STOLEN:
            words = f"the hypervisor took {number(found.accounted_ms)} ms of CPU meanwhile"
        case Cause.COLLECTOR:
            words = (
                f"garbage collection: {plural(int(found.cycles), 'cycle')}, "
                f"{number(found.accounted_ms)} ms of CPU, pauses of {number(found.pause_ms)} ms"
            )
        case Cause.REQUESTS:
            words = "more requests than usual"
        case Cause.OWN_WORK:
            words = f"the server's own work{_in_one_thread(spike, found)}"
        case Cause.UNKNOWN:
            words = "unknown, as the server does not report its requests and collections"
        case _:
            assert_never(found.cause)
    return words


def _in_one_thread(spike: Spike, found: Explanation) -> str:
    """Return a clause that says that one thread used most of the CPU time of a spike.

    Return an empty text if no thread used as much as ONE_THREAD requires, or if the CPU use of the
    threads is unknown.
    """
    peak_pct = spike.baseline_pct + spike.height_pct
    return ", in one thread" if found.busiest_thread_pct >= ONE_THREAD * peak_pct else ""


def hold_words(hindrance: Hindrance) -> str:
    """Return a clause that says what held a server back: `a signal stopped it for 0.40 s`."""
    lost_s = f"{hindrance.lost_ms / 1000:.2f} s"
    if hindrance.hold is Hold.STOPPED:
        return f"a signal stopped it for {hindrance.length_s:.2f} s"
    if hindrance.hold is Hold.STOLEN:
        return f"the hypervisor took {lost_s} of CPU"
    if hindrance.hold is Hold.THROTTLED:
        return f"its quota held it for {lost_s}"
    return f"it waited {lost_s} for a CPU"


def neighbour_words(hindrance: Hindrance) -> str:
    """Return the CPU use of other programs while the server was held back, or `–` if unknown."""
    if math.isnan(hindrance.others_pct):
        return number(math.nan)
    return f"{max(0.0, hindrance.others_pct):.0f} %"


def title(view: View) -> str:
    """Return the finding about a trial in one line.

    The line gives the number of spikes, and the cause of the highest spike. If there is no spike,
    the line says what held the server back longest.
    """
    server = str(view.case.row["server"])
    place = view.highest
    if place is not None:
        spike = view.numbered[place]
        cause = cause_words(spike, view.explanations[place - 1])
        if len(view.server.counted) == 1:
            return f"A CPU spike of {server}: {cause}"
        spikes = plural(len(view.server.counted), "CPU spike")
        return f"{spikes} of {server}; the highest: {cause}"
    shown = [each for each in view.hindrances if each.overlaps(view.start_s, view.stop_s)]
    longest = max(shown, key=lambda each: each.lost_ms, default=None)
    if longest is None:
        return f"No CPU spike of {server}"
    return f"No CPU spike of {server}, though {hold_words(longest)}"
