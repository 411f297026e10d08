"""Tests of what `bench run` prints about servers with a known peculiarity.

The servers refuse requests, answer a tenth of the requests slowly, or stream their answers.
"""

import re

import pytest
import real_lab
from own_api import odd, run, tiny

pytestmark = [pytest.mark.timed, real_lab.needs("k6"), real_lab.needs_two_cpus]


def printed(made):
    """Return everything that the command printed, including JSON, without line breaks."""
    return re.sub(r"\s+", " ", f"{made.done.stdout} {made.done.stderr}")


def test_refusals_are_no_answers(root):
    """If a server refuses requests, the refusals must not count as answers.

    The server answers five requests at a time and refuses all others at once. An answer takes
    20 ms, so there are at most 250 successful answers per second.
    """
    with odd("shedding", 20) as server:
        made = run(root, "--vus", "10", "--iterations", "3000", url=server.url)
        seen = server.seen
    row = made.trials.iloc[0]
    text = printed(made)
    successes = row["requests"] - row["failed"]
    share_pct = 100 * row["failed"] / row["requests"]
    assert row["failed"] > 1000
    assert (
        row["failed"] <= seen["refused"] and successes <= seen["good"]
    )  # the server also counts the requests of the warm-up and of the probe
    assert successes / row["duration_s"] <= 250
    assert row["verdict"] == "inconclusive" and "% of the requests failed" in row["verdict_reason"]
    # The share of failures is printed in the progress line, in the table, in the reason below the
    # table, and in the sentence about the server.
    share = f"{share_pct:.3g} %"
    assert f"requests/s with success, {share} of the requests failed, p50" in text
    assert made.result["summary"][0]["failed"] == share
    assert f"own-api: the limit is unknown: {share} of the requests failed." in text
    (said,) = re.findall(
        r"own-api answers ([\d,]+) requests/s with success; ([\d.]+ %) of the requests failed", text
    )
    assert int(said[0].replace(",", "")) <= 250 and said[1] == share
    assert "times its own queue" not in text


@pytest.mark.long
def test_a_trial_without_any_success_is_failed(root):
    script = (
        "import http from 'k6/http';\nexport default function () { "
        "http.get(`${__ENV.BASE_URL}/refused`); }"
    )
    with odd("uneven", 0) as server:
        made = run(root, "--vus", "4", "--iterations", "200", url=server.url, script=script, code=1)
        assert server.seen["refused"] >= 200
    assert made.records[0]["status"] == "failed"
    assert "some request was answered with success (0 of 200" in made.records[0]["error"]
    assert made.records[0]["metrics"]["failed"] == 200


@pytest.mark.long
def test_a_slow_tenth_is_seen_in_the_highest_percentile(root):
    with odd("uneven", 300) as server:
        made = run(root, "--vus", "30", "--iterations", "1500", url=server.url)
    row = made.trials.iloc[0]
    text = printed(made)
    assert row["latency_p50_ms"] < 150
    assert row["latency_tail_percent"] == 93 and 300 <= row["latency_tail_ms"] < 600
    tail_ms = f"{row['latency_tail_ms']:.0f}"
    assert re.search(rf"p50 [\d.]+ ms, p93 {tail_ms} ms, ", text), text
    assert f"p93: {tail_ms}" in made.done.stdout
    for name in ("p95", "p99"):
        assert (
            f"{name} is missing in 1 row, because a trial has fewer than 100 requests beyond it."
            in text
        )
    # The reason why the limit is unknown is printed below the table, and in the sentence about the
    # server.
    if row["verdict"] == "inconclusive":
        reason = row["verdict_reason"].split(": ")[0]
        assert f"own-api: the limit is unknown: {reason}." in text
        assert f"requests/s (the limit is unknown: {reason})." in text


@pytest.mark.long
def test_the_first_byte_stands_beside_the_last(root):
    with odd("streaming", 500) as server:
        made = run(root, "--vus", "8", "--iterations", "80", url=server.url)
    row = made.trials.iloc[0]
    text = printed(made)
    assert 500 <= row["latency_p50_ms"] < 600
    assert 0 < row["first_byte_p50_ms"] <= row["first_byte_p99_ms"] < 250
    assert "first byte" in made.done.stdout
    assert "tail: a trial has fewer than 200 requests in 1 row." in text


@pytest.mark.long
def test_a_load_that_closes_connections_has_no_second_witness(root):
    """If each request opens a connection, k6's times are not compared with the probe's.

    The users wait until each connection is open, but the probe keeps its connection.
    """
    with tiny(0) as server:
        made = run(root, "--vus", "60", "--iterations", "1500", "--close", url=server.url)
    assert made.trials["mode"].to_list() == ["close"]
    assert "own queue" not in printed(made)
