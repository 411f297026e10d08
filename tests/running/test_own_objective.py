"""Tests of `bench run --url ... --objective`: it must find the known highest rate of a server."""

import pytest
import real_lab
from own_api import run, tiny

from runner.model import LabError
from runner.running.user_api import Asked, plan_user_api


@pytest.fixture(scope="module")
def server():
    with tiny(1) as running:
        yield running


def search(server, **asked):
    """Return the columns of the load that is planned for an objective."""
    planned = plan_user_api(Asked(urls=(server.url,), **asked), None, None)
    (load,) = planned.campaign.loads
    return load.columns()


def test_a_search_begins_where_a_step_has_enough_requests(server):
    """The lowest rate of a search is 67/s: ten requests beyond p99 need 1,000 requests in 15 s."""
    load = search(server, objective="p99<=50ms")
    assert (load.objective, load.from_rps, load.to_rps) == ("p99 <= 50 ms", 67, 10_000)
    assert (load.duration_s, load.repeats, load.slices) == (15, 3, None)
    # After 7 bisections the rate is known to a factor of (10,000 / 67) ** (1 / 2 ** 7) = 1.04. One
    # more step confirms it.
    assert load.bisections == 8


def test_two_rates_are_the_ends_of_a_search(server):
    load = search(server, objective="p50 <= 2.5 ms", rates_rps=(900, 30), duration_s=1.0)
    assert (load.from_rps, load.to_rps, load.duration_s) == (30, 900, 1)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"objective": "p98<=5ms"}, "is not an objective"),
        ({"objective": "p99<5ms"}, "is not an objective"),
        ({"objective": "p99<=5ms", "iterations": 50}, "and --iterations is for closed loads"),
        ({"objective": "p99<=5ms", "rates_rps": (50,)}, "as two --rate"),
        ({"objective": "p99<=5ms", "rates_rps": (50, 500)}, "give --duration 20 or more"),
        ({"objective": "p999<=5ms", "duration_s": 1.0}, "needs 10,000"),
    ],
)
def test_a_search_that_cannot_be_is_refused(server, asked, words):
    with pytest.raises(LabError) as caught:
        search(server, **asked)
    assert words in str(caught.value)


@pytest.mark.load
@pytest.mark.long
@real_lab.needs("k6")
@real_lab.needs_two_cpus
def test_the_answer_is_the_server_s_limit(root):
    """The search ends at what the server can do: less than 200 requests/s.

    Its single thread uses 5 ms of CPU time per request. At a higher rate r its queue grows: in the
    middle of a step of 2 s a request waits (r - 200) / 200 s. So p50 <= 100 ms is kept up to 220/s,
    and the search resolves 5 %.
    """
    ends = ("--rate", "50", "--rate", "800", "--duration", "2")
    with tiny(0, BURN_MS="5") as server:
        made = run(root, "--objective", "p50<=100ms", *ends, url=server.url, code=None)
    steps = made.trials.sort_values("bisection")
    kept = steps.loc[steps["objective_kept"].eq(True), "rate_rps"]
    broken = steps.loc[steps["objective_kept"].eq(False), "rate_rps"]
    answer = kept[kept < broken.min()].max()
    assert 50 <= answer <= 231
    assert len(steps) == 7
    assert "the highest rate that kept it" in " ".join(made.done.stdout.split())
