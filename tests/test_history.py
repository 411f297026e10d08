"""The same cells over many runs: a change of known size and place is found, and noise alone makes none."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from built import ROOT
from figure_checks import readable
from scipy import stats
from test_compare import LOAD, varied

from runner.model import LabError
from runner.present.chart import describe, draw
from runner.present.comparison import history
from runner.present.notebook import notebooks
from runner.store import RunFolder

Weeks = Callable[..., list[RunFolder]]


@pytest.fixture
def weeks(bare_lab: Path) -> Weeks:
    """A maker of weekly runs: gin's CPU per request is 1.2 times as much from the run with number `worse` on."""

    def make(count: int, worse: int = 99) -> list[RunFolder]:
        factors = {number: {("gin", "server_cpu_ms_per_request"): 1.2} for number in range(worse, count + 1)}
        return [
            varied(bare_lab / "data" / "runs" / f"week{n}", factors.get(n), started_at=f"2026-03-{n:02}T00:00:00+00:00")
            for n in range(1, count + 1)
        ]

    return make


# --- where a series changes -------------------------------------------------------------------------------


def test_a_change_is_found_where_it_is() -> None:
    rng = np.random.default_rng(1)
    for n, place in ((6, 3), (12, 2), (20, 18), (40, 25)):
        values = rng.normal(0, 0.01, n)
        values[place:] += 0.2
        ((found, p),) = history.changes(values)
        assert found == place and p < 0.01


def test_two_changes_are_found_in_their_order() -> None:
    values = np.random.default_rng(2).normal(0, 0.01, 30)
    values[10:] += 0.1
    values[20:] -= 0.2
    assert [place for place, _ in history.changes(values, 0.01)] == [10, 20]


@pytest.mark.parametrize("n", [6, 12, 40])
def test_noise_alone_makes_a_change_in_one_of_twenty_series(n: int) -> None:
    rng = np.random.default_rng(n)
    found = sum(bool(list(history.changes(rng.normal(5, 0.3, n)))) for _ in range(2_000))
    assert stats.binomtest(found, 2_000, 0.05).pvalue > 1e-3


def test_the_statistic_is_students() -> None:
    values = np.random.default_rng(3).normal(0, 1, 9)
    ours = history._statistics(values[None, :])[0]
    theirs = [stats.ttest_ind(values[:k], values[k:]).statistic ** 2 for k in range(2, 8)]
    assert ours == pytest.approx(theirs)


def test_equal_values_and_few_runs_have_no_change() -> None:
    assert list(history.changes(np.zeros(12))) == []
    assert list(history.changes(np.array([0, 0, 0, 9, 9.0]))) == []


# --- runs -------------------------------------------------------------------------------------------------


def test_a_regression_is_found_with_its_run_and_size(weeks: Weeks) -> None:
    found = history.history(weeks(8, worse=5)[::-1], fail_above_pct=10)
    assert found.runs == tuple(f"week{number}" for number in range(1, 9))
    changed = tuple(course for course in found.courses if course.changes)
    assert {(course.server, course.quantity) for course in changed} == {("gin", "CPU ms/request")}
    for ((change,),) in ((course.changes,) for course in changed):
        assert change.at == 5 and change.worse and change.ratio == pytest.approx(1.2, rel=0.02)
    assert found.regressions == changed
    assert f"gin, {LOAD}: CPU ms/request is 1.2" in " ".join(history.findings(found))
    chart = history.timeline(found)
    assert chart.frame.loc[chart.frame["changed"], "x"].eq(5).all() and chart.frame["changed"].sum() == len(changed)
    readable(draw(chart))
    assert "gin" in describe(chart)


def test_the_medians_are_those_of_the_runs(weeks: Weeks) -> None:
    found = history.history(weeks(3))
    sides = {(each.load, each.server, each.quantity): each.sides for each in found.courses}[LOAD, "axum", "requests/s"]
    for number, tables in enumerate(found.tables, start=1):
        rps = tables.trials.query("load == @LOAD and server == 'axum'")["rps"]
        assert sides[number].median == pytest.approx(rps.median())
        assert sides[number].low <= rps.median() <= sides[number].high
    assert "A change is looked for in 6 runs or more" in history.findings(found)[0]


def test_runs_that_do_not_go_together_are_refused(weeks: Weeks) -> None:
    one, two = weeks(2)
    for runs in ([one], [one, one]):
        with pytest.raises(LabError, match="two runs or more, each once"):
            history.history(runs)
    varied(two.path, engine="docker")
    with pytest.raises(LabError, match="differ in engine"):
        history.history([one, two])
    assert history.history([one, two], force=True).courses
    other = varied(two.path.with_name("other"), change=lambda table: table.assign(workload="another"))
    with pytest.raises(LabError, match=r"^No two of these runs have a cell in common that may be compared\.$"):
        history.history([one, other])


def test_the_command_says_it_and_fails_on_request(weeks: Weeks, bench: Any) -> None:
    names = [run.run_id for run in weeks(8, worse=5)]
    code, out, err = bench(*names, "--fail-above", "10", command="history")
    assert code == 1 and "changes are for the worse by more than 10 %" in err and "×1.2" in out
    code, out, _ = bench(*names, "--fail-above", "30", "--json", command="history")
    found = json.loads(out)
    assert code == 0 and len(found["runs"]) == 8
    assert {course["changes"][0]["at"] for course in found["courses"] if course["changes"]} == {5}


@pytest.mark.long
def test_the_notebook_shows_the_same(weeks: Weeks, tmp_path: Path) -> None:
    executed = tmp_path / "out.ipynb"
    runs = ",".join(run.run_id for run in weeks(6, worse=4))
    given = {"runs": runs, "force": False, "fail_above": None}
    notebooks.execute(ROOT / "notebooks" / "history.ipynb", given, executed)
    assert notebooks.figures_shown(executed) == ["history"]
    assert "times what it was since run 4" in executed.read_text()
