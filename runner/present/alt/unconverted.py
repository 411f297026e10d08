"""Figures whose drawing and description are still two functions, registered as charts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from runner.present.alt import published
from runner.present.chart import Chart, chart
from runner.present.chart.value import COLUMNS
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


register("published-ratios", "published", published_ratios.dumbbells, published.ratios, needs=lambda t: repeats(t, 1))
register(
    "published-claims", "published", claims_figure.measured, published.measured, needs=lambda t: repeats(t, FEWEST)
)
register("cpu-spikes", "cpu_spikes", spike_figures.timeline, spike_figures.describe, needs=has_samples, subject=View)
