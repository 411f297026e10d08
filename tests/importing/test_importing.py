"""Files of k6 as runs: what is read of them, and how others end."""

import gzip
import json
import re
from pathlib import Path

import k6_samples
import pyarrow as pa
import pytest
from k6_samples import CLOSED, CSV, DROPPING, OPEN, SUMMARY

from runner.digest.tables import rebuild
from runner.importing.names import trial_ids
from runner.importing.run import Given, found_or_imported, import_files
from runner.model import LabError
from runner.present.comparison.obstacle import Kind, obstacle
from runner.present.comparison.quantity import P50, THROUGHPUT
from runner.present.frames import read_tables
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
    "csv without columns": (b"metric_name,timestamp,metric_value\nhttp_reqs\n", "no CSV of k6"),
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
        with pytest.raises(LabError, match="no CSV of k6"):
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
    assert any("end is missing" in each for each in run.manifest().host_warnings)


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


def test_response_times_of_kept_rates_are_compared(bare_lab, tmp_path):
    path = tmp_path / "results.json"
    text = gzip.decompress(OPEN.read_bytes()).decode()
    text = text.replace('"status":"400"', '"status":"200"').replace('"error_code":"1400",', "")
    path.write_text(text.replace('"metric":"checks"', '"metric":"my_checks"'))
    runs = [import_files([Given(path, "api")] * 5) for _ in "AB"]
    found = compare_runs(*runs)
    assert [row.quantity for row in found.comparisons] == ["p50, ms"]
    assert found.comparisons[0].ratio.ratio == pytest.approx(1)
    assert any("may be the generator's" in said for said in provenance(found))


def test_rates_of_closed_loads_are_not_compared(bare_lab, tmp_path):
    path = tmp_path / "results.json"
    text = gzip.decompress(CLOSED.read_bytes()).decode()
    text = text.replace('"status":"400"', '"status":"200"').replace('"error_code":"1400",', "")
    path.write_text(text.replace('"metric":"checks"', '"metric":"my_checks"'))
    trials = read_tables(imported(path)).trials
    assert list(trials["verdict_cause"]) == [Cause.NO_CPU_KNOWN]
    assert obstacle(trials, THROUGHPUT).kind is Kind.ANOTHER_LIMIT
    assert obstacle(trials, P50).kind is Kind.ANOTHER_LIMIT


def test_tables_are_rebuilt_from_the_files(bare_lab):
    run = imported(OPEN)
    before = only_trial(run)
    run.table("trials").unlink()
    rebuild(run)
    assert only_trial(run)["latency_p99_ms"] == before["latency_p99_ms"]


def test_the_same_file_is_imported_once(bare_lab):
    assert found_or_imported(OPEN) == found_or_imported(OPEN)


@pytest.mark.parametrize("kind", HOSTILE)
def test_other_files_end_in_one_sentence(bare_lab, tmp_path, kind):
    data, said = HOSTILE[kind]
    path = tmp_path / "results.json"
    path.write_bytes(data)
    with pytest.raises(LabError, match=said) as raised:
        imported(path)
    assert str(path) in str(raised.value)
    assert not list((bare_lab / "data" / "runs").glob("*"))


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
