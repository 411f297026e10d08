"""The smallest server that takes part: /health with the lab's nonce, and /count, on the standard library."""

import asyncio
import itertools
import json
import os
import signal

counted = itertools.count()


def answer(path: bytes) -> dict[str, object]:
    """Return the JSON value of a path; every request but /health is counted."""
    if path == b"/health":
        return {"status": "ok", "server": "own-api", "nonce": os.environ["LAB_NONCE"]}
    seen = next(counted)
    return {"code": 200, "message": seen} if path == b"/count" else {"code": 404, "message": "not found"}


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of one connection until the client closes it or asks to close."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            request, *headers = head[:-4].split(b"\r\n")
            close = request.endswith(b"HTTP/1.0") or any(
                name.lower() == b"connection" and value.strip().lower() == b"close"
                for name, _, value in (header.partition(b":") for header in headers)
            )
            body = json.dumps(answer(request.split()[1]), separators=(",", ":")).encode()
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n%s"
                % (len(body), b"Connection: close\r\n" if close else b"", body)
            )
            await writer.drain()
            if close:
                return
    except (asyncio.IncompleteReadError, ConnectionError, IndexError, asyncio.LimitOverrunError):
        return
    finally:
        writer.close()


async def main() -> None:
    """Serve on $ADDR until SIGTERM."""
    host, _, port = os.environ["ADDR"].rpartition(":")
    await asyncio.start_server(serve, host, int(port), backlog=4096)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    await stopped.wait()


asyncio.run(main())
