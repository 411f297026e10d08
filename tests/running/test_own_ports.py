"""Tests of scripts that send requests to another port of the URL's host.

Such requests are blocked, except if `--also` permits the port. Permitted requests to another port
are counted separately.
"""

import contextlib

import pandas as pd
import pytest
import real_lab
from marking import long_but
from own_api import CLOSED, free_port, run, tiny

from runner.digest.tables import rebuild
from runner.store import RunFolder

pytestmark = [real_lab.needs("k6"), real_lab.needs_two_cpus]
WENT = "every request went to the server"
SAYS = "every request says which port it went to"
APART = "requests to other ports are in no rate and no percentile"


@pytest.fixture
def two_servers():
    """Yield a slow server (20 ms), for the URL of the run, and a fast server at another port."""
    with contextlib.ExitStack() as stack:
        slow = stack.enter_context(tiny(20))
        yield slow, stack.enter_context(tiny(1, port=free_port() + 1))


def script(*urls, **options):
    """Return a script whose iteration sends a GET to each URL.

    Each URL is a JavaScript expression.
    """
    lines = [f"  http.get({url}, {options.get('how', '{}')});" for url in urls]
    return "\n".join(
        ["import http from 'k6/http';", "export default function () {", *lines, "}", ""]
    )


def checks(made):
    return {check["name"]: check for check in made.records[0]["checks"]}


@pytest.mark.timed
@pytest.mark.parametrize("is_there", long_but([True], [True, False]))
def test_a_hard_coded_port_fails_the_trial_and_is_not_reached(root, two_servers, is_there):
    slow, quick = two_servers
    if not is_there:
        quick.process.kill()
    made = run(root, *CLOSED, url=slow.url, script=script(f"'{quick.url}/x'"), code=1)
    error = made.records[0]["error"]
    assert "200 of 200 requests went to another host or port, and were blocked" in error
    assert (
        "let the script use __ENV.BASE_URL, or allow a port of the same host by --also PORT"
        in error
    )
    assert "The script never reads __ENV.BASE_URL" in made.done.stderr
    if is_there:
        assert quick.seen["requests"] == 0


@pytest.mark.timed
@pytest.mark.long
def test_a_hard_coded_url_that_is_the_server_s_is_measured(root, two_servers):
    slow, _ = two_servers
    url = slow.url.replace("127.0.0.1", "localhost")
    made = run(root, *CLOSED, url=slow.url, script=script(f"'{url}/x'"))
    assert made.trials["requests"].to_list() == [200]
    assert made.trials["latency_p50_ms"].iloc[0] > 20


@pytest.mark.timed
def test_requests_to_an_allowed_port_are_not_the_servers(root, two_servers):
    """A script's requests to a port that `--also` allows do not count as requests to the server.

    For each request to the slow server, the script sends two requests to a fast server on the other
    port. If all requests were counted together, the median would be that of the fast server.
    """
    slow, quick = two_servers
    port = quick.url.rpartition(":")[2]
    asks = script("`${__ENV.BASE_URL}/x`", f"'{quick.url}/x'", f"'{quick.url}/missing'")
    made = run(root, *CLOSED, "--also", port, url=slow.url, script=asks)
    trial = made.trials.iloc[0]
    found = checks(made)
    assert (trial["requests"], trial["elsewhere"], trial["iterations"]) == (200, 400, 200)
    assert trial["failed"] == 0, "the missing page is not the server's"
    assert 20 < trial["latency_p50_ms"] < 30
    assert found[APART]["detail"] == f"400 requests to port {port}, of which 200 failed"
    assert all(check["ok"] for check in found.values())
    assert quick.seen["requests"] >= 400  # 400 from the load, and others from the warm-up
    assert trial["iteration_mean_ms"] > 21
    assert f"sent 400 requests to port {port} beside 200 to the server" in " ".join(
        made.result["findings"]
    )
    # No table contains requests to the other server, even after rebuilding from the raw samples.
    requests = pd.read_parquet(next(made.folder.glob("tables/requests/*.parquet")))
    assert (len(requests), requests["ok"].all()) == (200, True)
    assert made.table("latency")["count"].sum() == made.table("throughput")["requests"].sum() == 200
    before = made.trials
    rebuild(RunFolder(made.folder))
    pd.testing.assert_frame_equal(made.trials, before)


@pytest.mark.load
@pytest.mark.long
def test_slices_of_a_session_leave_out_other_ports_too(root, two_servers):
    slow, quick = two_servers
    with tiny(10, port=free_port() + 2) as third:
        urls = ("--url", slow.url, "--url", third.url)
        asks = script("__ENV.BASE_URL", f"'{quick.url}/x'")
        load = ("--also", quick.url.rpartition(":")[2], "--vus", "4", "--iterations", "240")
        made = run(root, *urls, *load, script=asks)
    trials = made.trials
    assert (trials["requests"] == 40 * trials["slices_kept"]).all()
    assert (trials["elsewhere"] == trials["requests"]).all()
    assert (
        trials.set_index("server")["latency_p50_ms"].round(-1)
        == pd.Series({"url-a": 20, "url-b": 10})
    ).all()


@pytest.mark.timed
@pytest.mark.long
def test_named_requests_fail_if_ports_must_be_told_apart(root, two_servers):
    slow, quick = two_servers
    asks = script("__ENV.BASE_URL", f"'{quick.url}/x'", how="{ tags: { name: 'mine' } }")
    made = run(
        root, *CLOSED, "--also", quick.url.rpartition(":")[2], url=slow.url, script=asks, code=1
    )
    assert (
        "400 of 400 requests have a name in place of their URL: with --also"
        in made.records[0]["error"]
    )


@pytest.mark.timed
@pytest.mark.long
def test_a_script_that_asks_only_other_ports_fails(root, two_servers):
    slow, quick = two_servers
    also = ("--also", quick.url.rpartition(":")[2])
    made = run(root, *CLOSED, *also, url=slow.url, script=script(f"'{quick.url}/x'"), code=1)
    assert (
        "200 requests went to other ports, and none to the port of the server: let the script use"
        in made.records[0]["error"]
    )


@pytest.mark.timed
@pytest.mark.long
def test_a_server_that_fails_every_second_request_is_measured(root):
    """If a server fails every second request, it is measured, and the failures are printed."""
    with tiny(5) as server:
        made = run(root, *CLOSED, "--repeats", "2", url=f"{server.url}/flaky")
    assert "5 of 10 first requests" in made.done.stderr
    assert [record["status"] for record in made.records] == ["sealed", "sealed"]
    assert made.trials["failed"].between(90, 110).all()
