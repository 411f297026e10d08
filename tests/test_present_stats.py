"""Statistics against numpy and known values; sentences and tables against hand-made cells."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import synthetic_run

from runner.present import published, summary
from runner.present.frames import Tables, read_tables
from runner.present.markup import to_html, to_markdown
from runner.present.stats import Spread, carried_quantile, histogram_quantile, sliding_mean, spread
from runner.present.style import number
from runner.store import RunFolder

QUANTILES = np.array([0.25, 0.5, 0.9, 0.99, 0.999])


@pytest.mark.parametrize("law", ["lognormal", "uniform", "bimodal"])
def test_histogram_quantiles_are_within_one_percent_of_numpy(law: str) -> None:
    rng = np.random.default_rng(3)
    values = {
        "lognormal": rng.lognormal(3, 1, 200_000),
        "uniform": rng.uniform(0.5, 800, 200_000),
        "bimodal": np.concatenate([rng.normal(1, 0.05, 150_000), rng.normal(900, 20, 50_000)]),
    }[law]
    rows = synthetic_run.histogram(values, "t", None)
    got = histogram_quantile(rows["lower_ms"], rows["upper_ms"], rows["count"], QUANTILES)
    assert np.allclose(got, np.quantile(values, QUANTILES), rtol=0.01)


def test_histogram_quantile_interpolates_inside_a_bucket_in_any_order() -> None:
    got = histogram_quantile([10, 0], [20, 10], [4, 4], [0.0, 0.25, 0.5, 0.75, 1.0])
    assert got.tolist() == [0, 5, 10, 15, 20]
    assert np.isnan(histogram_quantile([], [], [], [0.5])).all()


def test_merged_histograms_equal_the_histogram_of_all() -> None:
    rng = np.random.default_rng(4)
    a, b = rng.lognormal(2, 1, 30_000), rng.lognormal(4, 0.5, 10_000)
    rows = pd.concat([synthetic_run.histogram(a, "a", None), synthetic_run.histogram(b, "b", None)])
    got = histogram_quantile(rows["lower_ms"], rows["upper_ms"], rows["count"], QUANTILES)
    assert np.allclose(got, np.quantile(np.concatenate([a, b]), QUANTILES), rtol=0.01)


def test_spread_is_exact_and_skips_nan() -> None:
    assert spread([3, 1, np.nan, 2]) == Spread(3, 2.0, 1.0, 3.0)
    assert spread([4, 1]).median == 2.5
    assert spread([]).n == 0 and np.isnan(spread([]).median)
    assert Spread(2, 2, 1, 3).overlaps(Spread(2, 3.5, 3, 4))
    assert not Spread(2, 2, 1, 3).overlaps(Spread(2, 4, 3.5, 5))


def test_carried_quantile() -> None:
    assert carried_quantile(10_000) == pytest.approx(0.99)
    assert carried_quantile(50) == 0.0 and carried_quantile(0) == 0.0


def test_sliding_mean_of_a_duty_cycle_with_uneven_ticks() -> None:
    rng = np.random.default_rng(5)
    ends = np.sort(rng.uniform(0, 10, 4000))
    steps = np.diff(ends, prepend=0.0)
    # On for the first half of each second: every 1 s window holds exactly 50 % of it.
    share = np.array([busy_seconds(e) - busy_seconds(e - d) for e, d in zip(ends, steps, strict=True)]) / steps
    t_s, mean = sliding_mean(ends, steps, 100 * share, 1.0)
    assert np.allclose(mean, 50, atol=1.0)
    _, fine = sliding_mean(ends, steps, 100 * share, 0.1)
    assert fine.max() == pytest.approx(100, abs=1) and fine.min() == pytest.approx(0, abs=1)
    assert t_s.min() >= 1.0
    assert sliding_mean([], [], [], 1.0)[0].size == 0


def busy_seconds(t: float) -> float:
    return np.floor(t) * 0.5 + min(t % 1, 0.5)


@pytest.mark.parametrize(
    ("value", "text"),
    [(9254.3, "9,254"), (84.53, "84.5"), (0.04123, "0.0412"), (1.0, "1.00"), (0, "0"), (np.nan, "–"), (99.96, "100")],
)
def test_numbers_print_three_digits(value: float, text: str) -> None:
    assert number(value) == text


# --- answer -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    return read_tables(RunFolder(synthetic_run.build(tmp_path_factory.mktemp("run"))))


def changed(tables: Tables, trials: pd.DataFrame, **manifest: object) -> Tables:
    return Tables({**tables.manifest, **manifest}, trials, tables.latency, tables.throughput, tables.resources)


def test_summary_has_the_known_values(tables: Tables) -> None:
    row = summary.summarize(tables).set_index(["load", "server"]).loc[("experiments, N = 3000", "gin")]
    assert (row["trials"], row["left_out"], row["rps"]) == (3, 0, 9000)
    assert (row["rps_low"], row["rps_high"]) == (8820, 9180)
    assert row["p99_ms"] == pytest.approx(280 * np.exp(0.55 * 2.3263478740), rel=1e-6)
    assert row["cpu_ms_per_request"] == pytest.approx(820 / 9000)
    assert not row["server_bound"]


def test_summary_leaves_out_a_p99_that_the_sample_cannot_carry(tables: Tables) -> None:
    few = changed(tables, tables.trials.assign(requests=9_999.0))
    assert summary.summarize(few)["p99_ms"].isna().all()


def test_throughput_is_ranked_only_where_every_trial_was_server_bound(tables: Tables) -> None:
    findings = summary.answer(tables).findings
    by_load = {text.split(": requests/s")[0]: text for text in findings if ": requests/s" in text}
    assert "rank nobody" in by_load["experiments, N = 3000"]
    assert "axum 78,000 > gin 73,320" in by_load["wrk-matrix, keep-alive, 100 connections"]
    assert "Not ranked: nginx (generator-bound 3 of 3)" in by_load["wrk-matrix, keep-alive, 100 connections"]
    one = tables.trials["trial_id"] == "axum-wrk-matrix-c100-keepalive-b1"
    mixed = changed(tables, tables.trials.assign(verdict=tables.trials["verdict"].mask(one, "inconclusive")))
    text = next(f for f in summary.answer(mixed).findings if f.startswith("wrk-matrix, keep-alive, 100 "))
    assert "only gin was the limit" in text
    assert "axum (server-bound 2 of 3, inconclusive 1 of 3)" in text


def test_a_load_without_a_sealed_trial_has_no_number(tables: Tables) -> None:
    load = tables.trials["workload"] == "experiments"
    failed = changed(tables, tables.trials.assign(status=tables.trials["status"].mask(load, "failed")))
    text = summary.answer(failed).findings[0]
    assert text == (
        "experiments, N = 3000: no number, since no trial was sealed: axum (4 failed); gin, nginx (3 failed)."
    )


def test_overlapping_ranges_are_not_an_order(tables: Tables) -> None:
    trials = tables.trials.copy()
    load = trials["load"] == "wrk-matrix, keep-alive, 100 connections"
    trials.loc[load & (trials["server"] == "gin"), "rps"] = [77_000.0, 77_900.0, 79_000.0]
    text = next(f for f in summary.answer(changed(tables, trials)).findings if "keep-alive, 100 " in f)
    assert "axum 78,000 ≈ gin 77,900" in text


def test_single_trials_rank_nobody(tmp_path: Path) -> None:
    single = read_tables(RunFolder(synthetic_run.build(tmp_path, trials=1)))
    text = " ".join(summary.answer(single).findings)
    assert " > " not in text and " < " not in text and "≈" not in text


def test_response_times_are_compared_only_where_offered(tables: Tables) -> None:
    assert "Response times rank nobody" in summary.answer(tables).findings[-1]
    load = tables.trials["workload"] == "experiments"
    offered = changed(
        tables,
        tables.trials.assign(
            verdict=tables.trials["verdict"].mask(load, "offered"),
            load_model=tables.trials["load_model"].mask(load, "open"),
        ),
    )
    assert summary.answer(offered).findings[-1].startswith("Response times may be compared on: experiments")


def test_engine_fallback_is_the_first_warning(tables: Tables) -> None:
    first = summary.answer(tables).warnings[0]
    assert first.startswith("Not in containers") and "no Docker engine answered" in first
    docker = changed(tables, tables.trials, engine="docker")
    assert not any("containers" in warning for warning in summary.answer(docker).warnings)


def test_rows_for_a_terminal_are_texts(tmp_path: Path) -> None:
    rows = summary.summary_rows(RunFolder(synthetic_run.build(tmp_path, trials=1, wrk=False)))
    assert rows[0]["server"] == "axum" and rows[0]["verdicts"] == "generator-bound 1 of 1; 1 failed"
    assert all(isinstance(value, str) for row in rows for value in row.values())


# --- beside the published numbers -------------------------------------------------------------------------


def test_matrix_beside_the_published_one(tables: Tables) -> None:
    table = published.matrix_table(tables, published.read_published())
    row = table[(table["mode"] == "keep-alive") & (table["connections"] == "100")].iloc[0]
    assert row["axum, here"] == "78,000 [76,440–79,560]"
    assert row["axum, published"] == "206,835" and row["gin, published"] == "214,376"
    assert row["gin/axum, here"] == "0.940"
    assert row["gin/axum, published"] == number(214375.67 / 206834.91)
    assert row["nginx, here"].endswith("†")
    alone = table[table["connections"] == "1"].iloc[0]
    assert alone["gin/axum, here"].endswith("†")


def test_experiments_beside_the_published_ones(tables: Tables) -> None:
    table = published.experiments_table(tables, published.read_published())
    row = table[(table["load"] == "experiments, N = 3000") & (table["metric"] == "requests/s")].iloc[0]
    assert row["rust (Rust), published"] == "9,254; 9,500"
    assert row["echo (Go), published"] == "9,115"
    assert row["gin (Go), here"] == "9,000 [8,820–9,180] †"


def test_a_run_without_published_workloads_has_empty_tables(tmp_path: Path) -> None:
    other = read_tables(RunFolder(synthetic_run.build(tmp_path, k6=(), wrk=False)))
    assert published.matrix_table(other, published.read_published()).empty
    assert published.experiments_table(other, published.read_published()).empty


def test_markup_escapes() -> None:
    frame = pd.DataFrame([{"a": "x|y\nz", "b": "<b> †"}])
    assert to_markdown(frame).splitlines()[-1] == "| x\\|y z | <b> † |"
    assert '<td class="grey" style="color:#767676">&lt;b&gt; †</td>' in to_html(frame)
