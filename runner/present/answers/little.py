"""Little's law on a closed load: users and rate alone give the mean response time, whatever the server does.

L = lambda W (J. D. C. Little, A Proof for the Queuing Formula L = lambda W, Operations Research 9, 1961): without think
time N users have N requests under way, so that W = N / X at a rate of X.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from runner.present.case import Case
from runner.present.figures.seconds import FINE_S
from runner.present.look import style

SETTLED = 0.1
"""Share of a load that is left out at its beginning: users begin one after the other."""


@dataclass(frozen=True)
class Little:
    """A closed loop's steady part: its users, the rate counted in it, and the measured mean time of a request."""

    users: float
    rate_rps: float
    mean_ms: float

    @property
    def expected_ms(self) -> float:
        """The mean time that users and rate leave: N / X."""
        return 1000 * self.users / self.rate_rps


def little(row: Mapping[str, Any], throughput: pd.DataFrame) -> Little | None:
    """Return what the law relates in a trial; None for an open load, or one without a timeline or a steady part.

    The rate is counted from a tenth of the load on until one mean iteration before its end, when users begin to run out
    of iterations. The mean is that of the iterations; of the requests, where a run does not have it.
    """
    mean_ms = float(row["iteration_mean_ms"] if math.isfinite(row["iteration_mean_ms"]) else row["latency_mean_ms"])
    if row["load_model"] == "open" or not math.isfinite(row["vus"]) or not math.isfinite(mean_ms):
        return None
    begin, end = SETTLED * row["duration_s"], row["duration_s"] - mean_ms / 1000
    middle = throughput["t_s"] + FINE_S / 2
    within = throughput["trial_id"].eq(row["trial_id"]) & (middle > begin) & (middle < end)
    seconds, requests = FINE_S * int(within.sum()), float(throughput.loc[within, "requests"].sum())
    return Little(float(row["vus"]), requests / seconds, mean_ms) if requests else None


def words(case: Case) -> str:
    """Say what users and rate alone make of the mean response time, and how that compares with the measured one."""
    if case.row["load_model"] == "open":
        return "This load is open: requests are sent on a schedule, so that how many are under way is not given."
    law = little(case.row, case.tables.throughput)
    if law is None:
        return "This trial is too short, or its tool keeps no timeline: there is no steady part to apply the law to."
    apart = 100 * (law.expected_ms / law.mean_ms - 1)
    under_way = case.row["in_flight_mean"]
    counted = f" (counted: {style.number(under_way)} on the average)" if math.isfinite(under_way) else ""
    return (
        f"{law.users:,.0f} users without think time always have {law.users:,.0f} requests under way{counted}. At "
        f"{law.rate_rps:,.0f} requests/s each must take {law.users:,.0f} / {law.rate_rps:,.0f} s = "
        f"{style.number(law.expected_ms)} ms on the average, wherever it spends them. Measured: "
        f"{style.number(law.mean_ms)} ms; the two differ by {apart:+.1f} %. So this mean is the rate in another unit, "
        "and would be the same with any server at this rate."
    )
