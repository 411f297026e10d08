"""What is asked wrongly, or cannot be, is refused in one sentence; no campaign is begun."""

import os
import subprocess

import fake_lab
import pytest
from fake_lab import BENCH, bench


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run"], "Which campaign?"),
        (["run", "nonsense"], "There is no campaign 'nonsense'"),
        (["run", "no/such.toml"], "does not exist"),
        (["run", "quick", "--server", "nobody"], "There is no server 'nobody'"),
        (["run", "quick", "--scale", "-1"], "--scale must be greater than 0"),
        (["run", "quick", "--engine", "podman"], "There is no engine 'podman'"),
        (["report", "nothing"], "There is no run 'nothing'"),
        (["report"], "There is no run yet"),
        (["check", "nobody"], "There is no server 'nobody'"),
        (["build", "nobody"], "There is no server 'nobody'"),
    ],
)
def test_wrong_usage_is_one_sentence_and_exit_code_2(tmp_path, arguments, says):
    fake_lab.make(tmp_path)
    done = bench(tmp_path, *arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("tool", ["k6", "wrk"])
def test_a_missing_tool_is_one_sentence_and_exit_code_2(tmp_path, tool):
    campaign = fake_lab.make(tmp_path)
    (tmp_path / ".tools" / tool).unlink()
    empty = tmp_path / "empty"
    empty.mkdir()
    env = {**os.environ, "BENCH_ROOT": str(tmp_path), "PATH": str(empty)}
    done = subprocess.run(
        [*BENCH, "run", str(campaign)], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert f"{tool} is not installed" in done.stderr
    assert not list(tmp_path.glob("data/runs/*"))


def test_outside_a_lab_it_says_where_it_looked(tmp_path):
    env = {key: value for key, value in os.environ.items() if key != "BENCH_ROOT"} | {"BENCH_ROOT": str(tmp_path)}
    done = subprocess.run([*BENCH, "list"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "No lab in $BENCH_ROOT" in done.stderr


def test_no_colour_codes_where_it_is_no_terminal(tmp_path):
    fake_lab.make(tmp_path)
    done = bench(tmp_path, "list")
    assert done.returncode == 0
    assert "\x1b[" not in done.stdout + done.stderr
