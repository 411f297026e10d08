"""Explain one trial, the case, in words and tables.

The texts begin with the results that the generator reports, and end with the trial's verdict.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from runner.model import CALIBRATION
from runner.present.answers import summary
from runner.present.comparison.mean_words import mean_words
from runner.present.comparison.ratios import compared
from runner.present.figures.seconds import FINE_S
from runner.present.frames import TWICE, Case
from runner.present.look import captions
from runner.present.look.numbers import number
from runner.present.statistics.inference import mean_of
from runner.present.statistics.stats import carried_quantile
from runner.verdict.limits import Limit

NO_PROBE = "This run has no probe: what another client would have seen at that moment is not known."
NO_WITNESS = (
    "The load opened new connections for its requests, but the probe keeps its connection if the "
    "server allows it. So their response times are not compared here."
)
NO_CLOSED_LOAD_BY_K6 = (
    "This run has no sealed trial of a closed load by k6, which is what this page is about."
)
PERCENTILES = {"p50": "median", "p95": "p95", "p99": "p99"}
"""Percentiles that both the generator and the probe measure.

Each percentile is mapped to the name that it has in sentences.
"""
ROUNDED_FROM = 10
"""A ratio is rounded to two significant digits if it is at least this large."""
SETTLED = 0.1
"""The steady part of a load begins after this share of the load's duration.

Users start one by one at the beginning of a load, so the beginning is left out.
"""


def trial_words(case: Case) -> str:
    """Return a sentence that says which trial this is and how it was loaded, without results."""
    row = case.row
    load = captions.load_words(case.frame)
    requests = f"{row['requests']:,.0f} requests in {row['duration_s']:.1f} s"
    return f"Trial {case.trial_id}: {row['server']}, {row['workload']}, {load}: {requests}."


def range_words(case: Case) -> str:
    """Return a sentence with the lowest and the highest median that the generator measured.

    These are medians of response times, one from each sealed trial in which the case's server ran
    under the case's load. Return an empty text if fewer than two of these trials have a median.
    """
    alike = case.peers[case.peers["server"] == case.row["server"]]
    medians_ms = alike["latency_p50_ms"].dropna()
    if len(medians_ms) < 2:
        return ""
    return (
        f"In {len(medians_ms)} trials under this load, {case.row['server']} had medians of "
        f"{number(medians_ms.min())} to {number(medians_ms.max())} ms."
    )


def _generator_ms(case: Case) -> dict[str, float]:
    """Return the generator's response times in ms, by the name of the percentile.

    A response time is NaN if the trial has too few requests for this percentile.
    """
    carried = 100 * carried_quantile(case.row["requests"])
    return {
        name: float(case.row[f"latency_{name}_ms"]) if carried >= float(name[1:]) else math.nan
        for name in PERCENTILES
    }


def generator_said(case: Case) -> str:
    """Return the generator's results in the form in which such results are usually published."""
    known = {
        PERCENTILES[name]: number(ms)
        for name, ms in _generator_ms(case).items()
        if math.isfinite(ms)
    }
    parts = ", ".join(f"{name} {ms} ms" for name, ms in known.items())
    failed = float(case.row["failed"]) / float(case.row["requests"])
    parts += f", {number(100 * failed)} % failed" if failed else ""
    return f"{case.tool} says: {number(case.row['rps'])} requests/s; {parts}."


def probe_saw(case: Case) -> str:
    """Return a text that compares the median response times that probe and generator measured.

    If the generator's median is at least twice as long as the probe's median, a further sentence
    says that most of the generator's median passed outside the server. If the trial had no
    probe, or if the load did not keep its connections, return a sentence that says why the medians
    are not compared.
    """
    row = case.row
    tool = case.tool
    ours = float(row["latency_p50_ms"])
    probes = float(row["probe_p50_ms"])
    seconds = row["duration_s"]
    if not math.isfinite(probes):
        return NO_PROBE
    if row["mode"] not in ("keepalive", ""):
        return NO_WITNESS
    said = (
        f"In the same {seconds:.1f} s a second client, the probe, sent the same server "
        f"{row['probe_requests']:,.0f} of the same requests, "
        f"{number(row['probe_requests'] / seconds)} a second ({row['probe_failed']:,.0f} failed). "
        f"Their median is {number(probes)} ms, waits for a CPU included: {tool}'s is "
        f"{_times(ours / probes)} that"
    )
    if ours < probes:
        return f"{said}, so the probe waited longer than {tool}'s requests."
    if ours < TWICE * probes:
        return f"{said}."
    return f"{said}. So most of {tool}'s {number(ours)} ms passed outside the server."


def percentile_table(case: Case) -> pd.DataFrame:
    """Return the percentiles of generator and probe side by side, as texts.

    If the trial had no probe, the table shows only the generator's percentiles.
    """
    rows = []
    is_probed = math.isfinite(case.row["probe_p50_ms"])
    for name, ours in _generator_ms(case).items():
        probes = float(case.row[f"probe_{name}_ms"])
        beside = {"probe, ms": number(probes), "times": number(ours / probes)} if is_probed else {}
        rows.append({"percentile": name, f"{case.tool}, ms": number(ours), **beside})
    return pd.DataFrame(rows)


def steady_rps(row: Mapping[Any, Any], throughput: pd.DataFrame) -> float:
    """Return the rate, in requests/s, in the steady part of a closed loop.

    The steady part begins after 10 % of the load's duration. It ends one mean iteration before the
    end of the load, because from then on some users have no iterations left.

    In the steady part, the number of users and the rate determine the mean response time, whatever
    the server does. This is Little's law, L = lambda W (J. D. C. Little, A Proof for the Queuing
    Formula L = lambda W, Operations Research 9, 1961). Without think time, N users always have N
    requests under way, so the mean response time is W = N / X at a rate of X.

    Return NaN for an open load, or if the trial has no steady part or no rates over time.
    """
    begin = SETTLED * row["duration_s"]
    end = row["duration_s"] - _mean_ms(row) / 1000
    middle = throughput["t_s"] + FINE_S / 2
    within = throughput["trial_id"].eq(row["trial_id"]) & (middle > begin) & (middle < end)
    requests = float(throughput.loc[within, "requests"].sum())
    is_closed = row["load_model"] != "open" and math.isfinite(row["vus"])
    return requests / (FINE_S * int(within.sum())) if is_closed and requests else math.nan


def _times(ratio: float) -> str:
    """Return a ratio in words: `1.50 times`, or `about 950 times` with two significant digits.

    A large ratio is rounded, because the two values that are printed beside it are rounded, too. An
    exact ratio could differ from the quotient of the printed values.
    """
    if ratio < ROUNDED_FROM:
        return f"{number(ratio)} times"
    return f"about {float(f'{ratio:.2g}'):,.0f} times"


def _mean_ms(row: Mapping[Any, Any]) -> float:
    """Return the mean duration of an iteration in ms.

    If the run did not record the duration of iterations, return the mean response time.
    """
    return float(
        row["iteration_mean_ms"]
        if math.isfinite(row["iteration_mean_ms"])
        else row["latency_mean_ms"]
    )


def law_words(case: Case) -> str:
    """Return a text that compares the measured mean response time with Little's law.

    According to this law, the mean response time is the number of users divided by the rate. If the
    law cannot be applied to the trial, the text says why.
    """
    if case.row["load_model"] == "open":
        return (
            "This load is open: requests are sent on a schedule, so the load does not say how many "
            "are under way."
        )
    users = case.row["vus"]
    mean_ms = _mean_ms(case.row)
    rate = steady_rps(case.row, case.tables.throughput)
    if math.isnan(rate):
        return (
            "This trial is too short, or its tool keeps no times of single requests: there is no "
            "steady part to apply the law to."
        )
    expected_ms = 1000 * users / rate
    under_way = case.row["in_flight_mean"]
    counted = f" (counted: {number(under_way)})" if math.isfinite(under_way) else ""
    measured = "Measured"
    if math.isfinite(case.row["iteration_mean_ms"]):
        measured = "Measured, request and script"
    meaning = "So this mean follows from users and rate."
    if case.row["verdict"] == Limit.GENERATOR.verdict:
        used_pct = _used_pct(case, "generator")
        busy_words = f", at {used_pct:.0f} % of its CPU," if math.isfinite(used_pct) else ""
        limiting = f"{case.tool}{busy_words} limits the rate"
        server_pct = _used_pct(case, "server")
        meaning = f"{limiting}: this mean does not show the server."
        if math.isfinite(server_pct):
            meaning = f"{limiting}; the server used {server_pct:.0f} % of its CPU."
    steady = f"{rate:,.0f}"
    whole = f"{case.row['rps']:,.0f}"
    whole_words = "" if whole == steady else f" ({whole} including it)"
    return (
        f"{users:,.0f} users without think time always have {users:,.0f} requests under "
        f"way{counted}. After the first tenth of the load, {case.tool} had {steady} answers a "
        f"second{whole_words}: each must take {users:,.0f} / {steady} s = {number(expected_ms)} ms "
        f"on average. {measured}: {number(mean_ms)} ms. {meaning}"
    )


def cpu_words(case: Case) -> str:
    """Return a sentence with the CPU use of the server and the CPU use of the generator.

    Each value is a percentage of the CPU that the server, or the generator, was given.
    """
    used = {side: _used_pct(case, side) for side in ("server", "generator")}
    known = {side: pct for side, pct in used.items() if math.isfinite(pct)}
    parts = [
        f"the {side} used {pct:.0f} % of the CPU that it was given" for side, pct in known.items()
    ]
    return (
        f"Over the load {' and '.join(parts)}."
        if parts
        else "It is not known how much of their CPU server and generator used."
    )


def _used_pct(case: Case, side: str) -> float:
    """Return the CPU use of `server` or `generator`, in % of the CPU that it was given."""
    return 100 * float(case.row[f"{side}_cpu_mean_pct"]) / case.given(side)


def servers_table(case: Case) -> pd.DataFrame:
    """Return a table of all servers of the run under the case's load, as texts.

    The values are means of the compared trials. One column contains the mean response time, and
    another column contains the number of users divided by the rate. According to Little's law,
    these two columns are equal. The table also contains two quantities that the law does not
    determine: the probe's median, and the CPU time per request. A quantity that is unknown for all
    servers has no column.
    """
    rows = []
    for server, trials in compared(case.tables, case.peers).groupby("server", sort=True):
        rates = trials.apply(steady_rps, axis="columns", throughput=case.tables.throughput)
        values = {
            "requests/s, steady": rates,
            "users / rate, ms": 1000 * trials["vus"] / rates,
            f"{case.tool}'s mean, ms": trials.apply(_mean_ms, axis="columns"),
            "probe's p50, ms": trials["probe_p50_ms"],
            "CPU ms per request": trials["server_cpu_ms_per_request"],
        }
        means = {heading: mean_words(mean_of(column)) for heading, column in values.items()}
        rows.append({"server": str(server), "trials": str(len(trials)), **means})
    table = pd.DataFrame(rows)
    return table[[name for name in table.columns if set(table[name]) != {number(math.nan)}]]


def price_words(case: Case) -> str:
    """Return a text that ranks the run's servers by CPU time per request under the case's load.

    If no other server can be compared, return the CPU time per request of the case's server only.
    """
    table = summary.summarize(case.tables)
    rows = table[(table["load"] == case.row["load"]) & (table["tier"] != CALIBRATION)]
    cost = number(case.row["server_cpu_ms_per_request"])
    alone = (
        f"A request cost {case.row['server']} {cost} ms of CPU time; under this load, it cannot be "
        "compared with another server."
    )
    return summary.cpu_order(case.tables, rows) or alone


def verdict_words(case: Case) -> str:
    """Return the trial's verdict, the meaning of this verdict, and the reason with its numbers."""
    verdict = str(case.row["verdict"])
    meaning = Limit.of(verdict, str(case.row["verdict_cause"])).meaning
    reason = str(case.row["verdict_reason"]) or "not recorded"
    return f"Verdict: {verdict}: {meaning}. Reason: {reason}."


LACKED = "the run did not have that much"


@dataclass(frozen=True)
class Weighed:
    """The words with which a page explains one number of a trial.

    The number is in a column of the table of trials, and influences the verdict.
    """

    name: str
    unit: str
    below: str
    """What the page says if the value is 0, or smaller than the number in `limit`."""
    beyond: str
    """What the page says about any other value."""
    limit: float = 0.0


WEIGHED = {
    "server_throttled_pct": Weighed(
        "server held back by its quota",
        " % of the time",
        "no quota was a limit",
        "it had used up its quota",
    ),
    "host_steal_pct": Weighed("CPU time that the hypervisor took", " % of a core", "none", LACKED),
    "others_cpu_mean_pct": Weighed(
        "CPU time that other programs took",
        " % of a core",
        "less than the kernel's ticks resolve",
        LACKED,
        limit=20.0,
    ),
    "dropped": Weighed(
        "requests not sent in time", "", "every request was sent", "the rate was not sustained"
    ),
    "pool_exhausted_pct": Weighed(
        "all connections of the pool in use",
        " % of the time",
        "no request waited for a connection",
        "meanwhile requests waited for a connection",
    ),
    "probe_cpu_mean_pct": Weighed(
        "CPU of the probe", " % of a core", "what its requests cost", "what its requests cost"
    ),
}
"""The words that the page prints for columns that influence the verdict, by column.

If other programs used less than 20 % of a core, the page does not say that the run lacked this CPU
time, because the kernel measures CPU time only in ticks. In 97 % of the trials in this repository,
other programs used less than 20 % of a core.
"""


def evidence_table(case: Case) -> pd.DataFrame:
    """Return a table of the values that influence the verdict, with name, value and meaning.

    Unknown values have no row, with one exception. If it is unknown how long a quota held the
    server back, a row says that this is unknown, because the quota may have been the limit.
    """
    row = case.row
    tool = case.tool
    found: list[tuple[str, str, str]] = []
    for side in ("server", "generator", "database"):
        used = float(row[f"{side}_cpu_mean_pct"])
        given = case.given(side)
        peak = float(row.get(f"{side}_cpu_peak_1s_pct", math.nan))
        most = f", {number(peak)} % over its busiest second" if math.isfinite(peak) else ""
        if math.isfinite(used / given):
            left = max(0.0, 100 - 100 * used / given)
            value = f"{number(used)} % of {given:.0f} %{most}"
            found.append((f"CPU of the {side}", value, f"{left:.0f} % of its CPU was left"))
    for name in PERCENTILES:
        ours = float(row[f"latency_{name}_ms"])
        probes = float(row[f"probe_{name}_ms"])
        if math.isfinite(ours - probes):
            longer = f"the probe's was {100 * (1 - probes / ours):.1f} % shorter"
            says = longer if ours > probes else "the probe waited as long, or longer"
            value = f"{number(ours)} ms to {tool}, {number(probes)} ms to the probe"
            found.append((f"response time, {name}", value, says))
    if failed := float(row["failed"]):
        share = f"{number(100 * failed / float(row['requests']))} %"
        found.append(("requests that failed", share, "the rate and the times include errors"))
    ceiling = float(row["generator_ceiling_rps"])
    if math.isfinite(ceiling):
        says = f"this load ran at {100 * float(row['rps']) / ceiling:.0f} % of it"
        found.append(
            (
                f"what {tool} reached against the fastest server",
                f"{number(ceiling)} requests/s",
                says,
            )
        )
    for column, weighed in WEIGHED.items():
        measured = float(row[column])
        is_of_this_load = column != "dropped" or row["load_model"] == "open"
        if math.isfinite(measured) and is_of_this_load:
            is_little = measured == 0 or measured < weighed.limit
            says = weighed.below if is_little else weighed.beyond
            found.append((weighed.name, number(measured) + weighed.unit, says))
    if math.isnan(float(row["server_throttled_pct"])) and math.isfinite(row["server_cpu_mean_pct"]):
        name = WEIGHED["server_throttled_pct"].name
        found.append((name, "not known", "a quota may have been the limit"))
    return pd.DataFrame(found, columns=["evidence", "value", "what it says"])
