"""Alt texts of the figures of one trial: what two clients saw, and who used the CPU."""

from __future__ import annotations

import math

import pandas as pd

from runner.present.case import Case
from runner.present.chart.sentences import listing, nothing, span
from runner.present.figures import clients, seconds
from runner.present.figures.cpu import usage
from runner.present.figures.seconds import bin_width
from runner.present.look.style import number


def _trial(case: Case) -> str:
    return f"{case.row['server']} under “{case.row['load']}”"


def _ends(values: pd.Series[float]) -> str:
    return f"{span(float(values.min()), float(values.max()))} ms"


# --- two clients ------------------------------------------------------------------------------------------


def two_clients(case: Case) -> str:
    """Return the alt text of `clients.two_clients`: both medians, what is between them, and their course."""
    histogram = case.tables.latency[case.tables.latency["trial_id"] == case.trial_id]
    if histogram.empty:
        return nothing(f"what {case.tool} saw", "The latency table has no requests of this trial.")
    timed = bool(histogram["second"].notna().any())
    ridges = "ridge plot of the share of a client's requests (up) by response time in ms (across, logarithmic)"
    course = (
        f"Below it, the response time in ms (up, logarithmic) by seconds (across): {case.tool}'s median of each second "
        "as a line, the probe's requests as dots."
    )
    head = f"Of one trial, {_trial(case)}: {ridges}, a ridge a client. {course if timed else ''}".rstrip()
    probes = case.probe.loc[case.probe["ok"], "latency_ms"] if case.probe is not None else pd.Series(dtype=float)
    parts = [head, _medians(case, probes), _seconds(case, probes) if timed else "", f"Verdict: {case.row['verdict']}."]
    return " ".join(part for part in parts if part)


def _medians(case: Case, probes: pd.Series[float]) -> str:
    ours = float(case.row["latency_p50_ms"])
    said = f"{case.tool}'s median is {number(ours)} ms"
    if probes.empty:
        return f"{said}. {'There was no probe' if case.probe is None else 'The probe got no answer'}."
    median = float(probes.median())
    return f"{said}, the probe's {number(median)} ms: {case.tool}'s is {number(ours / median)} times as long."


def _seconds(case: Case, probes: pd.Series[float]) -> str:
    medians = seconds.latency(0.5)(case.frame, case.tables)["value"]
    known = [
        f"{case.tool}'s medians of single seconds are {_ends(medians)}" if len(medians) else "",
        f"{len(probes):,} requests of the probe took {_ends(probes)}" if len(probes) else "",
    ]
    parts = [part for part in known if part]
    return f"Over time {', '.join(parts)}." if parts else ""


# --- CPU --------------------------------------------------------------------------------------------------


def cpu(case: Case) -> str:
    """Return the alt text of `clients.cpu`: what each side used of what it was given, the fullest first."""
    samples = case.tables.resources[case.tables.resources["trial_id"] == case.trial_id]
    width, end = bin_width(case.frame), float(case.row["duration_s"])
    curves = {
        subject: curve.loc[curve["t_s"] <= end, "cpu_pct"]
        for subject in clients.SUBJECTS
        for curve in [usage(samples[samples["subject"] == subject], width)]
        if (curve["t_s"] <= end).any()
    }
    if not curves:
        return nothing("the CPU of both sides", "The CPU of this trial was not sampled for long enough.")
    used = {subject: float(case.row[f"{subject}_cpu_mean_pct"]) / case.given(subject) for subject in curves}
    ordered = sorted(curves, key=lambda subject: -used[subject] if math.isfinite(used[subject]) else math.inf)
    words = listing([_side(case, subject, curves[subject]) for subject in ordered])
    return (
        f"Line chart of the CPU of {listing(list(curves))} in % of a core (up) by seconds since the load began "
        f"(across), each beside what it was given, dashed, of one trial, {_trial(case)}. The fullest first: {words}. "
        f"Verdict: {case.row['verdict']}."
    )


def _side(case: Case, subject: str, curve: pd.Series[float]) -> str:
    """Return `the generator k6 used 99.0 % of the 100 % given (97.8 to 99.9 over time)`."""
    name = {"server": str(case.row["server"]), "generator": case.tool, "database": "PostgreSQL"}[subject]
    mean, given = float(case.row[f"{subject}_cpu_mean_pct"]), case.given(subject)
    used = f"used {number(mean)} % on the average" if math.isfinite(mean) else "used, of which the mean is not known,"
    of = f" of the {given:.0f} % given" if math.isfinite(given) else ""
    return f"the {subject} {name} {used}{of} ({span(float(curve.min()), float(curve.max()))} over time)"
