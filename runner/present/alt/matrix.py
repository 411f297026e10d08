"""Alt texts of the wrk matrix: where each server is fastest or cheapest, and which rates do not rank."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from runner.present.chart import Axis, Extreme
from runner.present.chart.courses import Course, clauses, course, hollow
from runner.present.chart.sentences import Form, fit, nothing, scope, servers
from runner.present.figures.wrk_matrix import always, panels
from runner.present.frames import Tables
from runner.present.look import captions
from runner.present.look.palette import identities
from runner.present.statistics.stats import spread

FEWEST = 3
"""Numbers of connections that make a curve; fewer are rows beside each other."""


def requests(tables: Tables) -> str:
    """Return the alt text of `wrk_matrix.requests`."""
    wording = Extreme("highest rate"), Axis("", unit="/s")
    key = "Hollow points do not rank: the server was not the limit in every trial."
    return _matrix(tables, "requests per second", "rps", wording, key, captions.server_bound)


def cpu_per_request(tables: Tables) -> str:
    """Return the alt text of `wrk_matrix.cpu_per_request`."""
    wording = Extreme("lowest cost", highest=False, rising=True), Axis("", unit=" ms")
    return _matrix(tables, "CPU ms per request", "server_cpu_ms_per_request", wording, "", always)


def _matrix(
    tables: Tables,
    what: str,
    column: str,
    wording: tuple[Extreme, Axis],
    key: str,
    solid: Callable[[pd.DataFrame], bool],
) -> str:
    trials = tables.sealed("wrk")
    trials = trials[trials["connections"].notna()]
    if trials.empty:
        return nothing(f"{what} by connections", captions.nothing(tables, "wrk"))
    shown = list(identities(tables.trials))
    forms: tuple[list[str], list[str], list[str], list[str]] = ([], [], [], [])
    for heading, own in panels(trials):
        courses = [_course(name, of, column, solid) for name, of in servers(own, shown).items()]
        long, extremes, ends = clauses(courses, wording[0], Axis(""), wording[1])
        exactly, counted = (f"; {words}" if key else "" for words in hollow(courses, lambda x: f"{x:,.0f}"))
        name = heading if trials["workload"].nunique() > 1 else heading[0].lower() + heading[1:]
        said = (long + exactly, extremes + exactly, extremes + counted, ends + counted)
        for parts, clause in zip(forms, said, strict=True):
            parts.append(f"With {name} {clause}.")
    counts = trials.groupby(["workload", "mode", "terms"])["connections"].nunique()
    across = f"{what} (up) by number of connections (across, logarithmic)"
    rows = f"{what} (across), a row a server, by number of connections"
    head = (
        f"{f'Line chart of {across}' if counts.max() >= FEWEST else f'Dot plot of {rows}'}, "
        f"{scope(trials['server'], len(forms[0]), 'mode')}: median of the trials. {key}".rstrip()
    )
    return fit(head, [Form(parts, "panel") for parts in forms])


def _course(name: str, trials: pd.DataFrame, column: str, solid: Callable[[pd.DataFrame], bool]) -> Course:
    cells = trials.groupby("connections")
    return course(name, [(float(str(count)), spread(cell[column]).median, solid(cell)) for count, cell in cells])
