"""Make expensive files only once for all processes of a test run."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder that `make` has filled, in this process or in another worker of pytest-xdist.

    While `make` runs, other processes that need the folder wait. Tests must not change its content.
    """
    own = factory.getbasetemp()
    return filled_once(own.parent if "PYTEST_XDIST_WORKER" in os.environ else own, name, make)


def filled_once(shared: Path, name: str, make: Callable[[Path], object]) -> Path:
    """Return the folder `name` in `shared`, which `make` fills in the first process that needs it.

    While `make` runs, other processes that need the folder wait. Tests must not change its content.
    """
    folder = shared / name
    if folder.exists():  # it is complete: it gets this name only after `make` has ended
        return folder
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            unfinished = shared / f"{name}.unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)  # from a call of `make` that failed
            unfinished.mkdir()
            make(unfinished)
            unfinished.rename(folder)
    return folder
