"""Types for engines and started servers, and functions that check the answers of servers."""

import contextlib
import json
import random
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Literal, Protocol

from runner.http_response import Response, ResponseReader, read_response
from runner.measure import memory
from runner.measure.machine import ephemeral_ports
from runner.measure.tls import HTTP_1, Tls
from runner.measurement import ended
from runner.model import LabError, Server
from runner.store import last_line

EngineChoice = Literal["auto", "docker", "process"]
LOOPBACK = "127.0.0.1"
UNKNOWN_PID = 0  # pid of a server whose process was not found
BY_FILE = "DATABASE_URL_FILE"
"""Environment variable with the path of a file that contains the database's URL.

Only the server can read the file.
"""


@dataclass(frozen=True)
class Running:
    """A started server: its address, its process, and functions to stop and watch it."""

    pid: int
    port: int
    exit_code: Callable[[], int | None]  # returns None while the server runs
    stop: Callable[[], int | None]
    """Function that ends the server and returns its exit code.

    The function sends SIGTERM and, if the server still runs after 2 s, SIGKILL. If the lab may not
    end this server, the function does nothing and returns None.
    """
    _: KW_ONLY
    address: str = LOOPBACK
    host: str = ""  # host and port in the server's URL; if empty, `address` and `port` are used
    limit: Callable[[float], None] = lambda _: None
    """Function that limits the server's CPU time, by a quota, to the given number of cores.

    The limit takes effect at once. The function raises LabError if the limit cannot be set.
    """
    alone: bool = True
    """True if the server's control group contains only processes of the server.

    Otherwise the group's CPU time includes other programs, so the sampler reads each process of the
    server instead of the group.
    """
    cpus: Callable[[], tuple[int, ...]] | None = None
    """Function that returns the CPUs on which the server may run; None if the lab chooses them."""
    began_wall_ns: int | None = None
    """Instant at which the server's program began, by this machine's wall clock.

    None if the lab did not start the server, or if the engine does not report the instant.
    """
    image_bytes: int | None = None
    tls: Tls | None = None  # how the server is reached over TLS; None for plain HTTP

    @property
    def origin(self) -> str:
        """Scheme, host and port: the beginning of every URL of this server."""
        scheme = "http" if self.tls is None else "https"
        return f"{scheme}://{self.host or f'{self.address}:{self.port}'}"

    def connect(self, timeout_s: float) -> socket.socket:
        """Return a new connection to the server, over TLS if `tls` is set.

        Raise OSError if that fails.
        """
        channel = socket.create_connection((self.address, self.port), timeout=timeout_s)
        return channel if self.tls is None else self.tls.secured(channel, HTTP_1)


@dataclass(frozen=True)
class RunningDatabase(Running):
    """A started PostgreSQL, and functions to pause and restart it."""

    image: str | None  # digest of PostgreSQL's image; None without an image
    pause: Callable[[], None]
    """Function that pauses the database's processes.

    It uses SIGSTOP or, if the processes run in a container, Docker's pause. The kernel then still
    accepts connections to the database, but nothing answers.
    """
    resume: Callable[[], None]
    restart: Callable[[], None]
    """Function that kills the database with SIGKILL and restarts it with the same port and data."""


class Engine(Protocol):
    """A way to start servers and their database: as containers or as plain processes."""

    name: str
    reason: str  # why this engine was chosen; shown in the output, the manifest and the report

    def prepare(self, server: Server) -> str | None:
        """Prepare the server's start; return the digest of its image, or None without an image.

        Raise LabError if that fails.
        """

    def started(
        self, server: Server, cpus: tuple[int, ...], handed: Mapping[str, str], log: Path
    ) -> AbstractContextManager[Running]:
        """Start a prepared server on `cpus` and write its output to `log`.

        The server's environment contains ADDR and the variables in `handed`. When the context ends,
        end the server with all its processes.
        """

    def database(
        self, cpus: tuple[int, ...], verifier: str, log: Path
    ) -> AbstractContextManager[RunningDatabase]:
        """Start a fresh PostgreSQL on `cpus`, with the role `lab`.

        `verifier` is the SCRAM verifier of the role's password. When the context ends, end
        PostgreSQL and remove its data.
        """


def free_port(address: str = LOOPBACK) -> int:
    """Return a port that was free just now at `address`, which is an address of this machine.

    The port is below the range from which the kernel takes ports for outgoing connections, unless
    that range begins below 12,000. So no client's connection can take this port before the server
    listens there. A client whose connection took the server's port would connect to itself instead
    of the server.
    """
    low = max(ephemeral_ports()[0], 12_000)
    for _ in range(200):
        port = random.randrange(10_000, low)  # noqa: S311 - not a secret
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError:
                continue
            return port
    raise LabError(
        f"{address} has no free port between 10000 and {low}: end other programs.", exit_code=1
    )


DEADLINE_S = 15.0


def ask(
    running: Running, path: str, timeout_s: float = 10.0, *, whole: bool = False
) -> Response | None:
    """Send GET for a path over a new connection; read the body only if `whole`.

    Return None if the answer is missing or not HTTP. Raise OSError if no connection can be opened.
    """
    with running.connect(timeout_s) as channel:
        return ask_over(channel, running, path, whole=whole)


def ask_over(
    channel: socket.socket, running: Running, path: str, *, whole: bool = False
) -> Response | None:
    """Send GET for a path over a connection to the server; read the body only if `whole`.

    Return None if the answer is missing or not HTTP.
    """
    host = running.origin.partition("//")[2]
    try:
        channel.sendall(
            f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
        )
        return read_response(channel, ResponseReader(), head_only=not whole)
    except (OSError, ValueError):
        return None


def get_json(running: Running, path: str, timeout_s: float = 2.0) -> dict[str, object] | None:
    """Send GET for a path and return the JSON object of its answer.

    Return None unless an answer with status 200 and a JSON object arrives in time.
    """
    try:
        response = ask(running, path, timeout_s, whole=True)
        value = (
            json.loads(response.body) if response is not None and response.status == 200 else None
        )
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


MOST_ASKED = 10
ASKED_WITHIN_S = 10.0
NO_STATUS = 0  # status of a request without an HTTP answer


@dataclass(frozen=True)
class Answers:
    """The statuses of a server's first answers, in order; NO_STATUS for a missing answer."""

    statuses: tuple[int, ...]

    @property
    def others(self) -> tuple[int, ...]:
        """The statuses that are not 2xx."""
        return tuple(status for status in self.statuses if not 200 <= status < 300)

    @property
    def fine(self) -> int:
        """Number of statuses that are 2xx."""
        return len(self.statuses) - len(self.others)

    @property
    def in_words(self) -> str:
        """The end of a sentence about the statuses that are not 2xx; empty if all are 2xx.

        For example `were answered with 404 or 500 or were not answered with HTTP`.
        """
        known = sorted({str(status) for status in self.others if status != NO_STATUS})
        said = [f"were answered with {' or '.join(known)}"] if known else []
        said += ["were not answered with HTTP"] if NO_STATUS in self.others else []
        return " or ".join(said)


def require_answer(name: str, running: Running, path: str, enough: int = 1) -> Answers:
    """Send GET for `path` repeatedly and return the answers; raise LabError if no answer is 2xx.

    A server may fail some requests, so a single failure is no error. Send at most MOST_ASKED
    requests, and no further request after ASKED_WITHIN_S. If `enough` is 1, stop at the first
    answer of 2xx. If `enough` is greater, stop early only if the first `enough` answers are all
    2xx.
    """
    url = f"{running.origin}{path}"
    replies = list[Response | None]()
    found = Answers(())
    deadline = time.monotonic() + ASKED_WITHIN_S
    while len(replies) < MOST_ASKED and (not replies or time.monotonic() < deadline):
        try:
            replies.append(ask(running, path))
        except OSError as error:
            if not any(replies):
                raise LabError(
                    f"Nothing answers at {url} ({error.strerror or error}): start {name} first."
                ) from None
            replies.append(None)
        found = Answers(tuple(NO_STATUS if reply is None else reply.status for reply in replies))
        if found.fine and (enough == 1 or (not found.others and found.fine >= enough)):
            break
    if found.fine:
        return found
    seen = {reply.status: reply for reply in replies if reply is not None}
    if not seen:
        raise LabError(
            f"The program at {url} does not answer HTTP: give the address of an HTTP server."
        )
    statuses = " or ".join(map(str, sorted(seen)))
    then = ":"
    if away := [reply for status, reply in seen.items() if 300 <= status < 400]:
        then = (
            f" and redirects to {away[0].headers.get('location')}, which the lab does not follow:"
        )
    raise LabError(
        f"{url} answers with status {statuses}{then} choose an address or a path that "
        "answers 200 (with a script: --probe-path; for two commits: --path)."
    )


def wait_answer(name: str, running: Running, path: str, log: Path) -> None:
    """Wait until a server answers HTTP at `path`, with any status.

    This function is for servers that do not follow the lab's HTTP contract. Raise LabError at the
    deadline, or if the server ends.
    """
    for left_s in waiting(name, running, log, DEADLINE_S):
        with contextlib.suppress(OSError):
            if ask(running, path, timeout_s=max(0.1, left_s)) is not None:
                return
    raise LabError(
        f"{name} did not answer HTTP at {running.origin}{path} within {DEADLINE_S:g} "
        f"s{last_line(log)}: the server in the container must listen at the address $ADDR, "
        "or on port $PORT.",
        exit_code=1,
    )


def wait_ready(
    name: str, running: Running, nonce: str, log: Path, deadline_s: float = DEADLINE_S
) -> None:
    """Wait until GET /health is answered with `nonce`.

    The nonce is a random text that the lab gave only to this server. A TCP connection alone would
    prove nothing, because another program may have taken the port. Raise LabError at the deadline,
    or if the server ends.
    """
    answer: dict[str, object] | None = None
    for _ in waiting(name, running, log, deadline_s):
        if (answer := get_json(running, "/health")) is not None and answer.get("nonce") == nonce:
            return
    if answer is not None:
        raise LabError(
            f"A program other than {name} answers on port {running.port}. Its answer lacks the "
            f"nonce that the lab gave to {name}: end that program.",
            exit_code=1,
        )
    why = f", {want}" if (want := memory.want(running.pid)) else ""
    raise LabError(
        f"{name} did not answer /health within {deadline_s:g} s{why}{last_line(log)}.", exit_code=1
    )


def waiting(name: str, running: Running, log: Path, deadline_s: float) -> Iterator[float]:
    """Yield the number of remaining seconds repeatedly, until the deadline has passed.

    The deadline is `deadline_s` seconds after the iteration begins. Raise LabError if the server
    ends.
    """
    deadline = time.monotonic() + deadline_s
    while (left_s := deadline - time.monotonic()) > 0:
        yield left_s
        code = running.exit_code()
        if code is not None:
            raise LabError(
                f"{name} {ended(code)} before it was ready{last_line(log)}.", exit_code=1
            )
        # The lab measures how long a server takes until its first answer. So ask often during the
        # time in which a fast server becomes ready.
        time.sleep(0.001 if left_s > deadline_s - 0.2 else 0.01)
