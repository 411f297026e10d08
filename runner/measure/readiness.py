"""Wait until a started server proves that it is this trial's server."""

from __future__ import annotations

import http.client
import json
import time
from pathlib import Path

from runner.measure.engine import Running
from runner.model import LabError
from runner.store import last_line

DEADLINE_S = 15.0


def get_json(port: int, path: str, timeout_s: float = 2.0) -> dict[str, object] | None:
    """GET a path on 127.0.0.1 over a fresh connection; None unless it answers 200 with a JSON object in time."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        connection.request("GET", path, headers={"Connection": "close"})
        response = connection.getresponse()
        body = response.read(1 << 20)
        value = json.loads(body) if response.status == 200 else None
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return value if isinstance(value, dict) else None


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
        code = running.exit_code()
        if code is not None:
            raise LabError(f"{name} ended with exit code {code} before it was ready{last_line(log)}.", exit_code=1)
        time.sleep(0.01)
    if answer is not None:
        raise LabError(f"Another program than {name} answers on port {running.port}: its nonce is wrong.", exit_code=1)
    raise LabError(f"{name} did not answer /health within {deadline_s:g} s{last_line(log)}.", exit_code=1)
