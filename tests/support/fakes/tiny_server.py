"""A user's API, written with the standard library. Every answer takes DELAY_MS.

Run it as `tiny_server.py ADDRESS PORT DELAY_MS`. Environment variables:

- DIE_AFTER is the number of requests after which the server ends;
- CALL_ME is the name that the server gives its process;
- BURN_MS is the CPU time that each answer takes in addition.

Paths:

- `/away?URL` redirects to URL;
- `/missing` answers 404, `/broken` 500, and `/flaky` 500 to every second request;
- `/slow` answers after 2 s, and `/chunks` in chunks;
- `/seen` returns the numbers of requests and connections, and the Host headers.
"""

import json
import os
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ADDRESS = sys.argv[1]
PORT = int(sys.argv[2])
DELAY_S = float(sys.argv[3]) / 1000
DIE_AFTER = int(os.environ.get("DIE_AFTER", "0"))
BURN_S = float(os.environ.get("BURN_MS", "0")) / 1000
seen = {"requests": 0, "connections": 0, "flaky": 0}
hosts = set()
lock = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # buffer the output, so that head and body are sent in one segment

    def setup(self):
        super().setup()
        with lock:
            seen["connections"] += 1

    def do_GET(self):
        path, _, query = self.path.partition("?")
        if path == "/seen":
            self.reply(200, {**seen, "hosts": sorted(hosts)})
            return
        with lock:
            seen["requests"] += 1
            seen["flaky"] += path == "/flaky"
            is_broken = path == "/flaky" and seen["flaky"] % 2
            hosts.add(self.headers["Host"])
            if DIE_AFTER and seen["requests"] > DIE_AFTER:
                os._exit(3)
        time.sleep(2 if path == "/slow" else DELAY_S)
        until = time.thread_time() + BURN_S
        while time.thread_time() < until:
            pass
        if path == "/away":
            self.reply(302, {}, Location=query)
        elif path == "/chunks":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n")
        else:
            status = 500 if is_broken else {"/missing": 404, "/broken": 500}.get(path, 200)
            self.reply(status, {"path": path})

    def reply(self, status, value, **headers):
        body = json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 1024
    address_family = socket.AF_INET6 if ":" in ADDRESS else socket.AF_INET


if "CALL_ME" in os.environ:
    Path("/proc/self/comm").write_text(os.environ["CALL_ME"])
Server((ADDRESS, PORT), Handler).serve_forever()
