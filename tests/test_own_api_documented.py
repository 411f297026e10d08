"""The commands of docs/own-api.md, run as they stand there."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pandas as pd
import psutil
import pytest
import real_lab
from docker.errors import DockerException
from own_api import CLOSED, free_port, run

from runner.measure.connecting import connect
from runner.measure.tools import find_program, find_tool

pytestmark = [
    pytest.mark.load,
    pytest.mark.long,
    pytest.mark.skipif(find_tool("k6") is None, reason="k6 is not installed"),
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="server and generator need a CPU each"),
]


def session_of(pid):
    with contextlib.suppress(ProcessLookupError):  # it has just ended
        return os.getsid(pid)


@pytest.fixture
def documented(root):
    """The documented blocks of commands, and what runs such in a lab of its own, on a port that is free here."""
    shutil.copytree(real_lab.REPOSITORY / "examples", root / "examples", ignore=shutil.ignore_patterns("build"))
    (root / ".venv").symlink_to(real_lab.REPOSITORY / ".venv")
    blocks = re.findall(r"```sh\n(.*?)```", (real_lab.REPOSITORY / "docs" / "own-api.md").read_text(), re.S)

    def go(commands):
        """Run them; return what they said, and the trials of all runs that are there."""
        command = ["bash", "-c", "set -eu\n" + commands.replace("9000", str(free_port()))]
        env, said = {**os.environ, "BENCH_ROOT": str(root), "COLUMNS": "200"}, root / "said.txt"
        with said.open("w") as out:
            shell = subprocess.Popen(command, cwd=root, env=env, stdout=out, stderr=out, start_new_session=True)
        try:
            code = shell.wait(timeout=280)
            left = [each for each in psutil.process_iter() if session_of(each.pid) == shell.pid]
            left = psutil.wait_procs(left, timeout=5)[1]  # who has just ended is reaped in a moment
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
        assert (code, left) == (0, []), said.read_text()
        tables = sorted(root.glob("data/runs/*/tables/trials.parquet"))
        return said.read_text(), [real_lab.standing(pd.read_parquet(path)) for path in tables]

    return blocks, go


def assert_offered(trials):
    quiet = trials[real_lab.undisturbed(trials)]
    assert set(quiet["verdict"]) == {"offered"}, list(quiet["verdict_reason"])


def of_20_ms(trials):
    """Hold an open load against what the example does: it was offered, and took 20 ms."""
    assert_offered(trials)
    assert 20 <= trials["latency_p50_ms"].median() < 22


needs_go = pytest.mark.skipif(find_program("go") is None, reason="Go is not installed")


@pytest.fixture
def docker():
    try:
        connect().close()
    except DockerException:
        pytest.skip("no Docker engine answers")


@needs_go
def test_the_documented_five_minutes(root, documented):
    blocks, go = documented
    said, (scripted, plain) = go("".join(blocks[:3]))
    of_20_ms(scripted)
    assert scripted["rps"].to_numpy() == pytest.approx(100, rel=0.02)
    assert set(plain["verdict"]) == {"inconclusive"}
    assert plain.loc[real_lab.undisturbed(plain), "verdict_reason"].str.contains("wait alike").all()
    assert (plain["rps"] <= 500).all()
    page = Path(re.findall(r"^Report: +(\S+report\.html)", said, re.M)[0])
    assert "own-api" in page.read_text()


@needs_go
@pytest.mark.docker
def test_the_documented_folder_with_a_dockerfile(root, documented, docker):
    blocks, go = documented
    go(blocks[0].splitlines()[0])
    said, (trials,) = go(blocks[3])
    assert "Engine: docker" in said
    of_20_ms(trials)
    assert trials["server_cpu_mean_pct"].gt(0).all()
    manifest = json.loads(next(root.glob("data/runs/*/run.json")).read_text())
    assert manifest["images"]["own-api"].startswith("sha256:")


@pytest.mark.docker
def test_a_container_that_ends_at_once_fails_with_what_it_said(root, docker):
    folder = root / "empty"
    folder.mkdir()
    (folder / "Dockerfile").write_text('FROM scratch\nCOPY server /server\nENTRYPOINT ["/server"]\n')
    (folder / "server").write_text("#!/nowhere\n")
    (folder / "server").chmod(0o755)
    made = run(root, "--folder", str(folder), *CLOSED, code=1)
    assert re.search(r'before it was ready: "exec /server: no such file', made.records[0]["error"])


@needs_go
def test_the_documented_folder_of_the_lab_s_kind(root, documented):
    blocks, go = documented
    _, (trials,) = go(blocks[4])
    assert_offered(trials)
    assert set(trials["language"]) == {"Go"}
    assert trials["requests"].to_numpy() == pytest.approx(2 * 50 * 5, abs=4)
    assert len(blocks) == 5
