"""`bench compare` on synthetic runs whose difference is known: ratios, ties, regressions, machines and exit codes."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import synthetic_run
from scipy import stats

from runner.store import RunFolder

LOAD = "wrk-matrix, keep-alive, 100 connections"
OFFERED = "wrk-matrix, close, 100 connections, 1,000 requests/s offered"
MEASURED = ("rps", "server_cpu_ms_per_request", "server_rss_peak_bytes", "latency_p50_ms", "latency_p99_ms")
Make = Callable[..., str]
Factors = Mapping[tuple[str, str], float]


@pytest.fixture
def make(bare_lab: Path) -> Make:
    """A maker of runs in a lab of their own: 1 % noise, columns of servers times a factor, facts of the manifest."""

    def run(name: str, *shape: Any, **facts: Any) -> str:
        varied(bare_lab / "data" / ("sample" if name == "sample" else f"runs/{name}"), *shape, **facts)
        return name

    return run


def varied(
    folder: Path, factors: Factors | None = None, change: Any = None, trials: int = 6, **facts: Any
) -> RunFolder:
    """A run with 1 % noise, columns of servers times a factor, and facts of its manifest."""
    synthetic_run.build(folder, k6=(), trials=6)
    manifest = json.loads((folder / "run.json").read_text()) | {"run_id": folder.name} | facts
    (folder / "run.json").write_text(json.dumps(manifest))
    table = pd.read_parquet(folder / "tables" / "trials.parquet")
    table = known(table[table["block"] <= trials], np.random.default_rng(sum(folder.name.encode())), factors or {})
    (change(table) if change else table).to_parquet(folder / "tables" / "trials.parquet")
    return RunFolder(folder)


def known(table: pd.DataFrame, rng: np.random.Generator, factors: Factors) -> pd.DataFrame:
    cell = table.groupby(["server", "mode", "connections"])
    table = table.assign(
        **{name: cell[name].transform("mean") * rng.lognormal(0, 0.01, len(table)) for name in MEASURED}
    )
    for (server, column), factor in factors.items():
        table.loc[table["server"] == server, column] *= factor
    open_ = table["mode"].eq("close") & table["connections"].eq(100)
    return table.assign(
        load_model=table["load_model"].mask(open_, "open"),
        rate_rps=table["rate_rps"].mask(open_, 1000.0),
        verdict=table["verdict"].mask(open_, "offered"),
    )


def find(found: dict[str, Any], server: str, quantity: str, load: str = LOAD) -> dict[str, Any]:
    rows = found["comparisons"]
    return next(r for r in rows if (r["load"], r["server"], r["quantity"]) == (load, server, quantity))


# --- what is compared -------------------------------------------------------------------------------------


def test_equal_runs_are_ties_and_say_what_they_could_have_told(make: Make, bench: Any) -> None:
    code, out, _ = bench(make("one"), make("two"), "--json")
    found = json.loads(out)
    assert code == 0 and {row["verdict"] for row in found["comparisons"]} == {"tie"}
    row = find(found, "axum", "requests/s")
    assert row["ratio"]["low"] < 1 < row["ratio"]["high"] and row["ratio"]["blocks"] == 0
    # 1 % noise and six trials a side: 80 % power at 5 % / 54 takes about 5.5 standard errors of 0.58 %.
    assert 1.02 < row["detectable"] < 1.05
    assert (row["a"]["n"], row["b"]["n"]) == (6, 6) and row["a"]["confidence"] == pytest.approx(0.96875)


def test_a_known_difference_is_found_and_the_ratio_is_welchs(make: Make, bench: Any, tmp_path: Path) -> None:
    faster = make("two", {("axum", "rps"): 1.2, ("axum", "server_cpu_ms_per_request"): 0.8})
    code, out, _ = bench(make("one"), faster, "--json")
    found = json.loads(out)
    row, cpu = find(found, "axum", "requests/s"), find(found, "axum", "CPU ms/request")
    assert code == 0 and (row["verdict"], cpu["verdict"]) == ("better", "better")
    assert row["ratio"]["low"] < 1.2 < row["ratio"]["high"] and cpu["ratio"]["low"] < 0.8 < cpu["ratio"]["high"]
    assert (row["delta"], row["magnitude"]) == (1, "large")
    assert find(found, "gin", "requests/s")["verdict"] == "tie"
    sides = []
    for name in ("one", "two"):
        table = pd.read_parquet(tmp_path / "data" / "runs" / name / "tables" / "trials.parquet")
        own = table[table["trial_id"].str.startswith("axum-wrk-matrix-c100-keepalive")]
        sides.append(np.log(own["rps"].to_numpy(float)))
    theirs = stats.ttest_ind(sides[1], sides[0], equal_var=False).confidence_interval()
    assert (row["ratio"]["low"], row["ratio"]["high"]) == pytest.approx(np.exp(theirs))


def test_each_quantity_is_compared_only_where_the_verdicts_of_both_runs_allow_it(make: Make, bench: Any) -> None:
    def unlimited(table: pd.DataFrame) -> pd.DataFrame:
        one = table["trial_id"].eq("gin-wrk-matrix-c100-keepalive-b2")
        return table.assign(verdict=table["verdict"].mask(one, "inconclusive"))

    found = json.loads(bench(make("one"), make("two", change=unlimited), "--json")[1])
    kinds: dict[tuple[str, str], set[str]] = {}
    for row in found["comparisons"]:
        kinds.setdefault((row["load"], row["server"]), set()).add(row["quantity"])
    anywhere = {"CPU ms/request", "memory, MiB"}
    assert kinds[LOAD, "axum"] == {"requests/s", *anywhere}
    assert kinds[LOAD, "gin"] == anywhere  # one of its trials in B is inconclusive
    assert kinds[LOAD, "nginx"] == anywhere  # generator-bound
    assert kinds[OFFERED, "axum"] == {"p50, ms", "p90, ms", "p99, ms", *anywhere}


def test_failed_trials_are_not_compared(make: Make, bench: Any) -> None:
    def one_failed(table: pd.DataFrame) -> pd.DataFrame:
        wrong = table["trial_id"].eq("axum-wrk-matrix-c100-keepalive-b1")
        table = table.assign(status=table["status"].mask(wrong, "failed"), rps=table["rps"].mask(wrong, 1.0))
        none = table["trial_id"].str.startswith("gin-wrk-matrix-c10-close")
        return table.assign(status=table["status"].mask(none, "failed"))

    found = json.loads(bench(make("one"), make("two", change=one_failed), "--json")[1])
    row = find(found, "axum", "requests/s")
    assert (row["a"]["n"], row["b"]["n"], row["verdict"]) == (6, 5, "tie")
    assert row["b"]["confidence"] is None and row["b"]["low"] > 70_000
    assert found["unsealed"] == ["gin: wrk-matrix, close, 10 connections"]


def test_fewer_than_five_trials_are_values_without_a_claim(make: Make, bench: Any) -> None:
    code, out, err = bench(make("one"), make("two", {("axum", "rps"): 0.5}, trials=4), "--json", "--fail-above", "5")
    row = find(json.loads(out), "axum", "requests/s")
    assert code == 1 and "Nothing could be decided" in err  # a gate that saw nothing must not say that all is well
    assert row["verdict"] == "not enough trials"
    assert bench("one", "two")[0] == 0
    assert row["ratio"] is None and row["p"] is None and row["b"]["median"] == pytest.approx(39_000, rel=0.1)


def less(table: pd.DataFrame) -> pd.DataFrame:
    return table[~(table["server"].eq("nginx") & table["connections"].eq(1) & table["mode"].eq("close"))]


def test_cells_of_one_run_only_are_listed(make: Make, bench: Any) -> None:
    code, out, err = bench(make("one"), make("two", change=less))
    assert code == 0 and "Only in one: nginx: wrk-matrix, close, 1 connection." in err
    assert LOAD in out and "requests/s" in out


def test_what_the_verdicts_of_one_run_forbid_to_compare_is_said(make: Make, bench: Any) -> None:
    def one_trial_was_not_server_bound(table: pd.DataFrame) -> pd.DataFrame:
        at = table["server"].eq("axum") & table["mode"].eq("keepalive") & table["block"].eq(1)
        return table.assign(verdict=table["verdict"].mask(at, "inconclusive"))

    both = make("one"), make("two", {("axum", "rps"): 0.5}, change=one_trial_was_not_server_bound)
    _, _, err = bench(*both, "--fail-above", "5")
    assert f"axum: {LOAD}: requests/s (A server-bound 6 of 6; B " in err
    assert "inconclusive 1 of 6" in err


def test_a_load_of_another_size_is_another_cell(make: Make, bench: Any) -> None:
    def campaign(seconds: float) -> dict[str, Any]:
        return {"name": "c", "loads": [{"workload": "wrk-matrix", "duration_s": seconds, "warmup_s": 0.5}]}

    code, _, err = bench(make("one", campaign=campaign(1)), make("two", campaign=campaign(3)))
    assert code == 2 and "one and two have no cell in common" in err
    assert bench("one", make("three", campaign=campaign(1)))[0] == 0


def test_the_sample_is_a_run_like_others(make: Make, bench: Any) -> None:
    make("sample", artifacts={"axum": "aa", "gin": "bb"})
    code, out, err = bench("sample", make("two", artifacts={"axum": "aa", "gin": "cc"}))
    assert code == 0 and LOAD in out
    assert "A: run sample" in err and "The same binary in both runs, so only that: axum." in err


def test_the_steps_of_a_search_are_not_compared(make: Make, bench: Any) -> None:
    def search(table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(objective=np.where(table["mode"] == "close", "p99 <= 10 ms", None))

    found = json.loads(bench(make("one", change=search), make("two", change=search), "--json")[1])
    assert {row["load"].split(", ")[1] for row in found["comparisons"]} == {"keep-alive"}


# --- machines ---------------------------------------------------------------------------------------------

MACHINE = synthetic_run.manifest()["machine"]
DIFFERENT = {
    "machine": ({"machine": MACHINE | {"kernel": "6.2", "cpus": 4}}, "cpus (2 and 4); kernel (6.1 and 6.2)"),
    "memory": ({"machine": MACHINE | {"memory_bytes": 16 * 2**30}}, "memory (8 GiB and 16 GiB)"),
    "engine": ({"engine": "docker"}, "engine (process and docker)"),
    "tool": ({"tools": {"wrk": "4.2.0", "nginx": "1.22"}}, "wrk (4.1.0 and 4.2.0)"),
    "placement": ({"placement": {"server": [0, 1], "generator": [1]}}, "CPUs of the server (0 and 0, 1)"),
}


@pytest.mark.parametrize("odd", DIFFERENT)
def test_runs_under_other_conditions_are_refused_in_one_sentence(odd: str, make: Make, bench: Any) -> None:
    facts, words = DIFFERENT[odd]
    make("one"), make("two", **facts)
    code, out, err = bench("one", "two")
    assert (code, out) == (2, "")
    assert err.strip() == f"Error: one and two differ in {words}: --force compares them all the same."
    code, out, err = bench("one", "two", "--force")
    assert code == 0 and LOAD in out
    assert "compared by force" in out and "the runs differ in" in out
    found = json.loads(bench("one", "two", "--force", "--json")[1])
    assert "; ".join(f"{d['what']}" for d in found["differences"]) == re.sub(r" \([^)]*\)", "", words)


def test_what_no_common_cell_depends_on_may_differ(make: Make, bench: Any) -> None:
    tools = {"k6": "9.9.9", "wrk": "4.1.0", "nginx": "1.22", "python": "3.12"}
    other = make("two", tools=tools, machine=MACHINE | {"os": "Other"}, git={"commit": "1" * 40, "dirty": True})
    code, _, err = bench(make("one"), other)
    assert code == 0
    assert "Changed: commit (000000000000 and 111111111111 with uncommitted changes)." in err


# --- regressions and exit codes ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("factors", "pct", "code"),
    [
        ({("axum", "rps"): 0.9}, "5", 1),
        ({("axum", "rps"): 0.9}, "9.9", 0),  # its interval, about a percent either way, does not lie beyond
        ({("axum", "rps"): 0.9}, "15", 0),
        ({("axum", "rps"): 1.2}, "0", 0),
        ({("gin", "server_cpu_ms_per_request"): 1.1}, "5", 1),
        ({("gin", "server_cpu_ms_per_request"): 0.8}, "5", 0),
        ({("nginx", "server_rss_peak_bytes"): 1.5}, "20", 1),
        ({("axum", "latency_p99_ms"): 1.3}, "20", 1),
        ({("nginx", "rps"): 0.5}, "5", 0),  # generator-bound: its rate says nothing
        ({}, "0", 0),
    ],
)
def test_the_exit_code_is_one_only_beyond_what_is_allowed(
    factors: Factors, pct: str, code: int, make: Make, bench: Any
) -> None:
    make("one"), make("two", factors)
    got, out, err = bench("one", "two", "--fail-above", pct)
    assert got == code
    assert ("worse, regression" in out) == bool(code) == ("are worse by more than" in err)


def test_a_regression_is_named_and_without_a_limit_is_no_failure(make: Make, bench: Any) -> None:
    make("one"), make("two", {("axum", "rps"): 0.8})
    assert bench("one", "two")[0] == 0
    code, out, _ = bench("one", "two", "--fail-above", "10", "--json")
    regressed = {(r["server"], r["quantity"]) for r in json.loads(out)["comparisons"] if r["regression"]}
    assert code == 1 and regressed == {("axum", "requests/s")}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("one",), "Missing argument"),
        (("one", "nope"), "There is no run 'nope'"),
        (("one", "one", "--fail-above", "-1"), "fail-above"),
        (("one", "one", "--fail-above", "much"), "fail-above"),
    ],
)
def test_wrong_usage_is_exit_code_two(arguments: tuple[str, ...], words: str, make: Make, bench: Any) -> None:
    make("one")
    code, out, err = bench(*arguments)
    assert (code, out) == (2, "") and words in err


@pytest.mark.long
def test_equal_runs_are_called_different_in_at_most_five_percent(make: Make, bench: Any) -> None:
    """Fifteen pairs of equal runs, some fifty comparisons each: without Holm's correction most pairs name one."""
    names = [make(f"run{number}") for number in range(9)]
    named, single = 0, 0
    for i, name in enumerate(names):
        for other in names[i + 1 : i + 3]:
            rows = json.loads(bench(name, other, "--json")[1])["comparisons"]
            named += any(row["verdict"] != "tie" for row in rows)
            single += any(row["ratio"]["p"] <= 0.05 for row in rows)
    assert named <= 3 and single > 10


def test_the_table_fits_a_terminal_of_100_columns(make: Make, bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    worse = {("axum", "rps"): 0.9, ("gin", "server_cpu_ms_per_request"): 12.0}
    _, out, _ = bench(make("one"), make("two", worse), "--fail-above", "1")
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in out.splitlines()]
    assert max(len(line) for line in lines) <= 100
    heading = re.compile(r"server +quantity +A +B +B/A \[95 %\] +detectable +verdict")
    assert any(heading.search(line) for line in lines)
    row = re.compile(r"axum +requests/s +[\d,]+ +[\d,]+ +×0\.\d{3} \[0\.\d{3}–0\.\d{3}\] +[\d.]+ % +worse, regression$")
    assert any(row.search(line) for line in lines)
    assert any(re.search(r"gin +CPU ms/request .* ×1[12]\.\d \[1[12]\.\d–1[12]\.\d\]", line) for line in lines)
