"""Tests of the whole pipeline, with a fake server, a fake k6 and a fake wrk.

The tables must contain the known counts, and every fault must become a stored result.
"""

import gzip
import json
import os
import re
import shutil
from pathlib import Path

import fake_lab
import pandas as pd
import pytest
from fake_lab import ALONE, CLOSE, K6, WRK, bench, measured, rebuilt, records, run
from marking import long_but
from real_lab import standing

from runner.digest.tables import ensure_tables
from runner.digest.trial import digest_session
from runner.manifest import Manifest
from runner.model import LabError
from runner.present.look.captions import manifest_facts
from runner.store import RunFolder
from runner.verdict.words import reason

pytestmark = pytest.mark.timed


def test_all_trials_are_sealed_and_in_the_journal(finished):
    assert (finished.result["trials"], finished.result["failed"]) == (5, [])
    lines = pd.read_json(finished.folder / "journal.jsonl", lines=True)
    stories = lines.groupby("trial_id")["state"].agg(list).to_dict()
    assert len([name for name in stories if ".a" not in name]) == 5
    for record in finished.records:
        planned = [] if record["attempt"] > 1 else ["planned"]
        assert stories.pop(record["trial_id"]) == [*planned, "running", "raw", "sealed"]
    # The remaining entries of `stories` belong to attempts that the machine disturbed.
    assert all(
        story == ["planned", "running", "raw", "failed"][".a" in name :]
        for name, story in stories.items()
    )


def test_known_counts_and_latencies_are_in_the_tables(finished):
    trials = finished.trials
    k6 = trials[trials["tool"] == "k6"]
    # Latencies are 1, 2, ... 60 ms. So the median is 30.5 ms by any definition, and p90 is 54.1 ms
    # by linear interpolation.
    (found,) = k6[["requests", "latency_p50_ms", "latency_p90_ms"]].to_numpy(float)
    assert found == pytest.approx([60, 30.5, 54.1])
    wrk = trials[trials["tool"] == "wrk"]
    assert wrk["requests"].tolist() == (wrk["connections"] * 10).tolist()
    assert (wrk["latency_max_ms"] == 2.5).all()
    assert (trials["server_rss_peak_bytes"] > 5_000_000).all() and (
        trials["server_cpu_mean_pct"] >= 0
    ).all()
    assert (k6["server_cpu_mean_pct"] > 0).all()
    assert sorted(
        finished.table(f"requests/{k6['trial_id'].iloc[0]}")["latency_ms"].round(3)
    ) == list(range(1, 61))
    counted = finished.table("latency").groupby("trial_id")["count"].sum()
    assert counted[trials["trial_id"]].tolist() == trials["requests"].tolist()


def test_the_manifest_says_how_and_hides_the_machine(finished):
    manifest = finished.manifest
    facts = manifest_facts(Manifest.of(manifest))
    assert (
        manifest["engine"] == "process" and "--engine process asks for" in manifest["engine_reason"]
    )
    assert manifest["tools"]["k6"] == "1.8.1" and "k6 1.8.1" in facts["Tools"]
    assert facts["Compilers"] == "unknown"  # the servers are scripts
    everything = json.dumps([manifest, finished.records])
    assert str(finished.root) not in everything
    assert os.environ.get("HOME", "/root") + "/" not in everything


@pytest.mark.long
def test_it_has_a_report_and_its_tables_are_rebuilt_identically(finished):
    with rebuilt(finished.folder):
        done = bench(
            finished.root, "report", finished.result["run_id"], "--salvage", "--json", code=0
        )  # nothing is damaged, so --salvage changes nothing
    made = json.loads(done.stdout)
    assert Path(made["html"]).stat().st_size > 10_000
    assert all(Path(figure).stat().st_size > 1_000 for figure in made["figures"])


@pytest.fixture
def copied(finished, tmp_path):
    """Return a copy of the finished run, which the test may change."""
    return shutil.copytree(finished.folder, tmp_path / "copy")


@pytest.mark.parametrize("stolen_pct", [0.0, 4.0, 6.0])
def test_time_that_the_hypervisor_took_is_read_from_the_samples(copied, stolen_pct):
    record = records(copied)[K6]
    samples = copied / "trials" / record["trial_id"] / "resources.parquet"
    frame = pd.read_parquet(samples)
    share = stolen_pct / 100 * record["measurement"]["host_cpus"]
    host = frame["subject"] == "host"
    frame.loc[host, "steal_ns"] = (frame["mono_ns"][host] - frame["mono_ns"].min()) * share
    frame.to_parquet(samples)
    (digest,) = digest_session(RunFolder(copied), dict([measured(record)])).values()
    assert digest.metrics["host_steal_pct"] == pytest.approx(100 * share, abs=0.1)
    assert ("the hypervisor took" in reason(digest.verdict)) is (stolen_pct > 5)


def assert_refused(run, says):
    shutil.rmtree(run / "tables")
    with pytest.raises(LabError, match=re.escape(says)):
        ensure_tables(RunFolder(run), print)


@pytest.mark.fault(
    "one bit of a sealed raw file flipped", "the tables are not rebuilt from it; the file is named"
)
def test_a_changed_raw_file_is_refused(copied):
    raw = next(copied.glob("trials/*/k6.json.gz"))
    data = raw.read_bytes()
    at = len(data) // 2
    raw.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    assert_refused(copied, "k6.json.gz differs from the sealed one")


@pytest.mark.fault("a sealed number was changed", "the tables are not rebuilt; the column is named")
def test_a_value_that_comes_out_otherwise_is_refused(copied):
    path = next(copied.glob("trials/*/trial.json"))
    record = json.loads(path.read_text())
    record["metrics"]["rps"] *= 1 + 1e-9
    path.write_text(json.dumps(record))
    assert_refused(
        copied, "the raw files now give other values than when the trial was sealed: rps"
    )


@pytest.mark.fault(
    "k6's samples cut off", "refused; with `--salvage` what is before the cut counts, as failed"
)
def test_what_is_left_of_a_cut_off_file_can_be_salvaged(copied):
    raw = copied / "trials" / records(copied)[K6]["trial_id"] / "k6.json.gz"
    lines = gzip.decompress(raw.read_bytes())
    cut = lines[: int(len(lines) * 0.6)].removesuffix(b"\n")  # somewhere within a line
    raw.write_bytes(gzip.compress(cut))
    ensure_tables(RunFolder(copied), print, salvage=True)
    trials = pd.read_parquet(copied / "tables" / "trials.parquet").set_index("trial_id")
    row = trials.loc[raw.parent.name]
    others = standing(trials.drop(raw.parent.name).reset_index())
    # A request counts if its data point of http_req_receiving is in the file, even if its data
    # point of http_req_failed is missing. Because of the cut, the last of the counted requests may
    # be incomplete.
    complete = cut.count(b'"metric":"http_req_receiving","type":"Point"')
    assert complete - 1 <= row["requests"] <= complete
    assert row["status"] == "failed"
    assert row["error"].startswith(f"salvaged: {row['requests']:.0f} requests")
    assert (others["status"] == "sealed").all()


FAULTS = {
    WRK: [
        ("server-dies-under-load", "exit code 3"),
        ("generator-exits-7", "wrk ended with exit code 1"),
        (
            "server-dies-at-start",
            'ended with exit code 1 before it was ready: "cannot find my configuration"',
        ),
        ("server-wrong-nonce", "A program other than fake answers on port"),
        ("server-counts-double", "5 requests that the server counted"),
        ("wrk-status-errors", "7 every error counter is 0 (3 status)"),
        ("wrk-lost-bucket", "7 sum of raw buckets + timeouts = requests"),
    ],
    K6: [
        ("server-counts-double", "5 requests that the server counted"),
        ("k6-drops-a-line", "k6.json.gz, line"),
        ("generator-exits-7", "k6 ended with exit code 1"),
        (
            "k6-refuses-its-warm-up",
            'k6 ended with exit code 1 in the warm-up: "there were problems with the conf',
        ),
        ("k6-writes-rubbish", "k6.json.gz, line"),
        ("k6-summary-lies", "4 quantiles from raw"),
        ("k6-loses-an-iteration", "1 iterations asked"),
    ],
    CLOSE: [("close-mode-keeps-alive", "7 close mode proven by accepted connections")],
}
"""For each trial of the fake lab, the faults that the test causes in it: one fault per block.

Each fault is followed by a part of the error message that the failed trial's record must contain.
"""


@pytest.mark.fault(
    "the server dies at its start or under load, answers or counts wrongly; a generator fails "
    "or writes wrong results",
    "the trial is failed with its reason, exit code 1, nothing is left running",
)
@pytest.mark.parametrize("trial", long_but([WRK], FAULTS))
def test_a_fault_is_a_stored_result_with_its_reason(tmp_path, trial):
    """If the server or a generator has a fault, the trial fails and is stored with the reason."""
    faults = {f"b{number:02}": each for number, each in enumerate(FAULTS[trial], start=1)}
    campaign = fake_lab.make(tmp_path, len(faults), ALONE[trial])
    fake_lab.fault(tmp_path, "\n".join(f"{fault} {block}" for block, (fault, _) in faults.items()))
    made = run(campaign, code=1)
    trials = made.table("trials").set_index("trial_id")
    kept = records(made.folder)
    for block, (_, says) in faults.items():
        name = trial.replace("b01", block)
        assert (kept[name]["status"], trials.loc[name, "status"]) == ("failed", "failed")
        assert says in kept[name]["error"]
        assert any(name in sentence and says in sentence for sentence in made.result["failed"])
    assert not list((tmp_path / "data" / ".live").iterdir())


@pytest.mark.long
@pytest.mark.fault("a server cannot be built", "its trials fail, the others run")
def test_a_server_that_cannot_be_built_fails_its_trials_only(tmp_path):
    campaign = fake_lab.make(tmp_path, campaign=ALONE[WRK])
    shutil.copytree(tmp_path / "servers" / "fake", tmp_path / "servers" / "broken")
    with (tmp_path / "servers" / "broken" / "server.toml").open("a") as handle:
        handle.write('\n[build]\nneeds = ["no-such-compiler"]\ncommand = ["no-such-compiler"]\n')
    campaign.write_text(campaign.read_text().replace('["fake"]', '["fake", "broken"]'))
    made = run(campaign, code=1)
    states = {(record["cell"]["server"], record["status"]) for record in made.records}
    assert states == {("fake", "sealed"), ("broken", "failed")}
    assert "cannot be built without no-such-compiler: install no-such-compiler" in made.done.stderr
