"""The page that compares two runs: what it says and draws is what `bench compare` finds, and both agree with scipy."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pandas as pd
import pytest
import synthetic_run
from built import ROOT, bare_lab
from figure_checks import lines, readable, words
from scipy import stats
from test_compare import LOAD, less, varied

from runner.model import LabError
from runner.present.chart import describe, draw
from runner.present.comparison import compare
from runner.present.comparison.compare import RunComparison, compare_runs
from runner.present.look.palette import identities
from runner.present.notebook import notebooks
from runner.present.notebook.pages import open_comparison
from runner.store import RunFolder, find_run

WORSE = {("axum", "rps"): 0.8, ("gin", "server_cpu_ms_per_request"): 0.7}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lab with a run, one that differs from it, and one of another machine."""
    folder = bare_lab(tmp_path_factory.mktemp("lab"))
    runs = folder / "data" / "runs"
    varied(runs / "one", artifacts={"axum": "aa", "gin": "bb"})
    varied(runs / "two", WORSE, less, artifacts={"axum": "aa", "gin": "cc"})
    other = synthetic_run.manifest()["machine"] | {"cpus": 4}
    varied(runs / "elsewhere", machine=other)
    return folder


def compared(lab: Path, fail_above: float | None = None) -> RunComparison:
    runs = (RunFolder(lab / "data" / "runs" / name) for name in ("one", "two"))
    return compare_runs(*runs, fail_above_pct=fail_above)


def plainly(page: Path) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.read_text()))


# --- the command ------------------------------------------------------------------------------------------


def test_the_page_says_what_the_terminal_says(in_lab: Path, bench: Any, tmp_path: Path) -> None:
    page = tmp_path / "new" / "two.html"
    code, out, err = bench("one", "two", "--fail-above", "10", "--html", str(page))
    assert code == 1 and "comparisons are worse by more than 10 %" in err and f"Page:    {page}" in err
    text, raw = plainly(page), page.read_text()
    assert "<title>Two runs compared: one and two</title>" in raw and "<script" not in raw
    found = compared(in_lab, 10)
    for row in found.comparisons:
        assert row.ratio is None or compare.times(row.ratio) in text, row
    assert LOAD in text and LOAD in out
    assert "nginx: wrk-matrix, close, 1 connection Only in one" in text
    assert "Only in one: nginx: wrk-matrix, close, 1 connection." in err
    assert "The same binary in both runs, so only that: axum." in text
    assert (
        "worse by more than 10 % with the whole interval: 5." in text
    )  # axum at 10 to 1000 connections, but for the open loop
    assert raw.count('alt="Forest plot of') == 1 and "detectable" in text
    assert notebooks.figures_shown(page.with_suffix(".ipynb")) == ["compare-ratios"]
    assert {path.name for path in (in_lab / "figures" / "one--two").iterdir()} == {
        "compare-ratios.png",
        "compare-ratios.svg",
    }


@pytest.mark.long
def test_json_and_exit_code_stay_with_a_page(in_lab: Path, bench: Any, tmp_path: Path) -> None:
    page = tmp_path / "two.html"
    code, out, _ = bench("one", "two", "--json", "--html", str(page))
    assert code == 0 and json.loads(out)["run_b"] == "two" and page.is_file()
    assert json.loads(bench("one", "two", "--json")[1]) == json.loads(out)


@pytest.mark.long
def test_other_conditions_are_shown_where_they_were_forced(in_lab: Path, bench: Any, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    code, _, err = bench("one", "elsewhere", "--html", str(page))
    assert code == 2 and "--force compares them all the same" in err and not page.exists()
    assert bench("one", "elsewhere", "--force", "--html", str(page))[0] == 0
    text = plainly(page)
    assert "Compared by force" in text and "cpus 2 4" in text
    assert "Every cell of either run is in the other one" in text


@pytest.mark.parametrize("name", ["page", "page.pdf", "."])
def test_what_is_no_page_is_refused_before_any_work(name: str, in_lab: Path, bench: Any, tmp_path: Path) -> None:
    code, out, err = bench("one", "two", "--html", str(tmp_path / name))
    assert (code, out) == (2, "") and "a file that ends in .html" in err


@pytest.mark.long
def test_the_notebook_alone_gives_the_same(in_lab: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.ipynb"
    command = [sys.executable, "-m", "papermill", "--no-progress-bar", "notebooks/compare.ipynb", str(out)]
    done = subprocess.run(
        [*command, "-p", "run_a", "one", "-p", "run_b", "two"], cwd=in_lab, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    texts = " ".join(
        "".join(output.data.get("text/plain", ""))
        for cell in nbformat.read(out, as_version=4).cells
        if cell.cell_type == "code"
        for output in cell.outputs
    )
    assert compare.findings(compared(in_lab))[0] in texts


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"run_a": 1, "run_b": "two"}, "run_a must be a valid string"),
        ({"run_a": "one", "run_b": "two", "force": "yes"}, "force must be a valid boolean"),
        ({"run_a": "one", "run_b": "two", "fail_above": "much"}, "fail_above must be a valid number"),
        ({"run_a": "one", "run_b": "two", "fail_above": -1}, "fail_above must be greater than or equal to 0"),
        ({"run_a": "one", "run_b": "nope"}, "There is no run 'nope'"),
    ],
)
def test_a_wrong_parameter_is_one_sentence(given: dict[str, Any], sentence: str, in_lab: Path) -> None:
    with pytest.raises(LabError, match=sentence):
        open_comparison(**given)


def test_a_notebook_that_lacks_a_parameter_is_refused(in_lab: Path, tmp_path: Path) -> None:
    with pytest.raises(LabError, match="has no parameter run_a, run_b"):
        notebooks.execute(ROOT / "notebooks" / "report.ipynb", {"run_a": "one", "run_b": "two"}, tmp_path / "o.ipynb")


# --- the figure -------------------------------------------------------------------------------------------


def test_the_figure_has_welchs_intervals_and_the_border_of_a_regression(lab: Path) -> None:
    found = compared(lab, 10)
    figure = draw(compare.ratios(found, {}))
    assert len(lines(figure, 0, "interval")) == sum(row.ratio is not None for row in found.comparisons)
    tables = [pd.read_parquet(lab / "data" / "runs" / name / "tables" / "trials.parquet") for name in ("one", "two")]
    logs = [np.log(t.loc[t["trial_id"].str.startswith("axum-wrk-matrix-c100-keepalive"), "rps"]) for t in tables]
    theirs = stats.ttest_ind(logs[1], logs[0], equal_var=False).confidence_interval()
    drawn = [tuple(x) for x, _ in lines(figure, 0, "interval")]
    assert any(pair == pytest.approx((np.exp(theirs.low), np.exp(theirs.high))) for pair in drawn)
    assert {round(float(x[0]), 3) for x, _ in lines(figure, 0, "limit")} == {0.9, 1.1}
    assert "10 % worse, the border of a regression" in words(figure)


def test_ties_are_hollow_and_differences_filled(lab: Path) -> None:
    found = compared(lab)
    marks = [line for line in draw(compare.ratios(found, {})).axes[0].lines if len(line.get_xdata()) == 1]
    assert sum(line.get_markerfacecolor() == "white" for line in marks) == sum(
        r.verdict == "tie" for r in found.comparisons
    )
    assert not lines(draw(compare.ratios(found, {})), 0, "limit")


def test_noise_of_one_program_under_two_labels_is_a_tie(tmp_path: Path) -> None:
    """gin is said to be a copy of axum, 6 % slower: so far, and no farther, a difference between the runs is noise."""
    copies = {"campaign": synthetic_run.manifest()["campaign"] | {"copies": [["gin", "axum"]]}}
    faster = {("axum", "rps"): 1.04, ("nginx", "server_cpu_ms_per_request"): 1.5}
    plain = compare_runs(varied(tmp_path / "one"), varied(tmp_path / "two", faster))
    noisy = compare_runs(varied(tmp_path / "three", **copies), varied(tmp_path / "four", faster, **copies))
    sides = []
    for found in (plain, noisy):
        rows = {(r.load, r.server, r.quantity): r for r in found.comparisons}
        sides.append((rows[LOAD, "axum", "requests/s"], rows[LOAD, "nginx", "CPU ms/request"]))
    assert (sides[0][0].floor, sides[0][0].verdict) == (1.0, "better")
    assert sides[1][0].floor > 1.06 and sides[1][0].verdict == "tie"
    assert sides[1][1].verdict == "worse"
    figure = draw(compare.ratios(noisy, {}))
    assert lines(figure, 0, "floor") and "noise alone made" in words(figure)


def test_text_is_inside_large_enough_and_apart(lab: Path) -> None:
    found = compared(lab, 10)
    trials = pd.read_parquet(lab / "data" / "runs" / "one" / "tables" / "trials.parquet")
    figure = draw(compare.ratios(found, identities(trials)))
    readable(figure)
    assert len(describe(compare.ratios(found, {}))) <= 700


def test_runs_with_too_few_trials_are_drawn_without_a_claim(tmp_path: Path) -> None:
    def few(table: pd.DataFrame) -> pd.DataFrame:
        return table[table["block"] <= 3]

    found = compare_runs(varied(tmp_path / "one", change=few), varied(tmp_path / "two", WORSE, few))
    figure = draw(compare.ratios(found, {}))
    readable(figure)
    assert not lines(figure, 0, "interval") and "not enough trials" in words(figure)
    assert describe(compare.ratios(found, {})).startswith("Forest plot of 0 ratios")
    assert find_run(str(tmp_path / "one")).run_id == "one"
