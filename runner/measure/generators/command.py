"""Types that all load generators share.

They describe the HTTP request to send, a generator's command line, and the results of a warm-up.
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
K6_ENDPOINT_TAGS = ",name,method,group,check"  # additional tags, needed for the table of endpoints
K6_PROTOCOL_TAGS = ",proto,tls_version"
K6_TAGS = (
    "proto,subproto,status,method,url,name,group,check,error,error_code,tls_version,scenario,"
    "service,expected_response"
)
"""Tags that k6 writes unless its option `--system-tags` names others.

The lab names fewer tags for most loads. But if a script defines its own load, k6 writes all of
these tags, because the script's thresholds may refer to any of them.
"""
K6_URL_TAG = ",url"
"""Tag that distinguishes a script's requests to the server from its requests to other ports.

The tag costs memory, so it is used only if the script may use other ports.
"""
GO_MEMORY_BYTES = 4 * 2**30
"""Memory that a generator written in Go may use before its garbage collector runs.

With thousands of virtual users, the garbage collector slows such a generator. So on a machine with
enough memory, the garbage collector runs only once the generator uses this many bytes. On other
machines it runs once the heap is five times as large as the live objects (GOGC is 400). By default
it would run once the heap is twice as large (GOGC is 100).
"""
OPEN_GRACE_S = 10
"""At the end of a load, a generator waits at most this long for the last answers.

The time is longer than the 5 s within which the HTTP contract requires an answer.
"""
WHOLE = LoadPart()

Output = Literal["samples", "summary", "stock"]
"""The results that k6 writes.

With `samples`, k6 writes every sample and a summary. With `summary`, k6 writes only the summary.
With `stock`, k6 also writes only the summary, but without the lab's settings for k6's tags,
statistics and garbage collector.
"""


@dataclass(frozen=True)
class Command:
    """A generator's command line, its environment variables (besides PATH), and its time limit."""

    argv: tuple[str, ...]
    env: dict[str, str]
    timeout_s: float
    interrupt_after_s: float | None = None
    """The lab ends the load by SIGINT after this time.

    The value is None if the generator ends the load itself. wrk accepts only whole seconds, so the
    lab has to interrupt wrk if a load shall be shorter than a second.
    """
    after: tuple[tuple[tuple[str, ...], Path], ...] = ()
    """Command lines that convert the results after the load.

    Each command line is paired with the path of the raw file that it makes.
    """


@dataclass(frozen=True)
class Shot:
    """The HTTP request that a load or the probe sends, and the generator's program and script.

    `tool` is the path of the generator's program, and `script` is the path of its script.
    """

    tool: Path
    script: Path
    url: str
    method: str
    path: str
    body: str
    host: str = "lab"  # Host header of the probe; the generators use the host of the URL
    more: Mapping[str, str] = field(
        default_factory=dict
    )  # additional environment variables of the script
    system_tags: str = K6_SYSTEM_TAGS  # tags that k6 writes for each request
    written_s: float | None = None
    """Longest possible duration of the load, if the script's own options define the load.

    None if the lab defines the load.
    """


Files = Mapping[str, Path]
"""Path of each file that a generator must write, by the file's base name."""


@dataclass(frozen=True)
class WarmedUp:
    """Results of the generators' warm-up; a value is None if it is unknown."""

    answers_rps: float | None = None
    """Rate of answers, which is a lower bound of the server's capacity."""
    iterations_rps: float | None = None
    """Iterations of the k6 script per second, over all virtual users."""
    iteration_ms: float | None = None
    """Mean duration of the completed iterations."""


@dataclass(frozen=True)
class Generator:
    """The functions and facts with which the lab runs one of the load generators."""

    measured: Callable[[Cell, Shot, Files, Output, LoadPart], Command]
    """Function that returns the command of a load, or of one generator's part of a load."""
    warm_up: Callable[[Cell, Shot, Files], Command]
    """Function that returns the command of a load that warms the server up."""
    warm_up_files: tuple[str, ...]
    """Names of the files with the results of a warm-up."""
    read_warm_up: Callable[[Files], WarmedUp]
    """Function that reads the files of a warm-up, and returns the results.

    All results are None if a file is missing or damaged.
    """
    must_warm_up: bool
    """True if a warm-up with an exit code other than 0 fails the trial."""
    kept_requests: Callable[[Cell], int]
    """Function that estimates, as an upper bound, how many requests a load writes to disk."""
    memory_bytes: Callable[[Cell], int]
    """Function that returns an upper estimate of the generator's memory for a load, in bytes."""


def shot_of(
    workload: Workload, tool: Path, running: Running, tag: str, *, probing: bool = False
) -> Shot:
    """Return the request that a load sends or, if `probing`, the request that the probe sends.

    `tag` replaces `{tag}` in the request's body.
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
    options = fence(running, workload.also)
    if workload.written_s is not None:
        # Let the script's own `maxRedirects` apply. The other options of the fence still block
        # redirections to other addresses.
        del options["maxRedirects"]
    more = {**FENCE}
    if running.tls is not None:
        options["insecureSkipTLSVerify"] = running.tls.insecure
        more |= running.tls.of_go | running.tls.of_wrappers
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
    """Return the settings of Go's garbage collector for a generator (see GO_MEMORY_BYTES)."""
    if allowed_bytes() < 3 * GO_MEMORY_BYTES:
        return {"GOGC": "400"}
    return {"GOGC": "off", "GOMEMLIMIT": str(GO_MEMORY_BYTES)}
