"""Tests of the audit with random tables.

Correct tables must cause no alarm, and each planted fault must cause an alarm.

The response times of a closed load are drawn at random. All columns of the load's row are computed
from these times, and rounded to as many digits as tools print.
"""

import json
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from audited_tables import sound, table
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from runner.audit.checks import audit
from runner.audit.finding import Severity, summary
from runner.audit.reading import parse

GRAVE = (Severity.VOID, Severity.IMPOSSIBLE, Severity.SUSPICIOUS)
DURATION_S = 10.0


@dataclass(frozen=True)
class Load:
    """A closed load in which each connection always has a request under way.

    `spread` is the standard deviation of the logarithm of the response times.
    """

    mean_ms: float
    spread: float
    connections: int
    seed: int

    def row(self, digits: int = 3) -> dict[str, float]:
        """Return the load's columns as a tool prints them, with `digits` significant digits."""
        times_ms = np.random.default_rng(self.seed).lognormal(0, self.spread, 4000)
        times_ms *= self.mean_ms / times_ms.mean()
        rate = 1000 * self.connections / times_ms.mean()
        columns = {
            "rps": rate,
            "mean_ms": times_ms.mean(),
            "stdev_ms": times_ms.std(),
            "min_ms": times_ms.min(),
            "p50_ms": np.percentile(times_ms, 50),
            "p90_ms": np.percentile(times_ms, 90),
            "p99_ms": np.percentile(times_ms, 99),
            "max_ms": times_ms.max(),
        }
        rounded = {name: float(f"{value:.{digits}g}") for name, value in columns.items()}
        counts = {"requests": round(rate * DURATION_S), "duration_s": DURATION_S, "errors": 0}
        return rounded | counts | {"connections": self.connections}


loads = st.builds(
    Load,
    mean_ms=st.floats(0.1, 500),
    spread=st.floats(0.05, 1.2),
    connections=st.integers(1, 4096),
    seed=st.integers(0, 2**31),
)


def tables_of(most: int) -> st.SearchStrategy[list[Load]]:
    """Return a strategy for lists of one to `most` loads, which all have different seeds."""
    return st.lists(loads, min_size=1, max_size=most, unique_by=lambda load: load.seed)


def rows_of(loads: list[Load], digits: int = 3, **changed: float) -> pd.DataFrame:
    """Return a table with a row for each load.

    `changed` replaces values in the row of the first load.
    """
    rows = [each.row(digits) for each in loads]
    rows[0] |= changed
    named = [row | {"framework": f"f{number}"} for number, row in enumerate(rows)]
    return table(**pd.DataFrame(named).to_dict("list"))


def grave(rows: pd.DataFrame) -> set[tuple[str, str]]:
    """Return the law and the subject of each finding that is more severe than "worth knowing"."""
    return {(each.check, each.subject) for each in audit(rows).findings if each.severity in GRAVE}


@settings(deadline=None, max_examples=20)
@given(tables_of(6), st.sampled_from([3, 4, 6]))
def test_sound_loads_never_alarm(loads: list[Load], digits: int) -> None:
    assert grave(rows_of(loads, digits)) == set()


def _most_mean(row: dict[str, float]) -> float:
    """Return the largest mean that the percentiles and the maximum of a row allow."""
    parts = [(0.5, "p50_ms"), (0.4, "p90_ms"), (0.09, "p99_ms"), (0.01, "max_ms")]
    return sum(share * row[name] for share, name in parts)


FAULTS = {
    "a mean that connections cannot hold": (
        "Little's law",
        lambda row, size: {"rps": row["rps"] * size, "requests": row["requests"] * size},
        1.15,
        3.0,
    ),
    "a mean that leaves connections idle": (
        "Little's law",
        lambda row, size: {"rps": row["rps"] / size, "requests": row["requests"] / size},
        2.1,
        20.0,
    ),
    "percentiles that descend": (
        "percentiles",
        lambda row, size: {"p90_ms": row["p50_ms"] / size},
        1.03,
        9.0,
    ),
    "a mean above what the percentiles allow": (
        "percentiles",
        lambda row, size: {"mean_ms": _most_mean(row) * size},
        1.05,
        1.5,
    ),
    "a maximum below p99": (
        "percentiles",
        lambda row, size: {"max_ms": row["p99_ms"] / size},
        1.03,
        9.0,
    ),
    "a count that is not the rate's": (
        "counts",
        lambda row, size: {"requests": row["requests"] / size},
        1.1,  # if there are few requests, rounding hides a smaller difference
        9.0,
    ),
    "errors": (
        "counts",
        lambda row, size: {"errors": np.ceil(row["requests"] * size)},
        0.002,
        1.0,
    ),
    "a standard deviation beyond its bound": (
        "percentiles",
        lambda row, size: {"stdev_ms": row["max_ms"] * size},
        0.8,
        9.0,
    ),
}
"""Faults that are planted in a correct row, by what is wrong with the row.

For each fault there are the law that it breaks, a function, and the smallest and the largest size
of the fault. The function takes a correct row and the size of the fault. It returns the columns to
change, with their new values.
"""


@pytest.mark.parametrize("name", FAULTS)
@settings(deadline=None, max_examples=5)
@given(tables_of(4), st.floats(0, 1))
def test_a_planted_fault_is_found(name: str, loads: list[Load], part: float) -> None:
    law, changed, least, most = FAULTS[name]
    size = least * (most / least) ** part
    row = loads[0].row(4)
    # If a load has few requests per connection, some connections are idle while the last requests
    # are answered. This is no fault, so the test skips such loads.
    if "idle" in name:
        assume(row["requests"] / size >= 100 * row["connections"])
    rows = rows_of(loads, 4, **changed(row, size))
    found = grave(rows)
    assert (law, "f0") in found
    assert {subject for _, subject in found} == {"f0"}


# --- laws over several rows and files -------------------------------------------------------------


def said(rows: pd.DataFrame, check: str) -> list[str]:
    """Return the texts of a check's findings."""
    return [each.says for each in audit(rows).findings if each.check == check]


def test_rates_that_count_errors_are_not_ranked_with_those_that_do_not() -> None:
    columns = sound()
    columns["errors"] = [0] * 12
    for place, counts_them in ((3, True), (7, False)):
        answered = columns["requests"][place]
        columns["errors"][place] = round(0.2 * answered)
        if not counts_them:  # the rate counts only successful answers
            columns["requests"][place] = answered + columns["errors"][place]
    (found,) = said(table(**columns), "one rule")
    assert found.startswith("the rates of f3 count errors, but the rates of f7 do not")


def test_answers_of_another_size_are_found() -> None:
    rates = np.array(sound()["rps"])
    sizes = np.where(np.arange(12) == 4, 5277, 94)
    (found,) = said(table(**sound() | {"bytes_per_s": rates * sizes}), "bytes per answer")
    assert found.startswith("an answer of f")
    assert "and an answer of f4 has 5,277 bytes" in found


def test_a_fault_of_many_rows_is_one_finding() -> None:
    rows = table(**sound() | {"errors": [round(each / 4) for each in sound()["requests"]]})
    (found,) = said(rows, "counts")
    assert "12 of 12 rows have the same fault, among them also " in found
    assert found.count("requests failed") == 1


def test_the_gravest_finding_is_that_of_the_largest_effect() -> None:
    """A row in which all requests failed is named as the gravest finding.

    Three other rows use slightly more CPU time than their CPUs offer, but this is less severe.
    """
    columns = sound()
    columns["cpu_pct"] = [103] * 3 + [95] * 9
    columns["errors"] = [0] * 11 + [columns["requests"][11]]
    rows = table(**columns)
    assert summary(audit(rows)).gravest.startswith("The most severe finding (f11, ")
    assert "is a rate of errors" in summary(audit(rows)).gravest


def test_connections_that_were_never_made_carry_no_requests() -> None:
    unmade = [300 * (number == 5) for number in range(12)]
    (found,) = said(table(**sound() | {"unmade": unmade}), "counts")
    assert (
        found == "300 of 400 connections could not be opened, so the load had only 100 connections."
    )


H2 = [
    {
        "framework": f"g{number}",
        "rps": 1_000_000 / number,
        "avg_latency": f"{25.6 * number}ms",
        "p99_latency": f"{90 * number}ms",
        "connections": 256,
        "pipeline": 1,
    }
    for number in (1, 2, 3)
]


def test_streams_of_http_2_are_a_remark_with_the_depth_that_explains_them() -> None:
    """More concurrent requests than connections are no contradiction if HTTP/2 may explain them.

    In this case, the audit only makes a remark of the severity "worth knowing".

    In this table, 1,000,000 requests/s of 25.6 ms each are 25,600 concurrent requests. On 256
    connections, this is a depth of 100 streams per connection, which the remark must name.
    """
    rows = parse(json.dumps(H2).encode(), "json-h2-256.json")
    (found,) = said(rows, "Little's law")
    assert "3 rows need up to 100 requests at once" in found
    assert grave(rows) == set()
    given_depth = parse(json.dumps(H2).encode(), "json-h2-256.json", depth=100)
    assert said(given_depth, "Little's law") == []
    assert said(parse(json.dumps(H2).encode(), "json-256.json"), "Little's law")[0].startswith(
        "1,000,000 requests/s x 25.6 ms = 25,600 concurrent requests, on 256 connections: 100"
    )


def test_a_file_that_repeats_the_counts_of_another_is_found() -> None:
    first = table(**sound())
    other = first.assign(source="other.csv", rate=first["rate"] * 1.01)
    (found,) = {each.split(" as ")[0] for each in said(pd.concat([first, other]), "duplicates")}
    assert found == "this row has the same count, mean and maximum"
    same = first.assign(source="other.csv")
    assert said(pd.concat([first, same]), "duplicates") == [
        "12 rows of other.csv have the same numbers, to the last digit, as rows of table.csv."
    ]
