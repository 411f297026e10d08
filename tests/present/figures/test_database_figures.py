"""Tests of figures and sentences about inserts and ramps.

Figures and sentences must show the numbers of a synthetic run, and must give no rank that the
verdicts forbid.
"""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import synthetic_database as known
import synthetic_run
from figure_checks import changed, lines, marks, picture, tables_of, with_facts, words
from known_means import whole_words
from matplotlib.figure import Figure
from scipy.stats import gmean

from runner.digest.verdict import judge
from runner.present.answers import inserts, summary
from runner.present.chart.value import charts, made
from runner.present.figures.seconds import sustained_rps
from runner.present.frames import Tables, limit_words
from runner.present.look import captions
from runner.present.notebook.pages import open_report
from runner.present.statistics.stats import window_means
from runner.verdict.evidence import DatabaseEvidence, Evidence

MINE = charts("postgres")
SECONDS = int(known.STEPS * known.STEP_S)
RAMP_LOAD = "devices-insert-ramp, 500 to 5,000 requests/s offered, pool of 50"


@pytest.fixture(scope="module")
def tables() -> Tables:
    return tables_of("database")


@pytest.fixture(scope="module")
def three() -> Tables:
    """Return a run of three servers with a database.

    Its figures are drawn faster than those of a run with nine servers.
    """
    return tables_of("three of a database")


ANSWERED, P90, SERVER_CPU, DATABASE_CPU = range(4)
"""The indexes of the panels in the figure `inserts-over-time`."""
IN_USE, MEMORY = range(2)
"""The indexes of the panels in the figure `inserts-pool-and-memory`."""


def panel(figure: Figure, server: str) -> int:
    """Return the index of the first panel in which the server is drawn."""
    labels = [{each.get_label() for each in (*ax.lines, *ax.containers)} for ax in figure.axes]
    return next(number for number, found in enumerate(labels) if server in found)


def test_the_rate_over_the_ramp_beside_the_offered_one(three: Tables) -> None:
    figure = picture("inserts-over-time", three)
    for server in known.THREE:
        ((t_s, rate),) = lines(figure, ANSWERED, server)
        assert t_s == pytest.approx(np.arange(len(t_s)) + 0.5) and len(t_s) >= SECONDS - 1
        assert rate == pytest.approx(
            [known.answered(server, second) for second in range(len(rate))]
        )
        ((at, offered),) = lines(figure, ANSWERED, "bound")
        assert np.interp(4.5, at, offered) == known.offered(4) and offered[-1] == known.LAST_RPS
    assert (
        "sustained to 5,000/s: axum; sustained to 4,000/s: gin (limit: server); "
        "sustained to 3,500/s: echo (limit: generator)"
    ) in words(figure)
    ramps = three.ramps(database=True)
    sustained = {
        server: sustained_rps(trials, three.throughput)
        for server, trials in ramps.groupby("server")
    }
    assert sustained == {"axum": [5000.0] * 3, "gin": [4000.0] * 3, "echo": [3500.0] * 3}
    none = three.throughput.assign(failed=three.throughput["requests"])
    assert sustained_rps(ramps.head(1), none) == [0.0]
    static = picture("static-over-time", three)
    assert lines(static, ANSWERED, "gin")[0][1][-1] == 4200
    assert "PostgreSQL" not in words(static)


def test_p90_of_each_second_is_the_median_of_the_trials(three: Tables) -> None:
    figure = picture("inserts-over-time", three)
    ((_, ms),) = lines(figure, P90, "gin")
    expected = [
        synthetic_run.quantiles(known.median_ms("gin", s, 2))["latency_p90_ms"]
        for s in range(SECONDS)
    ]
    assert ms == pytest.approx(expected, rel=0.012)
    frame = made("inserts-over-time", three).frame
    of_gin = frame[frame["series"].str.startswith("p90") & frame["server"].eq("gin")]
    assert (of_gin["low"].min(), of_gin["high"].max()) == pytest.approx(
        (expected[0] * 0.9, expected[-1] * 1.1), rel=0.012
    )
    assert figure.axes[P90].get_yscale() == "log" and "p90, ms (log scale)" in words(figure)
    # A second with too few requests has no p90.
    first = three.latency["second"].eq(0)
    cut = pd.concat(
        [three.latency[~first], three.latency[first].groupby("trial_id").head(20).assign(count=4)]
    )
    cut_frame = made("inserts-over-time", replace(three, latency=cut)).frame
    assert cut_frame.loc[cut_frame["series"].str.startswith("p90"), "x"].min() == 1.5


def test_cpu_memory_and_pool_are_the_known_ones(three: Tables) -> None:
    server = [100 * known.answered("gin", s) / known.capacity("gin") * 0.95 for s in range(SECONDS)]
    stored = [0.012 * known.answered("gin", s) for s in range(SECONDS)]
    in_use = [known.in_use("gin", s) for s in range(SECONDS)]
    for name, at, values, bound in (
        ("inserts-over-time", SERVER_CPU, server, 100),
        ("inserts-over-time", DATABASE_CPU, stored, 100),
        ("inserts-pool-and-memory", IN_USE, in_use, known.POOL),
        ("inserts-pool-and-memory", MEMORY, [20 + s for s in range(SECONDS)], None),
    ):
        figure = picture(name, three)
        ((_, drawn),) = lines(figure, at, "gin")
        assert drawn == pytest.approx(values, rel=0.01), (name, at)
        levels = [set(y) for _, y in lines(figure, at, "bound")]
        assert levels == ([{bound}] if bound else [])


def test_the_dashed_line_is_the_cpu_that_the_trials_gave(three: Tables) -> None:
    """The dashed lines show how much CPU the trials gave to the server and to PostgreSQL."""
    shared = changed(three, share=0.1, database_share=0.5)
    figure = picture("inserts-over-time", shared)
    for at, given_pct in ((SERVER_CPU, 10), (DATABASE_CPU, 50)):
        assert [set(y) for _, y in lines(figure, at, "bound")] == [{given_pct}]


def test_inserts_over_time_are_four_panels_without_an_empty_one(three: Tables) -> None:
    figure = picture("inserts-over-time", three)
    assert len(figure.axes) == 4
    for ax in figure.axes:
        assert {"axum", "gin", "echo"} <= {line.get_label() for line in ax.lines}
    nothing = three.latency.iloc[:0]
    assert len(picture("inserts-over-time", replace(three, latency=nothing)).axes) == 3


def test_the_samples_quota_is_the_dashed_line() -> None:
    sample = tables_of("sample")
    frame = made("inserts-over-time", sample).frame
    ramps = sample.ramps(database=True)
    for load, trials in ramps.groupby("load"):
        (share,) = set(trials["share"])
        given = frame[frame["panel"].eq(load) & frame["series"].eq("CPU of the server, % dashed")]
        assert set(given["y"]) == {100 * share}


def test_rows_are_as_many_as_the_answers_were(three: Tables) -> None:
    total = sum(known.answered(server, s) for server in known.THREE for s in range(SECONDS))
    every = (
        f"{3 * total:,} rows were in the database after 9 trials, in each trial as many as answers"
    )
    assert every in captions.rows_equal_answers(three.ramps(database=True))
    unequal = captions.rows_equal_answers(three.trials[three.trials["tool"] == "wrk"])
    assert "in 45 of the trials, up to 2 more than answers with 2xx" in unequal


def test_window_means_leave_out_what_was_not_sampled() -> None:
    means = window_means([0.5, 1.0, 2.0], [0.5, 0.5, 1.0], [0, 100, 40], [0, 1, 1.5, 2, 3])
    assert means[:3].tolist() == [50, 40, 40] and np.isnan(means[3])
    assert np.isnan(window_means([], [], [], [0, 1])).all()


def test_pool_sizes_have_means_ranges_and_hollow_points(three: Tables) -> None:
    figure = picture("inserts-by-pool-size", three)
    values, reach, _, filled = zip(
        *marks(figure, panel(figure, "gin"), "gin").values(), strict=True
    )
    rates = [[known.pool_rate("gin", pool, block) for block in (1, 2, 3)] for pool in known.POOLS]
    assert values == pytest.approx(gmean(rates, axis=1))
    assert reach[2] == pytest.approx(4200 * 0.02)
    assert filled == (False, True, True, True, True)
    labels = figure.axes[panel(figure, "gin")].get_xticklabels()
    assert [label.get_text() for label in labels] == ["4", "16", "64", "256", "500"]


def test_p99_by_pool_size_needs_ten_thousand_requests(three: Tables) -> None:
    frame = made("inserts-latency-by-pool-size", three).frame
    medians_ms = [512_000 / known.pool_rate("gin", 64, block) for block in (1, 2, 3)]
    p99_ms = [synthetic_run.quantiles(median)["latency_p99_ms"] for median in medians_ms]
    assert frame.query("server == 'gin' and x == 64")["y"].item() == pytest.approx(
        gmean(p99_ms), rel=1e-6
    )
    few = replace(three, trials=three.trials.assign(requests=9_999.0))
    assert "enough requests" in words(picture("inserts-latency-by-pool-size", few))


def findings(tables: Tables) -> str:
    return "\n".join(inserts.findings(tables))


def test_the_answer_ranks_only_servers_that_were_the_limit() -> None:
    text = findings(tables_of("six of a database"))
    first = text.splitlines()[1]
    # In block b, every rate is the known rate of the server times 0.98 + 0.01 b.
    blocks = 0.98 + 0.01 * np.arange(1, 7)
    order = ("hyper", "axum", "actix", "nethttp", "fiber", "gin")
    values = {name: f"{name} {whole_words(known.capacity(name) * blocks)}" for name in order}
    assert first.startswith("Most inserts per second: devices-insert") and re.sub(
        r" \(×[^)]*\)", "", first
    ).endswith(
        f"requests/s where the server was the limit: {' > '.join(values.values())}. "
        "Not ranked: echo, gnet (generator-bound 6 of 6)."
    )
    assert f"> {values['axum']} (×0.968 [0.968–0.968]) >" in first
    assert text.splitlines()[0].startswith("How to read an order")
    assert (
        "Rates that are not ranked: devices-insert, keep-alive, 512 connections, pool of 4 "
        "(limit: pool)." in text
    )
    assert (
        f"{RAMP_LOAD}: sustained to its end in every trial by actix, axum, hyper, gnet, nethttp;"
        in text
    )
    assert (
        "echo 3,500/s (limit: generator), fiber 4,500/s (limit: server), gin 4,000/s (limit: "
        "server)" in text
    )
    assert (
        "the smallest pool that is not slower than the fastest: "
        "64 for actix, axum, hyper, fiber, gin, nethttp" in text
    )
    assert "unknown: echo, gnet" in text
    assert "the pool in 48" in text and "the generator in 66" in text
    assert "PostgreSQL 15.18: fsync on, synchronous_commit off" in text
    assert "reference" not in text


def test_fewer_than_five_trials_have_values_and_no_rank(tables: Tables) -> None:
    text = findings(tables)
    assert (
        "devices-insert-k6, N = 500, pool of 50: requests/s where the server was the limit, "
        "not enough" in text
    )
    actix = gmean([5_544, 5_600, 5_656])
    assert f"trials for a ranking: actix {actix:,.0f} (5,544–5,656)" in text
    single = findings(replace(tables, trials=tables.trials[tables.trials["block"] == 1]))
    assert "not enough trials for a ranking: actix 5,544, axum 5,940" in single
    for said in (text, single):
        assert (
            ">" not in said and "no pool size can be advised (fewer than 5 trials of a size" in said
        )


def test_a_pool_that_cannot_be_told_from_the_fastest_is_as_good() -> None:
    gin = tables_of("six of a database").trials.query(
        "server == 'gin' and workload == 'devices-insert'"
    )
    assert inserts.smallest_pool(gin) == inserts.SmallestPool(64.0, detectable=1.0)
    rates = gin["served_rps"].where(
        gin["pool_size"] != 16, gin["served_rps"] / 0.96 * (1 + 0.01 * (-1) ** gin["block"])
    )
    found = inserts.smallest_pool(gin.assign(served_rps=rates))
    assert found is not None and found.size == 16 and 1.005 < found.detectable < 1.05
    assert inserts.smallest_pool(gin[gin["block"] < 5]) is None
    limited = gin["verdict"].mask(gin["pool_size"] == 64, "generator-bound")
    assert inserts.smallest_pool(gin.assign(verdict=limited)) is None


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        ("database-bound", "the database was busy"),
        ("inconclusive", "neither"),
        known.GENERATOR_FULL,
        known.POOL_FULL,
    ],
)
def test_no_rank_by_rate_where_the_server_was_not_the_limit(
    tables: Tables, verdict: str, reason: str
) -> None:
    other = changed(
        tables, tables.trials["pool_size"].notna(), verdict=verdict, verdict_reason=reason
    )
    text = findings(other)
    assert "Inserts per second are not ranked" in text
    assert ">" not in text  # ">" is the sign between servers that are ranked
    assert inserts.printable(other)["requests/s"].str.endswith("†").all()


def test_a_shared_cpu_is_said(tables: Tables) -> None:
    assert "PostgreSQL has 1 CPU, which it shares with the load generator" in findings(tables)
    place = tables.manifest.placement.as_json() | {"database": [2], "database_shared": False}
    alone = with_facts(tables, placement=place)
    assert "PostgreSQL has 1 CPU of its own." in findings(alone)


def test_an_exhausted_pool_has_a_word_of_its_own() -> None:
    for busy, limit in ((0.3, "pool"), (0.95, "database")):
        given = DatabaseEvidence(share=busy, shared=False, pool_exhausted_share=0.9)
        verdict = judge(Evidence(0.4, 0.4, 0.5, disjoint=True, database=given))
        row = {"verdict": verdict.limit.verdict, "verdict_cause": verdict.cause.value}
        assert limit_words(pd.DataFrame([row])) == limit


def test_a_run_whose_inserts_all_failed_has_no_number(tables: Tables) -> None:
    failed = replace(tables, trials=tables.trials.assign(status="failed"))
    assert inserts.findings(failed) == ("No number: 169 trials failed or stopped early.",)
    assert "No trial with rising rates of this run was sealed" in words(
        picture("inserts-over-time", failed)
    )


def test_the_report_holds_database_loads_apart(tables: Tables) -> None:
    assert set(tables.of("k6")["workload"]) == {"devices-insert-k6"}
    assert set(tables.of("wrk")["workload"]) == {"static"}
    text = "\n".join(summary.findings(tables))
    ramps = f"{RAMP_LOAD}; static-ramp, 500 to 5,000 requests/s offered"
    assert (
        f"{ramps}: the rate was set, so it is not ranked; dropped (median of the trials): echo "
        "(5,400)" in text
    )
    compared = next(
        line for line in text.splitlines() if line.startswith("Response times may be compared on")
    )
    assert f"{RAMP_LOAD} (actix, axum, hyper, gnet, nethttp)" in compared
    assert (
        "static, keep-alive, 64 connections: requests/s where the server was the limit, not enough"
        in text
    )
    assert "reference" not in text
    rows = summary.printable(summary.summarize(tables))
    calibration = rows[rows["server"] == "reference (calibration)"]
    assert calibration["verdicts"].str.startswith("offered").tolist() == [True, False]
    assert calibration["requests/s"].str.endswith("†").tolist() == [False, True]
    stored = rows[(rows["load"] == RAMP_LOAD) & (rows["server"] == "gin")].iloc[0]
    assert stored["database CPU ms/request"] == "0.120" and stored["dropped"] == "2,200"


def test_old_runs_have_nulls_where_columns_are_missing() -> None:
    old = tables_of("three")
    assert old.trials["pool_size"].isna().all() and old.resources["pool_in_use"].isna().all()
    assert not old.has_database() and old.ramps(database=False).empty


def test_a_run_without_a_database_says_so_and_draws_nothing(
    bare_lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = open_report(str(synthetic_run.build(bare_lab / "run", trials=1)))
    report.show_part("inserts")
    for name in MINE:
        report.show_figure(name)
    assert capsys.readouterr().out.count("<p>") == 1
    assert report.shown == [] and not (bare_lab / "figures").exists()
    assert not any(found.needs(report.tables) for found in MINE.values())
