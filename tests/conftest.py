"""Fixtures and rules that more than one module of tests takes."""

from pathlib import Path
from typing import Any

import fake_lab
import pytest

pytest_plugins = ["disturbance", "published_runs", "pytester"]


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A lab of scripts with one campaign of ten trials that has ended, and what `bench run --json` printed.

    Whoever changes something in it puts it back, or changes a copy.
    """
    root = tmp_path_factory.mktemp("finished")
    done, result = fake_lab.run(root, fake_lab.make(root, repeats=2))
    assert done.returncode == 0, done.stderr
    return root, result
