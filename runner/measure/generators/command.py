"""What every generator is given and gives: what it sends, its command, and what a warm-up
showed.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from runner.measure.engine import Running
from runner.measure.generators.fence import FENCE, fence
from runner.measure.memory import allowed_bytes
from runner.model import OWN, OWN_SCRIPT, Cell, LoadPart, Workload

K6_SYSTEM_TAGS = "status,error_code"
K6_URL_TAG = ",url"
"""Tells a script's requests to the server from those to other ports; costs k6 memory."""
GO_MEMORY_BYTES = 4 * 2**30
"""A generator in Go is bound by its garbage collector at thousands of virtual users.

If there is memory for it, that runs only when the generator has used this much; else at four times
the live heap rather than two.
"""
OPEN_GRACE_S = 10
"""That the last requests of an open load may take; the contract has 5 s for the slowest answer."""
WHOLE = LoadPart()

Output = Literal["samples", "summary", "stock"]
"""What k6 writes: every sample, its summary only, or the summary only and with none of the lab's
settings.
"""


@dataclass(frozen=True)
class Command:
    """A generator's command line, the environment that it needs beside PATH, and when it has surely
    failed to end.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    timeout_s: float
    interrupt_after_s: float | None = None
    """wrk takes whole seconds only: a shorter load is ended by SIGINT."""
    after: tuple[tuple[tuple[str, ...], Path], ...] = ()
    """What turns its results into raw files once the load is over: command lines, and where their
    output goes.
    """


@dataclass(frozen=True)
class Shot:
    """What the generator sends, and where to."""

    tool: Path
    script: Path
    url: str
    method: str
    path: str
    body: str
    host: str = "lab"  # what the probe names as Host; k6 and wrk name that of the URL
    more: Mapping[str, str] = field(
        default_factory=dict
    )  # what the script finds in its environment besides
    system_tags: str = K6_SYSTEM_TAGS  # what k6 says of each request


Files = Mapping[str, Path]
"""Where a generator has to write each of its files, by their plain names."""


@dataclass(frozen=True)
class WarmedUp:
    """What the generators did in a warm-up; None if they do not say."""

    answers_rps: float | None = None
    """A lower bound of what the server can do."""
    iterations_rps: float | None = None
    """Of k6 and its script."""
    iteration_ms: float | None = None
    """Mean of the iterations that were completed."""


@dataclass(frozen=True)
class Generator:
    """How the lab drives a load generator."""

    measured: Callable[[Cell, Shot, Files, Output, LoadPart], Command]
    """The command of a load, or of one generator's part of it."""
    warm_up: Callable[[Cell, Shot, Files], Command]
    """The command of a closed load that warms the server up."""
    warm_up_files: tuple[str, ...]
    """Results of a warm-up."""
    read_warm_up: Callable[[Files], WarmedUp]
    """Read them. Nothing is known if they are missing or broken."""
    must_warm_up: bool
    """Whether a warm-up with an exit code other than 0 fails the trial."""
    kept_requests: Callable[[Cell], int]
    """Upper estimate of the requests that a load leaves on the disk."""
    memory_bytes: Callable[[Cell], int]
    """Upper estimate of the memory that a load needs beside the server's."""


def shot_of(
    workload: Workload, tool: Path, running: Running, tag: str, *, probing: bool = False
) -> Shot:
    """Return what a load sends to a server, with `tag` in its body's place for it, or what the
    probe beside it does.
    """
    is_own = workload.name in OWN
    path = (
        workload.probe_path
        if is_own and probing and workload.probe_path is not None
        else workload.path
    )
    body = workload.body.replace("{tag}", tag)
    url = f"{running.origin}{path}"
    shot = Shot(tool, workload.script, url, workload.method, path, body)
    if not is_own:
        return shot
    more = {"OPTIONS": json.dumps(fence(running, workload.also)), **FENCE}
    if workload.name == OWN_SCRIPT:
        more["BASE_URL"] = f"{running.origin}{workload.path}".rstrip("/")
    tags = K6_SYSTEM_TAGS + K6_URL_TAG if workload.also else K6_SYSTEM_TAGS
    return replace(shot, host=running.origin.partition("//")[2], more=more, system_tags=tags)


def garbage_collector() -> dict[str, str]:
    """Return the settings of Go's garbage collector for a generator on a machine of this memory."""
    if allowed_bytes() < 3 * GO_MEMORY_BYTES:
        return {"GOGC": "400"}
    return {"GOGC": "off", "GOMEMLIMIT": str(GO_MEMORY_BYTES)}
