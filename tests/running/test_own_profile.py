"""Profiles of an API of one's own: of a process that already runs, found by its port."""

import pandas as pd
import pytest
import real_lab
from own_api import CLOSED, run, tiny

from runner.measure.perf import refusal

pytestmark = [
    pytest.mark.load,
    pytest.mark.long,
    real_lab.needs("k6"),
    real_lab.needs_two_cpus,
    pytest.mark.skipif(refusal() is not None, reason=f"perf: {refusal()}"),
]


def test_a_process_that_already_runs_is_profiled_by_its_port(root):
    """Each answer burns 2 ms and takes a call to receive and one to send: perf finds them."""
    with tiny(0, BURN_MS="2") as server:
        made = run(root, *CLOSED, "--profile", url=f"{server.url}/chunks")
        assert server.process.poll() is None, "the lab ended a server that it did not start"
    tables = made.folder / "tables"
    slices = pd.read_parquet(tables / "profile_slices.parquet").query("kind == 'recorded'")
    assert set(slices["server"]) == {"own-api"}
    ratios = slices["sampled_us_per_request"] / slices["cpu_us_per_request"]
    assert ratios.mean() == pytest.approx(1, abs=0.08)
    assert 1950 < slices["sampled_us_per_request"].mean() < 3500
    stacks = pd.read_parquet(tables / "profiles.parquet")["stack"]
    assert stacks.str.contains("_PyEval_EvalFrameDefault|python").any(), "Python runs the server"
    counters = pd.read_parquet(tables / "counters.parquet").set_index("event")["per_request"]
    for call in ("recvfrom", "sendto"):
        assert counters[f"syscalls:sys_enter_{call}"] == pytest.approx(1, abs=0.2), call
