"""Figures whose drawing and description are still two functions, registered as charts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from runner.present.alt import case, closed, matrix, published
from runner.present.case import Case, probed
from runner.present.chart import Chart, chart
from runner.present.chart.value import COLUMNS
from runner.present.figures import clients, cpu, latency, throughput, wrk_matrix
from runner.present.published import claims_figure
from runner.present.published import ratios as published_ratios
from runner.present.published.counterparts import repeats
from runner.present.spikes import figures as spike_figures
from runner.present.spikes.survey import has_samples
from runner.present.spikes.view import View
from runner.present.statistics.inference import FEWEST


def register(
    name: str, notebook: str, draw: Callable[[Any], Figure], describe: Callable[[Any], str], **given: Any
) -> None:
    """Register a figure by the functions that draw and describe its subject."""

    def make(subject: Any) -> Chart:
        frame = pd.DataFrame(columns=COLUMNS)
        return Chart(name, frame, draw=lambda _: draw(subject), describe=lambda _: describe(subject))

    chart(name, notebook=notebook, **given)(make)


LOADS = "Load by load"
register("latency-spectrum", "report", latency.spectrum, closed.spectrum, table=LOADS)
register("latency-density", "report", latency.density, closed.density, table=LOADS)
register("requests-over-time", "report", throughput.over_time, closed.over_time, table=LOADS)
register("cpu-over-time", "report", cpu.over_time, closed.cpu_over_time)
register("cpu-peaks", "report", cpu.peaks, closed.peaks, table=LOADS)
register("wrk-requests", "report", wrk_matrix.requests, matrix.requests, table=LOADS)
register("wrk-cpu-per-request", "report", wrk_matrix.cpu_per_request, matrix.cpu_per_request, table=LOADS)
register("published-ratios", "published", published_ratios.dumbbells, published.ratios, needs=lambda t: repeats(t, 1))
register(
    "published-claims", "published", claims_figure.measured, published.measured, needs=lambda t: repeats(t, FEWEST)
)
register(
    "verdict-two-clients", "verdict", clients.two_clients, case.two_clients, needs=probed,
    table="What another client saw", subject=Case,
)  # fmt: skip
register("verdict-cpu", "verdict", clients.cpu, case.cpu, needs=probed, table="The verdict", subject=Case)
register("cpu-spikes", "cpu_spikes", spike_figures.timeline, spike_figures.describe, needs=has_samples, subject=View)
