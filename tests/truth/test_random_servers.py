"""Tests with servers whose behaviour is drawn at random.

The lab's numbers must agree with each server's own counts. Other seeds, given by the environment
variable SEEDS (for example `SEEDS=7,8,9`), give servers with other behaviour.
"""

import json
import math
import os
import random
import sys
import urllib.request
from dataclasses import dataclass

import numpy as np
import pytest
import real_lab
from own_api import free_port, run, wait_for

pytestmark = [pytest.mark.timed, pytest.mark.long, real_lab.needs("k6"), real_lab.needs_two_cpus]
SEEDS = [int(seed) for seed in os.environ.get("SEEDS", "1,2,3,4,5,6").split(",")]
SERVER = real_lab.HERE / "fakes" / "costly_server.py"
LOAD_S = 3.0
FAILED_SHARE = 0.001  # share of failed requests above which there is no verdict


@dataclass(frozen=True)
class Kind:
    """The behaviour of a server, and the number of users that load it."""

    cost_ms: float
    size: int
    fail_every: int
    close_after: int
    users: int

    @property
    def iterations(self) -> int:
        """Number of iterations of a load that lasts LOAD_S seconds at the server's capacity."""
        overhead_ms = 0.15 + self.size / 1e6
        return max(20 * self.users, round(1000 * LOAD_S / (self.cost_ms + overhead_ms)))


def kind_of(seed):
    chance = random.Random(seed)
    return Kind(
        cost_ms=round(math.exp(chance.uniform(math.log(0.05), math.log(50))), 3),
        size=chance.choice([2, 500, 20_000, 300_000]),
        fail_every=chance.choice([0, 0, 2, 10, 50]),
        close_after=chance.choice([0, 0, 1, 7]),
        users=chance.randint(2, 8),
    )


@dataclass(frozen=True)
class Seen:
    """A server's own counts during a load: its answers to k6 and to the probe."""

    k6_ok: int
    k6_failed: int
    k6_span_s: float  # from the first answer to the last
    probe_ok: int


def seen_by(url, record):
    with urllib.request.urlopen(f"{url}/seen", timeout=10) as reply:
        answers = json.load(reply)
    facts = record["measurement"]
    begin_ns = facts["load_started_wall_ns"]
    end_ns = facts["load_ended_wall_ns"]
    within = [each for each in answers if begin_ns <= each[0] <= end_ns]
    by_k6 = [each for each in within if "k6" in each[2]]
    times_ns = np.array([each[0] for each in by_k6])
    by_probe = [each for each in within if "k6" not in each[2]]
    return Seen(
        k6_ok=sum(each[1] == 200 for each in by_k6),
        k6_failed=sum(each[1] == 503 for each in by_k6),
        k6_span_s=(times_ns.max() - times_ns.min()) / 1e9,
        probe_ok=sum(each[1] == 200 for each in by_probe),
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_printed_of_a_random_server_is_what_it_counted(root, seed):
    kind = kind_of(seed)
    port = free_port()
    env = {
        **os.environ,
        "COST_MS": str(kind.cost_ms),
        "SIZE": str(kind.size),
        "FAIL_EVERY": str(kind.fail_every),
        "CLOSE_AFTER": str(kind.close_after),
    }
    cpu = str(min(os.sched_getaffinity(0)))
    with real_lab.process(sys.executable, SERVER, port, cpus=cpu, env=env):
        wait_for(("127.0.0.1", port))
        url = f"http://127.0.0.1:{port}"
        closed = ("--vus", str(kind.users), "--iterations", str(kind.iterations))
        made = run(root, *closed, url=f"{url}/")
        seen = seen_by(url, made.records[0])
    row = made.trials.iloc[0]

    assert (row["requests"] - row["failed"], row["failed"]) == (seen.k6_ok, seen.k6_failed), kind
    assert (
        row["probe_requests"] - row["probe_failed"] <= seen.probe_ok + 1
        if row["probe_hz"]
        else not seen.probe_ok
    )
    assert seen.probe_ok <= 0.015 * seen.k6_ok + 5, "the probe is a hundredth of the load"
    good_rps = seen.k6_ok / seen.k6_span_s
    assert row["served_rps"] == pytest.approx(good_rps, rel=0.03)
    printed = float(made.result["summary"][0]["requests/s"].replace(",", "").split()[0])
    assert printed == pytest.approx(row["served_rps"], rel=0.01)

    if seen.k6_failed > FAILED_SHARE * row["requests"]:
        assert row["verdict"] == "inconclusive" and "failed" in row["verdict_reason"]
    modes = {0: "keepalive", 1: "close", 7: "mixed"}
    assert row["mode"] == modes[kind.close_after]
