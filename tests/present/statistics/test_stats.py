"""Tests of statistics, and of the summary's sentences and tables.

Statistics must agree with numpy and known values. Sentences and tables must agree with the known
values of synthetic runs.
"""

import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import synthetic_rates
import synthetic_run
from figure_checks import (
    HUNDRED,
    campaign_with,
    changed,
    folder_of,
    of,
    read,
    tables_of,
    with_facts,
)
from known_means import known_mean, whole_words
from matplotlib import pyplot as plt
from scipy import stats
from synthetic_run import rewrite

from runner.columns import columns
from runner.digest.tables import trial_row
from runner.present.answers import summary
from runner.present.chart.drawing import draw
from runner.present.chart.sentences import describe
from runner.present.chart.value import charts, made
from runner.present.figures import sweeps
from runner.present.frames import Tables
from runner.present.look.markup import TextTable, html, to_markdown
from runner.present.look.numbers import number
from runner.present.statistics.stats import (
    Spread,
    carried_quantile,
    histogram_quantile,
    histogram_quantiles,
    sliding_mean,
    spread,
)

QUANTILES = np.array([0.25, 0.5, 0.9, 0.99, 0.999])
AXUM = 78_000 * np.arange(0.98, 1.09, 0.02)


RNG = np.random.default_rng(3)
LATENCIES = {
    "lognormal": [RNG.lognormal(3, 1, 200_000)],
    "uniform": [RNG.uniform(0.5, 800, 200_000)],
    "bimodal": [np.concatenate([RNG.normal(1, 0.05, 150_000), RNG.normal(900, 20, 50_000)])],
    "of two histograms": [RNG.lognormal(2, 1, 30_000), RNG.lognormal(4, 0.5, 10_000)],
}


@pytest.mark.parametrize("law", LATENCIES)
def test_histogram_quantiles_are_within_one_percent_of_numpy(law):
    rows = pd.concat([synthetic_run.histogram(values, "t", None) for values in LATENCIES[law]])
    found = histogram_quantile(rows["lower_ms"], rows["upper_ms"], rows["count"], QUANTILES)
    assert found == pytest.approx(np.quantile(np.concatenate(LATENCIES[law]), QUANTILES), rel=0.01)


def test_histogram_quantile_interpolates_inside_a_bucket():
    got = histogram_quantile([10, 0], [20, 10], [4, 4], [0.0, 0.25, 0.5, 0.75, 1.0])
    assert got.tolist() == [0, 5, 10, 15, 20]
    assert np.isnan(histogram_quantile([], [], [], [0.5])).all()


def test_spread_is_exact_and_skips_nan():
    assert spread([3, 1, np.nan, 2]) == Spread(3, 2.0, 1.0, 3.0)
    assert spread([4, 1]).median == 2.5
    assert spread([]).n == 0 and np.isnan(spread([]).median)
    assert [carried_quantile(count) for count in (10_000, 50, 0)] == pytest.approx([0.99, 0, 0])


def test_sliding_mean_of_a_duty_cycle_with_uneven_ticks():
    ends = np.sort(np.random.default_rng(5).uniform(0, 10, 4000))
    steps = np.diff(ends, prepend=0.0)
    # The server is busy for the first half of each second, so its CPU use is 50 % in every window
    # of 1 s.
    busy = np.floor(ends) * 0.5 + np.minimum(ends % 1, 0.5)
    pct = 100 * np.diff(busy, prepend=0.0) / steps
    t_s, mean = sliding_mean(ends, steps, pct, 1.0)
    assert np.allclose(mean, 50, atol=1.0) and t_s.min() >= 1.0
    _, fine = sliding_mean(ends, steps, pct, 0.1)
    assert (fine.max(), fine.min()) == (pytest.approx(100, abs=1), pytest.approx(0, abs=1))
    assert sliding_mean([], [], [], 1.0)[0].size == 0


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (9254.3, "9,254"),
        (84.53, "84.5"),
        (0.04123, "0.0412"),
        (1.0, "1.00"),
        (0, "0"),
        (np.nan, "–"),
        (99.96, "100"),
    ],
)
def test_numbers_print_three_digits(value, text):
    assert number(value) == text


# --- sentences and tables of the summary ----------------------------------------------------------


@pytest.fixture(scope="module")
def tables() -> Tables:
    return tables_of("three")


@pytest.fixture(scope="module")
def six() -> Tables:
    """Return a run with six trials in each cell of wrk.

    In block b, each rate is the known rate of the cell times 0.96 + 0.02 b.
    """
    return tables_of("six of wrk")


def finding(tables: Tables, load: str = HUNDRED, quantity: str = "requests/s") -> str:
    return next(text for text in summary.findings(tables) if text.startswith(f"{load}: {quantity}"))


def text_of(tables: Tables) -> str:
    return " ".join(summary.findings(tables))


def cost_words(tables: Tables, server: str) -> str:
    """Return the summary's words for a server's CPU time per request.

    The words give the mean, and half the width of the mean's interval in percent of the mean.
    """
    mean = known_mean(tables.trials.loc[of(tables, server), "server_cpu_ms_per_request"])
    return f"{server} {number(mean.value)} ±{mean.half_pct:.2g} %"


def test_summary_has_the_known_values(tables):
    row = (
        summary.summarize(tables)
        .set_index(["load", "server"])
        .loc[("experiments, N = 3000", "gin")]
    )
    rps = [8820, 9000, 9180]
    mean = stats.gmean(rps)
    assert row[["trials", "compared", "left_out"]].tolist() == [3, 3, 0]
    assert row[["rps", "rps_low", "rps_high"]].tolist() == pytest.approx([mean, 8820, 9180])
    p99_ms = 280 * np.exp(0.55 * 2.3263478740)
    assert row["p99_ms"] == pytest.approx(p99_ms / stats.gmean([0.98, 1, 1.02]), rel=1e-6)
    assert row["cpu_ms_per_request"] == pytest.approx(820 / 9000)
    assert not row["server_bound"]
    few = changed(tables, requests=9_999.0)
    assert summary.summarize(few)["p99_ms"].isna().all()  # too few requests for a p99


def test_throughput_is_ranked_only_if_all_are_server_bound(six):
    axum, gin = (whole_words(AXUM * scale) for scale in (1, 0.94))
    assert finding(six) == (
        f"{HUNDRED}: requests/s where the server was the limit: axum {axum} > gin {gin} (×0.940 "
        "[0.940–0.940]). Not ranked: nginx (generator-bound 6 of 6)."
    )
    assert "are not ranked" in finding(six, "wrk-matrix, keep-alive, 1 connection")
    mixed = changed(
        six, six.trials["trial_id"] == "axum-wrk-matrix-c100-keepalive-b1", verdict="inconclusive"
    )
    assert "only gin was the limit" in finding(mixed)
    assert "axum (server-bound 5 of 6, inconclusive 1 of 6)" in finding(mixed)


def test_blocks_that_the_servers_share_do_not_hide_a_difference(six):
    """A small difference is found although the rates vary much more from block to block.

    The rates of both servers vary by 10 %, but they vary together: in each block axum is ahead by
    1 %. If the servers have no block in common, they are a tie.
    """
    near = changed(six, of(six, "gin"), served_rps=AXUM * 0.99)
    assert summary.findings(near)[0].startswith("How to read an order")
    axum, gin = (f"{name} {whole_words(AXUM * by)}" for name, by in (("axum", 1), ("gin", 0.99)))
    assert f"{axum} > {gin} (×0.990 [0.990–0.990])" in finding(near)
    elsewhere = near.trials["block"] + 100 * (near.trials["server"] == "gin")
    assert f"{axum} ≈ {gin}" in finding(changed(near, block=elsewhere))


def test_servers_that_do_not_differ_are_a_tie(six):
    """If no difference is found between two servers, the sentence calls them a tie.

    The sentence also says how large a difference would have been found.
    """
    gin = [79_000.0, 76_000, 82_000, 78_900, 84_500, 81_900]
    text = finding(changed(six, of(six, "gin"), served_rps=gin))
    difference = np.log(AXUM / gin)
    low, high = np.exp(stats.ttest_1samp(difference, 0).confidence_interval())
    values = f"gin {whole_words(gin)} ≈ axum {whole_words(AXUM)}"
    assert f"{values} (×{np.exp(difference.mean()):.3f} [{low:.3f}–{high:.3f}])" in text
    found = float(text.split("; differences below ")[1].split(" %")[0])
    # A power of 80 % with five degrees of freedom needs a noncentrality of 3.5.
    assert found == pytest.approx(
        100 * (np.exp(3.5 * difference.std(ddof=1) / np.sqrt(6)) - 1), rel=0.05
    )


def test_cpu_per_request_is_ranked_whatever_was_the_limit(six):
    text = finding(six, quantity="CPU ms per request")
    nginx, axum, gin = (cost_words(six, name) for name in ("nginx", "axum", "gin"))
    assert f"{nginx} < {axum} (×1.250 [1.250–1.250]) < {gin} (×1.064 [1.064–1.064])." in text
    assert text.endswith("The cost of gin is ×1.330 [1.330–1.330] that of nginx.")


def test_the_table_has_ranks_where_servers_are_ranked(six, tables):
    table = summary.summarize(six)
    assert table.set_index(["load", "server"])["rank"][HUNDRED].to_dict() == {
        "axum": "1 a",
        "gin": "2 b",
        "nginx": "",
    }
    assert set(summary.printable(table)[summary.RANK]) == {"1 a", "2 b", "–"}
    assert summary.RANK not in summary.printable(summary.summarize(tables))


def test_fewer_than_five_trials_are_values_and_no_ranking(tables, six):
    def three(rps: float) -> str:
        return f"{stats.gmean([rps * scale for scale in (0.98, 1, 1.02)]):,.0f}"

    assert finding(tables) == (
        f"{HUNDRED}: requests/s where the server was the limit, not enough trials for a ranking: "
        f"axum {three(78_000)} (76,440–79,560), gin {three(73_320)} (71,854–74,786). Not ranked: "
        "nginx (generator-bound 3 of 3)."
    )
    for few in (tables, replace(tables, trials=tables.trials[tables.trials["block"] == 1])):
        assert not any(sign in text_of(few) for sign in (" > ", " < ", "≈", "×"))
        assert "not enough trials for an interval or a ranking" in " ".join(
            summary.warnings_of(few)
        )
    cpu = finding(
        changed(six, six.trials["server"].eq("gin") & six.trials["block"].gt(4), status="failed"),
        quantity="CPU ms per request",
    )
    assert f"{cost_words(six, 'nginx')} < {cost_words(six, 'axum')}" in cpu
    assert "not enough trials for a rank: gin 0.0134 (0.0130–0.0138)" in cpu


def test_two_labels_of_one_server_are_the_noise_floor(six):
    near = changed(six, of(six, "gin"), served_rps=AXUM * 0.99)
    noise = np.array([0.985, 1.02, 1.01, 0.98, 1.0, 1.01])
    again = near.trials[of(near, "axum")]
    again = again.assign(
        server="axum-b",
        served_rps=again["served_rps"] * noise,
        trial_id="again-" + again["trial_id"],
    )

    def found(**more: object) -> str:
        trials = pd.concat([near.trials, again], ignore_index=True)
        return finding(
            replace(campaign_with(near, copies=[["axum-b", "axum"]], **more), trials=trials)
        )

    low, high = np.exp(stats.ttest_1samp(np.log(noise), 0).confidence_interval())
    floor = 100 * (max(high, 1 / low) - 1)
    assert (
        f"axum and axum-b are one server, so differences up to {floor:.2g} % count as noise"
        in found()
    )
    assert ">" not in found() and found().count("≈") == 2
    assert "are one server" not in found(environment=[["axum-b", "TOKIO_WORKER_THREADS", "2"]])
    assert "are one server" not in found(processes=["axum-b"])


def test_a_load_without_a_sealed_trial_has_no_number(tables):
    failed = changed(tables, tables.trials["workload"] == "experiments", status="failed")
    assert summary.findings(failed)[0] == (
        "experiments, N = 3000: no number, since no trial was sealed: axum (4 failed); gin, "
        "nginx (3 failed)."
    )


def test_response_times_are_compared_only_where_offered(tables, six):
    """Response times are ranked only if the rates of all trials were offered and sustained."""
    assert "Response times are not ranked" in text_of(tables)
    offered = changed(
        tables, tables.trials["workload"] == "experiments", verdict="offered", load_model="open"
    )
    assert "Response times may be compared on: experiments" in text_of(offered)
    offered = changed(six, of(six), verdict="offered", load_model="open")
    p50, p99 = (finding(offered, quantity=f"{name}, ms") for name in ("p50", "p99"))
    assert p50.count(" < ") == 2 and "nginx" in p50.split(" < ")[0] and "gin" in p50.split(" < ")[2]
    assert "(×1.250 [1.250–1.250])" in p99  # nginx is 1.25 times as fast as axum
    assert "p99, ms" not in text_of(changed(offered, requests=9_999.0))


def test_the_steps_of_a_search_are_no_load_of_the_summary(six):
    search = changed(six, of(six), objective="p99 <= 10 ms")
    assert HUNDRED not in set(summary.summarize(search)["load"]) and HUNDRED not in text_of(search)


def test_a_run_that_drifts_is_warned_of_and_a_steady_one_is_not(six):
    noise = np.random.default_rng(1).lognormal(0, 0.02, len(six.trials))
    steady = six.trials.groupby("load")["served_rps"].transform("mean") * noise
    slower = (
        steady * np.linspace(1, 0.9, len(six.trials))[six.trials["trial_order"].astype(int) - 1]
    )
    assert "drift" not in " ".join(summary.warnings_of(changed(six, served_rps=steady)))
    said = " ".join(summary.warnings_of(changed(six, served_rps=slower)))
    assert "The run drifted: later trials were slower (Spearman's rho" in said


def test_how_sure_p99_is_depends_on_the_shortest_trial(six):
    assert "How sure p99 is" not in text_of(changed(six, requests=262_742.0))
    few = text_of(changed(six, requests=10_000.0))
    assert (
        "the shortest has 10,000 requests" in few
        and "off by 26 % of its 1 %" in few
        and "262,742" in few
    )


def test_engine_fallback_is_the_first_warning(tables):
    first = summary.warnings_of(tables)[0]
    assert first.startswith("Not in containers") and "no Docker engine answered" in first
    docker = with_facts(tables, engine="docker")
    assert "containers" not in " ".join(summary.warnings_of(docker))


def test_rows_for_a_terminal_are_texts(tables):
    first = tables.trials[tables.trials["block"].isin([1, 4]) & tables.trials["tool"].eq("k6")]
    rows = summary.printable(summary.summarize(replace(tables, trials=first))).to_dict("records")
    assert rows[0]["server"] == "axum" and rows[0]["verdicts"] == "generator-bound 1 of 1; 1 failed"
    assert all(isinstance(value, str) for row in rows for value in row.values())


def test_markup_escapes():
    frame = pd.DataFrame([{"a": "x|y\nz", "b": "<b> †"}])
    assert to_markdown(frame).splitlines()[-1] == "| x\\|y z | <b> † |"
    assert (
        '<td class="grey" data-name="b" style="color:var(--grey,#767676)">&lt;b&gt; †</td>'
        in html([TextTable(frame)])
    )


# --- loads in which only some connections were kept -----------------------------------------------


def half_mixed(trials):
    half = trials["tool"].eq("k6") & (trials["block"] % 2 == 0)
    return trials.assign(mode=trials["mode"].mask(half, "mixed"))


@pytest.fixture(scope="module", params=["three", "rates"])
def mixed(request, tmp_path_factory):
    """Return a run in which half of the k6 trials kept only some of their connections."""
    folder = shutil.copytree(
        folder_of(request.param).path, tmp_path_factory.mktemp("mixed") / "run"
    )
    return read(rewrite(folder, "trials", half_mixed))


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [name for name, found in charts().items() if found.subject is Tables]
)
def test_every_figure_takes_it(mixed, name):
    chart = made(name, mixed)
    plt.close(draw(chart))
    assert describe(chart)


def test_loads_and_sweeps_are_named_by_it(mixed):
    loads = mixed.trials.loc[mixed.trials["mode"] == "mixed", "load"]
    assert loads.size and loads.str.contains(", mixed").all()
    assert mixed.trials["load_order"].notna().all()
    assert not summary.summarize(mixed).empty
    swept = sweeps.swept(mixed)
    assert all(name.endswith(", mixed") for name in swept.loc[swept["mode"] == "mixed", "sweep"])


def test_a_trial_s_row_has_the_mode_that_happened():
    cell = {"mode": "keepalive", "server": "a"}
    record = {"trial_id": "t", "order": 1, "cell": cell, "metrics": {"opened_pct": 12.0}}
    assert trial_row({**record, "mode": "mixed"})["mode"] == "mixed"
    assert trial_row({**record, "mode": None})["mode"] == trial_row(record)["mode"] == "keepalive"
    assert trial_row(record)["opened_pct"] == 12


def test_runs_without_the_new_columns_open(tmp_path):
    new = {"opened_pct", "ended_late_s", "probe_reopened_pct"}
    assert new <= {column.name for column in columns("trials") if column.optional}
    folder = synthetic_rates.forget(synthetic_rates.build(tmp_path, closed=False), *new)
    assert read(folder).trials[list(new)].isna().all(axis=None)


def test_quantiles_of_many_histograms_are_those_of_each():
    latency = tables_of("three").latency
    trials = latency["trial_id"].unique()
    wanted = pd.Series(np.linspace(0.5, 0.99, len(trials)), index=trials)
    found = histogram_quantiles(latency, wanted)
    for trial, rows in latency.groupby("trial_id"):
        merged = rows.groupby(["lower_ms", "upper_ms"], as_index=False)["count"].sum()
        (alone,) = histogram_quantile(
            merged["lower_ms"], merged["upper_ms"], merged["count"], wanted[trial]
        )
        assert found[trial] == pytest.approx(alone, rel=1e-12)


def test_no_histogram_has_no_quantile():
    nothing = tables_of("three").latency.head(0)
    assert histogram_quantiles(nothing, pd.Series(dtype=float)).empty
