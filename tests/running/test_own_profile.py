"""Tests of profiling a user's API: a process that already runs, and a server from a folder."""

import json
import shutil

import pandas as pd
import pytest
import real_lab
from own_api import CLOSED, run, tiny

from runner.measure.perf import refusal
from runner.measure.tools import build
from runner.planning.catalog import load_server

pytestmark = [
    pytest.mark.load,
    pytest.mark.long,
    real_lab.needs("k6"),
    real_lab.needs_two_cpus,
    pytest.mark.skipif(refusal() is not None, reason=f"perf: {refusal()}"),
]


def test_a_process_that_already_runs_is_profiled_by_its_port(root):
    """A process that already runs can be profiled, because the lab finds the process by its port.

    For each request, perf must find the 2 ms of CPU time, one system call to receive and one system
    call to send.
    """
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


BURN_US = 2000
DOCKERFILE = f"""FROM scratch
COPY server /server
ENV REFERENCE_BURN_US_PER_REQUEST={BURN_US}
ENTRYPOINT ["/server"]
"""


def burnt_us(made):
    """Return the CPU time per request, in µs, of the reference server's function `known_burn`.

    The result is a series with one element per recorded slice.
    """
    tables = made.folder / "tables"
    slices = pd.read_parquet(tables / "profile_slices.parquet").query("kind == 'recorded'")
    stacks = pd.read_parquet(tables / "profiles.parquet")
    mine = stacks[stacks["stack"].str.contains("known_burn")]
    by_place = mine.groupby("place")["us_per_request"].sum()
    return by_place.reindex(slices["place"]).fillna(0.0)


def reference_binary():
    reference = load_server("reference")
    build(reference)
    return reference.folder / str(reference.artifact)


@pytest.mark.docker
@real_lab.needs_docker()
def test_a_folder_s_container_is_profiled_by_name(root):
    """The profile of a program in a container names the program's functions.

    It does so although the container's image contains nothing but the program.
    """
    folder = root / "mine"
    folder.mkdir()
    (folder / "Dockerfile").write_text(DOCKERFILE)
    shutil.copy(reference_binary(), folder / "server")
    asked = ("--folder", str(folder), "--probe-path", "/count", "--profile")
    made = run(root, *asked, *CLOSED, "--engine", "docker")
    assert made.manifest["engine"] == "docker"
    assert burnt_us(made).mean() == pytest.approx(BURN_US, rel=0.05)


@pytest.mark.parametrize("engine", ["process", "docker"])
def test_a_folder_with_a_server_toml_is_profiled(root, engine):
    if engine == "docker" and real_lab.needs_docker().args[0]:
        pytest.skip("no Docker engine answers")
    folder = root / "mine"
    folder.mkdir()
    (folder / "build").mkdir()
    shutil.copy(reference_binary(), folder / "build" / "server")
    (folder / "Dockerfile").write_text(
        DOCKERFILE.replace("FROM scratch", "FROM scratch AS prebuilt").replace(
            "COPY server", "COPY build/server"
        )
    )
    command = ["env", f"REFERENCE_BURN_US_PER_REQUEST={BURN_US}", "{artifact}"]
    (folder / "server.toml").write_text(
        '[server]\nlanguage = "Rust"\nframework = "mine"\ntier = "realistic"\n'
        'implements = ["health", "count", "fallback"]\n'
        '[build]\nneeds = []\ncommand = ["true"]\nartifact = "build/server"\n'
        f'[run]\ncommand = {json.dumps(command)}\n[image]\nbase = "scratch"\n'
    )
    asked = ("--folder", str(folder), "--probe-path", "/count", "--profile")
    made = run(root, *asked, *CLOSED, "--engine", engine)
    assert made.manifest["engine"] == engine
    assert burnt_us(made).mean() == pytest.approx(BURN_US, rel=0.05)
