"""Tests that compare the tables of a run in slices with k6's raw samples.

The load is a user's script on two servers.
"""

import gzip
import json
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import real_lab
from own_api import free_port, run, tiny

from runner.store import raw_name

pytestmark = [pytest.mark.timed, real_lab.needs("k6"), real_lab.needs_two_cpus]
SCRIPT = """import http from 'k6/http';
import { check, group } from 'k6';
export default function () {
  group('reading', () => {
    const answer = http.get(`${__ENV.BASE_URL}/items/${__ITER}`);
    check(answer, { 'is fine': (a) => a.status === 200, 'comes late': () => __ITER % 7 !== 0 });
  });
  if (__ITER % 2) http.get(`${__ENV.BASE_URL}/flaky`);
}
"""


PATHS = {"GET /items/{id}": "/items/", "GET /flaky": "/flaky"}
"""For each endpoint, a text that only the URLs of this endpoint contain."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    return real_lab.make(tmp_path_factory.mktemp("lab"))


@dataclass(frozen=True)
class Seen:
    """One server's rows of the tables, and k6's data points by metric.

    `points` has no data points of slices that the tables leave out.
    """

    trial: pd.Series
    endpoints: pd.DataFrame
    groups: pd.DataFrame
    checks: pd.DataFrame
    users: pd.DataFrame
    points: dict[str, list]


@pytest.fixture(scope="module")
def seen(in_lab):
    """Load two servers, which answer after 2 ms and 4 ms, with the script, in six slices each.

    Return a `Seen` for each server.
    """
    with tiny(2) as quick, tiny(4, port=free_port() + 1) as slow:
        urls = ("--url", quick.url, "--url", slow.url, "--probe-path", "/x")
        made = run(in_lab, *urls, "--vus", "4", "--iterations", "1200", script=SCRIPT)
    return [_seen(made, trial) for _, trial in made.trials.iterrows()]


def _seen(made, trial):
    tables = {
        name: rows[rows["trial_id"] == trial["trial_id"]]
        for name in ("endpoints", "checks", "users", "slices")
        for rows in [made.table(name)]
    }
    slices = tables["slices"]
    points = {}
    for place in slices.loc[slices["kept"], "place"]:
        path = made.folder / "trials" / trial["trial_id"] / raw_name("k6.json.gz", place, 1)
        with gzip.open(path, "rt") as lines:
            for record in map(json.loads, lines):
                if record["type"] == "Point":
                    points.setdefault(record["metric"], []).append(record["data"])
    endpoints = tables["endpoints"]
    return Seen(
        trial=trial,
        endpoints=endpoints[endpoints["endpoint"].notna()].set_index("endpoint"),
        groups=endpoints[endpoints["group"].notna()].set_index("group"),
        checks=tables["checks"].set_index("check"),
        users=tables["users"],
        points=points,
    )


def durations_of(points, path):
    return [each["value"] for each in points["http_req_duration"] if path in each["tags"]["name"]]


def test_each_endpoint_has_the_requests_of_all_slices(seen):
    for server in seen:
        assert set(server.endpoints.index) == set(PATHS)
        assert server.endpoints["requests"].sum() == server.trial["requests"]
        for endpoint, path in PATHS.items():
            durations = durations_of(server.points, path)
            row = server.endpoints.loc[endpoint]
            assert row["requests"] == len(durations)
            assert row["latency_p50_ms"] == pytest.approx(np.median(durations), rel=1e-9)
        assert server.endpoints.loc["GET /flaky", "failed"] == server.trial["failed"] > 0


def test_an_address_that_each_slice_asks_for_counts_once(seen):
    for server in seen:
        names = {each["tags"]["name"] for each in server.points["http_reqs"]}
        asked = sum("/items/" in name for name in names)
        assert server.endpoints.loc["GET /items/{id}", "urls"] == asked


def test_groups_and_checks_are_those_of_all_slices(seen):
    for server in seen:
        checks = server.points["checks"]
        assert server.groups.loc["::reading", "requests"] == len(checks) / 2
        for name, row in server.checks.iterrows():
            values = [each["value"] for each in checks if each["tags"]["check"] == name]
            assert (row["passes"], row["fails"]) == (sum(values), len(values) - sum(values))


def test_times_are_those_of_slices_that_follow_one_another(seen):
    for server in seen:
        late = server.checks.loc["comes late"]
        assert 0 <= late["first_fail_s"] < late["last_fail_s"] <= server.trial["duration_s"]
        assert server.users["t_s"].between(-1, server.trial["duration_s"] + 2).all()
