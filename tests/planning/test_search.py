"""Tests of the search for the highest rate that keeps an objective, with simulated servers."""

import math
from dataclasses import replace
from itertools import product

import pytest
from real_lab import campaign, load

from runner.model import LabError
from runner.planning.catalog import campaign_servers
from runner.planning.plan import choose, plan_trials
from runner.planning.search import Bracket, Objective, Searches, bracket, steps_between
from runner.shapes import Search

CAMPAIGN = campaign(
    ["axum", "gin"],
    load("rates", rates_rps=[100, 1000], duration_s=1, vus=10),
    load(
        "rates",
        objective="p99 <= 10 ms",
        from_rps=100,
        to_rps=6400,
        bisections=6,
        duration_s=2,
        vus=10,
    ),
    repeats=2,
)
LIMITS = {"axum": 4000.0, "gin": 150.0}


@pytest.fixture
def trials(read_campaign):
    campaign = read_campaign(CAMPAIGN)
    return plan_trials(campaign, campaign_servers(campaign))


@pytest.fixture
def steps(trials):
    """Return the steps of gin's search in the first block."""
    of_gin = [t for t in trials if t.block == 1 and t.cell.server == "gin"]
    return [trial for trial in of_gin if isinstance(trial.cell.shape, Search)]


def record(trial, kept, status="sealed", died=None):
    known = {
        "block": trial.block,
        "cell": vars(trial.cell.columns()),
        "status": status,
        "measurement": {"died": died},
    }
    return {**known, "metrics": {"objective_kept": kept}}


def run(trials, fail=()):
    """Simulate a campaign with servers that keep the objective up to the rates in LIMITS.

    The trials whose ids are in `fail` fail. For each server and block, return the steps of the
    search, each step as (rate, kept). `kept` is True if the objective was kept, False if it was
    not, and None if the step failed.
    """
    searches = Searches(())
    found = {}
    for planned in trials:
        trial = searches.settle(planned)
        if not isinstance(trial.cell.shape, Search):
            assert trial is planned
            continue
        rate = trial.cell.shape.rate_rps
        assert trial.cell.rates_rps == (rate,)
        kept = rate <= LIMITS[trial.cell.server]
        failed = trial.trial_id in fail
        searches.note(record(trial, kept, "failed" if failed else "sealed"))
        found.setdefault((trial.cell.server, trial.block), []).append(
            (rate, None if failed else kept)
        )
    return found


def test_a_sweep_has_a_cell_per_rate_and_a_search_its_steps(
    trials,
):
    """The steps of a search run in order, but steps of other searches may run between them."""
    assert len(trials) == len({trial.trial_id for trial in trials}) == 2 * 2 * (2 + 6)
    assert "b01-gin-rates-r1000" in {trial.trial_id for trial in trials}
    searched = [trial for trial in trials if isinstance(trial.cell.shape, Search)]
    for block, server in product((1, 2), LIMITS):
        found = [
            t.cell.shape.bisection for t in searched if (t.block, t.cell.server) == (block, server)
        ]
        assert found == [1, 2, 3, 4, 5, 6]
    order = [trial.cell.server for trial in searched if trial.block == 1]
    assert order not in (sorted(order), sorted(order, reverse=True))


def test_the_bracket_closes_around_the_limit(trials):
    for (server, _), steps in run(trials).items():
        known = bracket(steps)
        assert steps[0] == (800.0, server == "axum")
        assert known.kept_rps <= LIMITS[server] < known.broken_rps
        assert known.broken_rps / known.kept_rps <= (6400 / 100) ** (1 / 2**6) * 1.01


def test_a_step_that_failed_is_tried_again_at_the_same_rate(trials):
    steps = run(trials, fail={"b01-gin-rates-p99le10ms-s2"})["gin", 1]
    (rate, kept), (again, _) = steps[1:3]
    assert kept is None and again == rate


def test_a_rate_that_fails_twice_counts_as_broken(steps):
    searches = Searches(())
    rates = []
    for planned, died in zip(steps, [None, None, 3, None, None, None], strict=True):
        trial = searches.settle(planned)
        rates.append(trial.cell.shape.rate_rps)
        searches.note(record(trial, None, "failed", died))
    assert rates[0] == rates[1] == 800
    # The third trial has a lower rate, because both trials at 800 requests/s failed.
    assert rates[2] == round((100 * 800) ** 0.5)
    # In the third trial the server died. So one failure is enough, and the next rate is lower.
    assert rates[3] == rates[4] < rates[2]


def test_a_resumed_search_goes_on_where_it_was(steps):
    whole = Searches(())
    rates = []
    records = []
    for planned in steps:
        trial = whole.settle(planned)
        rates.append(trial.cell.shape.rate_rps)
        records.append(record(trial, trial.cell.shape.rate_rps <= 150))
        whole.note(records[-1])
    resumed = [Searches(records[:done]).settle(planned) for done, planned in enumerate(steps)]
    assert [trial.cell.shape.rate_rps for trial in resumed] == rates


def test_a_bracket_may_be_open_and_noise_does_not_turn_it_round():
    assert bracket([]) == Bracket(0.0, math.inf)
    assert bracket([(10.0, True)]) == Bracket(10.0, math.inf)
    assert bracket([(100.0, True), (50.0, False), (20.0, True)]) == Bracket(20.0, 50.0)


@pytest.mark.parametrize(
    ("metrics", "kept"),
    [
        ({"sustained": True, "latency_p99_ms": 10.0}, True),
        ({"sustained": True, "latency_p99_ms": 10.01}, False),
        ({"sustained": False, "latency_p99_ms": 1.0}, False),
        ({"sustained": True, "latency_p99_ms": None}, False),
    ],
)
def test_an_objective_needs_the_rate_and_the_percentile(metrics, kept):
    assert Objective.parse("p99 <= 10 ms").kept(metrics) is kept


@pytest.mark.parametrize("text", ["p42 <= 10 ms", "p99 < 10 ms", "p99 <= ten ms", "p99 <= 10", ""])
def test_what_is_no_objective_is_refused(text):
    with pytest.raises(LabError, match="is not an objective"):
        Objective.parse(text)


@pytest.mark.parametrize(
    ("text", "needed"), [("p50 <= 1 ms", 20), ("p99 <= 10 ms", 1000), ("p999 <= 10 ms", 10_000)]
)
def test_ten_requests_lie_beyond_the_percentile(text, needed):
    assert Objective.parse(text).least_requests == needed


def test_steps_too_short_for_their_percentile_are_refused(read_campaign):
    campaign = read_campaign(CAMPAIGN.replace("duration_s = 2", "duration_s = 12"))
    assert choose(campaign, [], None, 1.0).loads[1].form.duration_s == 12
    with pytest.raises(
        LabError,
        match=r"only 600 requests at the lowest rate \(100/s\), but 1,000 .* by 1.67, or",
    ):
        choose(campaign, [], None, 0.5)


def searched(steps, kept):
    """Simulate the steps of a search, and return their rates.

    `kept` receives the rates up to the current step, and returns whether the objective is kept at
    the last of these rates.
    """
    searches = Searches(())
    rates = []
    for planned in steps:
        trial = searches.settle(planned)
        rates.append(trial.cell.shape.rate_rps)
        searches.note(record(trial, kept(rates)))
    return rates


def long_search(steps, count):
    """Return a search between 100 and 6,400 requests/s that has `count` steps."""
    first = steps[0]
    shapes = [replace(first.cell.shape, bisection=number) for number in range(1, count + 1)]
    return [replace(first, cell=replace(first.cell, shape=shape)) for shape in shapes]


def test_the_last_step_confirms_the_answer_of_the_search(steps):
    count = steps_between(100, 6400)
    rates = searched(long_search(steps, count), lambda tried: tried[-1] <= 1000)
    assert rates[-1] == max(rate for rate in rates[:-1] if rate <= 1000)
    assert min(rate for rate in rates if rate > 1000) / rates[-1] <= 1.06


def test_a_rate_that_is_not_confirmed_is_broken(steps):
    """If a rate keeps the objective once, but not again, the next step tries a lower rate."""
    count = steps_between(100, 6400) + 1
    rates = searched(
        long_search(steps, count), lambda tried: tried[-1] <= 1000 and len(tried) != count - 1
    )
    assert rates[-2] <= 1000 and rates[-1] < rates[-2]


@pytest.mark.parametrize(("high_rps", "count"), [(110, 1 + 1), (6400, 7 + 1), (1_000_000, 8 + 1)])
def test_a_search_has_steps_until_its_ends_are_within_five_percent(high_rps, count):
    """A search bisects until the two ends of its range differ by at most 5 %.

    The range from 100 to 6,400 requests/s needs log2(ln(64) / ln(1.05)) = 6.4, so 7 bisections.
    One more step confirms the result.
    """
    assert steps_between(100, high_rps) == count
