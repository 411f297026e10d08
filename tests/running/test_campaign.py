"""Tests of the loop over a campaign's trials, which must repeat disturbed trials.

Further tests check that a campaign is refused if the machine has too little memory, disk space or
other resources.
"""

import json
import re
import resource
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import psutil
import pytest
from cells import cell_of, changed
from measured import measured

from runner.console import TrialProgress
from runner.digest.reconcile import kept_packets
from runner.digest.trial import Digest
from runner.manifest import Manifest
from runner.measure import counters
from runner.measure.session import Ready
from runner.measure.sites import Sites
from runner.measurement import Counters
from runner.model import Blame, Check, LabError
from runner.planning.catalog import load_campaign, load_server
from runner.planning.plan import next_attempt, plan_trials
from runner.present.frames import read_tables
from runner.running.attempts import run_trials, run_unit
from runner.running.preparing import Prepared, Room, require_room, tools_of
from runner.running.stopping import TO_THE_END, Settled, Stopping, settled
from runner.store import RunFolder, find_run
from runner.verdict.evidence import Evidence, Verdict
from runner.verdict.limits import Cause

QUICK = load_campaign("quick")


@pytest.fixture
def trial():
    return plan_trials(QUICK, [load_server("gin")])[0]


def verdict_by(cause):
    evidence = Evidence(
        server_share=0.5, generator_share=0.5, generator_peak_share=0.5, disjoint=True
    )
    return Verdict(cause, evidence)


def run(trials, outcome_of, campaign=QUICK, until=TO_THE_END):
    """Run trials without measuring them.

    `outcome_of` returns how an attempt at a trial ends: `ok`, `disturbed`, or another error. Return
    the sentences about failed trials, all messages, the ids of the attempts that began, and the ids
    of the attempts that were reported as ended.
    """
    began = []
    report = Mock(spec=TrialProgress)

    def execute(_run, unit, _prepared, _step):
        records = []
        for each in unit:
            began.append(each.trial_id)
            outcome = outcome_of(each)
            error = None if outcome == "ok" else outcome
            known = {
                "trial_id": each.trial_id,
                "attempt": each.attempt,
                "cell": vars(each.cell.columns()),
                "error": error,
            }
            status = "sealed" if error is None else "failed"
            records.append({**known, "status": status, "disturbed": outcome == "disturbed"})
        return records

    folder = SimpleNamespace(records=list, manifest=Manifest, path=Path("the-run"))
    prepared = Prepared(SimpleNamespace(campaign=campaign))
    failed = run_trials(folder, trials, prepared, report, until, execute)
    said = [call.args[0] for call in report.say.call_args_list]
    return failed, said, began, [call.args[1]["trial_id"] for call in report.end.call_args_list]


def test_progress_counts_the_trials_that_are_left(trial, capsys):
    """If a run is resumed at its second trial, the progress counts only the trials that are left.

    Three trials are left. One of these trials is skipped, but it counts: the trial after it is
    number 3 of 3.
    """
    left = [replace(trial, order=order) for order in (2, 3, 4)]
    failed = {"status": "failed", "error": "no reason"}
    progress = TrialProgress()
    progress.plan(left)
    progress.end(left[0], failed)
    progress.skip(left[1:2])
    progress.end(left[2], failed)
    assert re.findall(r"\[\d/\d\]", capsys.readouterr().err) == ["[1/3]", "[3/3]"]


@pytest.mark.parametrize(
    ("outcomes", "attempts_allowed", "failed"),
    [
        (["disturbed", "ok"], 3, None),
        (["disturbed"] * 3, 3, ".a3: disturbed"),  # given up after the last attempt
        (["disturbed"], 1, ": disturbed"),  # the campaign allows only one attempt
        (["broken"], 3, ": broken"),  # a trial that fails for another reason is not repeated
    ],
)
def test_a_disturbed_trial_is_repeated_and_no_other(trial, outcomes, attempts_allowed, failed):
    left = list(outcomes)
    campaign = replace(QUICK, attempts=attempts_allowed)
    sentences, said, began, ended = run([trial], lambda _: left.pop(0), campaign)
    assert left == []
    assert (
        began == [trial.trial_id, f"{trial.trial_id}.a2", f"{trial.trial_id}.a3"][: len(outcomes)]
    )
    assert ended == began[-1:]
    assert sentences == (() if failed is None else (trial.trial_id + failed,))
    assert ["is repeated" in each for each in said] == [True] * (len(outcomes) - 1)
    second = next_attempt(trial, 2)
    assert (
        next_attempt(second, 3).trial_id == f"{trial.trial_id}.a3"
        and next_attempt(second, 1) == trial
    )


def attempt_at(unit, digests, folder):
    """Attempt the trials of `unit` with a fake measurement that always succeeds.

    `digests` contains the digest of each trial, by trial id. Return the trials' records.
    """

    def measuring(_bench, _workload, members, _order, _step):
        return {member.trial_id: measured() for member in members}

    def digesting(_run, trials):
        return {trial: digests[trial.trial_id] for trial in trials}

    bench = SimpleNamespace(campaign=QUICK, sites=Sites.here(None))
    prepared = Prepared(bench, {each.cell.server: Mock(spec=Ready) for each in unit})
    return run_unit(folder, unit, prepared, lambda _: None, measuring, digesting)


STOLEN = "disturbed: the hypervisor took 30 % of the CPUs' time away"
TICKS = Check("9 the sampler took >= 99 % of its ticks", False, "80 %", Blame.LAB)
ATTEMPTS = [
    (1, None, (), "sealed"),
    (1, STOLEN, (), "failed"),
    (2, STOLEN, (), "failed"),
    # The last attempt counts even if it was disturbed, because the machine may never be quiet. The
    # time that the hypervisor took is stored.
    (3, STOLEN, (), "sealed"),
    (3, STOLEN, (TICKS,), "failed"),
    (1, STOLEN, (Check("5 counted", False, "999"),), "failed"),
]


@pytest.mark.fault("the hypervisor takes the CPUs away", "the trial is repeated, twice at most")
@pytest.mark.parametrize(("attempt", "stolen", "failed", "state"), ATTEMPTS)
def test_a_trial_that_the_hypervisor_disturbed(trial, tmp_path, attempt, stolen, failed, state):
    digest = Digest({}, failed, verdict_by(Cause.NEITHER_SIDE_BUSY), stolen)
    again = next_attempt(trial, attempt)

    (record,) = attempt_at([again], {again.trial_id: digest}, RunFolder(tmp_path))
    assert record["status"] == state
    assert record["disturbed"] is (stolen is not None and failed in ((), (TICKS,)))
    if state == "failed" and not failed:
        assert record["error"] == STOLEN
    assert json.loads((tmp_path / "journal.jsonl").read_text().splitlines()[-1])["state"] == state


@pytest.mark.fault(
    "a server of a session is busy while the others are loaded", "no trial of the session counts"
)
def test_a_server_that_does_not_rest_spoils_its_session(trial, tmp_path):
    unit = [
        replace(next_attempt(trial, 3), trial_id=name, session="s01") for name in ("calm", "busy")
    ]
    idle = Check(
        "9 it was idle while the other servers of its session were loaded",
        False,
        "it used 7 % of a core",
        Blame.REST,
    )
    digests = {
        name: Digest({}, checks, verdict_by(Cause.SERVER_BUSY))
        for name, checks in (("calm", ()), ("busy", (idle,)))
    }
    calm, busy = attempt_at(unit, digests, RunFolder(tmp_path))
    assert (calm["status"], busy["status"]) == ("failed", "failed")
    assert "it used 7 % of a core" in calm["error"]


# --- a machine with too few resources: refused before anything is measured ------------------------


def room(folder, **left):
    """Return the free resources of a machine: plenty of each, except for the amounts in `left`."""
    plenty = Room(
        folder,
        disk_bytes=2**40,
        temporary_bytes=2**40,
        memory_bytes=2**40,
        open_files=resource.RLIM_INFINITY,
    )
    return replace(plenty, **left)


def test_the_room_is_that_of_the_folders_disk(tmp_path):
    """`Room.of` reports the machine's limits: disks, memory, and the hard limit of open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Lower the soft limit only a little, because this process may have hundreds of files open.
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    try:
        found = Room.of(Path("/proc"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert found.disk_bytes == 0, "nothing can be stored in /proc"
    assert found.temporary_bytes > 0
    assert 0 < found.memory_bytes <= psutil.virtual_memory().total
    assert found.open_files == hard


@pytest.mark.parametrize(("tool", "users"), [("vegeta", "vus"), ("oha", "connections")])
def test_a_generator_that_the_station_lacks_is_refused_for_other_hosts(trial, tool, users):
    there = replace(trial, cell=cell_of(tool=tool, duration_s=2.0, **{users: 8}))
    with pytest.raises(LabError, match=f"{tool} runs only on this machine"):
        tools_of([there], on_hosts=True)


@pytest.mark.fault(
    "the disk has too little room for a campaign", "refused before anything is measured"
)
def test_a_campaign_without_room_is_refused(trial, tmp_path):
    k6 = replace(trial, cell=cell_of(vus=500, iterations=10_000_000, slices=2))
    left = room(tmp_path, disk_bytes=2 * 2**30)
    require_room([replace(k6, cell=changed(k6.cell, iterations=1_000_000))] * 8, left)
    with pytest.raises(
        LabError, match=rf"about 2\.1 GiB on the disk of {tmp_path}, but only 2 GiB are free"
    ):
        require_room([k6], left)


@pytest.mark.fault(
    "memory is too little for a load's virtual users", "refused before anything is measured"
)
def test_a_campaign_without_memory_is_refused(trial, tmp_path):
    crowd = replace(trial, cell=cell_of(vus=3000, iterations=10_000))
    left = room(tmp_path, memory_bytes=2 * 2**30)
    require_room([crowd], left)
    with pytest.raises(LabError, match=r"about 2\.6 GiB of memory, but only 2 GiB are free"):
        require_room([replace(crowd, cell=changed(crowd.cell, vus=10_000))], left)


@pytest.mark.fault("temporary files have no room", "refused before anything is measured")
def test_a_campaign_without_room_for_temporary_files_is_refused(trial, tmp_path):
    left = room(tmp_path, temporary_bytes=2**20)
    with pytest.raises(
        LabError, match=r"0\.062 GiB in .*, but only 0\.00098 GiB are free: .* set TMPDIR"
    ):
        require_room([trial], left)


@pytest.mark.fault(
    "more connections than open files are allowed", "refused, with the `ulimit` that they need"
)
def test_a_campaign_with_more_connections_than_files_is_refused(trial, tmp_path):
    wide = replace(trial, cell=changed(trial.cell, tool="wrk", vus=None, connections=1000))
    require_room([wide], room(tmp_path))
    with pytest.raises(LabError, match="1000 connections need 1200 open files"):
        require_room([wide], room(tmp_path, open_files=1024))


# --- a run that ends before its last trial --------------------------------------------------------


def test_a_settled_load_gets_no_further_session():
    trials = plan_trials(QUICK, [load_server(name) for name in ("axum", "gin", "nginx")])
    load = next(t.session.partition("-")[2] for t in trials if t.session and t.cell.sockets == 1000)
    began = []
    looked_after = []

    def outcome_of(trial):
        began.append(trial.trial_id)
        return "ok"

    def settled_by_now(_tables, until):
        looked_after.append(max(int(name[1:3]) for name in began))
        return Settled(frozenset({load}), f"something is {until}")

    decided = Stopping(until="decided", looks=(2, 4), settled=settled_by_now)
    _, said, _, _ = run(trials, outcome_of, until=decided)
    assert looked_after == [2, 4], "it is asked after two sessions and after four, and no more"
    skipped = {trial.trial_id for trial in trials} - set(began)
    assert skipped and all("c1000" in name and int(name[1:3]) > 2 for name in skipped)
    assert {int(name[1:3]) for name in began if "c1000" in name} == {1, 2}
    assert "After 2 sessions something is decided." in said


def test_loads_are_settled_by_the_intervals_of_the_report():
    """A load is settled if the intervals of all its ratios in the report exclude 1.

    In the run `sample`, 8 of 15 loads are settled. The load with 100 kept connections is one of
    them, because all its intervals exclude 1: for example, axum / gin is 1.74 [1.58–1.90]. The
    static load is not settled, because the interval of axum / gnet includes 1. The load with one
    kept connection is not settled, because the interval of axum / nginx includes 1.
    """
    tables = read_tables(find_run("sample"))
    found = settled(tables, "decided")
    decided = found.loads
    assert "wrk-matrix-c100-keepalive-share0_5-x4" in decided and found.words.startswith(
        "8 of 15 loads are decided; the"
    )
    assert not decided & {
        "static-c100-keepalive-share0_5-x4",
        "wrk-matrix-c1-keepalive-x4",
    }
    names = {name: settled(tables, name).loads for name in ("0.1%", "20%", "100%")}
    assert names["0.1%"] == set() and names["20%"] < names["100%"] and decided < names["100%"]


@pytest.mark.parametrize(("budget_s", "words"), [(300.0, "5 min"), (45.0, "45 s")])
def test_a_budget_ends_the_run_and_says_how_to_go_on(budget_s, words):
    trials = plan_trials(QUICK, [load_server(name) for name in ("axum", "gin", "nginx")])
    now_s = 1000.0

    def outcome_of(_trial):
        nonlocal now_s
        now_s += budget_s / 30
        return "ok"

    stopping = Stopping(budget_s, clock=lambda: now_s)
    _, said, began, _ = run(trials, outcome_of, until=stopping)
    assert 20 <= len(began) <= 30 and began == [trial.trial_id for trial in trials][: len(began)]
    left = len(trials) - len(began)
    ends = (
        f"The budget of {words} is used up, with {left} trials left: continue with "
        "`bench run --resume the-run`."
    )
    assert said[-1] == ends


# --- the kernel's table of tracked connections is full --------------------------------------------

# The kernel's statistics file: numbers are hexadecimal, and each CPU has a row.
STATISTICS = """entries  clashres found new drop early_drop
00000007  00000000 00000000 00000000 00000003 00000000
00000007  00000000 00000000 00000000 000000ad 00000000
"""


def test_drops_are_summed_over_the_cpus(tmp_path):
    statistics = tmp_path / "nf_conntrack"
    assert counters.dropped_packets(statistics) is None
    statistics.write_text(STATISTICS)
    assert counters.dropped_packets(statistics) == 3 + 0xAD


CLOSE = cell_of(tool="wrk", mode="close", connections=100, duration_s=1.0, warmup_s=0.5)


@pytest.mark.fault(
    "the kernel's table of tracked connections is full", "the next trial waits for room"
)
def test_a_full_table_is_waited_for(tmp_path):
    needed = counters.connections_of(CLOSE)
    assert needed >= 45_000  # the connections that 1.5 s in close mode may open
    (tmp_path / "nf_conntrack_max").write_text("262144")
    (tmp_path / "nf_conntrack_count").write_text(str(262_144 - needed + 1))
    said = []

    def sleep(_seconds):
        (tmp_path / "nf_conntrack_count").write_text(str(262_144 - needed))

    counters.wait_for_room([CLOSE], said.append, tmp_path, sleep)
    assert said == [needed]
    counters.wait_for_room([CLOSE], said.append, tmp_path, sleep)
    assert said == [needed]


def test_a_table_that_is_half_free_is_not_waited_for(tmp_path):
    """The runner does not wait if half of the kernel's table of tracked connections is free.

    It does not wait even if the trial needs more than the whole table, or if there is no table.
    """

    def fail(_needed):
        pytest.fail("waited")

    counters.wait_for_room([CLOSE], fail, tmp_path)
    # The trial may open more connections than the whole table has room for.
    (tmp_path / "nf_conntrack_max").write_text("20000")
    (tmp_path / "nf_conntrack_count").write_text("10000")
    counters.wait_for_room([CLOSE], fail, tmp_path)


def test_kept_connections_need_little_room():
    assert counters.connections_of(replace(CLOSE, mode="keepalive")) < 5_000


@pytest.mark.parametrize(("dropped", "ok"), [(5, True), (8, False), (None, True)])
def test_a_dropped_packet_makes_a_trial_invalid(dropped, ok):
    """If the kernel dropped packets during a trial, the trial fails and counts as disturbed."""
    drops = kept_packets(
        measured(counters_before=Counters(0, 0, 0, 5), counters_after=Counters(9, 9, 9, dropped))
    )
    assert drops.ok is ok
    failed = [check for check in (drops, Check("7 keepalive mode", False, "42")) if not check.ok]
    assert Digest({}, tuple(failed), verdict_by(Cause.NEITHER_SIDE_BUSY)).disturbed is not ok
