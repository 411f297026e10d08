"""Ask a server for its own figures while it is loaded, without ever waiting for it."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any

from runner.model import STATS_COLUMNS

EVERY_TICKS = 4
"""At 20 Hz: five questions a second, which are not counted as requests."""
MOST_BYTES = 65_536


class StatsPoll:
    """One kept connection to /stats: a question is sent at one tick, its answer is looked for at the following ones.

    A saturated server answers late; the next question waits until then, and the sampler never does.
    """

    def __init__(self, port: int) -> None:
        self._channel: socket.socket | None = None
        with contextlib.suppress(OSError):  # a server that has just died is not the sampler's affair
            self._channel = socket.create_connection(("127.0.0.1", port), timeout=2.0)
            self._channel.setblocking(False)
        self._received = b""
        self._asked = False
        self._last_tick = -EVERY_TICKS

    def ask(self, tick: int) -> None:
        """Send a question if the last one is answered and it is time for another."""
        if self._channel is None or self._asked or tick - self._last_tick < EVERY_TICKS:
            return
        try:
            self._channel.send(b"GET /stats HTTP/1.1\r\nHost: lab\r\n\r\n")
            self._asked, self._last_tick = True, tick
        except OSError:
            self.close()

    def take(self) -> dict[str, float] | None:
        """Return the figures of an answer that has come since the last call, else None."""
        if self._channel is None or not self._asked:
            return None
        try:
            data = self._channel.recv(MOST_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        self._received += data
        if not data or len(self._received) > MOST_BYTES:
            self.close()
            return None
        body = _body(self._received)
        if body is None:
            return None
        self._received, self._asked = b"", False
        return _figures(body)

    def close(self) -> None:
        """Ask no more."""
        if self._channel is not None:
            self._channel.close()
        self._channel = None


def _body(answer: bytes) -> bytes | None:
    """Return the body of a complete HTTP answer that says its length, None while some of it is missing."""
    head, blank, body = answer.partition(b"\r\n\r\n")
    if not blank:
        return None
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            length = int(value)
            return body[:length] if len(body) >= length else None
    return b""


def _figures(body: bytes) -> dict[str, float]:
    stats: Any = None
    with contextlib.suppress(ValueError):
        stats = json.loads(body)
    found: dict[str, float] = {}
    if isinstance(stats, dict):
        for name in STATS_COLUMNS:
            group, _, key = name.partition("_")
            value = stats.get(group)
            if key:
                value = value.get(key) if isinstance(value, dict) else None
            if isinstance(value, int | float) and not isinstance(value, bool):
                found[name] = value
    return found
