"""Labs without servers, and synthetic runs.

A run is built once. Each test that asks for the same run gets a copy.
"""

import contextlib
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import cache, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

import pandas as pd
from made_once import filled_once

ROOT = Path(__file__).parents[2]
SOURCES = ("tests/support", "runner")
"""Folders with the sources that decide what a builder writes."""
KEPT_S = 24 * 3600
"""Runs that were built from other sources are removed when they are this old."""
Shape = ParamSpec("Shape")
Build = Callable[Concatenate[Path, Shape], Path]


@cache
def copies() -> tempfile.TemporaryDirectory[str]:
    """Return the folder of this process's copies, which is removed when the process ends."""
    return tempfile.TemporaryDirectory(prefix="lab-copies-")


def new_folder() -> Path:
    return Path(tempfile.mkdtemp(dir=copies().name))


@cache
def kept() -> Path:
    """Return the folder of the runs that any process of this user has built from the same sources.

    Folders of other sources are removed after a day.
    """
    digest = hashlib.sha256(f"{sys.version} pandas {pd.__version__}".encode())
    for path in sorted(path for folder in SOURCES for path in (ROOT / folder).rglob("*")):
        if path.suffix in {".py", ".csv", ".toml"}:
            digest.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    prefix = f"lab-built-{os.getuid()}-"
    folder = Path(tempfile.gettempdir()) / f"{prefix}{digest.hexdigest()[:20]}"
    for other in folder.parent.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):  # another process may remove it at the same time
            if other != folder and time.time() - other.stat().st_mtime > KEPT_S:
                shutil.rmtree(other)
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def once(build: Build[Shape]) -> Build[Shape]:
    """Let a builder of run folders copy a run that was built before with equal arguments.

    Arguments are equal if their `repr` is equal. If there is no such run, one process builds it,
    while other processes that need it wait.
    """

    @wraps(build)
    def made(folder: Path, *args: Shape.args, **kwargs: Shape.kwargs) -> Path:
        shape = repr((build.__module__, args, sorted(kwargs.items())))
        assert " at 0x" not in shape, f"another process reads other arguments: {shape}"
        name = hashlib.sha256(shape.encode()).hexdigest()
        first = filled_once(kept(), name, lambda unfinished: build(unfinished, *args, **kwargs))
        shutil.copytree(first, folder, dirs_exist_ok=True)
        return folder

    return made


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Write a record of a synthetic run, with the bytes that the lab would write.

    Unlike the lab, it does not wait until the record is on the disk, because building a synthetic
    run would spend most of its time on this.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{json.dumps(record, indent=1)}\n")


def bare_lab(folder: Path) -> Path:
    """Make `folder` a lab without servers and runs, with the notebooks and the published numbers.

    Return it.
    """
    (folder / "servers").mkdir(parents=True)
    shutil.copy(ROOT / "servers" / "CONTRACT.md", folder / "servers")  # the mark of a checkout
    shutil.copytree(ROOT / "notebooks", folder / "notebooks")
    (folder / "data").mkdir(exist_ok=True)
    shutil.copy(ROOT / "data" / "published.csv", folder / "data")
    return folder
