"""Tests of showing the published numbers beside our numbers: as rows, as a page and as figures."""

import dataclasses
import re
import shutil
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
import shown
from figure_checks import lines, tables_of, words
from known_means import known_mean
from published_runs import CPU, RATE, RUST, WORLDS, build, plain
from scipy.stats import gmean
from synthetic_published import RPS, World

from runner.model import LabError
from runner.present.chart.drawing import draw
from runner.present.chart.value import charts
from runner.present.comparison import ratios as report_ratios
from runner.present.comparison.ratios import not_compared
from runner.present.frames import Tables, read_tables, sealed_trials
from runner.present.look.markup import NOT_RANKED, Heading
from runner.present.notebook import notebooks
from runner.present.notebook.pages import open_report
from runner.present.notebook.parts import evidence_words, judged_claims
from runner.present.published import claim_words, figures, published_table
from runner.present.published.claims import read_claims
from runner.present.published.counterparts import METRICS, read_published
from runner.present.published.judging import Judged, judge, judge_all
from runner.present.published.outcomes import ABSENT, HOLDS, OUTCOMES
from runner.store import find_run

PUBLISHED_FIGURES = charts("published")


def rows_of(
    tables: Tables, server: str, mode: str, connections: float
) -> list[published_table.Row]:
    """Return the rows of the table of published numbers for one published server and one load.

    The load is the one with this connection mode and this number of connections.
    """
    rows = published_table.rows(tables)
    return [
        r
        for r in rows
        if (r.number.server, r.number.mode, r.number.connections) == (server, mode, connections)
    ]


@pytest.mark.parametrize("run", ["published", "sample"])
def test_every_published_number_has_a_row(run: str) -> None:
    published = pd.DataFrame(read_published())
    found = Counter(str(row.number) for row in published_table.rows(tables_of(run)))
    asked = {str(number): len(METRICS[number.metric]) for number in read_published()}
    assert set(found) == set(asked)
    assert all(count % asked[number] == 0 for number, count in found.items())
    assert sum(found.values()) >= len(published) + (published["metric"] == "cpu_peak").sum()


def test_a_row_has_our_mean_its_interval_and_the_ratio() -> None:
    (row,) = rows_of(plain(), "gin", "close", 100)
    trials = plain().trials
    cell = trials["server"].eq("gin") & trials["mode"].eq("close") & trials["connections"].eq(100)
    rps = trials.loc[cell & trials["tool"].eq("wrk"), "served_rps"]
    ours = known_mean(rps)
    assert dataclasses.astuple(row.ours) == pytest.approx((6, *ours, 0.95))
    assert row.number.value == 86524.36 and row.ratio == pytest.approx(
        tuple(value / 86524.36 for value in ours)
    )
    assert "with which wrk opens 96 connections" in row.remarks[0]
    printed = published_table.printable([row]).iloc[0]
    assert printed["verdicts"] == "server-bound 6 of 6" and NOT_RANKED not in printed["here"]


def test_a_peak_has_a_row_for_each_window() -> None:
    found = published_table.rows(plain())
    rows = [
        row
        for row in found
        if (row.number.server, row.number.scenario) == ("rust", "experiments-md5")
    ]
    assert [(row.cell.server, row.metric) for row in rows] == [
        (server, f"CPU peak, %, over {window} here")
        for server in RUST
        for window in ("1 s", "100 ms")
    ]
    assert set(published_table.printable(rows)["server"]) == {"rust → axum", "rust → actix"}
    assert [row.ours.value for row in rows[:2]] == pytest.approx([1.2 * 40, 1.3 * 40], rel=0.1)


def test_few_trials_have_their_range_by_name() -> None:
    (row,) = rows_of(build(trials=3), "gin", "close", 100)
    assert row.ours.confidence is None and row.ours.trials == 3
    printed = published_table.printable([row]).iloc[0]
    assert re.fullmatch(r"[\d,]+ \([\d,]+–[\d,]+\)", printed["here"]) and printed["trials"] == "3"
    assert re.fullmatch(r"\d\.\d{3} \(\d\.\d{3}–\d\.\d{3}\)", printed["here / published"])


def test_the_highest_rate_is_held_against_the_published_one() -> None:
    (row,) = [r for r in published_table.rows(plain()) if r.number.scenario == "static"]
    assert row.cell.server == "gnet" and row.cell.load == "static, keep-alive, 64 connections"
    assert (
        row.ours.value == pytest.approx(RPS, rel=0.1)
        and "the load with the highest rate" in row.remarks[0]
    )


# --- published numbers beside those of the sample -------------------------------------------------


def test_of_the_sample_only_what_was_measured_is_said() -> None:
    sample = tables_of("sample")
    rows = published_table.rows(sample)
    counts = pd.Series([row.ours.trials for row in rows], [row.number.scenario for row in rows])
    assert counts[["static", "postgres-insert"]].min() >= 6
    experiments = [
        r
        for r in rows
        if r.number.scenario == "experiments" and r.cell.server in ("axum", "actix", "echo")
    ]
    assert experiments and all(row.ours.trials >= 6 for row in experiments)
    # In the sample, every load with MD5 ran on a share of a core. A peak of the CPU use then shows
    # only the quota, so the published peaks have no counterpart.
    hashed = [
        row for row in rows if row.number.scenario == "experiments-md5" and "CPU" in row.metric
    ]
    assert hashed and all(row.ours.trials == 0 for row in hashed)
    remarks = [
        remark for row in experiments for remark in row.remarks
    ]  # the sample's loads have as many users as the published loads
    assert not any(
        "instead of 3,000" in remark or "did not run under this load" in remark
        for remark in remarks
    )
    trials = sealed_trials(sample.trials[~not_compared(sample)])
    for row in (row for row in rows if row.ours.trials and row.metric == "requests/s"):
        cell = trials[trials["server"].eq(row.cell.server) & trials["load"].eq(row.cell.load)]
        assert row.ours.value == pytest.approx(gmean(cell["served_rps"]))
        assert row.ours.trials == len(cell)


def test_numbers_in_the_samples_words_are_those_of_its_tables() -> None:
    sample = tables_of("sample")
    trials = sealed_trials(sample.trials[~not_compared(sample)])
    checked = 0
    for part in (part for each in judge_all(sample) for part in each.found.parts if part.values):
        if not (
            found := re.match(
                r"(\w+)/(\w+) (requests/s|CPU ms/request), ([\w-]+), (\d+)", part.words
            )
        ):
            continue
        cell = trials[trials["load"].isin([each.load for each in part.cells])]
        assert set(cell["mode"]) == {found[4].replace("keep-alive", "keepalive")}
        assert set(cell["connections"]) == {float(found[5])}
        column = {"requests/s": "served_rps", "CPU ms/request": CPU}[found[3]]
        means = cell.groupby("server")[column].agg(gmean)
        for server in found.group(1, 2):
            said = re.search(rf"\b{server}: ([\d,.]+)", part.values)
            assert said and float(said[1].replace(",", "")) == pytest.approx(
                means[server], rel=0.006
            )
            checked += 1
    assert checked >= 20


# --- the page of published numbers and claims -----------------------------------------------------


@pytest.mark.long
def test_the_page_has_every_claim_every_number_and_every_figure(bare_lab: Path) -> None:
    shutil.copytree(plain().folder.path, bare_lab / "data" / "sample")
    executed = bare_lab / "published.ipynb"
    html = bare_lab / "published.html"
    notebooks.execute(bare_lab / "notebooks" / "published.ipynb", {"run": "sample"}, executed)
    notebooks.export_html(executed, html)
    text = html.read_text()
    plainly = shown.plain(text)
    judged = judge_all(plain())
    counts = Counter(each.found.outcome for each in judged)
    assert f"Of {len(judged)} published claims {counts[HOLDS]} hold" in plainly
    for outcome in OUTCOMES:
        assert f"{outcome[0].upper()}{outcome[1:]}: {counts[outcome]}" in plainly
    for each in judged:
        assert plainly.count(each.claim.says) == 2, (
            each.claim.name
        )  # once in the answer, and once in the list of claims
        if each.claim.range_words and each.found.outcome != ABSENT:
            assert f"{each.measured}, claimed {each.claim.range_words}: " in plainly, (
                each.claim.name
            )
    assert "<code>bench run claims</code>" in text and "`" not in text
    for value in ("86,524", "170,000", "821", "39,000"):
        assert value in plainly
    assert notebooks.figures_shown(executed) == list(PUBLISHED_FIGURES)
    assert text.count('alt="Forest plot') == len(PUBLISHED_FIGURES)
    drawn = {path.name for path in (bare_lab / "figures" / "sample").iterdir()}
    assert drawn == {f"{name}.{kind}" for name in PUBLISHED_FIGURES for kind in ("png", "svg")}


def test_cells_are_one_line_and_show_every_source() -> None:
    code = shown.cells("published")
    assert all("\n" not in source for source in code[2:])
    named = [re.search(r'"claims", "(.+)"', source) for source in code]
    parts = [found[1].lower() for found in named if found]
    sources = {number.source for number in read_published()}
    assert all(sum(part in source.lower() for part in parts) == 1 for source in sources)
    assert 'page.show_part("claims")' in code  # shows the claims of all other sources


def test_an_unknown_figure_or_source_is_one_sentence() -> None:
    page = open_report(str(plain().folder.path))
    with pytest.raises(LabError, match="There is no figure 'nope'"):
        page.show_figure("nope")
    with pytest.raises(LabError, match="No claim has a source whose name contains 'nope'"):
        page.show_part("claims", "nope")


def test_a_claim_without_a_published_source_is_on_the_page() -> None:
    sources = {number.source for number in read_published()}
    known = tuple(claim for claim in read_claims() if claim.source in sources)
    mine = dataclasses.replace(known[-1], name="mine", short="Mine", source="")
    for others, headings in (
        ((), []),
        ((mine,), ["Claim by claim: others", "Mine (does not hold)"]),
    ):
        judged = [Judged(claim, judge(plain(), claim)) for claim in (*known, *others)]
        blocks = judged_claims(judged)
        assert [block.text for block in blocks if isinstance(block, Heading)] == headings


def evidence(tables: Tables, name: str) -> list[str]:
    return next(list(evidence_words(each)) for each in judge_all(tables) if each.claim.name == name)


def test_what_is_said_of_a_claim() -> None:
    first, seen, place, why = evidence(plain(), "axum-grows-to-1000")
    assert first.startswith("Looked at: requests/s of axum") and first.endswith(
        " A ratio above 2 agrees."
    )
    assert re.match(
        r"axum requests/s, keep-alive, 1000/100: .*; ×\d\.\d{3} \[.*\]\. Does not hold: ", seen
    )
    assert "CPUs of their own" in place and why == "Why: the ratio lies beyond what is claimed."


def test_what_was_seen_in_no_comparison_is_said_once() -> None:
    first, seen, _ = evidence(build(World(without=(("actix", "*"),))), "actix-slower")
    assert "actix did not run" not in first
    assert (
        seen.count("actix did not run under this load") == 1
        and seen.count("actix/axum requests/s") == 4
    )


# --- the figures of published ratios and claims ---------------------------------------------------


CLOSE_RATES = "axum beside gin: requests/s of count, close"


def ratios(tables: Tables) -> pd.DataFrame:
    """Return the data of the figure that shows published ratios beside ours.

    Each row has a published ratio (`other`) and our ratio (`y`). The index is (panel, label of the
    row in the figure).
    """
    return figures.beside_ours(tables).frame.set_index(["panel", "server"])


def test_the_published_ratios_stand_beside_ours() -> None:
    tables = build(
        World({("gin", "close-100", RATE): 1.5, ("echo", "experiments", "latency_p90_ms"): 2.0})
    )
    found = ratios(tables)
    close = found.loc[CLOSE_RATES, "100 connections"].squeeze()
    # A ratio of rates is Rust / Go, and a ratio of times is Go / Rust. So in both cases, a ratio
    # above 1 means that Rust is ahead.
    assert close["other"] == pytest.approx(67543.18 / 86524.36) and close["y"] == pytest.approx(
        1 / 1.5, rel=0.02
    )
    assert close["low"] < 1 / 1.5 < close["high"] and close["solid"]
    p90 = found.loc["actix beside echo: experiments, 3,000 users", "p90"].squeeze()
    assert p90["other"] == pytest.approx(585.68 / 580.66) and p90["y"] == pytest.approx(
        2.0, rel=0.02
    )
    figure = draw(figures.beside_ours(tables))
    drawn = [float(x[0]) for x, _ in lines(figure, 0, "other")]
    assert sorted(drawn) == pytest.approx(sorted(found["other"]))
    assert len(lines(figure, 0, "interval")) == len(found)


def test_the_figure_has_the_intervals_of_the_report() -> None:
    """The figure and the report show the same interval for axum and gin at 100 connections.

    Both intervals have the run's level of confidence, and both are widened by the run's noise.
    """
    tables = read_tables(find_run("sample"))
    of_figure = ratios(tables).reset_index()
    of_report = report_ratios.frame(tables)
    is_rate = of_report["quantity"].eq("served_rps") & of_report["server"].eq("gin")
    for mode in ("close", "keep-alive"):
        load = of_report["load"].str.contains(f"wrk-matrix, {mode}, 100 connections")
        (reported,) = of_report[is_rate & load].to_dict("records")
        group = of_figure["panel"].eq(f"axum beside gin: requests/s of count, {mode}")
        label = of_figure["server"].eq("100 connections")
        (drawn,) = of_figure[group & label].to_dict("records")
        for name, of_row in (("y", "ratio"), ("low", "low"), ("high", "high")):
            assert drawn[name] == pytest.approx(reported[of_row], rel=1e-9), mode


def test_ratios_that_are_not_the_servers_are_hollow() -> None:
    tables = build(World(verdicts={"close-100": "generator-bound"}))
    rows = ratios(tables)
    solid = rows["solid"]
    rates = solid.loc[CLOSE_RATES]
    assert not rates["100 connections"] and rates["1,000 connections"]
    # In a closed load, requests wait in a queue with any server. So response times say little about
    # the server, and their marks are hollow.
    is_time = rows.index.get_level_values("server").str.match(r"p\d")
    assert not solid[is_time].any()
    ax = draw(figures.beside_ours(tables)).axes[0]
    dots = [line.get_markerfacecolor() for line in ax.lines if line.get_marker() == "o"]
    assert dots.count("white") == (~solid.astype(bool)).sum()


def test_the_figure_of_the_claims_has_each_ratio_over_its_range() -> None:
    tables = build(WORLDS["axum-grows-to-1000"][0])
    figure = draw(figures.claimed_and_measured(tables))
    ((x, _),) = lines(figure, 0, "axum is 2.7 times as fast at 1,000 as at 100")
    assert float(x[0]) == pytest.approx(2.7, rel=0.02)
    judged = [
        each
        for each in judge_all(tables)
        if each.claim.range_words and each.found.outcome != ABSENT
    ]
    counts = [
        sum(part.ratio is not None and part.outcome != ABSENT for part in each.found.parts)
        for each in judged
    ]
    assert len(lines(figure, 0, "interval")) == counts.count(1)
    assert len(lines(figure, 0, "range")) == sum(count > 1 for count in counts)
    frame = figures.claimed_and_measured(tables).frame
    assert len(frame) == sum(counts)
    drawn = [text.get_text() for text in figure.axes[0].texts]
    row = drawn.index("axum is 2.7 times as\nfast at 1,000 as at 100")
    assert drawn[row : row + 4][1] == "> 2" and drawn[row + 3] == "holds"


def test_the_figure_of_the_claims_fits_a_screen() -> None:
    figure = draw(figures.claimed_and_measured(tables_of("sample")))
    assert figure.get_size_inches()[1] <= 16


def test_every_claim_about_a_ratio_has_a_sentence() -> None:
    about_ratios = {claim.name for claim in read_claims() if claim.range_words}
    assert set(claim_words.SENTENCES) == about_ratios


def test_a_ratio_that_was_not_measured_has_no_row() -> None:
    rows = ratios(tables_of("sample"))
    assert rows["y"].notna().all() and len(rows) == 20


def test_figures_of_a_run_with_too_few_trials_say_so() -> None:
    tables = build(trials=2)
    assert [name for name, found in PUBLISHED_FIGURES.items() if found.needs(tables)] == [
        "published-ratios"
    ]
    assert "5 trials of each side" in words(draw(figures.claimed_and_measured(tables)))
