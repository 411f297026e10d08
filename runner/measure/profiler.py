"""Run perf on another host, in a container that has the rights that perf needs.

The station that runs on the host during the whole run has fewer rights. So perf runs in a second
station, the profiler, which exists only while servers are profiled. docs/fleet.md says why the
profiler needs these rights.
"""

from __future__ import annotations

import contextlib
import gzip
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from docker.types import Mount

from runner.measure.connecting import TROUBLE, reason
from runner.measure.fleet import Place, station_image, station_options
from runner.measure.leftovers import ContainerEntry, Ledger
from runner.measure.sites import Site
from runner.measure.station_client import Channel, StationClient
from runner.model import CannotGoOnError, LabError
from runner.store import replacing

RIGHTS = ("SYS_ADMIN", "SYS_PTRACE", "SYS_CHROOT", "SYSLOG", "DAC_READ_SEARCH")
"""Capabilities of the profiler's container, and what perf needs each of them for.

- SYS_ADMIN: to observe processes of other users, and to enter the mount namespace of a server's
  container. To observe processes, PERFMON would suffice, but engines before Docker 23 do not know
  PERFMON.
- SYS_CHROOT: to enter the mount namespace of a server's container, for which both SYS_ADMIN and
  SYS_CHROOT are needed. perf must enter the namespace, because only there does perf find the file
  of the server's program, from which it reads the names of functions.
- SYS_PTRACE: to read which files a process of another user has mapped.
- SYSLOG: to read the addresses of the kernel's functions, which are shown as 0 without SYSLOG.
- DAC_READ_SEARCH: to read the folder TRACING, and to read a program that only its owner may read.
"""
TRACING = "/sys/kernel/tracing"
_TIME = re.compile(rb"^(\S.*?\s-?\d+/-?\d+\s+)(\d+)\.(\d{6}):", re.MULTILINE)


@dataclass(frozen=True)
class FarPerf:
    """perf on another host. The profiler there runs perf on the instruments' CPUs."""

    profiler: StationClient
    cpus: tuple[int, ...]
    site: Site
    """The other host. `site.clock` is the offset of its clock from this machine's clock."""

    @contextlib.contextmanager
    def recording(self, pid: int, out: Path) -> Iterator[None]:
        """Record call stacks as `Perf.recording` does, with times by this machine's clock."""
        with self.profiler.observing("recorded", pid, self.cpus, out):
            yield
        text = by_our_clock(gzip.decompress(out.read_bytes()), self.site.clock.offset_ns)
        with replacing(out) as temporary:
            temporary.write_bytes(gzip.compress(text, 6, mtime=0))

    @contextlib.contextmanager
    def counting(self, pid: int, out: Path) -> Iterator[None]:
        """Count events as `Perf.counting` does."""
        with self.profiler.observing("counted", pid, self.cpus, out):
            yield


def by_our_clock(text: bytes, ahead_ns: int) -> bytes:
    """Convert the times in the text of `perf script` to this machine's clock, in whole µs.

    The clock by which the text was written is `ahead_ns` ahead of this machine's clock.
    """
    ahead_us = round(ahead_ns / 1000)

    def moved(head: re.Match[bytes]) -> bytes:
        at_us = int(head[2]) * 1_000_000 + int(head[3]) - ahead_us
        return head[1] + b"%d.%06d:" % divmod(at_us, 1_000_000)

    return _TIME.sub(moved, text)


def refusal_of(place: Place, ledger: Ledger) -> str | None:
    """Return a sentence that says why the servers of a host cannot be profiled.

    Return None if the servers can be profiled.
    """
    try:
        with profiler(place, ledger):
            return None
    except CannotGoOnError:
        raise
    except LabError as refused:
        return str(refused)


@contextlib.contextmanager
def profiler(place: Place, ledger: Ledger) -> Iterator[StationClient]:
    """Start the profiler of a host, and end the profiler when the context ends.

    Raise LabError with the reason if the host's engine refuses the container, or if the host's
    kernel refuses perf.
    """
    image = place.image(lambda builder: station_image(builder, "profiler"))
    refused = f"The engine of the {place.role} refuses a container with the rights of perf"
    try:
        container = place.client.containers.create(
            image,
            **station_options("profiler", place.role),
            mounts=[
                Mount(TRACING, TRACING, type="bind", read_only=True),
                Mount("/work", None, type="volume"),
            ],
            cap_add=list(RIGHTS),
        )
    except TROUBLE as error:
        raise LabError(f"{refused}: {reason(error)}.", exit_code=1) from None
    ledger.add(ContainerEntry(str(container.id), place.reached))
    station = place.station
    try:
        with contextlib.closing(Channel(container)) as channel:
            try:
                container.start()
            except TROUBLE as error:
                raise LabError(f"{refused}: {reason(error)}.", exit_code=1) from None
            found = station.beside(container, channel)
            if not found.ask("can_profile"):
                raise LabError(
                    f"The kernel of the host of the {place.role} refuses perf, although its "
                    f"container has the rights that perf needs: mount tracefs at {TRACING} on that "
                    "host, and let seccomp, AppArmor and SELinux permit perf_event_open.",
                    exit_code=1,
                )
            yield found
    finally:
        # If the host is lost, its container cannot be removed now. The ledger names the container,
        # so a later run can remove it.
        if not station.is_lost:
            with contextlib.suppress(*TROUBLE):
                container.remove(force=True, v=True)
