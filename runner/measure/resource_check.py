"""Whether a machine has room for a campaign, asked before it begins: what fails in its middle costs hours."""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Sequence
from pathlib import Path

from runner.measure.generators import k6_bytes, k6_iterations
from runner.measure.hazards import OTHER_FILES
from runner.measure.memory import available_bytes
from runner.model import Cell, LabError, Trial
from runner.planning.plan import by_session
from runner.store import free_bytes

BYTES_A_REQUEST = 200
"""Seen: 102 of k6's gzipped samples and 39 in the table of requests."""
BYTES_A_TRIAL = 2 * 2**20
"""Of all else; seen: up to one MiB."""
SPARE_BYTES = 256 * 2**20
TEMPORARY_BYTES = 64 * 2**20
"""A warm-up, a server's temporary files."""
MEMORY_BYTES = 512 * 2**20
"""The runner, its instruments, a server and PostgreSQL; seen: 400 MiB with a pool of 500 connections."""
MEMBER_BYTES = 256 * 2**20
"""Each further server of a session, with its PostgreSQL."""


def bytes_of(cell: Cell) -> int:
    """Return about how much a trial leaves on the disk, rather too much; wrk keeps a histogram, no requests."""
    return BYTES_A_TRIAL + BYTES_A_REQUEST * (k6_iterations(cell) if cell.tool == "k6" else 0)


def require_room(trials: Sequence[Trial], folder: Path) -> None:
    """Raise LabError where a disk, the memory or the open files that this user may have are too few for the trials.

    `folder` is where their raw samples go.
    """
    _require_disk(trials, folder)
    _require_memory(trials)
    _require_files(max((trial.cell.sockets for trial in trials), default=0))


def _require_disk(trials: Sequence[Trial], folder: Path) -> None:
    needed, free = SPARE_BYTES + sum(bytes_of(trial.cell) for trial in trials), free_bytes(folder)
    if free < needed:
        raise LabError(
            f"The trials need about {needed / 2**30:.1f} GiB on the disk of {folder}, and {free / 2**30:.1f} are free: "
            "free some, or make them smaller with --scale or --repeats.",
            exit_code=1,
        )
    temporary = Path(tempfile.gettempdir())
    free = free_bytes(temporary)
    if free < TEMPORARY_BYTES:
        raise LabError(
            f"Temporary files need {TEMPORARY_BYTES / 2**20:.0f} MiB, and {free / 2**20:.0f} are free in {temporary}: "
            "free some, or set TMPDIR to a folder elsewhere.",
            exit_code=1,
        )


def _require_memory(trials: Sequence[Trial]) -> None:
    of_k6 = max((k6_bytes(trial.cell.slice(1)) for trial in trials if trial.cell.tool == "k6"), default=0)
    further = max((len(unit) - 1 for unit in by_session(trials)), default=0)
    needed, there = MEMORY_BYTES + MEMBER_BYTES * further + of_k6, available_bytes()
    if there < needed:
        raise LabError(
            f"The largest trial needs about {needed / 2**30:.1f} GiB of memory, and {there / 2**30:.1f} can be had: "
            "end other programs, or ask for fewer virtual users or iterations.",
            exit_code=1,
        )


def _require_files(connections: int) -> None:
    needed, allowed = connections + OTHER_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if allowed != resource.RLIM_INFINITY and allowed < needed:
        raise LabError(
            f"{connections} connections need {needed} open files, and `ulimit -Hn` allows {allowed}: as root, `ulimit "
            f"-n {max(65_536, needed)}`, or set `nofile` in /etc/security/limits.conf.",
            exit_code=1,
        )
