# A stand-in for k6: real requests one after another, samples of known latencies written as k6 writes them.
import json
import os
import re
import sys
import time
import urllib.request
from pathlib import Path

if sys.argv[1:] == ["version"]:
    print("k6 v1.8.1 (fake)")
    sys.exit(0)
if json.loads(os.environ["SCENARIO"])["executor"] == "constant-vus":  # the warm-up
    sys.exit(0)
sys.path.insert(0, str(Path(__file__).with_name("lib")))
from faults import asked
from k6_files import Request, announce, iteration_lines, request_lines, write_lines

fault = asked()
if fault == "generator-exits-7":
    sys.exit("out of memory")
option = dict(
    re.fullmatch(r"--([a-z-]+)=(.*)", part).groups() for part in sys.argv if part.startswith("--") and "=" in part
)
iterations = json.loads(os.environ["SCENARIO"])["iterations"]
body = {"name": "n", "variants": [{"name": "v", "allocation_percent": 100}]}
lines = []
durations = []
begin_ns, clock_ms = time.time_ns(), 0.0
for number in range(iterations):
    sent = urllib.request.Request(
        os.environ["TARGET_URL"], json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(sent) as answer:
        answer.read()
    milliseconds = number + 1
    # Two virtual users who never wait: an answer of 30 ms is followed by the next one after 15 ms.
    clock_ms += milliseconds / 2
    request = Request(begin_ns + round(clock_ms * 1e6), 1000, 0, 20_000, milliseconds * 1_000_000 - 50_000, 30_000)
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
durations.sort()


def quantile(q):
    position = q * (len(durations) - 1)
    low = int(position)
    return durations[low] + (position - low) * (durations[min(low + 1, len(durations) - 1)] - durations[low])


trend = {"avg": sum(durations) / len(durations), "min": durations[0], "med": quantile(0.5), "max": durations[-1]}
trend |= {"p(90)": quantile(0.9), "p(95)": quantile(0.95), "p(99)": quantile(0.99), "p(99.9)": quantile(0.999)}
trend |= {"count": len(durations)}
if fault == "k6-summary-lies":
    trend["p(95)"] *= 2
count = {"count": iterations - (1 if fault == "k6-loses-an-iteration" else 0), "rate": 1.0}
metrics = {
    "http_reqs": {"count": iterations, "rate": 1.0},
    "iterations": count,
    "http_req_duration": trend,
    "iteration_duration": {**trend, "max": trend["max"] + 0.1},
}
Path(option["summary-export"]).write_text(json.dumps({"metrics": metrics, "root_group": {}}))
