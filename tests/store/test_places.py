"""Tests of the folders for the lab's own files and for its output.

They cover a lab in a checkout and a lab that is installed without a checkout.
"""

import subprocess
import sys

import pytest
from built import bare_lab

from runner import places as module
from runner.commands.options import choose_data
from runner.model import LabError
from runner.places import places
from runner.planning.catalog import load_server, server_names
from runner.store import (
    RunFolder,
    data_folder,
    find_run,
    new_run,
    replacing,
    runs_folder,
    short_name,
)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Make an empty folder, and make it the current folder."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("BENCH_ROOT", raising=False)
    monkeypatch.delenv("BENCH_DATA", raising=False)
    return folder


@pytest.fixture
def installed(here, monkeypatch):
    """Return the current folder of a user whose lab is installed from a wheel, not a checkout."""
    monkeypatch.setattr(module, "OWN_CHECKOUT", here.parent / "site-packages")
    monkeypatch.setattr(module, "PACKAGED", here.parent / "site-packages" / "packaged")
    return here


def test_a_checkout_is_found_above_the_current_folder(installed, monkeypatch):
    bare_lab(installed)
    inside = installed / "a" / "b"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    found = places()
    assert found.checkout == found.root == installed
    assert (found.data, found.figures) == (installed / "data", installed / "figures")
    assert found.tools == installed / ".tools"


def test_code_of_a_checkout_takes_that_one_anywhere(here):
    assert places().root == places().project == module.OWN_CHECKOUT


def test_without_a_checkout_results_lie_in_the_current_folder(installed):
    found = places()
    assert found.checkout is None and found.root == installed
    assert found.project == installed.parent / "site-packages" / "packaged"
    assert (found.data, found.figures) == (installed / "bench-data", installed / "bench-figures")
    assert list(installed.iterdir()) == [], "to look creates nothing"


@pytest.mark.parametrize("both", [("servers", "notebooks"), ("bench-data", "bench-figures")])
def test_folders_of_these_names_make_no_checkout(installed, both):
    for name in both:
        (installed / name).mkdir()
    assert places().checkout is None and places().data == installed / "bench-data"


def test_the_variable_names_the_folder_to_work_in(installed, tmp_path, monkeypatch):
    other = tmp_path / "other"
    monkeypatch.setenv("BENCH_ROOT", str(other))
    with pytest.raises(LabError, match="There is no lab in"):
        places()
    other.mkdir()
    assert places().data == other / "bench-data"
    bare_lab(other)
    assert places().data == other / "data" and places().checkout == other


def test_git_sees_nothing_of_the_folders_in_a_user_s_repository(installed):
    """`git status` must not show the folders that the lab makes in a user's repository."""

    def seen():
        status = ["git", "status", "--short", "--untracked-files=all"]
        return subprocess.run(
            status, cwd=installed, check=True, capture_output=True, text=True
        ).stdout

    subprocess.run(["git", "init", "--quiet"], cwd=installed, check=True)
    (installed / "bench-other").mkdir()
    (installed / "bench-other" / "mine.txt").write_text("the user's own")
    (new_run("short").path / "run.json").write_text("{}")
    with replacing(installed / "bench-figures" / "run" / "report.html") as page:
        page.write_text("<html>")
    assert seen() == "?? bench-other/mine.txt\n"
    (installed / "bench-data" / ".gitignore").write_text("# kept by the user\n")
    data_folder()
    assert "bench-data/runs" in seen(), "a user who commits runs empties the file, and keeps it"


def test_a_chosen_folder_has_runs_and_figures(installed, monkeypatch):
    monkeypatch.setenv("BENCH_DATA", "")  # after the test, monkeypatch restores the variable
    bare_lab(installed)
    choose_data("sub/mine")
    mine = installed / "sub" / "mine"
    assert (places().data, places().figures) == (mine, mine / "figures")
    assert places().checkout == installed
    run = new_run("c")
    assert run.path.parent == runs_folder() == mine / "runs"
    assert short_name(run) == run.path.name


def test_tools_are_in_the_users_cache_without_a_checkout(installed, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert places().tools == tmp_path / "cache" / "web-bench-lab" / "tools"
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert places().tools == tmp_path / "home" / ".cache" / "web-bench-lab" / "tools"


def test_servers_need_a_checkout_and_one_sentence_says_so(installed):
    assert server_names() == []
    with pytest.raises(
        LabError, match=r"'gin' needs a checkout of the lab: run `git clone "
    ) as said:
        load_server("gin")
    assert said.value.exit_code == 2 and str(said.value).count(". ") == 0


def test_a_named_run_may_be_of_the_user_or_of_the_package(installed, monkeypatch):
    manifest = '{"schema": 1, "run_id": "20260101T000000Z-x-1"}'
    for folder in (places().committed / "sample", places().data / "mine"):
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(manifest)
        monkeypatch.setattr(RunFolder, "manifest", lambda _: None)
        assert find_run(folder.name).path == folder
        assert short_name(RunFolder(folder)) == folder.name


def test_the_module_is_the_program(here):
    done = subprocess.run(
        [sys.executable, "-m", "runner", "--version"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert done.stdout.startswith("web-bench-lab ") and done.stdout.count("\n") == 1
