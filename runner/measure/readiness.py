"""Wait until a started server proves that it is this trial's server."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from pathlib import Path

from runner.http_response import Response, ResponseReader, read_response
from runner.measure.engine import Running
from runner.measurement import ended
from runner.model import LabError
from runner.store import last_line

DEADLINE_S = 15.0


def get_json(port: int, path: str, timeout_s: float = 2.0) -> dict[str, object] | None:
    """GET a path on 127.0.0.1 over a fresh connection; None unless it answers 200 with a JSON object in time."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as channel:
            response = _get(channel, path, f"127.0.0.1:{port}")
        value = json.loads(response.body) if response.status == 200 else None
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def ask(running: Running, path: str, timeout_s: float = 10.0) -> Response | None:
    """GET a path over a fresh connection, without the body, following no redirection; None where no HTTP came back.

    OSError where no connection could be made.
    """
    with socket.create_connection((running.address, running.port), timeout=timeout_s) as channel:
        try:
            return _get(channel, path, running.origin.partition("//")[2], head_only=True)
        except (OSError, ValueError):
            return None


def _get(channel: socket.socket, path: str, host: str, *, head_only: bool = False) -> Response:
    channel.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    return read_response(channel, ResponseReader(), head_only=head_only)


def wait_answer(name: str, running: Running, path: str, log: Path, deadline_s: float = DEADLINE_S) -> None:
    """Return when a server without contract answers HTTP at `path`, with any status; LabError as of wait_ready."""
    deadline = time.monotonic() + deadline_s
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if ask(running, path, timeout_s=max(0.1, deadline - time.monotonic())) is not None:
                return
        _require_running(name, running, log)
        time.sleep(0.01)
    raise LabError(
        f"{name} did not answer HTTP at {running.origin}{path} within {deadline_s:g} s{last_line(log)}; a container "
        "must listen at $ADDR, or on $PORT.",
        exit_code=1,
    )


def require_answer(name: str, running: Running, path: str) -> None:
    """Raise LabError unless a GET of `path` is answered with 2xx."""
    url = f"{running.origin}{path}"
    try:
        reply = ask(running, path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise LabError(f"Nothing answers at {url} ({reason}): start {name} first.") from None
    if reply is None:
        raise LabError(f"What listens at {url} does not answer HTTP: give the address of an HTTP server.")
    if 300 <= reply.status < 400:
        raise LabError(
            f"{url} answers {reply.status} and leads to {reply.headers.get('location')}: the lab follows no "
            "redirection; give an address, or a --probe-path, that answers 200."
        )
    if not 200 <= reply.status < 300:
        raise LabError(f"{url} answers {reply.status}: give an address, or a --probe-path, that answers 200.")


def _require_running(name: str, running: Running, log: Path) -> None:
    code = running.exit_code()
    if code is not None:
        raise LabError(f"{name} {ended(code)} before it was ready{last_line(log)}.", exit_code=1)


def wait_ready(name: str, running: Running, nonce: str, log: Path, deadline_s: float = DEADLINE_S) -> None:
    """Return when /health answers with `nonce`; LabError at the deadline or at the server's death.

    A TCP connect proves nothing: another program may have taken the port.
    """
    deadline = time.monotonic() + deadline_s
    answer: dict[str, object] | None = None
    while time.monotonic() < deadline:
        answer = get_json(running.port, "/health")
        if answer is not None and answer.get("nonce") == nonce:
            return
        _require_running(name, running, log)
        time.sleep(0.01)
    if answer is not None:
        raise LabError(f"Another program than {name} answers on port {running.port}: its nonce is wrong.", exit_code=1)
    raise LabError(f"{name} did not answer /health within {deadline_s:g} s{last_line(log)}.", exit_code=1)
