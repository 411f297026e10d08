"""The interface of a generator: its requests, its command, and results of its warm-up."""

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
K6_ENDPOINT_TAGS = ",name,method,group,check"  # of the table of endpoints
K6_PROTOCOL_TAGS = ",proto,tls_version"
K6_TAGS = (
    "proto,subproto,status,method,url,name,group,check,error,error_code,tls_version,scenario,"
    "service,expected_response"
)
"""Tags that k6 writes by default, of which a script's thresholds may ask for any."""
K6_URL_TAG = ",url"
"""Tag that tells a script's requests to the server from those to other ports; it costs memory."""
GO_MEMORY_BYTES = 4 * 2**30
"""The garbage collector limits a generator in Go at thousands of virtual users.

If the machine has enough memory, it runs only after this many bytes, otherwise at four times the
live heap instead of two.
"""
OPEN_GRACE_S = 10
"""Seconds for the last requests of an open load; the contract allows 5 s for an answer."""
WHOLE = LoadPart()

Output = Literal["samples", "summary", "stock"]
"""Output of k6: every sample, its summary only, or the summary only without the lab's settings."""


@dataclass(frozen=True)
class Command:
    """A generator's command line, its environment in addition to PATH, and its time limit."""

    argv: tuple[str, ...]
    env: dict[str, str]
    timeout_s: float
    interrupt_after_s: float | None = None
    """wrk accepts whole seconds only: SIGINT ends a shorter load."""
    after: tuple[tuple[tuple[str, ...], Path], ...] = ()
    """Command lines that convert its results to raw files after the load, each with its output."""


@dataclass(frozen=True)
class Shot:
    """The generator's request, and its address."""

    tool: Path
    script: Path
    url: str
    method: str
    path: str
    body: str
    host: str = "lab"  # Host header of the probe; k6 and wrk use the URL's
    more: Mapping[str, str] = field(
        default_factory=dict
    )  # additional environment variables of the script
    system_tags: str = K6_SYSTEM_TAGS  # tags that k6 writes for each request
    written_s: float | None = None
    """Longest duration of a load that the script's own options give; None if the lab gives it."""


Files = Mapping[str, Path]
"""Path of each file that a generator must write, by plain name."""


@dataclass(frozen=True)
class WarmedUp:
    """Results of the generators' warm-up; None if unknown."""

    answers_rps: float | None = None
    """Rate of answers: a lower bound of the server's capacity."""
    iterations_rps: float | None = None
    """Iterations per second of k6 and its script."""
    iteration_ms: float | None = None
    """Mean duration of the completed iterations."""


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
    """Reads these results; all are None if the file is missing or damaged."""
    must_warm_up: bool
    """True if a warm-up with an exit code other than 0 fails the trial."""
    kept_requests: Callable[[Cell], int]
    """Upper estimate of the requests that a load leaves on the disk."""
    memory_bytes: Callable[[Cell], int]
    """Upper estimate of the memory that a load needs beside the server's."""


def shot_of(
    workload: Workload, tool: Path, running: Running, tag: str, *, probing: bool = False
) -> Shot:
    """Return the request of a load, or of the probe; `tag` replaces `{tag}` in its body."""
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
    options = fence(running, workload.also)
    if workload.written_s is not None:
        del options["maxRedirects"]  # the script's own; its target is within the fence, or blocked
    more = {**FENCE}
    if running.tls is not None:
        options["insecureSkipTLSVerify"] = running.tls.insecure
        more |= running.tls.of_go
    more["OPTIONS"] = json.dumps(options)
    tags = K6_SYSTEM_TAGS + K6_PROTOCOL_TAGS
    if workload.name == OWN_SCRIPT:
        more["BASE_URL"] = f"{running.origin}{workload.path}".rstrip("/")
        tags += K6_ENDPOINT_TAGS
    if workload.also:
        tags += K6_URL_TAG
    if workload.written_s is not None:
        tags = K6_TAGS
    return replace(
        shot,
        host=running.origin.partition("//")[2],
        more=more,
        system_tags=tags,
        written_s=workload.written_s,
    )


def garbage_collector() -> dict[str, str]:
    """Return the settings of Go's garbage collector for a generator on a machine of this memory."""
    if allowed_bytes() < 3 * GO_MEMORY_BYTES:
        return {"GOGC": "400"}
    return {"GOGC": "off", "GOMEMLIMIT": str(GO_MEMORY_BYTES)}
