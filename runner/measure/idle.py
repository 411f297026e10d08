"""Keep idle CPUs out of sleep states (PM QoS), and run instruments with priority.

The kernel's PM QoS interface is the file /dev/cpu_dma_latency, to which a process writes the
longest tolerable wake-up latency, as a 32-bit number of microseconds
(Documentation/power/pm_qos_interface.rst). If this number is 0, idle CPUs poll instead of sleeping.
The setting lasts while the process has the file open. So the setting ends with the process, even if
the process is killed.
"""

import contextlib
import gc
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from runner.shapes import Idle

DEVICE = Path("/dev/cpu_dma_latency")
STATES = Path("/sys/devices/system/cpu")
"""Folder that contains, for each CPU, the folders of its idle states."""
NO_STATES = (
    "the kernel of this virtual machine leaves the CPUs' sleep to the hypervisor, and has "
    "no idle states that the lab could choose"
)
WATCHED_S = 0.2
"""After the lab has asked for polling, it checks for this long whether CPUs still sleep.

An idle CPU wakes several times in this time. If a CPU enters a sleep state more than once in this
time, the lab concludes that the CPU still sleeps instead of polling.
"""


class IdleCpus:
    """A switch that lets idle CPUs poll or sleep; the attribute `state` says what they really do.

    `device` is the file of PM QoS, and `states` is the folder that `idle_states` reads. `sleep`
    waits for some seconds, so that the lab can observe whether CPUs still enter sleep states.
    """

    def __init__(
        self,
        device: Path = DEVICE,
        states: Path = STATES,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._device = device
        self._states = states
        self._sleep = sleep
        self.state: Idle = "system"
        self.problem: str | None = None
        """The reason why CPUs do not poll although this was requested.

        None if the CPUs poll, or need not poll.
        """
        self._handle: int | None = None

    def ask(self, state: Idle) -> None:
        """Let idle CPUs poll, or sleep as the system decides, from now on.

        If idle CPUs are in the requested state already, this costs hardly any time.
        """
        if state == "system":
            self.close()
        if state == "system" or self._handle is not None or self.problem is not None:
            return
        try:
            self._handle = os.open(self._device, os.O_WRONLY | os.O_CLOEXEC)
            os.write(self._handle, (0).to_bytes(4, "little", signed=True))
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            self.problem = f"{self._device} cannot be opened ({why})"
        else:
            before = idle_states(self._states)
            self._sleep(WATCHED_S if before else 0)
            slept = {
                path.parent.name
                for path, count in idle_states(self._states).items()
                if count - before.get(path, count) > 1
            }
            if not before:
                self.problem = NO_STATES
            elif slept:
                self.problem = f"the CPUs still enter sleep states ({', '.join(sorted(slept))})"
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


def idle_states(states: Path = STATES) -> dict[Path, int]:
    """Return the number of times that each CPU has entered each sleep state since boot.

    The keys are the files of these counters. The state in which a CPU polls is left out.
    """
    found = {}
    for state in states.glob("cpu[0-9]*/cpuidle/state[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            if (
                int((state / "latency").read_text()) > 0
                or (state / "name").read_text().strip() != "POLL"
            ):
                found[state / "usage"] = int((state / "usage").read_text())
    return found


def remedy(problem: str) -> str:
    """Return the warning that idle CPUs cannot be kept awake, with a remedy if there is one."""
    said = (
        f"Idle CPUs cannot be kept awake: {problem}. Then, if there are few connections, a "
        "server's rate depends mostly on how long a CPU takes to wake"
    )
    if problem == NO_STATES:
        return f"{said}: compare servers at many connections."
    how = (
        "Run the lab as root, or let every user keep the CPUs awake until the next boot: "
        "`sudo chmod o+w /dev/cpu_dma_latency`."
    )
    return f"{said}. {how}"


def become_instrument() -> int:
    """Pin this instrument to CPUs and raise its priority; return its period in nanoseconds.

    The period is the time between two samples or requests. The command line gives the frequency and
    the CPUs, as `HZ CPUS`. The priority is real-time or, if that is not permitted, a better nice
    value. Priority matters because instruments share the generator's CPUs: a late sampler blurs
    peaks, and a late probe attributes its own wait for a CPU to the server. The generator loses
    little CPU time, because an instrument needs only a fraction of a millisecond at a time.
    """
    os.sched_setaffinity(0, {int(cpu) for cpu in sys.argv[2].split(",")})
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except PermissionError:
        with contextlib.suppress(PermissionError):
            os.nice(-10)
    gc.disable()  # an instrument has no cyclic garbage, and a collection would delay it
    return round(1e9 / float(sys.argv[1]))


def answer(line: str) -> None:
    """Write a line to standard output, as the instrument's answer to the runner.

    If the runner is dead, end the instrument without a message.
    """
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        os._exit(1)  # an orderly exit would try to write again, and print an error
