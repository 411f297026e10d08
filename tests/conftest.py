"""Fixtures and rules that several modules of tests use."""

import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import built
import fake_lab
import preloaded
import pytest
import real_lab

from runner import cli
from runner.model import Campaign
from runner.planning.catalog import load_campaign

pytest_plugins = ["disturbance", "pytester", "time_limit"]
# Without this line, nbformat's validator would compile a grammar of IRIs, which takes some seconds
# in each process of the tests. The grammar is not needed, because no notebook has an IRI.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]
# Notebooks and other programs that tests start import `runner` from this checkout, even if another
# checkout is installed.
os.environ["PYTHONPATH"] = str(built.ROOT)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Assert that a module's text contains the marks `load` and `timed` that its tests have.

    The Makefile searches the texts of modules for `mark.load` and `mark.timed`, to choose the
    modules that pytest collects.
    """
    for item in items:
        for mark in {"load", "timed"} & {each.name for each in item.iter_markers()}:
            assert f"mark.{mark}" in item.path.read_text(), (
                f"write pytest.mark.{mark} in {item.path}"
            )


def pytest_collection_finish() -> None:
    """Exclude all present objects from garbage collection, because they are used until the end.

    If one of the test modules uses Jupyter, start kernels as forks of a preloaded process.
    """
    if launcher := sys.modules.get("jupyter_client.launcher"):
        launcher.Popen = preloaded.Popen
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Return all objects to the garbage collector at the end.

    When the process ends, duckdb counts its functions that are still in memory. Without this call,
    duckdb would also count functions that nothing uses any more.
    """
    gc.unfreeze()


@pytest.fixture
def bare_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a lab without servers and runs in the test's folder, and return its path."""
    monkeypatch.setenv("BENCH_ROOT", str(tmp_path))
    return built.bare_lab(tmp_path)


@pytest.fixture
def read_campaign(tmp_path: Path) -> Callable[[str], Campaign]:
    """Return a function that writes a campaign's text to the test's folder and reads it."""

    def read(text: str) -> Campaign:
        (tmp_path / "mine.toml").write_text(text)
        return load_campaign(str(tmp_path / "mine.toml"))

    return read


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a lab with the repository's servers and tools in the test's folder; return its path."""
    monkeypatch.setenv("BENCH_ROOT", str(tmp_path))
    return real_lab.make(tmp_path)


@pytest.fixture(autouse=True)
def none_left() -> Iterator[None]:
    """End the commands that a failed test has left.

    The commands would take CPU time from the next tests.
    """
    yield
    real_lab.end_started()


@pytest.fixture(scope="module")
def in_lab(lab: Path) -> Iterator[Path]:
    """Set BENCH_ROOT to the lab of a module of tests, and yield the lab's folder.

    Because of this variable, the tests and the notebooks that the tests execute use this lab.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BENCH_ROOT", str(lab))
        yield lab


@pytest.fixture
def bench(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Return a function that runs a command of `bench` (by default `compare`) in this process.

    The function returns exit code, output and errors.
    """

    def call(*arguments: str, command: str = "compare") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["bench", command, *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return call


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> real_lab.Run:
    """Return a finished run of five trials, from a lab in which servers and generators are scripts.

    A test that changes the run's files must restore them, or work on a copy.
    """
    return fake_lab.run(fake_lab.make(tmp_path_factory.mktemp("finished")))
