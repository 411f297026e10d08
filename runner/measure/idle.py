"""Which programs the CPUs are awake for: idle CPUs are kept awake, or not, and instruments run
first.

The kernel's PM QoS interface (Documentation/power/pm_qos_interface.rst) takes the longest wake-up
latency that a program can bear, as a 32-bit number of microseconds in /dev/cpu_dma_latency, and
heeds it while the file is open: with 0 idle CPUs poll. However the holder ends, the kernel closes
the file.
"""

import contextlib
import gc
import os
import sys
import time
from pathlib import Path

from runner.shapes import Idle

DEVICE = Path("/dev/cpu_dma_latency")
STATES = Path("/sys/devices/system/cpu")
NO_STATES = (
    "this kernel leaves their sleep to the hypervisor, and has no idle states to choose from"
)
WATCHED_S = 0.2
"""How long it is watched whether CPUs still sleep: an idle one wakes at least a few times in it."""


class IdleCpus:
    """What idle CPUs do, as this process asks for it; `state` is what was found to be so."""

    def __init__(self) -> None:
        self.state: Idle = "system"
        self.problem: str | None = None
        """Why CPUs that were to poll do not; None if they do, or were not asked to."""
        self._handle: int | None = None

    def ask(self, state: Idle) -> None:
        """Have idle CPUs poll, or sleep as the system lets them, from now on.

        Cheap if they do already.
        """
        if state == "system":
            self.close()
        if state == "system" or self._handle is not None or self.problem is not None:
            return
        try:
            self._handle = os.open(DEVICE, os.O_WRONLY | os.O_CLOEXEC)
            os.write(self._handle, (0).to_bytes(4, "little", signed=True))
        except OSError as error:
            self.problem = f"{DEVICE} cannot be opened ({(error.strerror or str(error)).lower()})"
        else:
            before = idle_states()
            time.sleep(WATCHED_S if before else 0)
            slept = {
                path.parent.name
                for path, count in idle_states().items()
                if count - before.get(path, count) > 1
            }
            if not before:
                self.problem = NO_STATES
            elif slept:
                self.problem = f"they still sleep ({', '.join(sorted(slept))})"
        if self.problem is not None:
            self.close()
        else:
            self.state = "polling"

    def close(self) -> None:
        """Let CPUs sleep again."""
        if self._handle is not None:
            os.close(self._handle)
        self._handle = None
        self.state = "system"


def idle_states() -> dict[Path, int]:
    """Return how often each CPU entered each idle state that has an exit latency, since boot."""
    found = {}
    for state in STATES.glob("cpu[0-9]*/cpuidle/state[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            if (
                int((state / "latency").read_text()) > 0
                or (state / "name").read_text().strip() != "POLL"
            ):
                found[state / "usage"] = int((state / "usage").read_text())
    return found


def remedy(problem: str) -> str:
    """Return a warning that idle CPUs cannot be kept awake, with what to do if something can be
    done.
    """
    said = (
        f"Idle CPUs cannot be kept awake: {problem}. Rates at few connections are then mostly the "
        "time that a CPU "
    )
    if problem == NO_STATES:
        return f"{said}takes to wake: compare servers at many connections."
    how = (
        "Run the lab as root, or allow it: `sudo chmod o+w /dev/cpu_dma_latency` until the next "
        "boot."
    )
    return f"{said}takes to wake. {how}"


def become_instrument() -> int:
    """Take the CPUs of the command line `HZ CPUS` and precedence on them.

    Return the period in nanoseconds.

    Real-time priority, or a better nice value, is taken where either is permitted: the lab's
    instruments share the generator's CPUs and need a fraction of a millisecond at a time; late,
    they blur a peak or blame the server for the generator's queue.
    """
    os.sched_setaffinity(0, {int(cpu) for cpu in sys.argv[2].split(",")})
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except PermissionError:
        with contextlib.suppress(PermissionError):
            os.nice(-10)
    gc.disable()  # nothing in an instrument is cyclic, and a collection would be a spike of it
    return round(1e9 / float(sys.argv[1]))


def answer(line: str) -> None:
    """Write an instrument's answer.

    If the runner that asked is gone, the instrument ends without a word.
    """
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        os._exit(1)  # an orderly exit would write once more, and complain
