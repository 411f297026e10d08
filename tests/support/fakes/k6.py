# A substitute for k6. It sends real requests one after another, but writes samples with known
# latencies, in k6's format.
import json
import os
import statistics
import sys
import time
import urllib.request
from pathlib import Path

if sys.argv[1:] == ["version"]:
    print("k6 v1.8.1 (fake)")
    sys.exit(0)
sys.path.insert(0, str(Path(__file__).with_name("lib")))
from faults import asked

if json.loads(os.environ["SCENARIO"])["executor"] == "ramping-vus":  # this is the warm-up
    sys.exit(
        "there were problems with the configuration" if asked() == "k6-refuses-its-warm-up" else 0
    )
from k6_files import Request, announce, iteration_lines, request_lines, write_lines

fault = asked()
if fault == "generator-exits-7":
    sys.exit("out of memory")
option = dict(part[2:].split("=", 1) for part in sys.argv if part.startswith("--") and "=" in part)
iterations = json.loads(os.environ["SCENARIO"])["iterations"]
header = {"Content-Type": "application/json"}
body = {"name": "n", "variants": [{"name": "v", "allocation_percent": 100}]}
lines = []
durations = []
begin_ns = time.time_ns()
clock_ms = 0.0
for number in range(iterations):
    sent = urllib.request.Request(os.environ["TARGET_URL"], json.dumps(body).encode(), header)
    with urllib.request.urlopen(sent) as answer:
        answer.read()
    milliseconds = number + 1
    # There are two virtual users without think time, so a request of 30 ms moves the clock by only
    # 15 ms.
    clock_ms += milliseconds / 2
    request = Request(
        begin_ns + round(clock_ms * 1e6), 1000, 0, 20_000, milliseconds * 1_000_000 - 50_000, 30_000
    )
    durations.append(request.duration / 1e6)
    lines += request_lines(request)
    lines += iteration_lines(request.end_ns, request.duration + 100_000)
time.sleep(max(0.0, (begin_ns - time.time_ns()) / 1e9 + clock_ms / 1000))
if fault == "k6-drops-a-line":
    del lines[4]
lines = announce(lines)
if fault == "k6-writes-rubbish":
    lines[100] = '{"metric": rubbish'
write_lines(Path(option["out"].removeprefix("json=")), lines)
trend = {
    "avg": statistics.mean(durations),
    "min": min(durations),
    "max": max(durations),
    "count": len(durations),
}
ranks = {"med": 500, "p(90)": 900, "p(95)": 950, "p(99)": 990, "p(99.9)": 999}
cuts = statistics.quantiles(durations, n=1000, method="inclusive")
trend |= {name: cuts[rank - 1] for name, rank in ranks.items()}
if fault == "k6-summary-lies":
    trend["p(95)"] *= 2
metrics = {
    "http_reqs": {"count": iterations, "rate": 1.0},
    "iterations": {"count": iterations - (fault == "k6-loses-an-iteration"), "rate": 1.0},
    "http_req_duration": trend,
    "iteration_duration": {**trend, "max": trend["max"] + 0.1},
}
Path(option["summary-export"]).write_text(json.dumps({"metrics": metrics, "root_group": {}}))
