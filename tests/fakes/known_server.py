"""A contract server of known service times: DELAYS are the milliseconds that each request in turn is held."""

import asyncio
import json
import os
import sys

NAME = sys.argv[1]
DELAYS = [int(value) for value in sys.argv[2].split(",")]
counts = {"requests": 0, "connections": 0}


def answer_of(path, body):
    if path == b"/health":
        return {"status": "ok", "server": NAME, "nonce": os.environ["LAB_NONCE"]}, 0
    if path == b"/stats":
        return {**counts, "gc": None, "pool": None}, 0
    number = counts["requests"]
    counts["requests"] += 1
    delay = DELAYS[number % len(DELAYS)]
    if path == b"/count":
        return {"code": 200, "message": number}, delay
    return json.loads(body) if body else {"code": 404, "message": "not found"}, delay


async def serve(reader, writer):
    counts["connections"] += 1
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            headers = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
            body = await reader.readexactly(int(headers.get(b"content-length", 0)))
            value, delay = answer_of(head.split()[1], body)
            await asyncio.sleep(delay / 1000)
            text = json.dumps(value).encode()
            close = headers.get(b"connection") == b"close"
            extra = b"Connection: close\r\n" if close else b""
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s"
                % (extra, len(text), text)
            )
            await writer.drain()
            if close:
                break
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main():
    host, _, port = os.environ["ADDR"].rpartition(":")
    server = await asyncio.start_server(serve, host, int(port), backlog=1024)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(15, lambda: os._exit(0))
    async with server:
        await server.serve_forever()


asyncio.run(main())
