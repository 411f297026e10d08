"""Tests of `bench run --url ... --objective`, which must find a server's known highest rate."""

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
    """A search with an objective for p99 begins at 67 requests/s.

    At this rate a step of 15 s has 1,000 requests, so that ten requests are slower than p99. The
    lab requires at least ten.
    """
    load = search(server, objective="p99<=50ms")
    assert (load.objective, load.from_rps, load.to_rps) == ("p99 <= 50 ms", 67, 10_000)
    assert (load.duration_s, load.repeats, load.slices) == (15, 3, None)
    # After 7 bisections the ends of the range differ by a factor of
    # (10,000 / 67) ** (1 / 2 ** 7) = 1.04. One more step confirms the lower end.
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
    """The search must end near the server's limit, which is at most 200 requests/s.

    The limit follows from the server's single thread, which uses 5 ms of CPU time per request. At a
    higher rate r the server's queue grows: in the middle of a step of 2 s a request waits
    (r - 200) / 200 s. So the objective p50 <= 100 ms may be kept up to 220 requests/s. The answer
    may be 5 % higher, because this is the resolution of the search.
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
    assert "the highest rate that kept the objective" in " ".join(made.done.stdout.split())
