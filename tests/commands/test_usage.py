"""Tests of wrong usage: it must be refused in one sentence, before a campaign begins."""

import subprocess

import fake_lab
from fake_lab import BENCH

UNTIL = "--until must be `decided`, or a half-width of the intervals such as `5%`"
WRONG = [
    (["run"], "needs a campaign or an API"),
    (["run", "nonsense"], "There is no campaign 'nonsense'"),
    (["run", "no/such.toml"], "does not exist"),
    (["run", "quick", "--server", "nobody"], "There is no server 'nobody'"),
    *(
        (["run", "quick", "--scale", factor], "--scale must be a number greater than 0")
        for factor in ("-1", "nan", "inf")
    ),
    (["run", "quick", "--engine", "podman"], "There is no engine 'podman'"),
    (
        ["run", "fakes.toml", "--budget", "soon"],
        "--budget must be a time such as 90s, 60m or 2h, not 'soon'.",
    ),
    (["run", "fakes.toml", "--until", "5"], f"{UNTIL}, not '5'."),
    (["run", "fakes.toml", "--until", "0%"], f"{UNTIL}, not '0%'."),
    (["report", "nothing"], "There is no run 'nothing'"),
    (["report"], "There is no run yet"),
    (["check", "nobody"], "There is no server 'nobody'"),
    (["build", "nobody"], "There is no server 'nobody'"),
]


def test_wrong_usage_is_one_sentence_and_exit_code_2(tmp_path, monkeypatch, bench):
    campaign = fake_lab.make(tmp_path)
    monkeypatch.setenv("BENCH_ROOT", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for (command, *arguments), says in WRONG:
        code, _, err = bench(*arguments, command=command)
        assert code == 2 and says in err and len(err.strip().splitlines()) == 1, (
            command,
            arguments,
            err,
        )
    monkeypatch.setenv("PATH", str(tmp_path / "data"))
    for tool in ("wrk", "k6"):
        (tmp_path / ".tools" / tool).unlink()
        code, _, err = bench(str(campaign), command="run")
        assert code == 2 and f"{tool} is not installed" in err
    assert not list(tmp_path.glob("data/runs/*"))


def test_a_program_outside_a_lab_says_where_it_looked(
    tmp_path,
):
    """If BENCH_ROOT names a folder that is no lab, the message says so.

    The output must have no colours, because it is not written to a terminal.
    """
    fake_lab.make(tmp_path / "lab")
    for root, code, says in (("nowhere", 2, "There is no lab in $BENCH_ROOT"), ("lab", 0, "fake")):
        env = {"BENCH_ROOT": str(tmp_path / root), "PATH": ""}
        done = subprocess.run(
            [*BENCH, "list"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == code and says in done.stderr + done.stdout
        assert "\x1b[" not in done.stdout + done.stderr
