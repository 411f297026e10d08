"""known_server.py that besides uses a known share of a CPU at known times, and writes down when it did.

Arguments: NAME DELAYS FILE SHARE AT:LENGTH[,AT:LENGTH...], in seconds since the start. FILE gets a JSON list of
[begin, end, CPU seconds used], begin and end in seconds since the epoch.
"""

import json
import runpy
import sys
import threading
import time
from pathlib import Path

FILE, SHARE, PERIOD_S = Path(sys.argv[3]), float(sys.argv[4]), 0.01
BURSTS = [tuple(map(float, burst.split(":"))) for burst in sys.argv[5].split(",")]
STARTED = time.monotonic()


def burn(length_s):
    """Use SHARE of a CPU, held to this thread's own CPU clock, a little in each PERIOD_S."""
    begun, begun_cpu = time.monotonic(), time.thread_time()
    while (passed := time.monotonic() - begun) < length_s:
        goal = begun_cpu + SHARE * min(length_s, (passed // PERIOD_S + 1) * PERIOD_S)
        while time.thread_time() < goal and time.monotonic() - begun < length_s:
            pass
        time.sleep(max(0.0, begun + (passed // PERIOD_S + 1) * PERIOD_S - time.monotonic()))


def run_bursts():
    done = []
    for at_s, length_s in BURSTS:
        time.sleep(max(0.0, STARTED + at_s - time.monotonic()))
        begun, begun_cpu = time.time(), time.thread_time()
        burn(length_s)
        done.append([begun, time.time(), time.thread_time() - begun_cpu])
        FILE.write_text(json.dumps(done))


threading.Thread(target=run_bursts, daemon=True).start()
runpy.run_path(str(Path(__file__).with_name("known_server.py")), run_name="__main__")
