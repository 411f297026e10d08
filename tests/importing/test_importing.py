"""Tests of importing files of k6 as runs.

The run must have the numbers of the file, and a file that is not of k6 must be refused.
"""

import gzip
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import built
import k6_samples
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from k6_files import (
    EPOCH_NS,
    Request,
    announce,
    iteration_lines,
    point_line,
    request_lines,
    write_lines,
)
from k6_samples import CLOSED, CSV, DROPPING, OPEN, OWN, OWN_SUMMARY, SUMMARY

from runner.digest.tables import rebuild
from runner.importing import opening
from runner.importing.names import trial_ids
from runner.importing.run import Given, found_or_imported, import_files
from runner.model import LabError
from runner.present.comparison.obstacle import Kind, obstacle
from runner.present.comparison.quantity import P50, THROUGHPUT
from runner.present.frames import read_tables
from runner.present.notebook.parts import OF_A_RUN
from runner.present.two_runs.compare import compare_runs, provenance
from runner.store import RunFolder
from runner.verdict.limits import Cause

RFC_3339 = "2026-11-27T01:37:58.5Z"
HOSTILE = {
    "empty": (b"", "is empty"),
    "html": (b"<html><script>alert(1)</script>", "is not a file that k6 wrote"),
    "summary": (SUMMARY.read_bytes(), "has no samples"),
    "torn gzip": (b"\x1f\x8b" + b"\xff" * 40, "cannot be unpacked"),
    "announced only": (
        b'{"type":"Metric","data":{"name":"http_reqs"},"metric":"http_reqs"}\n',
        "no complete request",
    ),
    "csv without columns": (b"metric_name,timestamp,metric_value\nhttp_reqs\n", "not a line of k6"),
    "csv with a time of another kind": (
        b"metric_name,timestamp,metric_value\nhttp_reqs,yesterday,1.000000\n",
        "the columns, times or values are not those",
    ),
    "csv with a negative value": (
        b"metric_name,timestamp,metric_value\nhttp_req_duration,1764205200,-1.000000\n",
        "the value of http_req_duration is not a finite number of 0 or more",
    ),
    "a month 13": (
        b'{"metric":"http_reqs","type":"Point","data":{"time":"2026-13-21T00:56:31Z","value":1,'
        b'"tags":{}}}\n',
        "a time or a value that k6 does not write",
    ),
    "no numbers": (
        b'{"metric":"http_reqs","type":"Point","data":{"time":"2026-11-21T00:56:31Z","value":"x",'
        b'"tags":{}}}\n',
        "line 1",
    ),
}


def imported(path: Path, **more: object) -> RunFolder:
    return import_files([Given(path, **more)])


def only_trial(run: RunFolder) -> dict[str, object]:
    return read_tables(run).trials.iloc[0].to_dict()


def test_counts_and_percentiles_are_those_of_the_lines(bare_lab):
    run = imported(CLOSED, summary=SUMMARY)
    trial = only_trial(run)
    assert trial["status"] == "sealed"
    assert trial["requests"] == len(k6_samples.points(CLOSED, "http_reqs"))
    for percent in (50, 90, 95, 99):
        expected = k6_samples.percentile(CLOSED, percent)
        assert trial[f"latency_p{percent}_ms"] == pytest.approx(expected)
    checks = [each["value"] for each in k6_samples.points(CLOSED, "checks")]
    metrics = run.records()[0]["metrics"]
    assert (metrics["checks"], metrics["checks_failed"]) == (len(checks), checks.count(0))


@pytest.mark.parametrize("ending", [".json", ".json.zst"])
def test_packing_changes_no_number(bare_lab, tmp_path, ending):
    path = tmp_path / f"results{ending}"
    data = gzip.decompress(OPEN.read_bytes())
    path.write_bytes(data if ending == ".json" else pa.compress(data, "zstd", asbytes=True))
    trial, other = (only_trial(imported(each)) for each in (OPEN, path))
    assert other["requests"] == trial["requests"] == len(k6_samples.points(OPEN, "http_reqs"))
    assert other["latency_p99_ms"] == trial["latency_p99_ms"]


def test_lines_of_older_versions_of_k6_are_read(bare_lab, tmp_path):
    """A file in the form of an older version of k6 gives the same numbers as the original file.

    In the older form, each line has the metric at the end, and no line declares a metric.
    """
    records = [json.loads(line) for line in gzip.decompress(CLOSED.read_bytes()).splitlines()]
    lines = [
        json.dumps({name: record[name] for name in ("type", "data", "metric")}, separators=",:")
        for record in records
        if record["type"] == "Point"
    ]
    path = tmp_path / "results.json"
    path.write_text("\n".join([*lines, ""]))
    trial, other = (only_trial(imported(each)) for each in (CLOSED, path))
    assert other["requests"] == len(k6_samples.points(CLOSED, "http_reqs"))
    for percent in (50, 90, 99):
        name = f"latency_p{percent}_ms"
        assert other[name] == trial[name] == pytest.approx(k6_samples.percentile(CLOSED, percent))


def test_the_csv_of_a_load_has_the_numbers_of_its_json(bare_lab):
    trial, other = (only_trial(imported(path, summary=SUMMARY)) for path in (CLOSED, CSV))
    assert other["status"] == "sealed"
    for name in ("requests", "failed", "checks_failed", "load_model", "vus", "opened_pct"):
        assert other.get(name) == trial.get(name)
    for percent in (50, 90, 95, 99):
        name = f"latency_p{percent}_ms"
        assert other[name] == pytest.approx(trial[name], abs=1e-6)


@pytest.mark.parametrize(
    "at",
    ["1795743478.5", "1795743478500", "1795743478500000", "1795743478500000000", RFC_3339],
)
def test_times_of_the_csv_are_read_as_k6_writes_them(bare_lab, tmp_path, at):
    path = tmp_path / "results.csv"
    head, *lines = gzip.decompress(CSV.read_bytes()).decode().splitlines()
    kept = [line.split(",") for line in lines[:200]]
    path.write_text("\n".join([head, *(",".join([row[0], at, *row[2:]]) for row in kept), ""]))
    if "." in at and at != RFC_3339:
        with pytest.raises(LabError, match="not a line of k6"):
            imported(path)
    else:
        assert only_trial(imported(path))["requests"] > 10


def test_a_torn_csv_counts_as_far_as_it_goes(bare_lab, tmp_path):
    path = tmp_path / "results.csv"
    data = gzip.decompress(CSV.read_bytes())
    path.write_bytes(data[: len(data) // 2])
    whole = len(k6_samples.points(CLOSED, "http_reqs"))
    assert 0.3 * whole < only_trial(imported(path))["requests"] < 0.7 * whole


@pytest.mark.parametrize("ending", [".json", ".json.gz", ".json.zst"])
def test_a_torn_file_counts_as_far_as_it_goes(bare_lab, tmp_path, ending):
    path = tmp_path / f"results{ending}"
    data = gzip.decompress(OPEN.read_bytes())
    if ending == ".json":
        data = data[: len(data) // 2]
    else:
        packed = OPEN.read_bytes() if ending == ".json.gz" else pa.compress(data, "zstd")
        data = bytes(memoryview(packed))[: len(packed) // 2]
    path.write_bytes(data)
    run = imported(path)
    assert 50 < only_trial(run)["requests"] < 400
    assert any("end of the file is missing" in each for each in run.manifest().host_warnings)


@pytest.mark.parametrize(
    ("path", "model", "users", "rate_rps", "cause"),
    [
        (CLOSED, "closed", 4, None, Cause.CHECKS_FAILED),
        (OPEN, "open", 20, 50, Cause.REQUESTS_FAILED),
        (DROPPING, "open", 1, 60, Cause.REQUESTS_FAILED),
    ],
)
def test_the_load_is_read_off_the_samples(bare_lab, path, model, users, rate_rps, cause):
    trial = only_trial(imported(path))
    assert (trial["load_model"], trial["vus"]) == (model, users)
    if rate_rps:
        assert trial["rate_rps"] == pytest.approx(rate_rps, rel=0.03)


def planned(begins_s, path):
    """Write a file as k6 writes it, and return its path.

    The file has an iteration for each element of `begins_s`, which is the time at which the
    iteration begins, in seconds since the load began. An iteration is one request of 1 ms.
    """
    lines = []
    for begin_s in begins_s:
        end_ns = EPOCH_NS + round(begin_s * 1e9) + 1_000_000
        request = Request(end_ns, 1_000, 0, 10_000, 900_000, 89_000)
        lines += request_lines(request, stock=True)
        lines += iteration_lines(end_ns, 1_000_000, stock=True)
    for second in range(int(max(begins_s)) + 1):
        at_ns = EPOCH_NS + second * 10**9
        lines += [point_line("vus", at_ns, "0", "{}"), point_line("vus_max", at_ns, "20", "{}")]
    return write_lines(path, announce(lines))


def told(path):
    """Import a file, and return the warning that says which kind of load its samples show."""
    (said,) = [
        text for text in imported(path).manifest().host_warnings if "Its samples show" in text
    ]
    return said


@pytest.mark.parametrize("offset_s", [0.0, 0.004])
@pytest.mark.parametrize("rate_rps", [50, 213, 226])
def test_a_short_load_at_a_constant_rate_is_no_ramp(bare_lab, tmp_path, rate_rps, offset_s):
    """A short load at a constant rate is not called a ramp.

    The lab compares the rates of the first and the last tenth of a load. These rates may differ by
    a few iterations, because a border of a tenth may lie anywhere between two iterations, and
    because a busy k6 begins some iterations late (here by `offset_s`).
    """
    numbers = np.arange(rate_rps)
    begins_s = numbers / rate_rps + offset_s * (numbers % 3 == 0)
    said = told(planned(begins_s, tmp_path / "results.json"))
    assert "open load: " in said
    assert "from" not in said


def test_a_rising_rate_is_a_ramp(bare_lab, tmp_path):
    """A load whose rate rises from 20/s to 40/s in 10 s is recognized as a ramp.

    With this rate, n = 20 t + t^2 iterations have begun after t seconds. The test solves this
    equation for t to find when iteration n begins.
    """
    begins_s = -10 + np.sqrt(100 + np.arange(300))
    said = told(planned(begins_s, tmp_path / "results.json"))
    assert "open load: 30" in said
    assert "from 21/s to 39/s" in said


def test_dropped_iterations_are_counted(bare_lab):
    dropped = sum(each["value"] for each in k6_samples.points(DROPPING, "dropped_iterations"))
    assert only_trial(imported(DROPPING))["dropped"] == dropped


def test_a_wrong_summary_fails_the_trial(bare_lab, tmp_path):
    wrong = tmp_path / "summary.json"
    wrong.write_text(SUMMARY.read_text().replace('"med": ', '"med": 9'))
    trial = only_trial(imported(CLOSED, summary=wrong))
    assert trial["status"] == "failed"
    assert "p50" in trial["error"]


@pytest.mark.parametrize("form", ["handleSummary", "machine-readable"])
def test_summaries_of_every_form_are_held_against_samples(bare_lab, tmp_path, form):
    metrics = json.loads(SUMMARY.read_text())["metrics"]
    for each in metrics.values():
        each.pop("thresholds", None)
    if form == "handleSummary":
        made = {"metrics": {name: {"values": each} for name, each in metrics.items()}}
    else:
        named = re.compile(r"p\((.+)\)")
        listed = [
            {"name": name, "values": {named.sub(r"p\1", key): each[key] for key in each}}
            for name, each in metrics.items()
        ]
        made = {"results": {"metrics": listed}}
    path = tmp_path / "summary.json"
    path.write_text(json.dumps(made))
    assert only_trial(imported(CLOSED, summary=path))["status"] == "sealed"
    path.write_text(json.dumps(made).replace('"med": ', '"med": 9'))
    assert only_trial(imported(CLOSED, summary=path))["status"] == "failed"


def test_files_of_one_name_are_its_trials(bare_lab):
    run = import_files([Given(OPEN, "v1"), Given(OPEN, "v1"), Given(OPEN, "v2")])
    trials = read_tables(run).trials
    assert list(trials["trial_id"]) == ["v1-001", "v1-002", "v2-001"]
    assert trials["load"].nunique() == 1


def test_response_times_of_sustained_rates_are_compared(bare_lab, tmp_path):
    path = tmp_path / "results.json"
    text = gzip.decompress(OPEN.read_bytes()).decode()
    text = text.replace('"status":"400"', '"status":"200"').replace('"error_code":"1400",', "")
    path.write_text(text.replace('"metric":"checks"', '"metric":"my_checks"'))
    runs = [import_files([Given(path, "api")] * 5) for _ in "AB"]
    found = compare_runs(*runs)
    assert [row.quantity for row in found.comparisons] == ["p50, ms"]
    assert found.comparisons[0].ratio.ratio == pytest.approx(1)
    assert any("may be due to the load generator" in said for said in provenance(found))


def test_rates_of_closed_loads_are_not_compared(bare_lab, tmp_path):
    path = tmp_path / "results.json"
    text = gzip.decompress(CLOSED.read_bytes()).decode()
    text = text.replace('"status":"400"', '"status":"200"').replace('"error_code":"1400",', "")
    path.write_text(text.replace('"metric":"checks"', '"metric":"my_checks"'))
    trials = read_tables(imported(path)).trials
    assert list(trials["verdict_cause"]) == [Cause.NO_CPU_KNOWN]
    assert obstacle(trials, THROUGHPUT).kind is Kind.ANOTHER_LIMIT
    assert obstacle(trials, P50).kind is Kind.ANOTHER_LIMIT


def test_a_file_without_http_requests_has_its_other_metrics(bare_lab):
    run = imported(OWN, summary=OWN_SUMMARY)
    assert "no HTTP request" in only_trial(run)["error"]
    rows = pd.read_parquet(run.table("metrics")).set_index("metric")
    stated = json.loads(OWN_SUMMARY.read_text())["metrics"]
    of_k6 = {"iterations", "iteration_duration", "vus", "vus_max", "checks"}
    assert set(rows.index) == set(stated) - of_k6 - {"data_sent", "data_received"}
    assert rows.loc["my_counter", "total"] == stated["my_counter"]["count"]
    assert rows.loc["ws_sessions", "total"] == stated["ws_sessions"]["count"]
    assert rows.loc["my_rate", "share"] == pytest.approx(stated["my_rate"]["value"])
    assert rows.loc["my_trend", "mean"] == pytest.approx(stated["my_trend"]["avg"])
    assert rows.loc["my_trend", "p50"] == pytest.approx(stated["my_trend"]["med"])
    thresholds = pd.read_parquet(run.table("thresholds"))
    assert thresholds["kept"].tolist() == thresholds["kept_by_k6"].tolist()
    assert set(thresholds["kept"]) == {True, False}
    found = OF_A_RUN["endpoints"](read_tables(run))
    assert any("no HTTP request" in str(block) for block in found)


def test_tables_are_rebuilt_from_the_files(bare_lab):
    run = imported(OPEN)
    before = only_trial(run)
    run.table("trials").unlink()
    rebuild(run)
    assert only_trial(run)["latency_p99_ms"] == before["latency_p99_ms"]


def test_the_same_file_is_imported_once(bare_lab):
    assert found_or_imported(OPEN) == found_or_imported(OPEN)


def kill_this_process(_path):
    os.kill(os.getpid(), signal.SIGKILL)


def test_an_import_that_is_killed_is_one_sentence_in_the_notebook(bare_lab, monkeypatch):
    monkeypatch.setattr(opening, "found_or_imported", kill_this_process)
    with pytest.raises(LabError, match=f"The process that imported {OPEN} was ended from outside"):
        opening.run_named(str(OPEN))


def test_a_file_that_a_notebook_cannot_import_is_one_sentence(bare_lab, tmp_path):
    """The import runs in a process of its own, whose error must arrive in the notebook."""
    path = tmp_path / "results.json"
    path.write_bytes(b"")
    with pytest.raises(LabError, match="is empty") as raised:
        opening.run_named(str(path))
    assert raised.value.exit_code == 1


@pytest.mark.parametrize("kind", HOSTILE)
def test_other_files_end_in_one_sentence(bare_lab, tmp_path, kind):
    data, said = HOSTILE[kind]
    path = tmp_path / "results.json"
    path.write_bytes(data)
    with pytest.raises(LabError, match=said) as raised:
        imported(path)
    assert str(path) in str(raised.value)
    assert not list((bare_lab / "data" / "runs").glob("*"))


FILLING = """
import sys, time
from pathlib import Path
from runner.importing import run
def hold(*_): print("filling", flush=True); time.sleep(60)
run.build_tables = hold
run.import_files([run.Given(Path(sys.argv[1]))])
"""
"""Source of a program that begins to import a file, and then sleeps before the run is complete."""


@pytest.mark.fault("an import is killed", "its half-filled run is removed by the next import")
def test_a_killed_import_leaves_nothing_for_the_next(bare_lab):
    runs = bare_lab / "data" / "runs"
    environment = os.environ | {"PYTHONPATH": str(built.ROOT)}
    command = [sys.executable, "-c", FILLING, OPEN]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout.readline() == b"filling\n"
        (half_filled,) = runs.iterdir()
        beside = imported(OPEN)
        assert half_filled.exists()
        process.kill()
    found = imported(OPEN)
    assert sorted(path.name for path in runs.iterdir()) == sorted(
        [beside.path.name, found.path.name]
    )
    assert not any(found.path.glob(".*"))


def test_the_command_fails_if_the_summary_differs(bare_lab, bench):
    code, _, err = bench(str(OPEN), "--summary", str(SUMMARY), command="import")
    assert code == 1
    assert "invalid: 2 requests of the summary" in err


@pytest.mark.parametrize(
    ("name", "trial_id"),
    [
        ("v1.4", "v1-4-001"),
        ("next release", "next-release-001"),
        ("main@3f2a1c", "main-3f2a1c-001"),
        ("../../etc", "etc-001"),
        ("<b>$x$", "b-x-001"),
        ("…", "subject-001"),
    ],
)
def test_ids_of_any_name_are_names_of_folders(bare_lab, bench, name, trial_id):
    code, out, err = bench(str(OPEN), "--name", name, "--json", command="import")
    assert code == 0, err
    run = RunFolder(Path(json.loads(out)["path"]))
    assert [each.name for each in (run.path / "trials").iterdir()] == [trial_id]
    assert only_trial(run)["server"] == name


def test_names_with_equal_ids_are_told_apart():
    names = ["v1.4", "v1-4", "V1 4", "v1.4", "v1-4-2"]
    assert trial_ids(names) == [
        *("v1-4-001", "v1-4-2-001", "V1-4-3-001", "v1-4-002", "v1-4-2-2-001"),
    ]


@pytest.mark.parametrize("name", ["", " v1", "a\nb", "\x1b[31m", "v\u202e1", "v" * 61])
def test_names_that_cannot_be_shown_are_refused(bare_lab, bench, name):
    code, _, err = bench(str(OPEN), "--name", name, command="import")
    assert code == 2
    assert "name" in err
    assert not list((bare_lab / "data" / "runs").glob("*"))


def test_each_file_needs_a_name_or_all_share_one(bare_lab, bench):
    code, _, err = bench(str(OPEN), *["--name", "a"] * 2, command="import")
    assert code == 2
    assert "--name is given 2 times for 1 files" in err
