"""A server that implements the contract, written with the standard library.

It is slow, but its answers and counts are right, unless a test chooses a fault.
"""

import functools
import hashlib
import json
import os
import signal
import sys
import threading
import time
import uuid
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

if "DATABASE_URL" in os.environ:
    import psycopg

sys.path.insert(0, "../../.tools/lib")
from faults import asked, pause

FAULT = asked()
if FAULT == "server-dies-at-start":
    sys.exit("cannot find my configuration")
pause("start", most_s=10)  # the lab waits longer than this for a server to start
lock = threading.Lock()
pool_lock = threading.Lock()
INSERT = (
    "INSERT INTO devices (uuid, mac, firmware, created_at) VALUES (%s, %s, %s, %s) RETURNING id"
)
counts = {"requests": 0, "connections": 0}


@functools.cache
def pool():
    """Return the only connection of this server's pool; the first call opens it."""
    return psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        # Set TCP_NODELAY, because head and body are written separately.
        self.connection.setsockopt(6, 1, 1)
        with lock:
            counts["connections"] += 1

    def answer(self, value, status=200):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.headers.get("Connection", "").lower() == "close":
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def count(self):
        with lock:
            seen = counts["requests"]
            counts["requests"] += 2 if FAULT == "server-counts-double" else 1
            return seen

    def do_GET(self):
        if self.path == "/health":
            nonce = "wrong" if FAULT == "server-wrong-nonce" else os.environ["LAB_NONCE"]
            self.answer({"status": "ok", "server": "fake", "nonce": nonce})
        elif self.path == "/stats":
            pool = {"size": 1, "in_use": int(pool_lock.locked()), "idle": 0, "waiting": 0}
            self.answer(
                {**counts, "gc": None, "pool": pool if "DATABASE_URL" in os.environ else None}
            )
        elif self.path == "/count":
            self.answer({"code": 200, "message": self.count()})
            if FAULT == "server-dies-under-load" and counts["requests"] > 20:
                os._exit(3)
        else:
            self.count()
            self.answer({"code": 404, "message": "not found"})

    def insert(self, body):
        stored = {
            "uuid": str(uuid.uuid4()),
            **body,
            "created_at": f"{datetime.utcnow().isoformat()}Z",
        }
        with pool_lock:
            for _ in range({"server-loses-inserts": 0, "server-inserts-twice": 2}.get(FAULT, 1)):
                row = pool().execute(
                    INSERT, [stored["uuid"], body["mac"], body["firmware"], stored["created_at"]]
                )
                stored = {"id": row.fetchone()[0], **stored}
        self.answer(stored if "id" in stored else {"id": 1, **stored}, 201)

    def do_POST(self):
        self.count()
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/devices":
            self.insert(body)
            return
        if self.path.endswith("/md5"):
            body["name"] = hashlib.md5(f"{body['name']}-{int(time.time())}".encode()).hexdigest()
        self.answer({"name": body["name"], "variants": body["variants"]})

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 1024


host, _, port = os.environ["ADDR"].rpartition(":")
server = Server((host, int(port)), Handler)
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
server.serve_forever()
