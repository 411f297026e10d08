"""From what a load generator said to what was measured, in words and tables: one trial (`case`), all computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import pandas as pd

from runner.limits import Limit
from runner.present.answers import summary
from runner.present.answers.little import little
from runner.present.case import Case
from runner.present.look import captions, style
from runner.present.look.palette import CALIBRATION
from runner.present.statistics.stats import carried_quantile, spread

NO_PROBE = "This run has no probe: what another client would have seen at that moment is not known."
NOTHING = "This run has no sealed trial of a closed load by k6, which is what this page is about."
PERCENTILES = {"p50": "one in two", "p95": "one in 20", "p99": "one in 100"}
"""Those that generator and probe both have -> the share of the requests that took longer."""
TWICE = 2.0
"""The generator's median as a multiple of the probe's from which on most of it is not the server's."""
TICKS_PCT = 20.0
"""Below this share of a core ticks may make up what others took: 97 % of the committed trials lie there."""


# --- what the clients said --------------------------------------------------------------------------------


def trial_words(case: Case) -> str:
    """Say which trial this is and how it was driven; not yet what it showed."""
    load = captions.load_heading(case.frame, f"{case.row['requests']:,.0f} requests in {case.row['duration_s']:.1f} s")
    heading = load.removesuffix(" at saturation")
    return f"Trial {case.trial_id}: {case.row['server']}, {case.row['workload']}, {heading}."


def generator_said(case: Case) -> str:
    """Say what the generator reports, as it would be published."""
    parts = [
        f"{share} took longer than {style.number(_generator_ms(case, name))} ms"
        for name, share in PERCENTILES.items()
        if math.isfinite(_generator_ms(case, name))
    ]
    return f"{case.tool} says: {style.number(case.row['rps'])} requests/s; of the requests {', '.join(parts)}."


def _generator_ms(case: Case, name: str) -> float:
    """Return a percentile of the generator's; NaN where the trial has too few requests beyond it."""
    carried = carried_quantile(case.row["requests"]) >= float(name[1:]) / 100
    return float(case.row[f"latency_{name}_ms"]) if carried else math.nan


def probe_saw(case: Case) -> str:
    """Say what the probe saw in the same seconds, or that there was none."""
    ours, probes = float(case.row["latency_p50_ms"]), float(case.row["probe_p50_ms"])
    if not math.isfinite(probes):
        return NO_PROBE
    sent, failed = case.row["probe_requests"], case.row["probe_failed"]
    rate = sent / case.row["duration_s"]
    return (
        f"In the same {case.row['duration_s']:.1f} s another client, the probe, sent the same server {sent:,.0f} of "
        f"the same requests, {style.number(rate)} a second ({failed:,.0f} failed). One in two took longer than "
        f"{style.number(probes)} ms: {_beside(ours, probes, case.tool)}"
    )


def _beside(ours_ms: float, probes_ms: float, tool: str) -> str:
    """Say what the generator's median is beside the probe's, and how much of it the probe was spared."""
    times = ours_ms / probes_ms
    if times < 1:
        return (
            f"{tool}'s median is {style.number(times)} times that, so the probe waited longer than {tool}'s requests."
        )
    said = f"{tool}'s median is {style.number(times)} times that."
    if times < TWICE:
        return said
    spared = f"all but {style.number(probes_ms)} ms were not needed to get an answer from this server at that moment"
    return f"{said} Of {tool}'s {style.number(ours_ms)} ms {spared}."


def percentile_table(case: Case) -> pd.DataFrame:
    """Return the percentiles of generator and probe beside each other, as texts; of the generator without a probe."""
    rows = []
    for name in PERCENTILES:
        ours, probes = _generator_ms(case, name), float(case.row[f"probe_{name}_ms"])
        beside = {"probe, ms": style.number(probes), "times": style.number(ours / probes)}
        row = {"percentile": name, f"{case.tool}, ms": style.number(ours)}
        rows.append(row | (beside if math.isfinite(case.row["probe_p50_ms"]) else {}))
    return pd.DataFrame(rows)


# --- CPU --------------------------------------------------------------------------------------------------


def cpu_words(case: Case) -> str:
    """Say how much of its CPUs each side used."""
    parts = []
    for subject in ("server", "generator"):
        used, has = float(case.row[f"{subject}_cpu_mean_pct"]), case.given(subject)
        if math.isfinite(used) and math.isfinite(has):
            parts.append(f"the {subject} used {used / has:.0%} of the CPU that it was given".replace("%", " %"))
    return f"Over the load {' and '.join(parts)}." if parts else "CPU use beside what was given is not known."


def servers_table(case: Case) -> pd.DataFrame:
    """Return the servers of the run under the case's load, as texts: what the law makes alike, and what differs.

    What no trial knows has no column.
    """
    rows = []
    for server, own in case.peers.groupby("server", sort=True):
        laws = [little({str(k): v for k, v in row.items()}, case.tables.throughput) for row in own.to_dict("records")]
        known = [law for law in laws if law is not None]
        rows.append(
            {
                "server": str(server),
                "trials": str(len(own)),
                "requests/s, steady": _middle([law.rate_rps for law in known]),
                "users / rate, ms": _middle([law.expected_ms for law in known]),
                f"{case.tool}'s mean, ms": _middle(own["iteration_mean_ms"].fillna(own["latency_mean_ms"])),
                "probe's p50, ms": _middle(own["probe_p50_ms"]),
                "CPU ms per request": _middle(own["server_cpu_ms_per_request"]),
            }
        )
    table = pd.DataFrame(rows)
    return table[[name for name in table.columns if set(table[name]) != {style.number(math.nan)}]]


def _middle(values: Iterable[float]) -> str:
    of = spread(values)
    if of.n < 2:
        return style.number(of.median)
    return f"{style.number(of.median)} ({style.number(of.low)}–{style.number(of.high)})"


def price_words(case: Case) -> str:
    """Say what a request costs each server of the run under this load, in CPU time."""
    table = summary.summarize(case.tables)
    rows = table[(table["load"] == case.row["load"]) & (table["tier"] != CALIBRATION)]
    said = summary.cpu_order(case.tables, case.row["load"], rows)
    cost = style.number(case.row["server_cpu_ms_per_request"])
    return said or f"A request cost {case.row['server']} {cost} ms of CPU time; no other server had this load."


# --- the verdict ------------------------------------------------------------------------------------------


def verdict_words(case: Case) -> str:
    """Say the verdict, what it means, and the numbers that it was given for."""
    verdict, reason = str(case.row["verdict"]), str(case.row["verdict_reason"])
    return f"Verdict: {verdict}: {Limit.of(verdict, reason).meaning}. Reason: {reason or 'not recorded'}."


def evidence_table(case: Case) -> pd.DataFrame:
    """Return what a verdict weighs, as texts: name, value, what it says; what a run does not know is left out."""
    row = case.row
    rows = [
        *(_used(case, subject) for subject in ("server", "generator", "database")),
        *(_wait(case, name) for name in ("p50", "p95", "p99")),
        _known("server held back by its quota", row["server_throttled_pct"], "% of the time", _throttled),
        _known("CPU time that the hypervisor took", row["host_steal_pct"], "% of a core", _stolen),
        _known("CPU time that other programs took", row["others_cpu_mean_pct"], "% of a core", _others),
        _ceiling(case),
        _known("requests not sent in time", row["dropped"], "", _dropped) if row["load_model"] == "open" else None,
        _known("all connections of the pool in use", row["pool_exhausted_pct"], "% of the time", _exhausted),
        _known("CPU of the probe", row["probe_cpu_mean_pct"], "% of a core", lambda _: "what asking cost"),
    ]
    known = [each for each in rows if each is not None]
    return pd.DataFrame(known, columns=["evidence", "value", "what it says"])


def _known(name: str, value: Any, unit: str, says: Callable[[float], str]) -> tuple[str, str, str] | None:
    if not math.isfinite(float(value)):
        return None
    return name, f"{style.number(float(value))} {unit}".strip(), says(float(value))


def _used(case: Case, subject: str) -> tuple[str, str, str] | None:
    used, has = float(case.row[f"{subject}_cpu_mean_pct"]), case.given(subject)
    if not math.isfinite(used) or not math.isfinite(has):
        return None
    peak = float(case.row.get(f"{subject}_cpu_peak_1s_pct", math.nan))
    most = f", {style.number(peak)} % over its busiest second" if math.isfinite(peak) else ""
    left = max(0.0, 100 - 100 * used / has)
    return f"CPU of the {subject}", f"{style.number(used)} % of {has:.0f} %{most}", f"{left:.0f} % of its CPU was left"


def _wait(case: Case, name: str) -> tuple[str, str, str] | None:
    ours, probes = float(case.row[f"latency_{name}_ms"]), float(case.row[f"probe_{name}_ms"])
    if not math.isfinite(ours) or not math.isfinite(probes):
        return None
    value = f"{style.number(ours)} ms to {case.tool}, {style.number(probes)} ms to the probe"
    if ours <= probes:
        return f"response time, {name}", value, "the probe waited as long, or longer"
    return f"response time, {name}", value, f"{100 * (1 - probes / ours):.1f} % of it the probe did not see"


def _throttled(share_pct: float) -> str:
    return "its quota was no limit" if share_pct == 0 else "it had used up its quota"


def _stolen(share_pct: float) -> str:
    return "none" if share_pct == 0 else "that much the run did not have"


def _others(share_pct: float) -> str:
    return "as little as the kernel's ticks can tell" if share_pct < TICKS_PCT else "that much the run did not have"


def _exhausted(share_pct: float) -> str:
    return "no request waited for one" if share_pct == 0 else "meanwhile requests waited for one"


def _dropped(count: float) -> str:
    return "every request was sent" if count == 0 else "the rate was not sustained"


def _ceiling(case: Case) -> tuple[str, str, str] | None:
    ceiling = float(case.row["generator_ceiling_rps"])
    if not math.isfinite(ceiling):
        return None
    share = 100 * float(case.row["rps"]) / ceiling
    says = f"this load ran at {share:.0f} % of it"
    return f"what {case.tool} reached against the fastest server", f"{style.number(ceiling)} requests/s", says
