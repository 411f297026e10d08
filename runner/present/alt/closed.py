"""Alt texts of closed loads by k6: response times, requests per second and CPU."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from runner.present.chart.sentences import (
    by_value,
    degrees,
    fit,
    in_loads,
    nothing,
    pale,
    said,
    scope,
    servers,
    span,
    unknown,
)
from runner.present.figures import cpu, latency, throughput
from runner.present.figures.seconds import bin_width
from runner.present.frames import Tables
from runner.present.look import captions
from runner.present.look.palette import identities
from runner.present.look.style import number
from runner.present.statistics.inference import FEWEST
from runner.present.statistics.stats import BEYOND, spread

Lines = dict[str, "pd.Series[float]"]
"""Server -> its drawn line, by what is across."""
Clauses = dict[str, tuple[str, ...]]
"""Load -> what its panel shows, the richest clause first."""


def _loads(tables: Tables) -> dict[str, dict[str, pd.DataFrame]]:
    """Return the sealed trials of k6's closed loads by load and server, in the order of the figures."""
    trials = tables.sealed("k6")
    shown = list(identities(tables.trials))
    return {str(load): servers(trials[trials["load"] == load], shown) for load in dict.fromkeys(trials["load"])}


def _scope(loads: dict[str, dict[str, pd.DataFrame]]) -> str:
    return scope([name for of_load in loads.values() for name in of_load], len(loads))


def _verdicts(tables: Tables) -> str:
    return f"Verdicts: {captions.verdict_counts(tables.sealed('k6'))}."


def _ends(values: pd.Series[float]) -> str:
    return span(float(values.min()), float(values.max()))


# --- response times ---------------------------------------------------------------------------------------


def spectrum(tables: Tables) -> str:
    """Return the alt text of `latency.spectrum`: the lines at the first and the last whole percentile of all."""
    loads = _loads(tables)
    if not loads:
        return nothing("response times by percentile", captions.nothing(tables, "k6"))
    points = latency.spectrum_points(tables.timed("k6"), tables.latency)
    few = min(len(own) for of_load in loads.values() for own in of_load.values()) < FEWEST
    clauses: Clauses = {}
    for load, of_load in loads.items():
        of_servers = servers(points[points["load"] == load], list(of_load))
        lines = {name: latency.middle(own)[0] for name, own in of_servers.items()}
        long, short = _percentiles(lines)
        clauses[load] = (long + unknown(of_load, lines), short + unknown(of_load, lines))
    head = (
        "Line chart of response time at saturation in ms (up) by percentile of the requests (across), both "
        f"logarithmic, {_scope(loads)}: {'median' if few else 'geometric mean'} of the trials."
    )
    return fit(head, in_loads(clauses), _verdicts(tables))


def _percentiles(lines: Lines) -> tuple[str, str]:
    """Return what the lines say at the first and the last percentile that all have, and the last alone in short."""
    if not lines:
        words = f"nothing is drawn: no trial has {BEYOND} requests beyond its {latency.FIRST_QUANTILE:.0%} percentile"
        return words, words
    common = sorted(set.intersection(*(set(line.index) for line in lines.values())))
    marks = [x for x in common if abs(math.log10(x) - round(math.log10(x))) < 1e-6] or common[-1:]
    long, short = [], ""
    for mark in dict.fromkeys((marks[0], marks[-1])):
        values = by_value({name: float(line[mark]) for name, line in lines.items()}, rising=True)
        texts = {name: f"{number(ms)} ms" for name, ms in values.items()}
        noun = f"p{100 - 100 / mark:.6g} value"
        long.append(said(noun, "fastest first", texts))
        short = said(noun, "fastest first", texts, short=True)
    return " and ".join(long), short


def density(tables: Tables) -> str:
    """Return the alt text of `latency.density`: each server's median, and where its ridge begins and ends."""
    loads, what = _loads(tables), "how response times spread"
    if not loads:
        return nothing(what, captions.nothing(tables, "k6"))
    points = latency.density_points(tables.timed("k6"), tables.latency)
    if points.empty:
        return nothing(what, "The latency table has no requests of this run's k6 trials.")
    clauses: Clauses = {}
    for load, of_load in loads.items():
        ridges = servers(points[points["load"] == load], list(of_load))
        medians = by_value({name: float(of_load[name]["latency_p50_ms"].median()) for name in ridges}, rising=True)
        texts = {name: f"{number(ms)} ms" for name, ms in medians.items()}
        wide = {name: f"{text} ({_ends(ridges[name]['ms'])})" for name, text in texts.items()}
        clauses[load] = degrees("median", "shortest first", texts, wide, of_load)
    head = (
        "Ridge plot of the share of the requests (up) by response time at saturation in ms (across, logarithmic), "
        f"{_scope(loads)}, each with its median marked."
    )
    return fit(head, in_loads(clauses, "In brackets: where a ridge begins and ends."), _verdicts(tables))


# --- requests per second ----------------------------------------------------------------------------------


def over_time(tables: Tables) -> str:
    """Return the alt text of `throughput.over_time`: each line's median over time, its lowest and highest point."""
    loads = _loads(tables)
    if not loads:
        return nothing("requests per second over time", captions.nothing(tables, "k6"))
    clauses: Clauses = {}
    for load, of_load in loads.items():
        points = servers(throughput.rates(pd.concat(of_load.values()), tables.throughput), list(of_load))
        lines: Lines = {name: own.groupby("t_s")["rps"].median() for name, own in points.items()}
        levels = by_value({name: float(line.median()) for name, line in lines.items()}, rising=False)
        texts = {name: f"{number(level)}/s" for name, level in levels.items()}
        wide = {name: f"{text} ({_ends(lines[name])})" for name, text in texts.items()}
        rest = f"; {pale({name: captions.server_bound(of_load[name]) for name in lines})}" if lines else ""
        first, second, third = degrees("typical rate", "highest first", texts, wide, of_load)
        clauses[load] = (first + rest, second + rest, third + rest)
    head = (
        f"Line chart of requests per second (up) by seconds since the load began (across), {_scope(loads)}: median of "
        "the trials. Pale lines do not rank: the server was not the limit in every trial."
    )
    return fit(head, in_loads(clauses, "In brackets: the lowest and highest point of a line."))


# --- CPU --------------------------------------------------------------------------------------------------


def cpu_over_time(tables: Tables) -> str:
    """Return the alt text of `cpu.over_time`: each cell's marked peak, and what server and generator mostly use."""
    loads = _loads(tables)
    if not loads:
        return nothing("CPU over time", captions.nothing(tables, "k6"))
    samples = cpu.samples_of(tables.sealed("k6"), tables.resources)
    clauses: Clauses = {}
    for load, of_load in loads.items():
        seconds = {name: cpu.highest_second(own, samples) for name, own in of_load.items()}
        peaks = by_value({name: found[1] for name, found in seconds.items() if found}, rising=False)
        texts = {name: f"{number(peak)} %" for name, peak in peaks.items()}
        wide = {
            name: f"{text} at {found[0]:.3g} s (typically {number(_typical(of_load[name], samples, 'server'))} %)"
            for name, text in texts.items()
            if (found := seconds[name])
        }
        generator = pd.Series([_typical(own, samples, "generator") for own in of_load.values()]).dropna()
        rest = f"; k6 typically uses {_ends(generator)} %" if len(generator) else ""
        first, second, third = degrees("peak", "highest first", texts, wide, of_load)
        clauses[load] = (first + rest, second + rest, third + rest)
    head = (
        f"Line chart of CPU in % of a core (up) by seconds (across), {_scope(loads)}, every trial: the server in "
        "colour with its peak over 1 s marked, the load generator grey and dashed."
    )
    return fit(head, in_loads(clauses, "Typical is the median over time."))


def _typical(trials: pd.DataFrame, samples: cpu.Samples, subject: str) -> float:
    """Return the median over time of all curves that are drawn of a cell's server or generator; NaN without any."""
    width = bin_width(trials)
    curves = [cpu.usage(samples[str(trial), subject], width)["cpu_pct"] for trial in trials["trial_id"]]
    return float(np.median(np.concatenate(curves))) if any(len(curve) for curve in curves) else math.nan


def peaks(tables: Tables) -> str:
    """Return the alt text of `cpu.peaks`: what a request costs, and the peaks over 1 s and 0.1 s."""
    loads = _loads(tables)
    if not loads:
        return nothing("CPU peaks and the price of a request", captions.nothing(tables, "k6"))
    clauses: Clauses = {}
    for load, of_load in loads.items():
        costs = _medians(of_load, "server_cpu_ms_per_request", " ms", rising=True)
        tops = _medians(of_load, "server_cpu_peak_1s_pct", " %", rising=False)
        fine = _medians(of_load, "server_cpu_peak_100ms_pct", " %", rising=False)
        more = f"; over 0.1 s up to {next(iter(fine.values()))} ({next(iter(fine))})" if fine else ""
        cost, top = ("cost", "cheapest first"), ("peak", "highest first")
        clauses[load] = (
            f"{said(*cost, costs)}; {said(*top, tops)}{unknown(of_load, tops)}{more}",
            f"{said(*cost, costs, short=True)}; {said(*top, tops, short=True)}{unknown(of_load, tops)}",
        )
    head = (
        "Pairs of bar charts of the server's CPU: its peak over 1 s in % of a core, with a mark for 0.1 s, and the "
        f"cost of a request in CPU ms, {_scope(loads)}: median of the trials."
    )
    return fit(head, in_loads(clauses))


def _medians(of_load: dict[str, pd.DataFrame], column: str, unit: str, *, rising: bool) -> dict[str, str]:
    """Return each server's median of a column as text, in the order of the values."""
    values = by_value({name: spread(own[column]).median for name, own in of_load.items()}, rising=rising)
    return {name: f"{number(value)}{unit}" for name, value in values.items()}
