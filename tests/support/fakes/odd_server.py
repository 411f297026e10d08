"""An API with an oddity, written with the standard library.

Run it as `odd_server.py ADDRESS PORT ODDITY MS`, with MS in milliseconds. The oddities are:

- `shedding` takes MS for a request, and serves up to five requests at a time. It immediately
  answers all other requests with 503.
- `uneven` answers immediately, but takes MS for every tenth request.
- `streaming` immediately sends the head and the first bytes, but sends the last bytes MS later.

`/seen` returns the number of successful and the number of refused requests. `/refused` always
answers 503.
"""

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ADDRESS = sys.argv[1]
PORT = int(sys.argv[2])
ODDITY = sys.argv[3]
WAIT_S = float(sys.argv[4]) / 1000
MOST_AT_ONCE = 5
seen = {"good": 0, "refused": 0}
under_way = []
lock = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # buffer the output, so that head and body are sent in one segment

    def do_GET(self):
        if self.path == "/seen":
            self.reply(200, seen)
        elif self.path == "/refused":
            self.refuse()
        else:
            getattr(self, ODDITY)()

    def shedding(self):
        with lock:
            is_taken = len(under_way) < MOST_AT_ONCE
            under_way.extend([self] * is_taken)
        if not is_taken:
            self.refuse()
            return
        time.sleep(WAIT_S)
        with lock:
            under_way.remove(self)
        self.succeed()

    def uneven(self):
        with lock:
            is_tenth = (seen["good"] + seen["refused"]) % 10 == 9
            seen["good"] += 1
        if is_tenth:
            time.sleep(WAIT_S)
        self.reply(200, {})

    def streaming(self):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"5\r\nfirst\r\n")
        self.wfile.flush()
        time.sleep(WAIT_S)
        self.wfile.write(b"4\r\nlast\r\n0\r\n\r\n")
        with lock:
            seen["good"] += 1

    def succeed(self):
        with lock:
            seen["good"] += 1
        self.reply(200, {})

    def refuse(self):
        with lock:
            seen["refused"] += 1
        self.reply(503, {})

    def reply(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 1024


Server((ADDRESS, PORT), Handler).serve_forever()
