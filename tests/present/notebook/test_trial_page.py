"""Tests of the page about one trial.

The page shows what two clients measured, Little's law, CPU use and the verdict. All of its numbers
must be those of the run's tables.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import synthetic_rates
from built import ROOT, bare_lab
from figure_checks import folder_of, lines, picture, probed_case, read, readable, tables_of, words
from shown import cells, texts
from synthetic_rates import PROBE_MS, USERS

from runner.model import LabError
from runner.present.answers import evidence
from runner.present.chart.value import charts
from runner.present.frames import Case, choose, probed
from runner.present.look.numbers import number
from runner.present.notebook import notebooks
from runner.present.notebook.parts import OF_A_TRIAL
from runner.store import find_run
from runner.verdict.limits import Limit

FIGURES = charts("report")
RATES_FIGURES = charts("rates")
VERDICT_FIGURES = charts("verdict")
NEWER = (
    *(
        "probe_p50_ms",
        "probe_p95_ms",
        "probe_p99_ms",
        "probe_requests",
        "probe_failed",
        "probe_cpu_mean_pct",
    ),
    *(
        "iteration_mean_ms",
        "in_flight_mean",
        "objective",
        "bisection",
        "sustained",
        "objective_kept",
    ),
)
"""The columns that are missing in runs of earlier versions of the lab."""


@pytest.fixture(scope="module")
def case() -> Case:
    return probed_case()


@pytest.fixture(scope="module")
def stored() -> pd.DataFrame:
    """Return the trials as they are on disk, indexed by trial id.

    The words of the page must agree with these numbers.
    """
    return pd.read_parquet(folder_of("probed").table("trials")).set_index("trial_id")


def with_row(case: Case, **values: Any) -> Case:
    return replace(case, row=case.row | values)


def test_the_trial_is_the_median_of_the_server_with_the_largest_difference(
    stored: pd.DataFrame, case: Case
) -> None:
    times = stored["latency_p50_ms"] / stored["probe_p50_ms"]
    assert case.row["server"] == "gin"
    assert stored["server"][times.idxmax()] == "gin"
    of_gin = stored.loc[stored["server"].eq("gin") & times.notna(), "latency_p50_ms"].sort_values()
    assert case.trial_id == of_gin.index[(len(of_gin) - 1) // 2]


def test_one_extreme_trial_is_not_shown_for_its_server() -> None:
    """Of a server's trials, the page shows the trial whose median response time is the middle one.

    The three trials have medians of 10, 20 and 900 ms, so the trial with 20 ms is shown.
    """
    tables = tables_of("probed")
    closed = tables.trials[
        tables.trials["server"].eq("gin") & tables.trials["load_model"].eq("closed")
    ]
    three = pd.concat([closed.iloc[[0]]] * 3, ignore_index=True).assign(
        trial_id=["low", "middle", "extreme"], probe_p50_ms=1.0, latency_p50_ms=[10.0, 20.0, 900.0]
    )
    found = choose(replace(tables, trials=three))
    assert found is not None and found.trial_id == "middle"
    assert evidence.range_words(found) == (
        "In 3 trials under this load, gin had medians of 10.0 to 900 ms."
    )


def test_a_trial_can_be_named_unless_unknown_or_failed() -> None:
    """A trial can be chosen by its name.

    If there is no trial of this name, or if the trial failed, the name is refused in one sentence.
    """
    tables = tables_of("probed")
    name = "echo-experiments-vus3000-b2"
    assert choose(tables, name).trial_id == name
    with pytest.raises(LabError, match="This run has no trial 'nope'"):
        choose(tables, "nope")
    failed = tables.trials.assign(status="failed", error="k6 ended with exit code 107.")
    with pytest.raises(LabError, match=r"was not sealed: k6 ended with exit code 107\."):
        choose(replace(tables, trials=failed), name)
    assert choose(replace(tables, trials=failed)) is None and not probed(
        replace(tables, trials=failed)
    )


def test_open_loads_and_calibration_servers_must_be_named() -> None:
    """Trials of open loads and of calibration servers are shown only if they are named."""
    tables = tables_of("rates")
    assert choose(tables) is None
    found = choose(tables, "reference-rates-r500-b1")
    assert set(found.peers["server"]) == {"reference"}
    assert "This load is open" in evidence.law_words(found)
    assert "requests not sent in time" in set(evidence.evidence_table(found)["evidence"])
    assert "experiments" not in evidence.trial_words(
        found
    ) and "500 requests/s offered" in evidence.trial_words(found)


def test_the_words_about_two_clients_have_the_tables_numbers(
    stored: pd.DataFrame, case: Case
) -> None:
    row = stored.loc[case.trial_id]
    said = evidence.generator_said(case)
    saw = evidence.probe_saw(case)
    for name, called in (("p50", "median"), ("p95", "p95"), ("p99", "p99")):
        assert f"{called} {number(row[f'latency_{name}_ms'])} ms" in said
    assert f"{number(row['rps'])} requests/s" in said
    assert f"{row['probe_requests']:,.0f} of the same requests" in saw
    assert f"Their median is {number(row['probe_p50_ms'])} ms" in saw
    ratio = row["latency_p50_ms"] / row["probe_p50_ms"]
    assert ratio > 10
    (said_ratio,) = re.findall(r"k6's is about ([\d,]+) times that", saw)
    assert float(said_ratio.replace(",", "")) == pytest.approx(ratio, rel=0.05)
    table = evidence.percentile_table(case).set_index("percentile")
    assert list(table["k6, ms"]) == [number(row[f"latency_{name}_ms"]) for name in table.index]
    assert list(table["probe, ms"]) == [number(row[f"probe_{name}_ms"]) for name in table.index]


def test_a_percentile_needs_enough_requests(
    case: Case,
) -> None:
    """The words about a trial give a percentile only if the trial has enough requests for it.

    The words also say that most of k6's median response time passed outside the server, but only
    if the probe was much faster than k6.
    """
    assert " ms passed outside the server." in evidence.probe_saw(case)
    few = with_row(case, requests=2000.0)
    said = evidence.generator_said(few)
    assert "p95 " in said and "p99" not in said
    slow = evidence.probe_saw(with_row(case, probe_p50_ms=case.row["latency_p50_ms"] * 2))
    assert (
        "0.500 times that, so the probe waited longer than k6's requests" in slow
        and "passed outside" not in slow
    )
    alike = evidence.probe_saw(with_row(case, probe_p50_ms=case.row["latency_p50_ms"] / 1.5))
    assert "1.50 times that" in alike and "passed outside" not in alike


def test_the_figure_has_both_medians_and_only_the_load(case: Case) -> None:
    figure = picture("verdict-two-clients", case)
    ((ours, _),) = lines(figure, 0, "median of k6")
    ((probes, _),) = lines(figure, 0, "median of probe")
    assert ours[0] == pytest.approx(synthetic_rates.MEDIAN_MS)
    assert probes[0] == pytest.approx(PROBE_MS / 2, rel=0.01)
    ((t_s, ms),) = lines(figure, 1, "probe")
    assert len(t_s) == 30 * synthetic_rates.PROBE_RPS and t_s.min() >= 0 and ms.max() < 900
    ((_, medians),) = lines(figure, 1, "k6")
    assert np.allclose(medians, synthetic_rates.MEDIAN_MS, rtol=0.05)
    for name in ("k6", "probe"):
        ((x, share),) = lines(figure, 0, name)
        # The logarithm of a log-normal latency has a symmetric distribution, so its peak is at the
        # median.
        assert x[np.argmax(share)] == pytest.approx({"k6": 280, "probe": 0.25}[name], rel=0.12)


@pytest.mark.parametrize("server", synthetic_rates.FACTOR)
def test_users_by_rate_are_the_mean_whatever_the_server(server: str) -> None:
    found = choose(tables_of("probed"), f"{server}-experiments-vus3000-b1")
    rate = evidence.steady_rps(found.row, found.tables.throughput)
    assert found.row["vus"] == USERS
    assert rate == pytest.approx(9000 * synthetic_rates.FACTOR[server], rel=0.01)
    expected_ms = 1000 * USERS / rate
    assert expected_ms == pytest.approx(found.row["latency_mean_ms"], rel=0.01)
    said = evidence.law_words(found)
    assert f"{USERS:,} / {rate:,.0f} s = {number(expected_ms)} ms" in said
    measured = "Measured, request and script: "
    assert f"{measured}{number(found.row['iteration_mean_ms'])} ms" in said
    assert f"(counted: {number(USERS - 4)})" in said


def test_a_load_without_a_steady_part_or_timeline_has_no_law(case: Case) -> None:
    assert "too short" in evidence.law_words(with_row(case, iteration_mean_ms=29_000.0))
    nothing = replace(case, tables=replace(case.tables, throughput=case.tables.throughput.iloc[:0]))
    assert "too short" in evidence.law_words(nothing)


def test_servers_differ_in_cpu_per_request(case: Case) -> None:
    table = evidence.servers_table(case).set_index("server")
    assert {name: text.split()[0] for name, text in table["CPU ms per request"].items()} == {
        "axum": "0.0500",
        "echo": "0.0800",
        "gin": "0.100",
    }
    for server in table.index:
        expected, mean = (
            float(table.loc[server, name].split()[0])
            for name in ("users / rate, ms", "k6's mean, ms")
        )
        assert expected == pytest.approx(mean, rel=0.01)
    assert "CPU ms per request" in evidence.price_words(case) and "axum" in evidence.price_words(
        case
    )


def test_the_figure_of_cpu_has_what_was_used_and_what_was_given(case: Case) -> None:
    figure = picture("verdict-cpu", case)
    ((_, server),) = lines(figure, 0, "server")
    # The server answers 9,000 requests/s, each with 0.1 ms of CPU time.
    assert np.median(server) == pytest.approx(90, rel=0.01)
    assert all(lines(figure, panel, "given")[0][1][0] == 100 for panel in (0, 1))
    assert "Server: gin" in words(figure) and "Generator: k6" in words(figure)


def test_the_evidence_has_the_tables_numbers(stored: pd.DataFrame, case: Case) -> None:
    row = stored.loc[case.trial_id]
    table = evidence.evidence_table(case).set_index("evidence")
    assert table.loc["CPU of the server", "value"].startswith(
        f"{number(row['server_cpu_mean_pct'])} % of 100 %"
    )
    assert table.loc["CPU of the server", "what it says"] == "10 % of its CPU was left"
    assert number(row["probe_p95_ms"]) in table.loc["response time, p95", "value"]
    assert table.loc["response time, p50", "what it says"] == "the probe's was 99.9 % shorter"
    assert "requests not sent in time" not in table.index  # the load is closed
    said = evidence.verdict_words(case)
    assert said.startswith(f"Verdict: {row['verdict']}: ") and row["verdict_reason"] in said
    known = evidence.evidence_table(with_row(case, generator_ceiling_rps=10_000.0)).set_index(
        "evidence"
    )
    assert (
        known.loc["what k6 reached against the fastest server", "what it says"]
        == "this load ran at 90 % of it"
    )


def test_every_verdict_of_the_lab_has_a_meaning() -> None:
    section = (
        (ROOT / "docs" / "method.md")
        .read_text()
        .partition("\n## Verdicts\n")[2]
        .partition("<!-- causes: begin -->")[0]
    )
    listed = re.findall(r"^\| `([a-z-]+)` \|", section, flags=re.MULTILINE)
    assert listed and set(listed) == {limit.verdict for limit in Limit}


def test_an_older_run_without_a_probe_says_so(
    tmp_path: Path,
) -> None:
    """The page about an older run says that the run has no probe, and shows everything else."""
    old = read(
        synthetic_rates.forget(synthetic_rates.build(tmp_path, blocks=2, rates=False), *NEWER)
    )
    found = choose(old)
    assert not probed(old) and found.probe is None
    assert evidence.probe_saw(found) == evidence.NO_PROBE
    assert list(evidence.percentile_table(found).columns) == ["percentile", "k6, ms"]
    assert "probe's p50, ms" not in evidence.servers_table(found).columns
    assert "Measured: " in evidence.law_words(found) and "counted" not in evidence.law_words(found)
    figure = picture("verdict-two-clients", found)
    assert "probe" not in words(figure) and "another client" not in words(figure)
    assert not lines(figure, 1, "probe") and lines(figure, 1, "k6")
    assert {"CPU of the server", "CPU of the generator"} <= set(
        evidence.evidence_table(found)["evidence"]
    )
    readable(figure)


@pytest.mark.parametrize("name", VERDICT_FIGURES)
def test_figures_can_be_read(name: str, case: Case) -> None:
    readable(picture(name, case))
    untimed = replace(case.tables, latency=case.tables.latency.assign(second=np.nan))
    readable(picture(name, replace(case, tables=untimed)))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lab = bare_lab(tmp_path_factory.mktemp("lab"))
    synthetic_rates.build(lab / "data" / "runs" / "rates", blocks=2)
    synthetic_rates.forget(
        synthetic_rates.build(lab / "data" / "sample", blocks=1, rates=False), *NEWER
    )
    return lab


@pytest.mark.long
def test_bench_report_makes_a_page_of_each_kind(in_lab: Path) -> None:
    report = notebooks.build_report(find_run("rates"))
    pages = {page.name: page for page in report}
    every = ("report", "cpu_spikes", "explore", "published", "rates", "verdict")
    assert list(pages) == [f"{name}.html" for name in every]
    named = {name for names in report.values() for name in names if not name.startswith("explore-")}
    # the run has no load by wrk, and its two blocks are too few for ratios
    without_data = {"ratios", "wrk-requests", "wrk-cpu-per-request"}
    assert named == {
        *(FIGURES.keys() - without_data),
        *RATES_FIGURES,
        *VERDICT_FIGURES,
        "cpu-spikes",
        "published-ratios",
    }
    sweeps, verdict = (pages[name].read_text() for name in ("rates.html", "verdict.html"))
    assert sweeps.count('alt="') == 2 and "k6 was the limit" in sweeps and "<script" not in sweeps
    assert verdict.count('alt="') == 2 and 'alt="Of one trial, gin under' in verdict
    assert "Verdict: generator-bound" in verdict


@pytest.mark.long
def test_the_pages_on_a_run_that_has_nothing_for_them(in_lab: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.ipynb"
    pages = [page.name for page in notebooks.build_report(find_run("sample"))]
    assert pages == ["report.html", "cpu_spikes.html", "explore.html", "published.html"]
    notebooks.execute(ROOT / "notebooks" / "verdict.ipynb", {"run": "sample"}, out)
    assert evidence.NO_PROBE in texts(out) and notebooks.figures_shown(out) == list(VERDICT_FIGURES)
    notebooks.execute(ROOT / "notebooks" / "rates.ipynb", {"run": "sample"}, out)
    assert "no load at a constant arrival rate" in texts(out) and notebooks.figures_shown(out) == []


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("rates", ['report.show_part("rates")']),
        ("verdict", [f'report.show_part("{part}")' for part in OF_A_TRIAL]),
    ],
)
def test_notebooks_show_every_part_and_no_number_in_prose(name: str, calls: list[str]) -> None:
    assert set(calls) <= set(cells(name))
    prose = " ".join(cells(name, "markdown"))
    assert not re.findall(r"\b\d", prose.replace("95 % interval", ""))
    assert not [limit for limit in Limit if limit != Limit.NONE and limit.verdict in prose]
