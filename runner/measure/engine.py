"""What it means to start a server, which engine does it, and how a server proves that it is this
trial's.
"""

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
from runner.measurement import ended
from runner.model import LabError, Server
from runner.store import last_line

EngineChoice = Literal["auto", "docker", "process"]
LOOPBACK = "127.0.0.1"
UNKNOWN_PID = 0  # stands for the process of a server that was not found
BY_FILE = "DATABASE_URL_FILE"
"""Handed to a server as a file that only it can read, whose path the variable has."""


@dataclass(frozen=True)
class Running:
    """A started server: where it listens, which process it is, and how to ask whether it still
    lives.
    """

    pid: int
    port: int
    exit_code: Callable[[], int | None]  # none while the server runs, else its exit code
    stop: Callable[[], int | None]
    """End the server (SIGTERM, after 2 s SIGKILL) and return its exit code.

    None if it is not the lab's to end.
    """
    _: KW_ONLY
    address: str = LOOPBACK
    host: str = ""  # host and port as its URL has them; empty if that is `address` and `port`
    limit: Callable[[float], None] = lambda _: None
    """Give it at most so many cores of CPU time from now on, by a quota.

    LabError if that cannot be done.
    """
    alone: bool = True
    """Whether its control group holds nothing else; where it may, its process tree is sampled."""
    cpus: Callable[[], tuple[int, ...]] | None = None
    """Which it may use, if that is not the lab's to decide."""

    @property
    def origin(self) -> str:
        """What the URLs of its resources begin with."""
        return f"http://{self.host or f'{self.address}:{self.port}'}"


@dataclass(frozen=True)
class RunningDatabase(Running):
    """A started PostgreSQL, and what can be done to it."""

    image: str | None  # its image's digest; None if it runs without one
    pause: Callable[
        [], None
    ]  # stop all its processes where they are: it accepts connections and says nothing
    resume: Callable[[], None]
    restart: Callable[
        [], None
    ]  # kill it hard and start it again, on the same port with the same data


class Engine(Protocol):
    """A way of starting servers and their database: `docker` or `process`."""

    name: str
    reason: str  # why this engine serves: shown in the output, the manifest and the report

    def prepare(self, server: Server) -> str | None:
        """Make the server ready to start; return its image's digest or None.

        LabError if it cannot be.
        """

    def started(
        self, server: Server, cpus: tuple[int, ...], handed: Mapping[str, str], log: Path
    ) -> AbstractContextManager[Running]:
        """Start a prepared server on `cpus` with ADDR and `handed`, output in `log`.

        Nothing outlives the context.
        """

    def database(
        self, cpus: tuple[int, ...], verifier: str, log: Path
    ) -> AbstractContextManager[RunningDatabase]:
        """Start a fresh PostgreSQL on `cpus`, its role `lab` with `verifier`.

        Nothing of it outlives the context.
        """


def free_port(address: str = LOOPBACK) -> int:
    """Return a port of an address of this machine that was free a moment ago.

    It lies below the kernel's range for outgoing connections: no client of a close-mode load can
    take it, nor connect to itself.
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
    raise LabError(f"No free port on {address} between 10000 and {low}.", exit_code=1)


DEADLINE_S = 15.0


def ask(
    running: Running, path: str, timeout_s: float = 10.0, *, whole: bool = False
) -> Response | None:
    """GET a path over a new connection, with its body if `whole`.

    None if no HTTP came back, OSError without one.
    """
    host = running.origin.partition("//")[2]
    with socket.create_connection((running.address, running.port), timeout=timeout_s) as channel:
        try:
            channel.sendall(
                f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
            )
            return read_response(channel, ResponseReader(), head_only=not whole)
        except (OSError, ValueError):
            return None


def get_json(running: Running, path: str, timeout_s: float = 2.0) -> dict[str, object] | None:
    """GET a path; None unless it answers 200 with a JSON object in time."""
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
NO_STATUS = 0  # of a request that was answered with no HTTP, or not at all


@dataclass(frozen=True)
class Answers:
    """The statuses of a server's first answers, in their order; NO_STATUS if there was none."""

    statuses: tuple[int, ...]

    @property
    def others(self) -> tuple[int, ...]:
        """Those that are not 2xx."""
        return tuple(status for status in self.statuses if not 200 <= status < 300)

    @property
    def fine(self) -> int:
        """How many are 2xx."""
        return len(self.statuses) - len(self.others)

    @property
    def in_words(self) -> str:
        """What was answered in place of 2xx."""
        known = sorted({str(status) for status in self.others if status != NO_STATUS})
        said = [f"were answered with {' or '.join(known)}"] if known else []
        said += ["were not answered with HTTP"] if NO_STATUS in self.others else []
        return " or ".join(said)


def require_answer(name: str, running: Running, path: str, enough: int = 1) -> Answers:
    """Return the first answers to GETs of `path`; LabError if none has a status of 2xx.

    A server may fail some requests, so one answer decides nothing. With `enough` 1 requests end at
    the first 2xx. With more they end if the first `enough` are all 2xx. At most MOST_ASKED are
    sent, none after ASKED_WITHIN_S.
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
            f"What listens at {url} does not answer HTTP: give the address of an HTTP server."
        )
    statuses = " or ".join(map(str, sorted(seen)))
    then = ":"
    if away := [reply for status, reply in seen.items() if 300 <= status < 400]:
        then = f" and leads to {away[0].headers.get('location')}: the lab follows no redirection;"
    raise LabError(
        f"{url} answers {statuses}{then} give an address, or a --probe-path, that answers 200."
    )


def wait_answer(name: str, running: Running, path: str, log: Path) -> None:
    """Return when a server without contract answers HTTP at `path`, with any status.

    LabError as of wait_ready.
    """
    for left_s in waiting(name, running, log, DEADLINE_S):
        with contextlib.suppress(OSError):
            if ask(running, path, timeout_s=max(0.1, left_s)) is not None:
                return
    raise LabError(
        f"{name} did not answer HTTP at {running.origin}{path} within {DEADLINE_S:g} "
        f"s{last_line(log)}; a container must listen at $ADDR, or on $PORT.",
        exit_code=1,
    )


def wait_ready(
    name: str, running: Running, nonce: str, log: Path, deadline_s: float = DEADLINE_S
) -> None:
    """Return when /health answers with `nonce`; LabError at the deadline or at the server's death.

    A TCP connect proves nothing: another program may have taken the port.
    """
    answer: dict[str, object] | None = None
    for _ in waiting(name, running, log, deadline_s):
        if (answer := get_json(running, "/health")) is not None and answer.get("nonce") == nonce:
            return
    if answer is not None:
        raise LabError(
            f"Another program than {name} answers on port {running.port}: its nonce is wrong.",
            exit_code=1,
        )
    why = f", {want}" if (want := memory.want(running.pid)) else ""
    raise LabError(
        f"{name} did not answer /health within {deadline_s:g} s{why}{last_line(log)}.", exit_code=1
    )


def waiting(name: str, running: Running, log: Path, deadline_s: float) -> Iterator[float]:
    """Yield the seconds that are left, again and again until the deadline.

    LabError if the server ends.
    """
    deadline = time.monotonic() + deadline_s
    while (left_s := deadline - time.monotonic()) > 0:
        yield left_s
        code = running.exit_code()
        if code is not None:
            raise LabError(
                f"{name} {ended(code)} before it was ready{last_line(log)}.", exit_code=1
            )
        time.sleep(0.01)
