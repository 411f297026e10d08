"""Tests of checking out and building commits in the lab's folders.

The user's repository must not change.
"""

import os
import subprocess

import fake_lab
import git_repository as repo
import psutil
import pytest

from runner.measure.leftovers import Ledger
from runner.model import LabError
from runner.running.commits import LINES_SHOWN, Commit, Repository, build_commit


@pytest.fixture
def folder(tmp_path):
    return repo.begin(tmp_path / "shop")


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "1-1.jsonl")


def test_both_commits_come_out_and_the_repository_stays(folder, tmp_path):
    first = repo.commit(folder, "one", a__txt="one")
    repo.git(folder, "tag", "-a", "-m", "x", "v1.0")
    repo.commit(folder, "two", a__txt="two", b__txt="new")
    (folder / "a.txt").write_text("uncommitted")
    (folder / "bench-data" / "runs").mkdir(parents=True)
    (folder / "bench-data" / "runs" / "run.json").write_text("the lab's own")
    before = repo.state(folder)
    found = Repository.around(folder)
    old = found.check_out(found.commit("v1.0", "--base"), tmp_path / "old")
    new = found.check_out(found.commit("HEAD", "--head"), tmp_path / "new")
    assert (old / "a.txt").read_text() == "one" and not (old / "b.txt").exists()
    assert (new / "a.txt").read_text() == "two"
    assert found.uncommitted() == 1
    assert found.commit("v1.0", "--base").sha == first
    assert repo.git(new, "describe", "--tags").startswith("v1.0-1-g")
    assert repo.state(folder) == before


def test_a_folder_inside_the_repository(folder, tmp_path):
    (folder / "api").mkdir()
    (folder / "api" / "x.txt").write_text("x")
    repo.commit(folder, "one")
    found = Repository.around(folder / "api")
    assert found.name == "api"
    assert found.check_out(found.commit("main", "--base"), tmp_path / "t") == tmp_path / "t" / "api"


def test_a_worktree_and_a_shallow_clone_have_their_commits(folder, tmp_path):
    repo.commit(folder, "one", a__txt="one")
    repo.commit(folder, "two", a__txt="two")
    repo.git(folder, "worktree", "add", "--quiet", str(tmp_path / "side"), "HEAD~1")
    repo.git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{folder}", str(tmp_path / "thin"))
    side = Repository.around(tmp_path / "side")
    out = side.check_out(side.commit("HEAD", "--base"), tmp_path / "out")
    assert (out / "a.txt").read_text() == "one"
    thin = Repository.around(tmp_path / "thin")
    out = thin.check_out(thin.commit("HEAD", "--head"), tmp_path / "out2")
    assert (out / "a.txt").read_text() == "two"
    with pytest.raises(LabError, match=r"no commit 'HEAD~1'.*fetch-depth: 0.*shallow"):
        thin.commit("HEAD~1", "--base")


def test_variables_of_a_hook_do_not_lead_to_another_repository(folder, tmp_path, monkeypatch):
    repo.commit(folder, "one", a__txt="one")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    assert Repository.around(folder).top == folder


def test_no_git_repository(tmp_path):
    with pytest.raises(LabError, match="is in no git repository: run `git init`"):
        Repository.around(tmp_path)


def test_no_git(folder, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(LabError, match="git is not installed"):
        Repository.around(folder)


def test_an_unknown_commit_and_one_without_the_folder(folder, tmp_path):
    repo.commit(folder, "one", a__txt="one")
    (folder / "api").mkdir()
    repo.commit(folder, "two", **{"api/x__txt": "x"})
    found = Repository.around(folder / "api")
    with pytest.raises(LabError, match=r"no commit 'mian': give a branch, a tag or the id.*--base"):
        found.commit("mian", "--base")
    with pytest.raises(LabError, match=r"Commit HEAD~1 \(.{10}\) has no folder api"):
        found.check_out(found.commit("HEAD~1", "--base"), tmp_path / "t")


def test_a_failed_build_shows_its_last_lines(tmp_path, ledger):
    said = []
    lines = "; ".join(f"echo line {number}" for number in range(9))
    with pytest.raises(LabError) as raised:
        build_commit(f"{lines}; exit 7", tmp_path, Commit("x", "a" * 40), ledger, said.append)
    last = [f"line {number}" for number in range(9 - LINES_SHOWN, 9)]
    assert str(raised.value).splitlines()[1:] == last
    assert "exit code 7" in str(raised.value) and raised.value.exit_code == 1
    assert len(said) == 1 and said[0].startswith("Building x (aaaaaaaaaa)")


def test_a_build_is_in_the_ledger_with_what_it_starts(tmp_path, ledger):
    build_commit("ps -o sid= $$ > sid", tmp_path, Commit("x", "a" * 40), ledger, print)
    sid = int((tmp_path / "sid").read_text())
    assert f'"pid": {sid}' in ledger.path.read_text() and sid != os.getsid(0)


def test_a_build_does_not_begin_if_the_lab_ends_before_its_ledger_lists_it(tmp_path):
    """A build's command never runs if the lab ends before its ledger lists the build's process.

    Here the lab gets a signal after it has started this process.
    """
    started = []

    class HitLedger(Ledger):
        def add_process(self, pid):
            started.append(pid)
            raise KeyboardInterrupt

    commit = Commit("x", "a" * 40)
    with pytest.raises(KeyboardInterrupt):
        build_commit("touch begun", tmp_path, commit, HitLedger(tmp_path / "1-1.jsonl"), print)
    (pid,) = started

    def has_ended():
        exists = psutil.pid_exists(pid)
        return not exists or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE

    fake_lab.wait_for(has_ended, 20)
    assert not (tmp_path / "begun").exists()


def test_the_stored_objects_are_borrowed_not_copied(folder, tmp_path):
    repo.commit(folder, "one", a__txt="one")
    found = Repository.around(folder)
    found.check_out(found.commit("main", "--base"), tmp_path / "t")
    count = subprocess.run(
        ["git", "-C", tmp_path / "t", "count-objects"], capture_output=True, text=True, check=True
    )
    assert count.stdout.startswith("0 objects")
