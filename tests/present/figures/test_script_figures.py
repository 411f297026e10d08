"""Tests of the figures about a k6 script: they must agree with the lines of a stored file."""

from dataclasses import replace

import k6_samples
import numpy as np
import pandas as pd
import pytest
from imported_run import run_of
from k6_samples import CLOSED

from runner.importing.run import Given
from runner.present.chart.drawing import draw
from runner.present.chart.value import made
from runner.present.figures import endpoints
from runner.present.frames import read_tables
from runner.store import RunFolder


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    run = run_of(tmp_path_factory.mktemp("lab"), Given(CLOSED, "v1.4"))
    return read_tables(RunFolder(run))


def with_endpoints(tables, monkeypatch, rows):
    """Make `tables.of_script` return a made-up table of endpoints with these rows."""
    kept = tables.of_script("endpoints").iloc[:1]
    made_up = pd.concat([kept.assign(**row) for row in rows], ignore_index=True)
    monkeypatch.setattr(type(tables), "of_script", lambda *_: made_up)


def many(count):
    return [
        {
            "endpoint": f"GET /{'x' * 60}{place}",
            "requests": 10_000 - place,
            "latency_p50_ms": 1.0 + place,
            "latency_p99_ms": 10.0 + place,
        }
        for place in range(count)
    ]


def test_dots_are_the_percentiles_of_the_table(tables, monkeypatch):
    with_endpoints(tables, monkeypatch, many(2))
    chart = made("endpoints-latency", tables)
    known = chart.frame.dropna(subset="y")
    assert known["series"].tolist() == ["p50", "p99"] * 2
    assert known["y"].tolist() == [1, 10, 2, 11]
    assert len(set(known["server"])) == 2
    assert chart.title.endswith("one of 1.00 ms")


def test_a_hundred_thousand_endpoints_are_drawn_as_a_few(tables, monkeypatch):
    with_endpoints(tables, monkeypatch, many(200))
    chart = made("endpoints-latency", tables)
    assert chart.frame["server"].nunique() == endpoints.MOST_DRAWN
    assert "the 12 endpoints with most requests" in chart.caption
    figure = draw(chart)
    assert figure.get_size_inches()[1] < 8


def test_failures_over_time_are_those_of_the_lines(tables):
    chart = made("failures-over-time", tables)
    durations = k6_samples.points(CLOSED, "http_req_duration")
    ends_s = np.array([pd.Timestamp(each["time"]).timestamp() for each in durations])
    begin_s = ends_s[0] - durations[0]["value"] / 1000
    bad = np.array([each["tags"]["status"] >= "400" for each in durations])
    for second in (0, 1):
        inside = (ends_s - begin_s) // 1 == second
        found = chart.frame.loc[chart.frame["x"] == second + 0.5, "y"].item()
        assert found == pytest.approx(100 * bad[inside].mean(), abs=2)


def test_users_over_time_are_those_of_the_lines(tables):
    frame = made("users-over-time", tables).frame
    assert frame["y"].tolist() == [each["value"] for each in k6_samples.points(CLOSED, "vus")]


def test_a_run_without_a_script_has_no_such_figures(tables):
    bare = replace(tables, folder=None)
    for name in ("endpoints-latency", "failures-over-time", "users-over-time"):
        assert made(name, bare).frame.empty
