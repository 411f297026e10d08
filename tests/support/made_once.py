"""What is expensive to make, made once for all processes of a run of tests."""

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
    """Return a folder that `make` has filled, in this process or in another one of pytest-xdist.

    Whoever comes meanwhile waits. Nobody may change what is in the folder.
    """
    own = factory.getbasetemp()
    return filled_once(own.parent if "PYTEST_XDIST_WORKER" in os.environ else own, name, make)


def filled_once(shared: Path, name: str, make: Callable[[Path], object]) -> Path:
    """Return the folder `name` in `shared`, which `make` fills in the first process that asks.

    Others wait meanwhile. Nobody may change what is in the folder.
    """
    folder = shared / name
    if folder.exists():  # it appears whole
        return folder
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            unfinished = shared / f"{name}.unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)  # of an attempt that failed
            unfinished.mkdir()
            make(unfinished)
            unfinished.rename(folder)
    return folder
