"""Tests of what a page says about a k6 script: its endpoints, thresholds, metrics and groups."""

import k6_samples
import pandas as pd
import pytest
from imported_run import run_of
from k6_samples import CLOSED, SUMMARY

from runner.importing.run import Given
from runner.present.answers import script
from runner.present.frames import read_tables
from runner.present.notebook.parts import OF_A_RUN
from runner.store import RunFolder


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    run = run_of(tmp_path_factory.mktemp("lab"), Given(CLOSED, "v1", SUMMARY), Given(CLOSED, "v1"))
    return read_tables(RunFolder(run))


def test_each_trial_has_its_endpoints(tables):
    found = script.endpoints_table(tables)
    assert list(found["trial"]) == ["v1-001", "v1-001", "v1-002", "v1-002"]
    assert list(found["endpoint"][:2]) == ["GET /items/{id}", "POST buy"]
    posts = [
        each for each in k6_samples.points(CLOSED, "http_reqs") if each["tags"]["method"] == "POST"
    ]
    assert found["requests"][1] == str(len(posts))


def test_the_endpoint_that_failed_most_is_named(tables):
    for said in script.findings(tables):
        assert "POST buy failed most" in said


def test_thresholds_stand_beside_what_k6_said(tables):
    found = script.thresholds_table(tables)
    first = found[found["trial"] == "v1-001"].set_index("threshold")
    assert first["in the samples"].to_dict() == first["said k6"].to_dict()
    assert first["said k6"].to_dict() == {
        "p(95)<500": "kept",
        "max<6": "broken",
        "rate>0.9": "broken",
    }
    assert set(found.loc[found["trial"] == "v1-002", "said k6"]) == {"–"}
    assert script.threshold_findings(tables) == (
        "v1-001: 2 of 3 thresholds were broken.",
        "v1-002: 2 of 3 thresholds were broken.",
    )


def test_own_metrics_are_listed(tables):
    found = script.metrics_table(tables).set_index("metric")
    lengths = [each["value"] for each in k6_samples.points(CLOSED, "group_duration")]
    assert found["samples"].tolist()[0] == f"{len(lengths):,}"


def test_groups_are_called_mixtures(tables):
    blocks = list(OF_A_RUN["mixtures"](tables))
    assert "mixture" in str(blocks[-1])


def test_a_run_without_a_script_has_no_endpoints(tables, monkeypatch):
    monkeypatch.setattr(type(tables), "of_script", lambda *_: tables.trials.iloc[:0])
    assert not script.has_script(tables)
    assert script.NO_SCRIPT in str(next(iter(OF_A_RUN["endpoints"](tables))))


def with_shares(tables, monkeypatch, requests, share_of_slowest):
    """Replace the endpoints of the run by two made-up endpoints of one trial.

    Of 10,000 requests, `requests` are for GET /a, and all others are for GET /b. The share of GET
    /a among the slowest requests is `share_of_slowest`.
    """
    row = tables.of_script("endpoints").dropna(subset="endpoint").iloc[:1]
    facts = {"endpoint": "GET /a", "requests": requests, "share_of_slowest": share_of_slowest}
    rest = {
        "endpoint": "GET /b",
        "requests": 10_000 - requests,
        "share_of_slowest": 1 - share_of_slowest,
    }
    made_up = pd.concat([row.assign(**facts), row.assign(**rest)], ignore_index=True)
    monkeypatch.setattr(type(tables), "of_script", lambda *_: made_up)


@pytest.mark.parametrize(
    ("requests", "share_of_slowest", "makes_it"),
    [
        (5000, 0.51, False),  # half of all requests, and about half of the slowest
        # 55 of the 100 slowest requests instead of 50: by chance this happens in one of five cases
        (5000, 0.55, False),
        # 70 of the 100 slowest requests instead of 50: by chance only in one of 25,000 cases
        (5000, 0.7, True),
        (100, 0.6, True),
    ],
)
def test_an_endpoint_makes_the_tail_if_chance_does_not(
    tables, monkeypatch, requests, share_of_slowest, makes_it
):
    with_shares(tables, monkeypatch, requests, share_of_slowest)
    (said,) = script.findings(tables)[:1]
    assert ("no endpoint makes the tail: GET /a has" in said) is not makes_it
    assert ("GET /a makes the tail: it has " in said) is makes_it
