"""Tests of sessions: the plan of a session, and the checks of each slice.

Further tests check that a session counts only as a whole.
"""

import json
import re
import shutil
from collections import Counter as Counts
from dataclasses import replace
from itertools import pairwise

import fake_lab
import hit_lab
import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cells import cell_of
from fake_lab import bench, measured, rebuilt, records
from real_lab import campaign

from runner.digest.loads import LeftOut, exact_percentiles, join_parts, left_out_places, part
from runner.digest.resources import Counter, Window, stitched
from runner.digest.tables import rebuild
from runner.digest.trial import digest_session
from runner.digest.wrk import WrkResult, merge_slices
from runner.measure.attached import leaders
from runner.measurement import Placement
from runner.planning.catalog import campaign_servers
from runner.planning.plan import by_session, plan_trials, slice_order
from runner.store import RunFolder

CAMPAIGN = campaign(
    ["fake", "fake-b"],
    {"workload": "wrk-matrix", "connections": [4], "warmup_s": 1},
    repeats=3,
    attempts=1,
    copies={"fake-b": "fake"},
    sessions={"slices": 2, "slice_s": 1},
)
CELL = "wrk-matrix-c4-keepalive-x2"


@pytest.mark.parametrize("servers", [2, 3, 4, 5, 9])
@pytest.mark.parametrize("slices", [2, 6])
def test_no_server_is_favoured_by_its_place(servers, slices):
    names = [f"s{number}" for number in range(servers)]
    order = slice_order(names, slices, "seed")
    assert Counts(order) == dict.fromkeys(
        [(name, place) for name in names for place in range(1, slices + 1)], 1
    )
    # A server's first slice has place 1, its second slice place 2, and so on. During two successive
    # places, the order of the servers is a palindrome. So if the machine drifts steadily in this
    # time, the means of all servers change by the same amount.
    for start in range(0, len(order), 2 * servers):
        pair = [name for name, _ in order[start : start + 2 * servers]]
        assert pair == pair[::-1]
    positions = {
        name: np.mean([at for at, (each, _) in enumerate(order) if each == name]) for name in names
    }
    assert len({round(mean, 9) for mean in positions.values()}) == 1
    assert slice_order(names, slices, "seed") == order
    assert any(slice_order(names, slices, str(seed)) != order for seed in range(20))


def test_each_server_follows_each_other_equally_often():
    """Each of four servers follows each of the other servers about equally often.

    A Williams square is a list of orders in which each server directly follows each other server
    equally often. Here the order is a whole Williams square of four servers, forwards and
    backwards.
    """
    order = [name for name, _ in slice_order("abcd", 8, "seed")]
    followed = Counts((a, b) for a, b in pairwise(order) if a != b)
    assert max(followed.values()) - min(followed.values()) <= 2 and len(followed) == 12


def test_the_trials_of_a_session_stay_together(read_campaign):
    three = read_campaign(CAMPAIGN.replace("fake", "gin"))  # a campaign must name real servers
    units = by_session(plan_trials(three, campaign_servers(three)))
    assert [[trial.trial_id for trial in unit] for unit in units] == [
        [f"s0{block}-{name}-{CELL}" for name in ("gin", "gin-b")] for block in (1, 2, 3)
    ]
    assert {trial.session for unit in units for trial in unit} == {
        f"s0{block}-{CELL}" for block in (1, 2, 3)
    }


def test_iterations_are_shared_out_over_the_slices():
    cell = cell_of(vus=3, iterations=100, slices=6)
    slices = [cell.slice(number).columns() for number in range(1, 7)]
    assert [each.iterations for each in slices] == [17, 17, 17, 17, 16, 16]
    wrk = cell_of(tool="wrk", connections=3, duration_s=3.0, slices=6)
    second = wrk.slice(2).columns()
    assert (second.duration_s, second.slices) == (0.5, None)


def stitch(t_s, cpu_s, *slices, subject="server", **more):
    """Return the counters of one program as if its slices followed each other without a pause.

    `t_s` are the times of the readings, and `cpu_s` the used CPU time, both in seconds. Each of
    `slices` is a pair (begin, length), in seconds.
    """
    windows = [
        Window(round(begin * 1e9), length, round(begin * 1e9), round((begin + length) * 1e9))
        for begin, length in slices
    ]
    raw = {subject: Counter(t_s, {"cpu_s": cpu_s, **more})}
    return stitched(raw, windows, edges_continued=True)[subject]


def test_slices_are_put_together_as_if_there_were_no_pause():
    """The CPU time that a server uses between two slices does not count.

    The server uses 30 % of a core in two slices of 2 s, and 90 % in the 5 s between the slices.
    """
    t_s = np.arange(-1.0, 10.01, 0.05)
    cpu_s = np.cumsum(np.where((t_s > 2.02) & (t_s <= 7.02), 0.9, 0.3) * 0.05)
    found = stitch(t_s, cpu_s, (0, 2.0), (7, 2.0), threads=0 * t_s + 7, pool_in_use=t_s)
    assert (found.t_s[0], found.t_s[-1]) == (0.0, 4.0)
    assert found.mean_pct(0.0, 4.0) == pytest.approx(30, abs=0.5)
    assert found.peak_pct(0.0, 4.0, 1.0) == pytest.approx(30, abs=1)
    assert found.seams == (2.0,)
    in_use = found.column("pool_in_use")
    assert np.nanmin(in_use) >= 0 and not ((in_use > 2) & (in_use < 7)).any()


def test_no_peak_spans_two_slices():
    """In two slices of 0.6 s at 100 % of a core, there is a peak over 0.5 s, but no peak over 1 s.

    A slice of 0.6 s does not contain any period of 1 s.
    """
    t_s = np.arange(0.0, 3.01, 0.05)
    found = stitch(t_s, t_s, (0, 0.6), (2, 0.6))
    assert np.isnan(found.peak_pct(0.0, 1.2, 1.0))
    assert found.peak_pct(0.0, 1.2, 0.5) == pytest.approx(100, abs=1)


def test_the_generators_of_two_slices_count_each_from_zero():
    # The second slice begins at 2 s. Its generator is a new process, whose CPU time begins at 0.
    cpu_s = np.array([0.0, 0.4, 0.8, 0.0, 0.2, 0.4])
    found = stitch(
        np.array([0.0, 0.5, 1.0, 2.0, 2.5, 3.0]), cpu_s, (0, 1.0), (2, 1.0), subject="generator"
    )
    assert found.between(0.0, 2.0) == pytest.approx(1.2)


def test_a_place_is_left_out_for_all_servers_or_for_none():
    nobody = ""
    thief = "the hypervisor took 9 % of the CPUs' time"
    assert left_out_places([[nobody, thief, nobody, nobody], [nobody] * 4]) == LeftOut(
        frozenset({2})
    )
    too_many = left_out_places([[thief, thief, nobody, nobody], [nobody, nobody, thief, nobody]])
    assert too_many.places == set()
    assert "in 3 of 4 places of the session" in too_many.why_repeat
    assert "(for example, the hypervisor took 9 %" in too_many.why_repeat
    assert left_out_places([[], []]) == LeftOut()


def test_histograms_of_slices_add_up():
    def result(pairs, requests):
        histogram = tuple(np.array(pairs).T)
        return WrkResult(
            ended_wall_ns=0,
            duration_s=1.0,
            requests=requests,
            connections=2,
            threads=1,
            errors={"read": 1},
            reported=histogram,
            raw=histogram,
        )

    whole = merge_slices([result([[1, 5], [3, 1]], 6), result([[1, 2], [2, 2]], 4)])
    assert (whole.requests, whole.duration_s, whole.errors) == (10, 2.0, {"read": 2})
    assert [list(side) for side in whole.raw] == [[1, 2, 3], [7, 2, 1]]


def test_percentiles_of_slices_are_those_of_all_requests(tmp_path):
    rng = np.random.default_rng(1)
    parts = []
    for number, size in enumerate((301, 5, 1000)):
        frame = pd.DataFrame(
            {"t_s": np.linspace(0, 1, size), "latency_ms": rng.lognormal(0, 1, size)}
        )
        parts.append(tmp_path / f"{number}.parquet")
        frame.to_parquet(parts[-1])
    join_parts(parts, [0.0, 1.0, 2.0], "t_s", tmp_path / "whole.parquet")
    whole = pd.read_parquet(tmp_path / "whole.parquet")
    assert whole["t_s"].is_monotonic_increasing and whole["t_s"].iloc[-1] == pytest.approx(3.0)
    found = exact_percentiles(tmp_path / "whole.parquet")
    for name, share in {"p50": 50, "p90": 90, "p99": 99, "p999": 99.9}.items():
        assert found[f"latency_{name}_ms"] == pytest.approx(
            np.percentile(whole["latency_ms"], share)
        )
    assert found["latency_max_ms"] == whole["latency_ms"].max()


def pipeline(test):
    """Give the marks `timed` and `long` to a test that uses fake servers and generators.

    Because of the mark `long`, `make test` leaves the test out. `make test` runs a test with a real
    session instead (in test_own_api.py).
    """
    return pytest.mark.timed(pytest.mark.long(test))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return fake_lab.run(fake_lab.make(tmp_path_factory.mktemp("lab"), 3, CAMPAIGN))


@pipeline
def test_every_slice_is_kept_counted_and_idle_servers_are_idle(finished):
    trials = finished.trials
    slices = finished.table("slices")
    assert trials["session"].value_counts().to_dict() == {
        f"s0{block}-{CELL}": 2 for block in (1, 2, 3)
    }
    assert (trials["slices"] == 2).all()
    slices = slices[slices["trial_id"].isin(trials["trial_id"])]
    assert (slices["requests"] == 40).all()  # the fake wrk sends ten requests on each connection
    kept = slices[slices["kept"]].groupby("trial_id")
    assert trials.set_index("trial_id")["requests"].to_dict() == kept["requests"].sum().to_dict()
    for _, of_session in slices.groupby("session"):
        assert sorted(of_session["position"]) == [1, 2, 3, 4]
        # The place of a slice is its number among its server's slices. Slices with the same place
        # are kept for all servers, or for no server.
        assert of_session.groupby("place")["kept"].nunique().eq(1).all()
    for record in finished.records:
        assert all(check["ok"] for check in record["checks"])
        details = {check["name"]: check["detail"] for check in record["checks"]}
        idle = details["9 it was idle while the other servers of its session were loaded"]
        (used_pct,) = re.findall(r"the server used ([\d.]+) % of a core", idle)
        assert float(used_pct) < 0.5
        assert "5 the slices' requests are all that the server counted" in details
        assert {"wrk-01.json", "wrk-02.json", "resources.parquet", "probe.parquet"} == set(
            record["raw"]
        )


@pipeline
def test_tables_of_sessions_are_rebuilt_identically(finished):
    with rebuilt(finished.folder):
        rebuild(RunFolder(finished.folder))


@pytest.fixture
def session(finished, tmp_path):
    """Return a copy of the run, and the trials of its first session with their measurements."""
    folder = RunFolder(shutil.copytree(finished.folder, tmp_path / "copy"))
    return folder, dict(
        measured(record) for record in records(folder.path).values() if record["block"] == 1
    )


def fill_cpus(folder, trial, cores, begin_ns, end_ns):
    """Rewrite the host's counters in a trial's samples.

    Afterwards the samples say that programs used `cores` CPU cores from `begin_ns` to `end_ns`, and
    no CPU time before and later.
    """
    path = folder.trial(trial.trial_id) / "resources.parquet"
    table = pq.read_table(path)
    rows = table.to_pandas()
    used_ns = (cores * (rows["mono_ns"].clip(begin_ns, end_ns) - begin_ns)).round()
    for name in ("cpu_ns", "ran_ns"):
        rows[name] = rows[name].mask(rows["subject"] == "host", used_ns)
    pq.write_table(pa.Table.from_pandas(rows, table.schema, preserve_index=False), path)


@pipeline
@pytest.mark.parametrize(
    ("workload", "host_cpus", "disturbed"),
    [
        ("wrk-matrix", 2, True),
        # With 64 CPUs, the other programs may have run on CPUs that the lab does not use.
        ("wrk-matrix", 64, False),
        # With a user's API, other processes of the user's server may have used the CPU time.
        ("own-get", 2, False),
    ],
)
def test_who_took_cpu_is_judged_by_slices_as_by_trials(session, workload, host_cpus, disturbed):
    """If other programs use two CPUs before, during and after a load, the trial is disturbed.

    It is not disturbed if the machine has many more CPUs, or if the server is a user's API.
    """
    folder, measured = session
    beside_ns = 200_000_000
    for trial, measurement in measured.items():
        begin_ns = measurement.load_started_mono_ns - beside_ns
        end_ns = measurement.load_ended_mono_ns + beside_ns
        fill_cpus(folder, trial, 2.0, begin_ns, end_ns)
    machine = {"host_cpus": host_cpus, "placement": Placement((0,), (1,))}
    given = {
        replace(t, cell=replace(t.cell, workload=workload)): replace(m, **machine)
        for t, m in measured.items()
    }
    found = digest_session(folder, given).values()
    reasons = [digest.taken or "" for digest in found]
    assert len(reasons) == 2
    taken_pct = [digest.metrics["others_cpu_mean_pct"] for digest in found]
    if workload == "own-get":
        assert taken_pct == [None, None]
    else:
        assert all(40 < each <= 200 for each in taken_pct), taken_pct
    assert all(("other programs took" in reason) is disturbed for reason in reasons)


@pipeline
def test_a_server_whose_only_slice_is_left_out_has_numbers(session):
    """The trial of a server that died in its first slice has the numbers of this slice.

    This holds even if the comparison leaves out the first slice of each server. In this test the
    first slices are left out because another program took CPU time from the other server during its
    first slice.
    """
    folder, measured = session
    (one, whole), (other, cut) = measured.items()
    short = replace(cut, slices=cut.slices[:1], died=-9)
    first = whole.slices[0]
    fill_cpus(folder, one, 2.0, first.load_started_mono_ns, first.load_ended_mono_ns)
    found = digest_session(folder, {one: whole, other: short})
    kept = pq.read_table(part(folder, "slices", one.trial_id))["kept"].to_pylist()
    assert kept == [False, True]
    assert (found[one].metrics["slices"], found[one].metrics["slices_kept"]) == (2, 1)
    assert (found[other].metrics["slices"], found[other].metrics["slices_kept"]) == (1, 1)
    assert "the server lived through the load" in found[other].broken


class Lab(hit_lab.Lab):
    """A lab whose campaign consists of sessions, and is interrupted in the second session."""

    campaign = CAMPAIGN
    block = "s02"

    def sealed(self):
        """Return the sealed files, except those of the second session, because it is repeated."""
        return {path: digest for path, digest in super().sealed().items() if "s02" not in path}

    def names(self):
        return [
            f"s{block:02}-{name}-{CELL}"
            for block in range(1, self.repeats + 1)
            for name in ("fake", "fake-b")
        ]


@pytest.mark.fault(
    "the runner is killed in the middle of a session",
    "the whole session is repeated, nothing is left",
)
@pipeline
def test_a_runner_killed_again_and_again_loses_the_session_only(tmp_path):
    lab = Lab(tmp_path, "start")
    for following in ("warm-up", "load", "digest", ""):
        lab.runner.kill()
        lab.ended()
        lab.assert_nothing_is_left()
        if following:
            lab.start(following, "s02", "--resume", lab.run.name)
    lab.assert_it_goes_on_to_its_end()
    attempts = pd.DataFrame(records(lab.run).values()).groupby("session")["attempt"].nunique()
    assert attempts.eq(1).all()  # all trials of a session have the same attempt number


@pytest.mark.fault(
    "a server of a session is killed under load",
    "its trial fails, the session goes on with the others",
)
@pytest.mark.fault(
    "the sampler or the probe is killed in a session", "its trials fail; the next session runs"
)
@pipeline
def test_who_is_killed_in_a_session_fails_those_who_need_him(tmp_path):
    lab = Lab(tmp_path, "load", repeats=5)
    paused = int((tmp_path / ".tools" / "paused.url").read_text())
    (victim,) = (psutil.Process(pid) for pid in leaders("127.0.0.1", paused))
    victim.kill()
    for block, word in (("s03", "runner.measure.sampler"), ("s04", "runner.measure.probe")):
        lab.go("load", block)
        lab.kill(word)
    lab.go()
    lab.ended(1)
    lab.assert_nothing_is_left()
    found = pd.DataFrame(records(lab.run).values()).sort_values(["block", "status"])
    assert found["status"].to_list() == 2 * ["sealed"] + ["failed", "sealed"] + 4 * [
        "failed"
    ] + 2 * ["sealed"]
    says = ["the server ended with exit code -9 under load", "sampler", "sampler", "probe", "probe"]
    errors = found.loc[found["status"] == "failed", "error"]
    assert [word for word, error in zip(says, errors, strict=True) if word not in error] == []
    assert "no trial is left to run" in lab.resume(code=1)  # a failed trial is not repeated


@pytest.mark.fault(
    "the runner died while it wrote the records of a session",
    "trials of the session that were already sealed do not count",
)
@pipeline
def test_half_a_session_is_no_session(finished):
    run = RunFolder(shutil.copytree(finished.folder, finished.folder.with_name("half")))
    (run.path / "run.json").write_text(json.dumps(run.manifest().as_json() | {"run_id": "half"}))
    last = sorted(run.path.glob(f"trials/s03-fake-b-{CELL}*"))[-1]
    lines = run.journal.read_text().splitlines(keepends=True)
    run.journal.write_text(
        "".join(line for line in lines if not (f'"{last.name}"' in line and '"sealed"' in line))
    )
    (last / "trial.json").unlink()
    bench(finished.root, "run", "--resume", "half", code=0)
    found = pd.DataFrame(record for record in run.records() if record["block"] == 3)
    sealed = found[found["status"] == "sealed"]
    assert (len(sealed), sealed["attempt"].nunique()) == (2, 1)
    assert (found["error"] == "its session was interrupted").sum() == 1
    shutil.rmtree(run.path)
