"""Tests of campaigns that are hit by faults.

A campaign must report the fault, leave nothing running, lose at most one trial, and go on.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import fake_lab
import pandas as pd
import pytest
import real_lab
from fake_lab import bench, records, wait_for
from hit_lab import CAMPAIGN, CELL, PAUSED, STATES, Lab
from marking import long_but

pytestmark = pytest.mark.timed

HITS = [
    [(signal.SIGINT, "load"), (signal.SIGKILL, "load")],
    [(signal.SIGINT, state) for state in STATES if state != "load"],
    [(signal.SIGKILL, state) for state in STATES if state != "load"],
    [(signal.SIGTERM, "warm-up"), (signal.SIGHUP, "load")],
]


@pytest.mark.fault(
    "SIGINT, SIGTERM, SIGHUP or SIGKILL of the runner while a server starts, in the warm-up, "
    "under load, in the digest or between two trials",
    "exit code 130, except for SIGKILL; no process is left, sealed files keep their hashes, and "
    "the resumed run reaches its end",
)
@pytest.mark.parametrize("hits", long_but(HITS[:1], HITS))
def test_a_signal_in_any_state(tmp_path, hits):
    lab = hit_again_and_again(tmp_path, hits)
    assert (
        pd.read_parquet(lab.run / "tables" / "trials.parquet")["status"].eq("sealed").sum()
        == lab.repeats
    )


@pytest.mark.long
@pytest.mark.fault("Ctrl-C is pressed several times", "the clean-up is completed nevertheless")
def test_a_second_ctrl_c_does_not_interrupt_the_cleaning_up(tmp_path):
    hit_again_and_again(tmp_path, [(signal.SIGINT, state) for state in PAUSED], times=5)


def hit_again_and_again(root, hits, times=1):
    """Interrupt a run by each signal of `hits`, and resume the run after each of them.

    `hits` contains pairs of a signal and a state. For each pair, the signal is sent `times` times
    when a trial is in the state, and each pair hits a different trial. After the last signal, the
    resumed run must go on to its end.
    """
    blocks = [f"b{number:02}" for number in range(2, len(hits) + 2)]
    sealed = {}
    lab = Lab(root, hits[0][1], repeats=len(hits) + 2)
    for (number, state), block in zip(hits, blocks, strict=True):
        if block != blocks[0]:
            lab.start(state, block, "--resume", lab.run.name)
        for _ in range(times):
            lab.runner.send_signal(number)  # this does nothing if the runner has ended
            time.sleep(0.05 if times > 1 else 0)
        said = lab.ended(-9 if number == signal.SIGKILL else 130)
        assert (
            number == signal.SIGKILL
            or f"Interrupted: continue with `bench run --resume {lab.run.name}`." in said
        )
        lab.assert_nothing_is_left()
        before = sealed
        sealed = lab.sealed()
        assert before.items() < sealed.items()
    lab.assert_it_goes_on_to_its_end()
    return lab


KILLED = [
    ("start", "server.py", "fake ended with exit code -9 before it was ready"),
    ("warm-up", "server.py", "fake ended with exit code -9 in the warm-up"),
    ("warm-up", ".tools/wrk", "wrk was killed in the warm-up"),
    ("load", "server.py", "the server ended with exit code -9 under load"),
    ("load", ".tools/wrk", "wrk ended with exit code -9"),
    ("load", "runner.measure.sampler", "sampl"),
    ("load", "runner.measure.probe", "prob"),
]


@pytest.mark.long
@pytest.mark.fault(
    "SIGKILL of the server, the generator, the sampler or the probe, in each state of a trial "
    "that they live in",
    "the trial is failed and says who was killed; the others run, exit code 1, nothing is left",
)
@pytest.mark.fault(
    "a server hangs under load", "its trial is failed within the generator's patience; it is killed"
)
@pytest.mark.fault(
    "a run is resumed while it still runs",
    "refused: the lock names the runner, and nothing is written",
)
@pytest.mark.fault(
    "tables/ is removed while the run goes", "at the end it is made anew from the raw files"
)
@pytest.mark.fault("Ctrl-Z under load, and the run continued later", "nothing is lost")
def test_a_run_that_is_hit_in_each_of_its_trials(tmp_path):
    *killed, hung, asked, stopped = (f"b{number:02}" for number in range(2, len(KILLED) + 5))
    lab = Lab(tmp_path, KILLED[0][0], repeats=len(KILLED) + 4)
    following = [
        *((state, block) for (state, *_), block in zip(KILLED, killed, strict=True)),
        ("load", hung),
    ][1:]
    for (_, word, _), (state, block) in zip(KILLED, following, strict=True):
        lab.kill(word)
        lab.go(state, block)
    (server,) = [each for each in lab.processes("server.py") if "python" in each.name()]
    server.suspend()
    lab.go("load", asked)
    shutil.rmtree(lab.run / "tables")
    journal = (lab.run / "journal.jsonl").read_bytes()
    refused = bench(tmp_path, "run", "--resume", lab.run.name)
    said = f"Another run (pid {lab.runner.pid}) is measuring here" in refused.stderr
    assert (refused.returncode, said, (lab.run / "journal.jsonl").read_bytes()) == (
        2,
        True,
        journal,
    )
    lab.go("load", stopped)
    lab.runner.send_signal(signal.SIGSTOP)
    lab.go()
    time.sleep(2.0)
    lab.runner.send_signal(signal.SIGCONT)
    lab.ended(1)
    lab.assert_nothing_is_left()
    found = dict(sorted(records(lab.run).items()))
    failed = [f"{block}-{CELL}" for block in (*killed, hung)]
    assert [name for name, record in found.items() if record["status"] == "failed"] == failed
    for (_, _, says), name in zip(KILLED, failed[:-1], strict=True):
        assert says in found[name]["error"]
    sealed = {record["trial_id"] for record in found.values() if record["status"] == "sealed"}
    assert len(sealed) == 3
    for table in ("trials", "latency", "resources"):
        assert set(pd.read_parquet(lab.run / "tables" / f"{table}.parquet")["trial_id"]) >= sealed
    assert {path.stem for path in (lab.run / "tables" / "probe").iterdir()} >= sealed
    assert "no trial is left to run" in lab.resume(code=1)  # a failed trial is not repeated


@pytest.mark.long
@pytest.mark.fault(
    "a server's script is changed while the run goes",
    "no trial runs with the changed script; with the old script the run continues",
)
@pytest.mark.fault(
    "the runner's ledger is removed while the run goes", "it is written anew with the next start"
)
@pytest.mark.fault(
    "the watchdog is killed",
    "the run goes on; a later SIGKILL of the runner is cleaned up by the next",
)
def test_a_run_that_loses_its_script_or_ledger_or_watchdog(tmp_path):
    lab = Lab(tmp_path, "load", repeats=5)
    script = tmp_path / "servers" / "fake" / "server.py"
    before = script.read_text()
    script.write_text(before + "# another one\n")
    lab.go()
    said = (
        "fake/server.py has changed since the run began: restore the file. Then continue with "
        "`bench run"
    )
    assert said in lab.ended(1)
    assert not (lab.run / "trials" / f"b03-{CELL}").exists()
    script.write_text(before)
    lab.assert_nothing_is_left()

    lab.start("warm-up", "b03", "--resume", lab.run.name)
    shutil.rmtree(tmp_path / "data" / ".live")
    lab.go()
    wait_for(lambda: any(entry["kind"] == "process" for entry in lab.ledger()))
    lab.runner.kill()
    lab.ended()
    lab.assert_nothing_is_left()

    lab.start("load", "b04", "--resume", lab.run.name)
    lab.kill("runner.measure.leftovers")
    lab.runner.kill()
    lab.ended()
    assert lab.processes("server.py")
    done = bench(tmp_path, "clean", code=0)
    assert "Removed process" in done.stderr + done.stdout
    wait_for(lambda: not lab.processes())
    lab.assert_it_goes_on_to_its_end()


class Repeating(Lab):
    """A lab that repeats disturbed trials, as campaigns do by default."""

    campaign = CAMPAIGN.replace("attempts = 1\n", "")

    def assert_repeated(self, errors):
        """Check that each trial from block 2 on failed at first, and succeeded in a later attempt.

        `errors` contains one text for each of these trials. The first attempt at the trial must
        have failed with an error that contains this text, and for no other reason.
        """
        said = self.ended(0)
        for number, error in enumerate(errors, start=2):
            first = json.loads(
                (self.run / "trials" / f"b{number:02}-{CELL}" / "trial.json").read_text()
            )
            assert error in first["error"] and "; " not in first["error"]
            assert (first["status"], first["disturbed"]) == ("failed", True)
            assert f"{first['trial_id']} is repeated" in said
        assert {record["status"] for record in records(self.run).values()} == {"sealed"}


@pytest.mark.long
@pytest.mark.fault(
    "the probe is stopped for a while under load",
    "the attempt is said to be disturbed, and repeated",
)
@pytest.mark.fault(
    "server or generator are put on other CPUs", "the attempt is said to be disturbed, and repeated"
)
def test_what_disturbs_an_attempt_has_it_repeated(tmp_path):
    """An attempt is repeated if the probe is paused, or if server or generator get other CPUs.

    Such an attempt counts as disturbed. A probe that was paused reports waiting times that the
    server did not cause. A server or generator that leaves the CPUs that the lab gave it may run on
    the CPUs of the other one, and take CPU time from it.
    """
    lab = Repeating(tmp_path, "load", repeats=5)
    (probe,) = lab.processes("runner.measure.probe")
    probe.suspend()
    threading.Timer(0.7, probe.resume).start()
    lab.go("load", "b03")
    for word, following in (("server.py", ("load", "b04")), (".tools/wrk", ())):
        for each in lab.processes(word):
            each.cpu_affinity(sorted(os.sched_getaffinity(0)))
        lab.go(*following)
    moved = [
        f"9 everyone stayed on the CPUs that they were given (the {who} could"
        for who in ("server", "generator")
    ]
    lab.assert_repeated(["the probe sent >= 80 % of its requests in time", *moved])


STEPPED = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t which, struct timespec *now) {
    int (*of_libc)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = of_libc(which, now);
    if (!failed && which == CLOCK_REALTIME && access(getenv("STEPPED_ONCE"), F_OK) == 0)
        now->tv_sec += 3600;
    return failed;
}
"""
"""Source of a library that sets a program's wall clock ahead by an hour while a file exists.

The environment variable STEPPED_ONCE contains the path of the file. The library libfaketime cannot
be used, because it does not support CPU-time clocks.
"""


@pytest.mark.long
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler is installed")
@pytest.mark.fault(
    "the clock is stepped by an hour under load",
    "the attempt is said to be disturbed, and repeated",
)
def test_a_clock_that_is_stepped(tmp_path):
    """The lab must notice that the wall clock is set an hour ahead, and set back later.

    Only the lab's own programs see these steps of the clock.
    """
    source = tmp_path / "clock.c"
    clock = tmp_path / "clock.so"
    stepped = tmp_path / "stepped"
    source.write_text(STEPPED)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", clock, source, "-ldl"], check=True)
    lab = Repeating(tmp_path, "load", LD_PRELOAD=str(clock), STEPPED_ONCE=str(stepped))
    stepped.touch()
    lab.go()
    wait_for(lambda: (f"b02-{CELL}", "failed") in lab.lines())
    stepped.unlink()
    lab.assert_repeated(["the clock was not stepped (the wall clock was stepped by 3600"])


@pytest.mark.long
@pytest.mark.fault(
    "odd letters, spaces and quotes in the folder's name; odd locale and time zone", "all works"
)
def test_odd_surroundings(tmp_path):
    root = tmp_path / "läb of 'mine' $HOME 日本"
    root.mkdir()
    campaign = fake_lab.make(root)
    odd = {
        "LC_ALL": "C",
        "LANG": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "TZ": "Pacific/Chatham",
    }
    made = real_lab.run(root, None, str(campaign), "--engine", "process", **odd)
    assert made.trials["status"].eq("sealed").all()
    started = made.manifest["started_at"]
    run_id = made.result["run_id"]
    assert started.endswith("+00:00")
    made_at = datetime.strptime(run_id[:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    assert abs((datetime.fromisoformat(started) - made_at).total_seconds()) < 60
    done = bench(root, "report", run_id, "--json", **odd, code=0)
    assert Path(json.loads(done.stdout)["html"]).stat().st_size > 10_000


@pytest.fixture
def disk(tmp_path):
    """Mount a disk of 400 MiB at the lab's data folder, and yield the folder."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    data = tmp_path / "data"
    data.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400m", "none", data], check=True)
    yield data
    subprocess.run(["umount", "-l", data], check=True)


def fill(disk):
    """Fill a disk completely, and return the path of the file that fills it."""
    full = subprocess.run(
        ["dd", "if=/dev/zero", f"of={disk}/filler", "bs=4096"], capture_output=True, check=False
    )
    assert b"No space left" in full.stderr
    return disk / "filler"


@pytest.mark.long
@pytest.mark.fault(
    "the disk is full in mid-campaign",
    "exit code 1, with the command that resumes the run once there is room",
)
def test_the_disk_of_the_runs_is_full(tmp_path, disk):
    lab = Lab(tmp_path, "warm-up")
    for following in ("load", ""):
        filler = fill(disk)
        lab.go()
        assert "--resume" in lab.ended(1)
        filler.unlink()
        if following:
            lab.start(following, "b02", "--resume", lab.run.name)
    lab.assert_it_goes_on_to_its_end()


@pytest.mark.long
@real_lab.needs("k6")
@pytest.mark.fault(
    "the disk is full while k6 writes its samples; it ends with exit code 0", "nothing is sealed"
)
def test_k6_on_a_full_disk(tmp_path, disk):
    real_lab.make(tmp_path)
    loads = real_lab.campaign(
        ["gin"], real_lab.load("rates", rates_rps=[500], duration_s=6, vus=50)
    )
    (tmp_path / "test.toml").write_text(loads)
    runner = real_lab.start(tmp_path, "run", "test.toml", "--engine", "process")
    wait_for(
        lambda: any(path.stat().st_size for path in disk.glob("runs/*/trials/*/k6.json.gz")),
        seconds=90,
    )
    filler = fill(disk)
    assert "--resume" in real_lab.ended(runner, 1).stderr
    (run,) = disk.glob("runs/*")
    assert '"sealed"' not in (run / "journal.jsonl").read_text()
    filler.unlink()
    bench(tmp_path, "run", "--resume", run.name, code=0)
    assert {record["status"] for record in records(run).values()} == {"sealed"}


@pytest.mark.long
@pytest.mark.fault(
    "the data folder is read-only",
    "a run is refused in one sentence; a report is made all the same",
)
def test_a_data_folder_that_cannot_be_written(tmp_path, disk):
    campaign = fake_lab.make(tmp_path, campaign=CAMPAIGN)
    run = fake_lab.run(campaign).result["run_id"]
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    refused = bench(tmp_path, "run", str(campaign), "--engine", "process", code=1)
    assert re.fullmatch(".*Read-only file system.*", refused.stderr.strip())
    bench(tmp_path, "report", run, code=0)
