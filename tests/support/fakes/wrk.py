# A substitute for wrk. It sends a known number of requests and counts them correctly, but its
# histogram has known latencies.
import http.client
import json
import os
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

if sys.argv[1:] == ["-v"]:
    print("wrk 4.1.0 [fake]")
    sys.exit(1)
sys.path.insert(0, str(Path(__file__).with_name("lib")))
from faults import asked, pause

fault = asked()
if fault == "generator-exits-7":
    sys.exit("out of memory")
# The result of a warm-up is written to a temporary folder, and the result of a load to the folder
# of its trial.
into = Path(os.environ["WRK_JSON"]).parent
is_load = into.parent.name == "trials"
pause("load" if is_load else "warm-up")
url = urlsplit(sys.argv[-1])
connections = int(os.environ["WRK_CONNECTIONS"])
close = "Connection: close" in sys.argv
each = 10
began = time.monotonic()
# The real wrk opens a connection in wrk.resolve(), before the load begins. Do the same, so that the
# server accepts as many connections as from the real wrk.
http.client.HTTPConnection(url.hostname, url.port).connect()
opened = []
for _ in range(connections):
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=5)
    for number in range(each):
        if close and fault != "close-mode-keeps-alive" and number:
            connection = http.client.HTTPConnection(url.hostname, url.port, timeout=5)
        header = {"Connection": "close"} if close and fault != "close-mode-keeps-alive" else {}
        connection.request(
            os.environ["WRK_METHOD"], url.path, os.environ["WRK_BODY"] or None, headers=header
        )
        connection.getresponse().read()
    opened.append(connection)
time.sleep(max(0, 0.3 - (time.monotonic() - began)))
# In a warm-up, report a high rate, so that the lab chooses the probe's highest rate.
requests = connections * each * (1 if is_load else 100)
errors = dict.fromkeys(("connect", "read", "write", "status", "timeout"), 0)
if fault == "wrk-status-errors":
    errors["status"] = 3
result = {
    "ended_wall_us": int(time.time() * 1e6),
    "duration_us": round((time.monotonic() - began) * 1e6),
    "requests": requests + (1 if fault == "wrk-lost-bucket" else 0),
    "bytes": 1,
    "connections": connections,
    "threads": int(os.environ["WRK_THREADS"]),
    "errors": errors,
    "latency_us": [[1500, requests - 1], [2500, 1]],
}
Path(os.environ["WRK_JSON"]).write_text(json.dumps(result))
