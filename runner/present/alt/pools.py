"""Alt texts of closed loops with pools of several sizes: where each server is fastest, and which rates do not rank."""

from __future__ import annotations

from runner.present.alt.courses import Course, Wording, clauses, course, hollow
from runner.present.alt.sentences import Form, fit, nothing, scope, within
from runner.present.figures import multiples, pool_sweep
from runner.present.figures.multiples import Panel
from runner.present.frames import Tables, server_bound
from runner.present.look import captions
from runner.present.look.style import number
from runner.present.statistics.stats import spread


def rate(tables: Tables) -> str:
    """Return the alt text of `pool_sweep.rate`."""
    key = "Hollow points do not rank: the server was not the limit in every trial."
    wording = Wording("highest rate", lambda rps: f"{number(rps)}/s", _at)
    return _told(tables, "inserts per second", "rps", wording, key)


def p99(tables: Tables) -> str:
    """Return the alt text of `pool_sweep.p99`."""
    key = "These are response times at saturation, which rank nobody; hollow: the server was not the limit."
    wording = Wording("lowest p99", lambda ms: f"{number(ms)} ms", _at, highest=False, rising=True)
    return _told(tables, "the p99 latency of inserts in ms", "latency_p99_ms", wording, key)


def _at(size: float) -> str:
    return f"at {size:,.0f}"


def _told(tables: Tables, what: str, column: str, wording: Wording, key: str) -> str:
    trials = pool_sweep.sweeps(tables)
    shown = multiples.panels(tables, trials, by="loop")
    topic = f"{what} by pool size"
    if not shown:
        return nothing(topic, captions.unsealed(trials, "closed loop with several pool sizes"))
    courses = {(panel.load, panel.server): _course(panel, column) for panel in shown}
    if not any(of.y for of in courses.values()):
        return nothing(topic, "No trial has enough requests for a p99.")
    forms: tuple[list[str], list[str], list[str], list[str]] = ([], [], [], [])
    for loop in dict.fromkeys(panel.load for panel in shown):
        own = [of for (load, _), of in courses.items() if load == loop]
        long, extremes, ends = clauses(own, wording)
        exactly, counted = hollow(own, lambda size: f"{size:,.0f}")
        said = (f"{long}; {exactly}", f"{extremes}; {exactly}", f"{extremes}; {counted}", f"{ends}; {counted}")
        for parts, clause in zip(forms, said, strict=True):
            parts.append(within(loop, clause))
    loops, scale = len({panel.load for panel in shown}), "up" if wording.highest else "up, logarithmic"
    head = (
        f"Line chart of {what} ({scale}) by the size of the server's pool of connections (across), "
        f"{scope([panel.server for panel in shown], loops, 'loop')}: median of the trials. {key}"
    )
    return fit(head, [Form(parts, "loop") for parts in forms])


def _course(panel: Panel, column: str) -> Course:
    sizes = pool_sweep.carried(panel.trials).groupby("pool_size")
    points = [(float(str(size)), spread(own[column]).median, server_bound(own)) for size, own in sizes]
    return course(panel.server, points)
