"""Tests of `bench compare` and `bench history` on synthetic runs whose differences are known."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import synthetic_run
from built import ROOT
from captions_held import caption_faults
from figure_checks import readable
from known_means import known_mean
from scipy import stats
from varied_runs import LOAD, less, varied

from runner.model import LabError
from runner.present.chart.drawing import draw
from runner.present.chart.sentences import describe
from runner.present.notebook import notebooks
from runner.present.two_runs import history
from runner.store import RunFolder

OFFERED = "wrk-matrix, close, 100 connections, 1,000 requests/s offered"
Make = Callable[..., str]
Compared = Callable[..., dict[str, Any]]


@pytest.fixture
def make(bare_lab: Path) -> Make:
    """Return a function that makes a run with 1 % of noise in a separate lab.

    The function takes the name of the run, factors by which columns of servers are multiplied, and
    facts of the manifest. It returns the name of the run.
    """

    def run(name: str, *shape: Any, **facts: Any) -> str:
        varied(
            bare_lab / "data" / ("sample" if name == "sample" else f"runs/{name}"), *shape, **facts
        )
        return name

    return run


@pytest.fixture
def compared(make: Make, bench: Any) -> Compared:
    """Return a function that makes two runs and compares them.

    The first run is made without changes. The function's arguments are the changes of the second
    run (see `make`). The function returns the output of `bench compare --json`.
    """

    def run(*shape: Any, **facts: Any) -> dict[str, Any]:
        code, out, _ = bench(make("one"), make("two", *shape, **facts), "--json")
        assert code == 0
        return json.loads(out)

    return run


def masked(column: str, value: object, ids: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Return a function that sets a column of a table to `value` for trials whose ids match."""
    return lambda table: table.assign(
        **{column: table[column].mask(table["trial_id"].str.match(ids), value)}
    )


def find(found: dict[str, Any], server: str, quantity: str, load: str = LOAD) -> dict[str, Any]:
    rows = found["comparisons"]
    return next(
        r for r in rows if (r["load"], r["server"], r["quantity"]) == (load, server, quantity)
    )


# --- what is compared -----------------------------------------------------------------------------


def test_equal_runs_are_ties_and_say_what_they_could_have_shown(compared):
    found = compared()
    assert {row["verdict"] for row in found["comparisons"]} == {"tie"}
    row = find(found, "axum", "requests/s")
    assert row["ratio"]["low"] < 1 < row["ratio"]["high"] and row["ratio"]["blocks"] == 0
    # A power of 80 % at a level of 5 % / 54 needs a difference of about 5.5 standard errors. With
    # 1 % of noise and six trials a side, a standard error is 0.58 %.
    assert 1.02 < row["detectable"] < 1.05
    assert (row["a"]["trials"], row["b"]["trials"]) == (6, 6)
    assert row["a"]["confidence"] == row["b"]["confidence"] == pytest.approx(0.95)


def test_a_known_difference_is_found_and_the_ratio_is_welchs(compared, tmp_path):
    found = compared({("axum", "served_rps"): 1.2, ("axum", "server_cpu_ms_per_request"): 0.8})
    row = find(found, "axum", "requests/s")
    cpu = find(found, "axum", "CPU ms/request")
    assert (
        row["ratio"]["low"] < 1.2 < row["ratio"]["high"]
        and cpu["ratio"]["low"] < 0.8 < cpu["ratio"]["high"]
    )
    verdicts = (row["verdict"], cpu["verdict"], find(found, "gin", "requests/s")["verdict"])
    assert verdicts == ("better", "better", "tie") and (row["delta"], row["magnitude"]) == (
        1,
        "large",
    )
    files = [
        tmp_path / "data" / "runs" / name / "tables" / "trials.parquet" for name in ("one", "two")
    ]
    axum = "trial_id.str.startswith('axum-wrk-matrix-c100-keepalive')"
    one, two = (np.log(pd.read_parquet(file).query(axum)["served_rps"]) for file in files)
    theirs = stats.ttest_ind(two, one, equal_var=False).confidence_interval()
    assert (row["ratio"]["low"], row["ratio"]["high"]) == pytest.approx(np.exp(theirs))


def test_a_quantity_is_compared_only_if_both_verdicts_allow_it(compared):
    found = compared(change=masked("verdict", "inconclusive", "gin-wrk-matrix-c100-keepalive-b2"))
    kinds = pd.DataFrame(found["comparisons"]).groupby(["load", "server"])["quantity"].agg(set)
    anywhere = {"CPU ms/request", "memory, MiB"}
    assert kinds[LOAD, "axum"] == {"requests/s", *anywhere}
    # In run B, the limit of one of gin's trials is unknown. In nginx's trials, the generator was
    # the limit. So the rates of these two servers are not compared.
    assert kinds[LOAD, "gin"] == anywhere
    assert kinds[LOAD, "nginx"] == anywhere
    assert kinds[OFFERED, "axum"] == {"p50, ms", "p90, ms", "p99, ms", *anywhere}
    verdicts = "A server-bound 6 of 6; B server-bound 5 of 6, inconclusive 1 of 6"
    assert f"gin: {LOAD}: requests/s ({verdicts})" in found["incomparable"]


def test_failed_trials_are_not_compared(compared):
    def failed(table: pd.DataFrame) -> pd.DataFrame:
        table = masked("served_rps", 1.0, "axum-wrk-matrix-c100-keepalive-b1")(table)
        return masked(
            "status", "failed", "axum-wrk-matrix-c100-keepalive-b1|gin-wrk-matrix-c10-close"
        )(table)

    found = compared(change=failed)
    row = find(found, "axum", "requests/s")
    assert (row["a"]["trials"], row["b"]["trials"], row["verdict"]) == (6, 5, "tie")
    assert row["b"]["confidence"] == pytest.approx(0.95) and row["b"]["low"] > 70_000
    assert found["unsealed"] == ["gin: wrk-matrix, close, 10 connections"]


def test_fewer_than_five_trials_are_values_without_a_claim(make, bench):
    code, out, err = bench(
        make("one"),
        make("two", {("axum", "served_rps"): 0.5}, trials=4),
        "--json",
        "--fail-above",
        "5",
    )
    row = find(json.loads(out), "axum", "requests/s")
    assert (
        code == 1 and "Nothing could be decided" in err
    )  # if nothing could be decided, the check must not pass
    assert row["verdict"] == "not enough trials" and row["ratio"] is None and row["p"] is None
    assert row["b"]["value"] == pytest.approx(39_000, rel=0.1)
    assert (row["b"]["trials"], row["b"]["confidence"]) == (4, None)
    assert bench("one", "two")[0] == 0


def test_what_is_not_compared_is_listed(make, bench):
    def change(table: pd.DataFrame) -> pd.DataFrame:
        return masked("verdict", "inconclusive", ".*-keepalive-b1$")(less(table))

    code, out, err = bench(make("one"), make("two", change=change))
    assert code == 0 and LOAD in out and "CPU ms/request" in out
    assert "Only in one: nginx: wrk-matrix, close, 1 connection." in err
    assert (
        f"axum: {LOAD}: requests/s (A server-bound 6 of 6; B " in err
        and "inconclusive 1 of 6" in err
    )


def test_a_load_of_another_size_is_another_cell(make, bench):
    def campaign(seconds: float) -> dict[str, Any]:
        return {
            "name": "c",
            "loads": [{"workload": "wrk-matrix", "duration_s": seconds, "warmup_s": 0.5}],
        }

    code, _, err = bench(make("one", campaign=campaign(1)), make("two", campaign=campaign(3)))
    assert code == 2 and "one and two have no server under the same load in common" in err
    assert bench("one", make("three", campaign=campaign(1)))[0] == 0


def test_the_sample_is_a_run_like_others(make, bench):
    make("sample", artifacts={"axum": "aa", "gin": "bb"})
    code, out, err = bench("sample", make("two", artifacts={"axum": "aa", "gin": "cc"}))
    assert code == 0 and LOAD in out
    assert "A: run sample" in err and "are due to something else: axum." in err


def test_the_steps_of_a_search_are_not_compared(make, bench):
    search = masked("objective", "p99 <= 10 ms", ".*-close-")
    blank = {"change": lambda table: search(table.assign(objective=None))}
    found = json.loads(bench(make("one", **blank), make("two", **blank), "--json")[1])
    assert {row["load"].split(", ")[1] for row in found["comparisons"]} == {"keep-alive"}


# --- runs under other conditions ------------------------------------------------------------------

MACHINE = synthetic_run.manifest()["machine"]
DIFFERENT = {
    "cpus (2 and 4); kernel (6.1 and 6.2)": {"machine": MACHINE | {"kernel": "6.2", "cpus": 4}},
    "memory (8 GiB and 16 GiB)": {"machine": MACHINE | {"memory_bytes": 16 * 2**30}},
    "engine (process and docker)": {"engine": "docker"},
    "wrk (4.1.0 and 4.2.0)": {"tools": {"wrk": "4.2.0", "nginx": "1.22"}},
    "CPUs of the server (0 and 0, 1)": {"placement": {"server": [0, 1], "generator": [1]}},
}


@pytest.mark.long
@pytest.mark.parametrize(("words", "facts"), DIFFERENT.items())
def test_runs_under_other_conditions_are_refused(words, facts, make, bench):
    code, out, err = bench(make("one"), make("two", **facts))
    assert (code, out) == (2, "")
    assert err.strip() == (
        f"Error: Runs one and two differ in {words}, so their numbers may differ for this reason: "
        "to compare the runs anyway, give --force."
    )
    code, out, err = bench("one", "two", "--force")
    assert code == 0 and LOAD in out
    assert "compared because of --force" in out and "the runs differ in" in out
    found = json.loads(bench("one", "two", "--force", "--json")[1])
    assert "; ".join(each["what"] for each in found["differences"]) == re.sub(
        r" \([^)]*\)", "", words
    )


def test_what_no_common_cell_depends_on_may_differ(make, bench):
    tools = {"k6": "9.9.9", "wrk": "4.1.0", "nginx": "1.22", "python": "3.12"}
    other = make(
        "two",
        tools=tools,
        machine=MACHINE | {"os": "Other"},
        git={"commit": "1" * 40, "dirty": True},
    )
    code, _, err = bench(make("one"), other)
    assert code == 0
    assert (
        "Changed between the runs: commit (000000000000 and 111111111111 with uncommitted changes)."
        in err
    )


# --- regressions and exit codes -------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    ("factors", "pct", "regressed"),
    [
        ({("axum", "served_rps"): 0.9}, "5", ("axum", "requests/s")),
        # axum is 10 % worse. The interval reaches from about 9 % to 11 %. Because its lower end is
        # below 9.9 %, the change is no regression.
        ({("axum", "served_rps"): 0.9}, "9.9", None),
        ({("axum", "served_rps"): 0.9}, "15", None),
        ({("axum", "served_rps"): 1.2}, "0", None),
        ({("gin", "server_cpu_ms_per_request"): 1.1}, "5", ("gin", "CPU ms/request")),
        ({("gin", "server_cpu_ms_per_request"): 0.8}, "5", None),
        ({("nginx", "server_rss_peak_bytes"): 1.5}, "20", ("nginx", "memory, MiB")),
        ({("axum", "latency_p99_ms"): 1.3}, "20", ("axum", "p99, ms")),
        # the generator was the limit, so the rate says nothing
        ({("nginx", "served_rps"): 0.5}, "5", None),
        ({}, "0", None),
    ],
)
def test_the_exit_code_is_one_only_beyond_what_is_allowed(factors, pct, regressed, make, bench):
    code, out, err = bench(make("one"), make("two", factors), "--json", "--fail-above", pct)
    found = {
        (row["server"], row["quantity"])
        for row in json.loads(out)["comparisons"]
        if row["regression"]
    }
    assert found == ({regressed} if regressed else set())
    assert code == ("to be worse than run A by more than" in err) == bool(regressed)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("one",), "Missing argument"),
        (("one", "nope"), "There is no run 'nope'"),
        (("one", "one", "--fail-above", "-1"), "fail-above"),
        (("one", "one", "--fail-above", "much"), "fail-above"),
    ],
)
def test_wrong_usage_is_exit_code_two(arguments, words, make, bench):
    make("one")
    code, out, err = bench(*arguments)
    assert (code, out) == (2, "") and words in err


@pytest.mark.long
def test_equal_runs_are_called_different_in_at_most_5_percent(make, bench):
    """If two runs are equal, a difference between them is rarely found.

    The test compares fifteen pairs of runs, with some fifty comparisons for each pair. Without
    Holm's correction, a difference would be found in most pairs.
    """
    names = [make(f"run{number}") for number in range(9)]
    named = 0
    single = 0
    for name, other in [(names[i], names[j]) for i in range(9) for j in (i + 1, i + 2) if j < 9]:
        rows = json.loads(bench(name, other, "--json")[1])["comparisons"]
        named += any(row["verdict"] != "tie" for row in rows)
        single += any(row["ratio"]["p"] <= 0.05 for row in rows)
    assert named <= 3 and single > 10


def test_the_table_fits_a_terminal_of_100_columns(make, bench, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    worse = {("axum", "served_rps"): 0.9, ("gin", "server_cpu_ms_per_request"): 12.0}
    assert bench(make("one"), make("two", worse))[0] == 0, "without a limit nothing is a failure"
    _, out, _ = bench("one", "two", "--fail-above", "1")
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in out.splitlines()]
    assert max(len(line) for line in lines) <= 100
    for row in (
        r"server +quantity +A +B +B/A \[95 %\] +detectable +verdict",
        r"axum +requests/s +[\d,]+ +[\d,]+ +"
        r"×0\.\d{3} \[0\.\d{3}–0\.\d{3}\] +[\d.]+ % +worse, regression$",
        r"gin +CPU ms/request .* ×1[12]\.\d \[1[12]\.\d–1[12]\.\d\]",
    ):
        assert any(re.search(row, line) for line in lines), row


# --- bench history: a function that makes many runs -----------------------------------------------

Weeks = Callable[..., list[RunFolder]]


@pytest.fixture
def weeks(bare_lab: Path) -> Weeks:
    """Return a function that makes `count` weekly runs.

    From the run with number `worse` on, gin takes 1.2 times as much CPU time per request.
    """

    def make(count: int, worse: int = 99) -> list[RunFolder]:
        factors = {
            number: {("gin", "server_cpu_ms_per_request"): 1.2}
            for number in range(worse, count + 1)
        }
        return [
            varied(
                bare_lab / "data" / "runs" / f"week{n}",
                factors.get(n),
                started_at=f"2026-03-{n:02}T00:00:00+00:00",
            )
            for n in range(1, count + 1)
        ]

    return make


# --- bench history: where a series of values changes ----------------------------------------------


def test_a_change_is_found_where_it_is():
    rng = np.random.default_rng(1)
    for n, place in ((6, 3), (12, 2), (20, 18), (40, 25)):
        values = rng.normal(0, 0.01, n)
        values[place:] += 0.2
        ((found, p),) = history.changes(values)
        assert found == place and p < 0.01


def test_two_changes_are_found_in_their_order():
    values = np.random.default_rng(2).normal(0, 0.01, 30)
    values[10:] += 0.1
    values[20:] -= 0.2
    assert [place for place, _ in history.changes(values, 0.01)] == [10, 20]


@pytest.mark.parametrize("n", [6, 12, 40])
def test_noise_alone_makes_a_change_in_one_of_twenty_series(n):
    rng = np.random.default_rng(n)
    found = sum(bool(list(history.changes(rng.normal(5, 0.3, n)))) for _ in range(2_000))
    assert stats.binomtest(found, 2_000, 0.05).pvalue > 1e-3


def test_the_statistic_is_students():
    values = np.random.default_rng(3).normal(0, 1, 9)
    ours = history.squared_t(values[None, :])[0]
    theirs = [stats.ttest_ind(values[:k], values[k:]).statistic ** 2 for k in range(2, 8)]
    assert ours == pytest.approx(theirs)


def test_equal_values_and_few_runs_have_no_change():
    assert list(history.changes(np.zeros(12))) == []
    assert list(history.changes(np.array([0, 0, 0, 9, 9.0]))) == []


# --- bench history: the courses of quantities over several runs -----------------------------------


def test_a_regression_is_found_with_its_run_and_size(weeks):
    found = history.history(weeks(8, worse=5)[::-1], fail_above_pct=10)
    assert found.runs == tuple(f"week{number}" for number in range(1, 9))
    changed = tuple(course for course in found.courses if course.changes)
    assert {(course.server, course.quantity) for course in changed} == {("gin", "CPU ms/request")}
    for ((change,),) in ((course.changes,) for course in changed):
        assert change.at == 5 and change.worse and change.ratio == pytest.approx(1.2, rel=0.02)
    assert found.regressions == changed
    said = " ".join(history.findings(found))
    assert f"gin, {LOAD}: since run 5 (2026-03-05), CPU ms/request is 1.2" in said
    chart = history.timeline(found)
    assert chart.frame.loc[chart.frame["changed"], "x"].eq(5).all() and chart.frame[
        "changed"
    ].sum() == len(changed)
    readable(draw(chart))
    assert caption_faults(chart.caption) == []
    assert "gin" in describe(chart)


def test_the_means_are_those_of_the_runs(weeks):
    found = history.history(weeks(3))
    sides = {(each.load, each.server, each.quantity): each.sides for each in found.courses}[
        LOAD, "axum", "requests/s"
    ]
    for number, tables in enumerate(found.tables, start=1):
        rps = tables.trials.query("load == @LOAD and server == 'axum'")["served_rps"]
        ours = sides[number]
        assert (ours.value, ours.low, ours.high) == pytest.approx(known_mean(rps))
    assert "To find a change, 6 runs or more are needed" in history.findings(found)[0]


def test_runs_that_do_not_go_together_are_refused(weeks):
    one, two = weeks(2)
    for runs in ([one], [one, one]):
        with pytest.raises(LabError, match="at least two different runs"):
            history.history(runs)
    varied(two.path, engine="docker")
    with pytest.raises(LabError, match="differ in engine"):
        history.history([one, two])
    assert history.history([one, two], force=True).courses
    other = varied(
        two.path.with_name("other"), change=lambda table: table.assign(workload="another")
    )
    with pytest.raises(
        LabError,
        match=r"^No two of these runs have a server under the same load in common whose values can "
        r"be compared: choose other runs\.$",
    ):
        history.history([one, other])


@pytest.mark.long
def test_the_command_says_it_and_fails_on_request(weeks, bench):
    names = [run.run_id for run in weeks(8, worse=5)]
    code, out, err = bench(*names, "--fail-above", "10", command="history")
    assert (
        code == 1
        and "latest change that lasted is a regression of more than 10 %" in err
        and "×1.2" in out
    )
    code, out, _ = bench(*names, "--fail-above", "30", "--json", command="history")
    found = json.loads(out)
    assert code == 0 and len(found["runs"]) == 8
    assert {course["changes"][0]["at"] for course in found["courses"] if course["changes"]} == {5}


@pytest.mark.long
def test_runs_are_appended_to_a_folder_as_they_come(weeks, bench, tmp_path):
    """`bench history --append` copies each new run into a folder, and shows all runs of the folder.

    So this folder is the only thing that has to be kept between runs. Here one run is added each
    week.
    """
    kept = tmp_path / "kept"
    for number, run in enumerate(weeks(6, worse=4), start=1):
        run.journal.touch()
        arguments = ("latest", "--append", str(kept), "--json") if number == 6 else ()
        arguments = arguments or (run.run_id, "--append", str(kept), "--json")
        code, out, err = bench(*arguments, command="history")
        assert code == 0 and len(list(kept.iterdir())) == number
        if number == 1:
            assert "holds one run, and a history needs at least two" in " ".join(err.split())
        else:
            assert len(json.loads(out)["runs"]) == number
    changes = [course["changes"] for course in json.loads(out)["courses"] if course["changes"]]
    assert {change[0]["at"] for change in changes} == {4}
    code, out, _ = bench(run.run_id, "--append", str(kept), "--json", command="history")
    assert code == 0 and len(json.loads(out)["runs"]) == 6, "a run is in the folder only once"


@pytest.mark.long
def test_the_notebook_shows_the_same(weeks, tmp_path):
    executed = tmp_path / "out.ipynb"
    runs = ",".join(run.run_id for run in weeks(6, worse=4))
    given = {"runs": runs, "force": False, "fail_above": None}
    notebooks.execute(ROOT / "notebooks" / "history.ipynb", given, executed)
    assert notebooks.figures_shown(executed) == ["history"]
    assert "since run 4 (" in executed.read_text()
    assert "times its earlier value" in executed.read_text()
