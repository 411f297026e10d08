"""A server, and a second process that uses a known share of a CPU at known times.

The arguments are SERVER FILE SHARE AT:LENGTH[,AT:LENGTH...]. SERVER is the path of the server's
program. Each burst begins AT seconds after the start and lasts LENGTH seconds. During a burst, the
second process uses SHARE of a CPU. After each burst, the second process writes to FILE a JSON list
with [begin, end, CPU seconds used] of each burst so far. Begin and end are in seconds since the
epoch. If the environment variable BURSTS is not set, only the server runs.
"""

import json
import os
import sys
import time
from pathlib import Path

SERVER = sys.argv[1]
FILE = Path(sys.argv[2])
SHARE = float(sys.argv[3])
PERIOD_S = 0.01
BURSTS = [tuple(map(float, burst.split(":"))) for burst in sys.argv[4].split(",")]
STARTED = time.monotonic()


def burn(length_s):
    """Use SHARE of a CPU for `length_s` seconds of wall time.

    The CPU clock of this process measures how much CPU time was used. The CPU time is spread evenly
    over periods of PERIOD_S.
    """
    begun = time.monotonic()
    begun_cpu = time.process_time()
    while (passed := time.monotonic() - begun) < length_s:
        goal = begun_cpu + SHARE * min(length_s, (passed // PERIOD_S + 1) * PERIOD_S)
        while time.process_time() < goal and time.monotonic() - begun < length_s:
            pass
        time.sleep(max(0.0, begun + (passed // PERIOD_S + 1) * PERIOD_S - time.monotonic()))


if "BURSTS" not in os.environ or os.fork():
    os.execv(SERVER, [SERVER])
server = os.getppid()
done = []
for at_s, length_s in BURSTS:
    time.sleep(max(0.0, STARTED + at_s - time.monotonic()))
    if os.getppid() != server:
        break
    begun = time.time()
    begun_cpu = time.process_time()
    burn(length_s)
    done.append([begun, time.time(), time.process_time() - begun_cpu])
    FILE.write_text(json.dumps(done))
