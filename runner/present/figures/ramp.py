"""Figures of loads whose arrival rate rises in steps: a quantity over time, a panel a server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from runner.present.figures import multiples, seconds
from runner.present.figures.multiples import Panel
from runner.present.figures.offered import kept_rps, offered_steps
from runner.present.frames import Tables, sealed_trials
from runner.present.look import captions, scales, style
from runner.present.statistics.stats import Floats, spread

BAND = "Line: median of the trials; band: minimum to maximum; thin grey: the other servers."
ACROSS = "Across: seconds since the load began and, below them, the requests/s offered from then on."


@dataclass(frozen=True)
class Quantity:
    """What a figure draws over time, and how."""

    title: str
    label: str
    points: Callable[[pd.DataFrame, Tables], pd.DataFrame]
    words: str = ""
    """For the caption: what else a reader must know."""
    key: str = ""
    """Says what the dashed line is."""
    bound: Callable[[Panel], tuple[Floats, Floats]] | None = None
    """Times and values of that line."""
    note: Callable[[Panel], str] | None = None
    """Words above a panel."""
    log: bool = False


# --- inserts into a database ------------------------------------------------------------------------------


@style.styled
def inserts_answered(tables: Tables) -> Figure:
    """Draw the inserts answered per second beside the rate that was offered."""
    return _draw(tables, tables.ramps(database=True), _answered("Inserts per second over the ramp", tables))


@style.styled
def inserts_p90(tables: Tables) -> Figure:
    """Draw each second's 90th percentile of the latency of inserts."""
    return _draw(tables, tables.ramps(database=True), _p90("Inserts: p90 latency over the ramp"))


@style.styled
def inserts_server_cpu(tables: Tables) -> Figure:
    """Draw the servers' CPU while they insert."""
    return _draw(tables, tables.ramps(database=True), _server_cpu("Inserts: CPU of the server", tables))


@style.styled
def inserts_memory(tables: Tables) -> Figure:
    """Draw the servers' resident memory while they insert."""
    words = "Resident memory of the server's processes, not PostgreSQL's; mean of each second's samples."
    quantity = Quantity("Inserts: memory of the server", "MiB", seconds.memory, words)
    return _draw(tables, tables.ramps(database=True), quantity)


@style.styled
def pool_in_use(tables: Tables) -> Figure:
    """Draw how many connections of each server's pool are in use, with the pool's size."""

    def waited(panel: Panel) -> str:
        most = panel.trials["pool_waiting_max"].max()
        return f"up to {most:,.0f} waited" if most > 0 else ""

    quantity = Quantity(
        "Connections of the pool in use",
        "connections",
        seconds.pool,
        "As the servers themselves say, asked about five times a second; mean of each second's answers.",
        "Dashed: the pool's size.",
        lambda panel: _level(panel, float(panel.trials["pool_size"].iloc[0])),
        waited,
    )
    return _draw(tables, tables.ramps(database=True), quantity)


@style.styled
def database_cpu(tables: Tables) -> Figure:
    """Draw the CPU of all PostgreSQL processes, with the CPUs that PostgreSQL has."""
    quantity = Quantity(
        "CPU of PostgreSQL",
        "CPU, %",
        seconds.cpu("database"),
        captions.database_place(tables.manifest),
        "Dashed: the CPUs that PostgreSQL may use; 100 % is one core busy.",
        _cpus(tables, "database"),
    )
    return _draw(tables, tables.ramps(database=True), quantity)


@style.styled
def rows_inserted(tables: Tables) -> Figure:
    """Draw the inserts answered so far; the caption says how many rows the database has in the end."""
    trials = tables.ramps(database=True)

    def rows(panel: Panel) -> str:
        of = spread(panel.trials["rows_inserted"])
        return f"{of.median:,.0f} rows" if of.n else ""

    def total(panel: Panel) -> tuple[Floats, Floats]:
        edges, rates = offered_steps(panel.trials)
        return edges, np.concatenate([[0.0], np.cumsum(rates * np.diff(edges))])

    words = "Inserts: answers with 2xx so far. " + captions.rows_equal_answers(sealed_trials(trials))
    quantity = Quantity("Rows inserted", "inserts", seconds.inserted, words, "Dashed: what was offered.", total, rows)
    return _draw(tables, trials, quantity)


# --- without a database -----------------------------------------------------------------------------------


@style.styled
def static_answered(tables: Tables) -> Figure:
    """Draw the requests answered per second beside the rate that was offered, without a database."""
    return _draw(tables, tables.ramps(database=False), _answered("Without a database: requests per second", tables))


@style.styled
def static_p90(tables: Tables) -> Figure:
    """Draw each second's 90th percentile of the latency, without a database."""
    return _draw(tables, tables.ramps(database=False), _p90("Without a database: p90 latency"))


@style.styled
def static_server_cpu(tables: Tables) -> Figure:
    """Draw the servers' CPU over a ramp without a database."""
    return _draw(tables, tables.ramps(database=False), _server_cpu("Without a database: CPU of the server", tables))


# --- what they share --------------------------------------------------------------------------------------


def _answered(title: str, tables: Tables) -> Quantity:
    def kept(panel: Panel) -> str:
        of = spread(kept_rps(panel.trials, tables.throughput))
        return f"kept to {of.median:,.0f}/s" if of.median else "never kept"

    words = "Answers with 2xx. Kept: the highest step up to which each was answered at the offered rate (median)."
    return Quantity(title, "answers/s", seconds.answered, words, "Dashed: the rate offered.", _offered, kept)


def _p90(title: str) -> Quantity:
    fewest = seconds.FEWEST_BEYOND * 10
    words = f"p90 of the requests of each second; a second with fewer than {fewest} requests has none."
    return Quantity(title, "ms (log scale)", seconds.latency(0.9), words, log=True)


def _server_cpu(title: str, tables: Tables) -> Quantity:
    key = "Dashed: the CPUs that the server may use; 100 % is one core busy."
    return Quantity(title, "CPU, %", seconds.cpu("server"), key=key, bound=_cpus(tables, "server"))


def _offered(panel: Panel) -> tuple[Floats, Floats]:
    edges, rates = offered_steps(panel.trials)
    return np.repeat(edges, 2)[1:-1], np.repeat(rates, 2)


def _level(panel: Panel, value: float) -> tuple[Floats, Floats]:
    edges, _ = offered_steps(panel.trials)
    return edges[[0, -1]], np.array([value, value])


def _cpus(tables: Tables, subject: str) -> Callable[[Panel], tuple[Floats, Floats]] | None:
    cpus = (tables.manifest.get("placement") or {}).get(subject)
    return (lambda panel: _level(panel, 100.0 * len(cpus))) if cpus else None


def _draw(tables: Tables, trials: pd.DataFrame, quantity: Quantity) -> Figure:
    shown = multiples.panels(tables, trials)
    if not shown:
        return style.no_data(quantity.title, captions.unsealed(trials, "trial with rising rates"))
    sealed = sealed_trials(trials)
    points = quantity.points(sealed, tables)
    if points.empty:
        return style.no_data(quantity.title, "The tables of this run have nothing of it.")
    curves = [seconds.median_and_range(points, panel.trials["trial_id"]) for panel in shown]
    words = f"{quantity.words} {BAND} Bins of {_bin_words(quantity, sealed)}."
    figure, axes = multiples.sheet(
        quantity.title,
        captions.caption(tables, trials, words.strip()),
        f"{quantity.key} {ACROSS}".strip(),
        shown,
        left_in=0.95,
        axis_in=0.56,
        notes=[quantity.note(panel) if quantity.note else "" for panel in shown],
    )
    low, high = _limits(quantity, shown, curves)
    for ax, panel, curve in zip(axes, shown, curves, strict=True):
        behind = [other for each, other in zip(shown, curves, strict=True) if each.load == panel.load]
        _draw_panel(ax, panel, curve, [other for other in behind if other is not curve], quantity)
        ax.set_ylim(low, high)
        if quantity.log:
            scales.log_axis(ax, "y")
        else:
            scales.even_axis(ax, "y")
    for ax in multiples.lowest(axes):
        ax.set_xlabel("seconds; requests/s offered")
    return figure


def _bin_words(quantity: Quantity, trials: pd.DataFrame) -> str:
    fine = quantity.points in (seconds.memory, seconds.pool) or quantity.log
    return "1 s" if fine else f"{seconds.bin_width(trials):g} s"


def _limits(quantity: Quantity, shown: Sequence[Panel], curves: Sequence[pd.DataFrame]) -> tuple[float, float]:
    """Return the limits of all panels alike, so that they compare."""
    highs = [float(curve["high"].max()) for curve in curves]
    if quantity.bound:
        highs += [float(quantity.bound(panel)[1].max()) for panel in shown]
    high = float(np.nanmax(highs)) or 1.0
    if not quantity.log:
        return 0.0, high * 1.08
    low = float(np.nanmin([curve["low"].min() for curve in curves]))
    return max(low, 1e-3) / 1.3, max(high, 1e-3) * 1.3


def _draw_panel(
    ax: Axes, panel: Panel, curve: pd.DataFrame, behind: Sequence[pd.DataFrame], quantity: Quantity
) -> None:
    for other in behind:
        ax.plot(other.index, other["median"], color=style.BEHIND, lw=0.9, label="_other", zorder=1)
    if quantity.bound:
        ax.plot(*quantity.bound(panel), color=style.INK, lw=1.0, ls=(0, (4, 2.5)), label="bound")
    own: dict[str, Any] = {"color": panel.look.color}
    ax.fill_between(curve.index, curve["low"], curve["high"], alpha=0.25, lw=0, **own)
    ax.plot(curve.index, curve["median"], label=panel.server, **own)
    known = curve["median"].dropna()
    if len(known):
        ax.plot(
            known.index[-1], known.iloc[-1], marker=panel.look.marker, ms=5.5, label="_end", clip_on=False, **own
        )  # fmt: skip
    if quantity.log:
        ax.set_yscale("log")
    ax.set_ylabel(quantity.label)
    _time_axis(ax, panel)


def _time_axis(ax: Axes, panel: Panel) -> None:
    """Label the starts of some steps with the second and, below it, the rate offered from then on."""
    edges, rates = offered_steps(panel.trials)
    ax.set_xlim(0, max(float(edges[-1]), float(panel.trials["duration_s"].max())) * 1.02)
    labels = {float(at): f"{at:.10g} s\n{rate:,.10g}/s" for at, rate in zip(edges, rates, strict=False)}
    scales.ticks_across(ax, list(labels), lambda at: labels.get(at, ""))
