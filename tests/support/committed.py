"""Functions that find the figures for which a run has data."""

from typing import Any

from figure_checks import chart_of

from runner.present.chart.value import Chart, charts
from runner.present.frames import Case, Tables, choose
from runner.present.spikes.view import View, most_pronounced, survey, view


def subjects_of(tables: Tables) -> dict[type, Any]:
    """Return the values from which the figures of a run are drawn, by type.

    The function of a figure has one argument, its subject: the tables of the run, a trial that
    compares generator and probe (`Case`), or the CPU use of a trial over time (`View`). These three
    types are the keys of the result. The value of `Case` is None if the run has no closed load of
    k6, and the value of `View` is None if the run has no trials.
    """
    spike = most_pronounced(survey(tables))
    return {
        Tables: tables,
        Case: choose(tables),
        View: view(tables, spike, "") if spike else None,
    }


def charts_of(tables: Tables) -> dict[str, Chart]:
    """Return the charts for which a run has data, by name."""
    subjects = subjects_of(tables)
    made = {
        name: chart_of(name, subjects[found.subject])
        for name, found in charts().items()
        if subjects.get(found.subject) is not None and found.needs(tables)
    }
    return {name: chart for name, chart in made.items() if not chart.frame.empty}
