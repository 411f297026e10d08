"""Where an answer of HTTP/1.1 ends: by its length, its chunks, or its connection's end (RFC 9112, section 6.3)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

_END = b"\r\n\r\n"
_NO_BODY = (204, 304)


@dataclass(frozen=True)
class Head:
    """What the head of an answer says of itself and of what follows it."""

    status: int
    kept: bool
    """Whether the server keeps the connection."""
    length: int | None
    """Of the body; None where chunks or the connection's end tell it."""
    chunked: bool


@lru_cache(16)
def parse_head(text: bytes) -> Head:
    """Read a head without the blank line that ends it; ValueError where it is none of HTTP/1.

    The last ones are kept: for a second, until its Date changes, a server's answers have one head.
    """
    first, *lines = text.split(b"\r\n")
    if not first.startswith(b"HTTP/1."):
        raise ValueError(f"no answer of HTTP/1: {first[:40]!r}")
    fields = {
        name.strip().lower(): value.strip().lower() for name, _, value in (line.partition(b":") for line in lines)
    }
    status, connection = int(first[9:12]), fields.get(b"connection", b"")
    chunked = fields.get(b"transfer-encoding", b"").endswith(b"chunked")
    length = None if chunked or b"content-length" not in fields else int(fields[b"content-length"])
    if status in _NO_BODY:
        chunked, length = False, 0
    kept = b"keep-alive" in connection if first.startswith(b"HTTP/1.0") else b"close" not in connection
    return Head(status, kept and (chunked or length is not None), length, chunked)


class Answer:
    """One answer as it comes in, piece by piece."""

    def __init__(self) -> None:
        self._data = b""
        """What follows the last head."""
        self._head: Head | None = None
        self._chunk = 0
        """Where in the data the next chunk's length stands."""

    def take(self, received: bytes) -> tuple[int, bool] | None:
        """Take what has come; return status and whether the connection is kept, None while the answer is short.

        No bytes at all are the connection's end: ConnectionResetError where it came too early. ValueError for what is
        no HTTP. Answers with a status below 200 announce another, and are passed over.
        """
        self._data += received
        while self._head is None and _END in self._data:
            text, _, self._data = self._data.partition(_END)
            head = parse_head(text)
            self._head = head if head.status >= 200 else None
        if self._head is not None and self._whole(self._head, ended=not received):
            return self._head.status, self._head.kept
        if not received:
            raise ConnectionResetError
        return None

    def _whole(self, head: Head, *, ended: bool) -> bool:
        if head.chunked:
            return self._last_chunk()
        return ended if head.length is None else len(self._data) >= head.length

    def _last_chunk(self) -> bool:
        """Return whether the chunk of no length, and the fields and the blank line behind it, have come."""
        while (end := self._data.find(b"\r\n", self._chunk)) >= 0:
            length = int(self._data[self._chunk : end].partition(b";")[0], 16)
            if length < 0:
                raise ValueError("a chunk of negative length")
            if length == 0:
                return self._data.find(_END, end) >= 0
            self._chunk = end + 2 + length + 2
        return False
