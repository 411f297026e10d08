"""The faults that hit a campaign."""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from chaos.labs import Lab

SAMPLER = "runner.measure.sampler"
PROBE = "runner.measure.probe"
WATCHDOG = "runner.measure.leftovers"
LONGEST_PAUSE_S = 4.0


def nothing_to_mend(lab: Lab) -> None:
    """Do nothing, because the fault left nothing to repair before the run is resumed."""


@dataclass(frozen=True)
class Fault:
    """A fault that can hit a running campaign, such as a killed process or a full disk."""

    name: str
    hit: Callable[[Lab, random.Random], str]
    """Function that causes the fault.

    The function returns the name of what was hit, or an empty text if there was nothing to hit.
    """
    mend: Callable[[Lab], None] = nothing_to_mend
    """Function that repairs the lab before the run is resumed, as a user would.

    For example, it frees the disk.
    """
    kills_watchdog: bool = False
    """True if the fault kills the watchdog.

    Then only the next run or `bench clean` removes what the runner left behind.
    """
    needs_engine: bool = False


def _signal(lab: Lab, word: str, number: signal.Signals) -> str:
    """Send a signal to those processes of the lab that run the program or module `word`.

    Return a text that names these processes. If there are none, the text is empty.
    """
    hit = []
    for process in lab.processes(word):
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)
            hit.append(str(process.pid))
    return f"process {', '.join(hit)}" if hit else ""


def _to_runner(number: signal.Signals) -> Callable[[Lab, random.Random], str]:
    def hit(lab: Lab, _numbers: random.Random) -> str:
        if lab.runner is None or lab.runner.poll() is not None:
            return ""
        lab.runner.send_signal(number)
        return f"runner {lab.runner.pid}"

    return hit


def _kill(*words: str) -> Callable[[Lab, random.Random], str]:
    def hit(lab: Lab, _numbers: random.Random) -> str:
        found = [_signal(lab, word, signal.SIGKILL) for word in words]
        return ", ".join(filter(None, found))

    return hit


def _stop(*words: str) -> Callable[[Lab, random.Random], str]:
    """Return a function that pauses processes (SIGSTOP) and lets them continue (SIGCONT) later.

    The pause has a random duration of 0.1 s to LONGEST_PAUSE_S.
    """

    def hit(lab: Lab, numbers: random.Random) -> str:
        pause_s = numbers.uniform(0.1, LONGEST_PAUSE_S)
        found = [_signal(lab, word, signal.SIGSTOP) for word in words]
        if not any(found):
            return ""
        time.sleep(pause_s)
        for word in words:
            _signal(lab, word, signal.SIGCONT)
        return f"{', '.join(filter(None, found))} for {pause_s:.1f} s"

    return hit


def _stop_runner(lab: Lab, numbers: random.Random) -> str:
    pause_s = numbers.uniform(0.1, LONGEST_PAUSE_S)
    hit = _to_runner(signal.SIGSTOP)(lab, numbers)
    time.sleep(pause_s)
    _to_runner(signal.SIGCONT)(lab, numbers)
    return hit and f"{hit} for {pause_s:.1f} s"


def _hang_server(lab: Lab, _numbers: random.Random) -> str:
    """Pause the servers' processes (SIGSTOP), and never let them continue."""
    return _signal(lab, lab.server_word, signal.SIGSTOP)


def _kill_runner_and_watchdog(lab: Lab, numbers: random.Random) -> str:
    watchdog = _signal(lab, WATCHDOG, signal.SIGKILL)
    runner = _to_runner(signal.SIGKILL)(lab, numbers)
    return ", ".join(filter(None, (watchdog, runner)))


def _fill_disk(lab: Lab, numbers: random.Random) -> str:
    """Fill the disk on which the runs are stored, and free it after a random time."""
    pause_s = numbers.uniform(0.5, LONGEST_PAUSE_S)
    filler = lab.data / "filler"
    subprocess.run(
        ["dd", "if=/dev/zero", f"of={filler}", "bs=4096"], capture_output=True, check=False
    )
    threading.Timer(pause_s, lambda: filler.unlink(missing_ok=True)).start()
    return f"disk for {pause_s:.1f} s"


def _make_room(lab: Lab) -> None:
    (lab.data / "filler").unlink(missing_ok=True)


def _step_clock(lab: Lab, numbers: random.Random) -> str:
    """Set the wall clock of the lab's programs an hour ahead, and back after a random time."""
    if lab.clock_switch is None:
        return ""
    pause_s = numbers.uniform(0.1, LONGEST_PAUSE_S)
    lab.clock_switch.touch()
    time.sleep(pause_s)
    lab.clock_switch.unlink()
    return f"clock for {pause_s:.1f} s"


def _delete_raw(lab: Lab, numbers: random.Random) -> str:
    """Delete a random file of a trial that has no record yet."""
    return _delete(lab, numbers, lab.unsealed_files())


def _delete_tables(lab: Lab, _numbers: random.Random) -> str:
    run = lab.run()
    if run is None or not (run / "tables").is_dir():
        return ""
    shutil.rmtree(run / "tables", ignore_errors=True)
    return "tables/"


def _delete_ledger(lab: Lab, numbers: random.Random) -> str:
    return _delete(lab, numbers, sorted((lab.data / ".live").glob("*.jsonl")))


def _delete(lab: Lab, numbers: random.Random, files: list[Path]) -> str:
    if not files:
        return ""
    file = numbers.choice(files)
    file.unlink(missing_ok=True)
    return str(file.relative_to(lab.data))


def _kill_engine(lab: Lab, _numbers: random.Random) -> str:
    assert lab.engine is not None
    lab.engine.kill()
    return "dockerd"


def _restart_engine(lab: Lab) -> None:
    assert lab.engine is not None
    lab.engine.start()


def _kill_container(lab: Lab, numbers: random.Random) -> str:
    assert lab.engine is not None
    ids = lab.engine.containers()
    if not ids:
        return ""
    victim = numbers.choice(ids)
    lab.engine.docker("kill", victim)
    return f"container {victim[:12]}"


FAULTS = (
    Fault("SIGKILL of the runner", _to_runner(signal.SIGKILL)),
    Fault("SIGINT to the runner", _to_runner(signal.SIGINT)),
    Fault("SIGTERM to the runner", _to_runner(signal.SIGTERM)),
    Fault("SIGHUP to the runner", _to_runner(signal.SIGHUP)),
    Fault("SIGKILL of runner and watchdog", _kill_runner_and_watchdog, kills_watchdog=True),
    Fault("SIGKILL of the sampler", _kill(SAMPLER)),
    Fault("SIGKILL of the probe", _kill(PROBE)),
    Fault("SIGKILL of the generator", _kill("k6", "wrk")),
    Fault("SIGKILL of the server", lambda lab, _: _signal(lab, lab.server_word, signal.SIGKILL)),
    Fault("SIGKILL of the watchdog", _kill(WATCHDOG)),
    Fault("SIGSTOP of the runner", _stop_runner),
    Fault("SIGSTOP of the sampler", _stop(SAMPLER)),
    Fault("SIGSTOP of the probe", _stop(PROBE)),
    Fault("SIGSTOP of the generator", _stop("k6", "wrk")),
    Fault("SIGSTOP of the server, for good", _hang_server),
    Fault("full disk", _fill_disk, _make_room),
    Fault("clock step", _step_clock),
    Fault("deleted file of an unsealed trial", _delete_raw),
    Fault("deleted tables", _delete_tables),
    Fault("deleted ledger", _delete_ledger),
    Fault("SIGKILL of the Docker engine", _kill_engine, _restart_engine, needs_engine=True),
    Fault("killed container", _kill_container, needs_engine=True),
)
