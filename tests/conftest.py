"""Fixtures and rules that more than one module of tests takes."""

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

pytest_plugins = ["disturbance", "pytester"]
# nbformat's validator would compile a grammar of IRIs, which no notebook has: seconds for each
# process of the tests.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]
# Notebooks and other processes that tests start run this checkout, whichever is installed.
os.environ["PYTHONPATH"] = str(built.ROOT)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """See that a module has the name of each mark that it gives: by this the Makefile finds what it
    collects.
    """
    for item in items:
        for mark in {"load", "timed"} & {each.name for each in item.iter_markers()}:
            assert f"mark.{mark}" in item.path.read_text(), (
                f"write pytest.mark.{mark} in {item.path}"
            )


def pytest_collection_finish() -> None:
    """Have the garbage collector leave alone what stays: modules and tests.

    Let kernels be forks if a module that needs them is among the collected ones.
    """
    if launcher := sys.modules.get("jupyter_client.launcher"):
        launcher.Popen = preloaded.Popen
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let it have all at the end: duckdb counts what is left of its functions then."""
    gc.unfreeze()


@pytest.fixture
def bare_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lab without servers and runs, in the test's folder."""
    monkeypatch.setenv("BENCH_ROOT", str(tmp_path))
    return built.bare_lab(tmp_path)


@pytest.fixture
def read_campaign(tmp_path: Path) -> Callable[[str], Campaign]:
    """Reads a campaign from its text, as from the test's folder."""

    def read(text: str) -> Campaign:
        (tmp_path / "mine.toml").write_text(text)
        return load_campaign(str(tmp_path / "mine.toml"))

    return read


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lab with the repository's servers and tools, in the test's folder."""
    monkeypatch.setenv("BENCH_ROOT", str(tmp_path))
    return real_lab.make(tmp_path)


@pytest.fixture(scope="module")
def in_lab(lab: Path) -> Iterator[Path]:
    """The lab of the module, for its tests and for the notebooks that they execute."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BENCH_ROOT", str(lab))
        yield lab


@pytest.fixture
def bench(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """`bench compare`, or another command, in this process: exit code, output and errors."""

    def call(*arguments: str, command: str = "compare") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["bench", command, *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return call


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> real_lab.Run:
    """A campaign of five trials that has ended in a lab of scripts.

    Whoever changes something in it puts it back, or changes a copy.
    """
    return fake_lab.run(fake_lab.make(tmp_path_factory.mktemp("finished")))
