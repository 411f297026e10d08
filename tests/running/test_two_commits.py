"""Tests of `bench ab` on a repository whose commits use known CPU times per request."""

import json
import re
import signal
from xml.etree import ElementTree

import fake_lab
import git_repository as repo
import psutil
import pytest
import real_lab

from runner.running.two_commits import round_down

SERVER = ("--build", repo.BUILD, "--start", repo.START)
SHORT = real_lab.with_changed("runner.running.two_commits", "m.CLOSED_SLICES = 1; m.RATE_SHARE = 0")
"""A program like `bench`, but with one slice per session and without an open load.

Therefore a session takes less time than with `bench`. But a comparison needs as many sessions as
with `bench`, because both programs judge the commits by the same rule.
"""


@pytest.fixture
def shop(tmp_path):
    """Make a repository with three commits of a server.

    Each request uses 1 ms of CPU time in the first two commits, and 1.25 ms in the third commit.
    """
    folder = repo.begin(tmp_path / "shop")
    repo.commit(folder, "base", server__py=repo.server(1.0))
    repo.git(folder, "branch", "base")
    repo.commit(folder, "the same", readme__md="more words")
    repo.git(folder, "branch", "alike")
    repo.commit(folder, "slower", server__py=repo.server(1.25))
    return folder


def ab(root, folder, *arguments, code=None, **how):
    """Run `bench ab` in the lab `root` on the repository in `folder`."""
    return real_lab.bench(root, "ab", "--folder", str(folder), *arguments, code=code, **how)


@pytest.mark.load
@pytest.mark.long
@real_lab.needs("k6")
@real_lab.needs_two_cpus
def test_a_commit_that_burns_a_fifth_more_is_worse(root, shop, tmp_path):
    """A commit is called worse if its server uses about a fifth more CPU time per request.

    The server burns 0.25 ms more per request, measured by the CPU-time clock of its thread.
    """
    before = repo.state(shop)
    files = ("--markdown", str(tmp_path / "out.md"), "--junit", str(tmp_path / "out.xml"))
    done = ab(root, shop, "--base", "base", *SERVER, *files, "--json", program=SHORT, code=3)
    found = json.loads(done.stdout)
    cpu = next(row for row in found["rows"] if row["quantity"] == "server_cpu_ms_per_request")
    assert (found["outcome"], cpu["outcome"], cpu["confirmed"]) == ("worse", "worse", True)
    assert cpu["head"] - cpu["base"] == pytest.approx(0.25, abs=0.08)
    assert 1.0 < cpu["base"] < 1.5
    assert "CPU time per request +" in (tmp_path / "out.md").read_text()
    case = ElementTree.parse(tmp_path / "out.xml").find(".//testcase/failure/..")
    assert case is not None and case.attrib["name"].startswith("CPU time per request, own-get")
    assert repo.state(shop) == before
    assert not list(tmp_path.glob("bench-*"))
    # The result is a run like any other, so it can have a report.
    real_lab.bench(root, "report", "latest", code=0)


def test_sizes_by_a_warm_up_are_round():
    assert [round_down(value) for value in (0.4, 1, 1.9, 2, 49, 50, 730.5, 9999)] == [
        *(0, 1, 1, 2, 20, 50, 500, 5000)
    ]


@real_lab.needs("k6")
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--base", "mian"), 2, r"has no commit 'mian': give a branch"),
        (("--build", "make"), 2, r"--build is for servers that --start starts"),
        (("--fail-above", "0"), 2, r"--fail-above"),
        (("--budget", "soon"), 2, r"--budget must be a time such as"),
        (("--path", "x", *SERVER), 2, r"--path 'x' must begin with a slash"),
        ((), 2, r"neither a Dockerfile nor a server.toml.*--build CMD --start CMD"),
        (("--start", "true", "--build", "echo no compiler >&2; exit 2"), 1, r"no compiler"),
        (("--start", "echo no such module >&2; exit 9"), 1, r"base \(.*code 9.*no such module"),
        (("--markdown", "no/such/x.md", *SERVER), 2, r"no/such/x.md cannot be written"),
        (("--junit", ".", *SERVER), 2, r"\. cannot be written, because it is a folder"),
        (("--script", "none.js", *SERVER), 2, r"The script none.js does not exist"),
    ],
)
def test_what_cannot_be_compared_is_said_in_a_sentence(root, shop, arguments, code, said):
    base = () if "--base" in arguments else ("--base", "base")
    done = ab(root, shop, *base, *arguments, code=code)
    words = " ".join(done.stderr.split())
    assert re.search(said, words), words
    assert not list((root / "data").glob("runs/*"))


@real_lab.needs("k6")
def test_a_server_that_does_not_listen(root, shop):
    hasty = real_lab.with_changed("runner.measure.engine", "m.DEADLINE_S = 0.5")
    start = ("--base", "base", "--start", "sleep 60")
    done = ab(root, shop, *start, program=hasty, code=1)
    words = " ".join(done.stderr.split())
    assert "did not answer HTTP" in words and "$PORT" in words, words


def test_a_folder_without_git(root, tmp_path):
    (tmp_path / "empty").mkdir()
    done = ab(root, tmp_path / "empty", *SERVER, code=2)
    assert "is in no git repository: run `git init` there" in " ".join(done.stderr.split())


@real_lab.needs("k6")
def test_equal_commits_and_a_dirty_tree_are_named(root, shop):
    (shop / "new.txt").write_text("new")
    done = ab(root, shop, "--base", "alike", "--head", "alike", "--start", "exit 1", code=1)
    words = " ".join(done.stderr.split())
    assert "alike and alike are the same commit" in words and "this is an A/A run" in words
    assert "1 file has uncommitted changes. The lab measures only commits" in words


@real_lab.needs("k6")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_it_is_ended(root, shop, tmp_path, number):
    """If `bench ab` is ended during a build, no process that the build started is left."""
    before = repo.state(shop)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    build = f"echo $$ > {tmp_path}/pid; sleep 300 & wait"
    arguments = ("ab", "--folder", str(shop), "--base", "base", "--build", build, "--start", "x")
    runner = real_lab.start(root, *arguments, TMPDIR=str(temporary))
    fake_lab.wait_for((tmp_path / "pid").read_text, 30)
    pid = int((tmp_path / "pid").read_text())
    runner.send_signal(number)
    runner.communicate(timeout=30)
    assert runner.returncode in (130, -signal.SIGKILL)
    fake_lab.wait_for(lambda: not psutil.pid_exists(pid), 20)
    if number == signal.SIGKILL:  # only the next command of the lab can remove the folder
        real_lab.bench(root, "clean", code=0, TMPDIR=str(temporary))
    assert not list(temporary.glob("bench-*"))
    assert repo.state(shop) == before
