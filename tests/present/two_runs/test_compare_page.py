"""Tests of the page that compares two runs: it must show what `bench compare` finds."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import synthetic_run
from built import ROOT, bare_lab
from captions_held import caption_faults
from figure_checks import lines, readable, words
from shown import plain
from varied_runs import LOAD, less, varied

from runner.model import LabError
from runner.present.chart.drawing import draw
from runner.present.chart.sentences import describe
from runner.present.look.palette import identities
from runner.present.notebook import notebooks
from runner.present.notebook.pages import open_comparison
from runner.present.two_runs import compare
from runner.present.two_runs.compare import RunComparison, compare_runs
from runner.store import RunFolder

WORSE = {("axum", "served_rps"): 0.8, ("gin", "server_cpu_ms_per_request"): 0.7}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a lab with a run, a run that has other results, and a run from another machine."""
    folder = bare_lab(tmp_path_factory.mktemp("lab"))
    runs = folder / "data" / "runs"
    varied(runs / "one", artifacts={"axum": "aa", "gin": "bb"})
    varied(runs / "two", WORSE, less, artifacts={"axum": "aa", "gin": "cc"})
    varied(runs / "elsewhere", machine=synthetic_run.manifest()["machine"] | {"cpus": 4})
    return folder


@pytest.fixture(scope="module")
def found(lab: Path) -> RunComparison:
    return compare_runs(
        *(RunFolder(lab / "data" / "runs" / name) for name in ("one", "two")), fail_above_pct=10
    )


# --- the page that `bench compare --html` writes --------------------------------------------------


@pytest.mark.long
def test_the_page_says_what_the_terminal_says(in_lab, found, bench, tmp_path):
    page = tmp_path / "new" / "two.html"
    code, out, err = bench("one", "two", "--fail-above", "10")
    assert code == 1 and "to be worse than run A by more than 10 %" in err and LOAD in out
    assert "Only in one: nginx: wrk-matrix, close, 1 connection." in err
    code, out, err = bench("one", "two", "--fail-above", "10", "--json", "--html", str(page))
    assert code == 1 and f"Page:    {page}" in err and json.loads(out)["run_b"] == "two"
    raw = page.read_text()
    text = plain(raw)
    assert "<title>Two runs compared: one and two</title>" in raw and "<script" not in raw
    for row in found.comparisons:
        assert row.ratio is None or compare.times(row.ratio) in text, row
    for sentence in (
        *(LOAD, "nginx: wrk-matrix, close, 1 connection Only in one", "detectable"),
        "so their differences are due to something else: axum.",
        # the five regressions are axum's rates under closed loads with 10 to 1000 connections
        "whole interval is worse by more than 10 %): 5.",
    ):
        assert sentence in text
    assert raw.count('alt="Forest plot of') == 1
    assert notebooks.figures_shown(page.with_suffix(".ipynb")) == ["compare-ratios"]
    assert {path.name for path in (in_lab / "figures" / "one--two").iterdir()} == {
        *("compare-ratios.png", "compare-ratios.svg")
    }


def test_other_conditions_are_shown_where_they_were_forced(in_lab, capsys):
    page = open_comparison("one", "elsewhere", force=True)
    for part in ("conditions", "left out"):
        page.show_part(part)
    said = plain(capsys.readouterr().out)
    assert "compared because of --force" in said and "cpus 2 4" in said
    assert "Both runs have the same cells" in said


def test_no_page_is_written_of_what_is_refused(in_lab, bench, tmp_path):
    page = tmp_path / "page.html"
    code, _, err = bench("one", "elsewhere", "--html", str(page))
    assert code == 2 and "to compare the runs anyway, give --force" in err and not page.exists()
    for name in ("page", "page.pdf", "."):
        code, out, err = bench("one", "two", "--html", str(tmp_path / name))
        assert (code, out) == (2, "") and "a file that ends in .html" in err


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"run_a": 1}, "run_a must be a valid string"),
        ({"force": "yes"}, "force must be a valid boolean"),
        ({"fail_above": "much"}, "fail_above must be a valid number"),
        ({"fail_above": -1}, "fail_above must be greater than or equal to 0"),
        ({"run_b": "nope"}, "There is no run 'nope'"),
    ],
)
def test_a_wrong_parameter_is_one_sentence(given, sentence, in_lab):
    with pytest.raises(LabError, match=sentence):
        open_comparison(**{"run_a": "one", "run_b": "two", **given})


def test_a_notebook_that_lacks_a_parameter_is_refused(in_lab, tmp_path):
    with pytest.raises(LabError, match="has no parameter run_a, run_b"):
        notebooks.execute(
            ROOT / "notebooks" / "report.ipynb",
            {"run_a": "one", "run_b": "two"},
            tmp_path / "o.ipynb",
        )


# --- the figure of the ratios of two runs ---------------------------------------------------------


def test_the_figure_has_the_intervals_and_the_border(lab, found):
    """The figure shows the interval of each ratio, with a hollow mark if the ratio is a tie.

    The figure also shows the border beyond which a change is a regression.
    """
    trials = pd.read_parquet(lab / "data" / "runs" / "one" / "tables" / "trials.parquet")
    chart = compare.ratios(found, identities(trials))
    figure = draw(chart)
    readable(figure)
    assert len(describe(chart)) <= 700
    rows = [(row, row.ratio) for row in found.comparisons if row.ratio is not None]
    drawn = [tuple(x) for x, _ in lines(figure, 0, "interval")]
    assert np.allclose(drawn, [(ratio.low, ratio.high) for _, ratio in rows])
    marks = [line for line in figure.axes[0].lines if line.get_marker() not in ("", "None", None)]
    assert [line.get_markerfacecolor() == "white" for line in marks] == [
        row.verdict == "tie" for row, _ in rows
    ]
    assert {round(float(x[0]), 3) for x, _ in lines(figure, 0, "limit")} == {0.9, 1.1}
    assert "10 % worse, the border of a regression" in words(figure)


def test_noise_of_one_program_under_two_names_is_a_tie(tmp_path):
    """A difference between two runs is a tie if it is no larger than the noise within a run.

    A campaign may declare that two of its servers are the same program. Then the difference between
    these two servers can only be noise. Here gin is declared a copy of axum, and is 6 % slower. So
    differences of up to 6 % between the runs are noise, but larger differences are not.
    """
    copies = {"campaign": synthetic_run.manifest()["campaign"] | {"copies": [["gin", "axum"]]}}
    faster = {("axum", "served_rps"): 1.04, ("nginx", "server_cpu_ms_per_request"): 1.5}
    plain = compare_runs(varied(tmp_path / "one"), varied(tmp_path / "two", faster))
    noisy = compare_runs(
        varied(tmp_path / "three", **copies), varied(tmp_path / "four", faster, **copies)
    )
    (axum, _), (axum_noisy, nginx_noisy) = (
        [
            {(r.load, r.server, r.quantity): r for r in found.comparisons}[LOAD, *key]
            for key in (("axum", "requests/s"), ("nginx", "CPU ms/request"))
        ]
        for found in (plain, noisy)
    )
    assert (axum.floor, axum.verdict) == (1.0, "better")
    assert axum_noisy.floor > 1.06 and (axum_noisy.verdict, nginx_noisy.verdict) == ("tie", "worse")
    figure = draw(compare.ratios(noisy, {}))
    assert lines(figure, 0, "floor") and "noise alone made" in words(figure)
    assert not lines(figure, 0, "limit")


def test_runs_with_too_few_trials_are_drawn_without_a_claim(tmp_path):
    found = compare_runs(
        varied(tmp_path / "one", trials=3), varied(tmp_path / "two", WORSE, trials=3)
    )
    chart = compare.ratios(found, {})
    figure = draw(chart)
    readable(figure)
    assert not lines(figure, 0, "interval") and "not enough trials" in words(figure)
    assert caption_faults(chart.caption) == []
    assert describe(chart).startswith("Forest plot of 0 ratios")
