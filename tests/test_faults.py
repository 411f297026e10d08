"""A campaign is hit in every state of a trial: it says so, leaves nothing running, loses one trial at most, goes on."""

import json
import os
import shutil
import signal
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import fake_lab
import pandas as pd
import pytest
from fake_lab import BENCH, bench, records, wait_for
from hit_lab import CAMPAIGN, CELL, PAUSED, STATES, Lab, victims
from real_lab import standing

pytestmark = [pytest.mark.timed, pytest.mark.long]


@pytest.mark.fault(
    "SIGINT, SIGTERM, SIGHUP or SIGKILL of the runner while a server starts, in the warm-up, under load, in the digest "
    "or between two trials",
    "exit code 130 but for SIGKILL; nothing is left, sealed files keep their hashes, the run goes on to its end",
)
@pytest.mark.parametrize(
    ("number", "state"),
    [
        *[(number, state) for number in (signal.SIGINT, signal.SIGKILL) for state in STATES],
        (signal.SIGTERM, "warm-up"),
        (signal.SIGHUP, "load"),
    ],
)
def test_a_signal_in_any_state(tmp_path, number, state):
    lab = Lab(tmp_path, state)
    lab.runner.send_signal(number)
    code, said = lab.ended()
    assert code == (-9 if number == signal.SIGKILL else 130), said
    assert "Traceback" not in said
    assert number == signal.SIGKILL or f"Interrupted: `bench run --resume {lab.run.name}` goes on." in said
    lab.assert_nothing_is_left()
    lab.assert_it_goes_on_to_its_end()


@pytest.mark.fault("Ctrl-C again and again", "the clean-up is finished all the same")
@pytest.mark.parametrize("state", PAUSED)
def test_a_second_ctrl_c_does_not_interrupt_the_cleaning_up(tmp_path, state):
    lab = Lab(tmp_path, state)
    for _ in range(5):
        lab.runner.send_signal(signal.SIGINT)
        time.sleep(0.05)
        if lab.runner.poll() is not None:
            break
    code, said = lab.ended()
    assert code == 130, said
    assert "Traceback" not in said
    lab.assert_nothing_is_left()
    lab.assert_it_goes_on_to_its_end()


@pytest.mark.fault(
    "SIGKILL of the server, the generator, the sampler or the probe, in each state of a trial that they live in",
    "the trial is failed and says who was killed; the others run, exit code 1, nothing is left",
)
@pytest.mark.parametrize(
    ("state", "word", "says"),
    [
        ("start", "server.py", "fake ended with exit code -9 before it was ready"),
        ("warm-up", "server.py", "fake ended with exit code -9 in the warm-up"),
        ("warm-up", ".tools/wrk", "wrk was killed in the warm-up"),
        ("load", "server.py", "the server ended with exit code -9 under load"),
        ("load", ".tools/wrk", "wrk ended with exit code -9"),
        ("load", "runner.measure.sampler", "sampl"),
        ("load", "runner.measure.probe", "prob"),
    ],
)
def test_what_takes_part_in_a_trial_is_killed(tmp_path, state, word, says):
    lab = Lab(tmp_path, state)
    found = victims(lab, word)
    assert found, [each.cmdline() for each in lab.processes()]
    for each in found:
        each.kill()
    lab.go()
    code, said = lab.ended()
    assert code == 1, said
    assert "Traceback" not in said
    lab.assert_nothing_is_left()
    record = records(lab.run)[f"b02-{CELL}"]
    assert record["status"] == "failed"
    assert says in record["error"]
    others = [r["status"] for name, r in records(lab.run).items() if not name.startswith("b02")]
    assert others == ["sealed", "sealed"]
    done = lab.resume()
    assert "nothing to resume" in done.stderr  # a failed trial is a result


@pytest.mark.fault("a server hangs under load", "its trial is failed within the generator's own patience; it is killed")
def test_a_server_that_hangs_is_ended(tmp_path):
    lab = Lab(tmp_path, "load")
    (server,) = [each for each in victims(lab, "server.py") if "python" in each.name()]
    server.suspend()
    lab.go()
    code, said = lab.ended()
    assert code == 1, said
    lab.assert_nothing_is_left()
    assert records(lab.run)[f"b02-{CELL}"]["status"] == "failed"


@pytest.mark.fault(
    "a server's script is changed while the run goes", "no later trial runs with it; put back, the run goes on"
)
def test_no_trial_runs_with_another_program(tmp_path):
    lab = Lab(tmp_path, "load")
    script = tmp_path / "servers" / "fake" / "server.py"
    before = script.read_text()
    script.write_text(before + "# another one\n")
    lab.go()
    code, said = lab.ended()
    assert code == 1
    assert "fake/server.py is not the file that it began with: put it back. Then `bench run --resume" in said
    assert not (lab.run / "trials" / f"b03-{CELL}").exists()
    script.write_text(before)
    lab.assert_nothing_is_left()
    lab.assert_it_goes_on_to_its_end()


@pytest.mark.fault("tables/ is removed while the run goes", "at the end it is made anew from the raw files")
def test_tables_that_vanish_are_made_anew(tmp_path):
    lab = Lab(tmp_path, "load")
    shutil.rmtree(lab.run / "tables")
    lab.go()
    code, said = lab.ended()
    assert code == 0, said
    for name in ("trials", "latency", "resources"):
        table = pd.read_parquet(lab.run / "tables" / f"{name}.parquet")
        assert {trial.split(".a")[0] for trial in table["trial_id"]} == {f"b0{block}-{CELL}" for block in (1, 2, 3)}
    assert len(list((lab.run / "tables" / "probe").iterdir())) >= 3


@pytest.mark.fault(
    "the runner's ledger is removed while the run goes", "it is written anew with the next thing that starts"
)
def test_a_ledger_that_vanishes(tmp_path):
    lab = Lab(tmp_path, "warm-up")
    shutil.rmtree(tmp_path / "data" / ".live")
    lab.go()
    wait_for(lambda: any(entry["kind"] == "process" for entry in lab.ledger()))
    lab.runner.kill()
    lab.ended()
    lab.assert_nothing_is_left()


class Repeating(Lab):
    """A lab that tries again what was disturbed, as campaigns do that say nothing of it."""

    campaign = CAMPAIGN.replace("attempts = 1\n", "")


@pytest.mark.fault("the probe is stopped for a while under load", "the attempt is said to be disturbed, and repeated")
def test_a_probe_that_is_stopped_for_a_while(tmp_path):
    """It would tell of waits that no server made."""
    lab = Repeating(tmp_path, "load")
    (probe,) = victims(lab, "runner.measure.probe")
    probe.suspend()
    lab.go()
    time.sleep(0.7)
    probe.resume()
    assert_repeated(lab, "the probe sent >= 80 % of its requests in time")


@pytest.mark.fault(
    "the server or the generator is put on other CPUs under load", "the attempt is said to be disturbed, and repeated"
)
@pytest.mark.parametrize(("subject", "word"), [("server", "server.py"), ("generator", ".tools/wrk")])
def test_what_is_put_on_other_cpus(tmp_path, subject, word):
    """As a manager of control groups does, or somebody's taskset; both sides could then take from one another."""
    lab = Repeating(tmp_path, "load")
    for each in victims(lab, word):
        each.cpu_affinity(sorted(os.sched_getaffinity(0)))
    lab.go()
    assert_repeated(lab, f"9 everyone stayed on the CPUs that they were given (the {subject} could use others)")


def assert_repeated(lab, error):
    """The second trial failed for this alone, and its second attempt did not."""
    code, said = lab.ended()
    assert code == 0, said
    folders = sorted(lab.run.glob("trials/b02-*"))
    hit, again = (json.loads((folder / "trial.json").read_text()) for folder in folders)
    assert error in hit["error"]
    assert hit["error"].count("; ") == 0
    assert (hit["status"], hit["disturbed"], again["status"]) == ("failed", True, "sealed")


@pytest.mark.fault("Ctrl-Z under load, and the run continued later", "nothing is lost")
def test_a_runner_that_is_stopped_for_a_while(tmp_path):
    lab = Lab(tmp_path, "load")
    lab.runner.send_signal(signal.SIGSTOP)
    lab.go()
    time.sleep(2.0)
    lab.runner.send_signal(signal.SIGCONT)
    code, said = lab.ended()
    assert code == 0, said
    assert {record["status"] for record in records(lab.run).values()} == {"sealed"}


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
"""The wall clock, an hour later from the moment when a file is there. (libfaketime knows no CPU-time clocks.)"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler is installed")
@pytest.mark.fault("the clock is stepped by an hour under load", "the attempt is said to be disturbed, and repeated")
def test_a_clock_that_is_stepped(tmp_path):
    """Forth, and back afterwards, for the runner and the sampler: the machine's own clock stays."""
    source, clock, stepped = tmp_path / "clock.c", tmp_path / "clock.so", tmp_path / "stepped"
    source.write_text(STEPPED)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", clock, source, "-ldl"], check=True)
    lab = Repeating(tmp_path, "load", LD_PRELOAD=str(clock), STEPPED_ONCE=str(stepped))
    first = f"b02-{CELL}"
    stepped.touch()
    lab.go()
    wait_for(lambda: (first, "failed") in lab.lines())
    stepped.unlink()
    code, said = lab.ended()
    assert code == 0, said
    disturbed = json.loads((lab.run / "trials" / first / "trial.json").read_text())
    assert "the clock was not stepped (it was stepped by 3600" in disturbed["error"]
    assert f"{first} is repeated" in said
    assert {record["status"] for record in records(lab.run).values()} == {"sealed"}


@pytest.mark.fault("the watchdog is killed", "the run goes on; a later SIGKILL of the runner is cleaned up by the next")
def test_without_its_watchdog_a_run_goes_on(tmp_path):
    lab = Lab(tmp_path, "load")
    for each in victims(lab, "runner.measure.leftovers"):
        each.kill()
    lab.runner.kill()
    lab.ended()
    assert victims(lab, "server.py")
    done = bench(lab.root, "clean")
    assert done.returncode == 0
    assert "Removed process" in done.stderr + done.stdout
    wait_for(lambda: not lab.processes())
    lab.assert_it_goes_on_to_its_end()


@pytest.mark.fault("a run is resumed while it still runs", "refused: the lock names the runner, and nothing is written")
def test_a_living_run_is_not_resumed(tmp_path):
    lab = Lab(tmp_path, "load")
    journal = (lab.run / "journal.jsonl").read_bytes()
    done = bench(tmp_path, "run", "--resume", lab.run.name)
    assert done.returncode == 2
    assert f"Another run (pid {lab.runner.pid}) is measuring here" in done.stderr
    assert (lab.run / "journal.jsonl").read_bytes() == journal
    lab.go()
    code, said = lab.ended()
    assert code == 0, said


@pytest.mark.fault(
    "the folder's name has spaces, quotes and letters beyond ASCII; locale and time zone are odd", "all works"
)
def test_odd_surroundings(tmp_path):
    root = tmp_path / "läb of 'mine' $HOME 日本"
    root.mkdir()
    campaign = fake_lab.make(root)
    odd = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "TZ": "Pacific/Chatham"}
    env = {**os.environ, "BENCH_ROOT": str(root), **odd}

    def ask(*arguments: str) -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run([*BENCH, *arguments], cwd=root, env=env, capture_output=True, timeout=280, check=False)
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return done

    ran = json.loads(ask("run", str(campaign), "--engine", "process", "--json").stdout)
    run = Path(ran["path"])
    trials = standing(pd.read_parquet(run / "tables" / "trials.parquet"))
    assert (trials["status"] == "sealed").all()
    started = json.loads((run / "run.json").read_text(encoding="utf-8"))["started_at"]
    assert started.endswith("+00:00")
    made_at = datetime.strptime(ran["run_id"][:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    assert abs((datetime.fromisoformat(started) - made_at).total_seconds()) < 60
    made = json.loads(ask("report", ran["run_id"], "--json").stdout)
    assert Path(made["html"]).stat().st_size > 10_000
