"""Functions that make labs without servers, and that build each synthetic run only once.

The first test that needs a synthetic run builds it. Each test gets its own copy of the run.
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
"""Folders with the source files on which the content of a built run depends."""
KEPT_S = 24 * 3600
"""Runs built from other versions of the source files are removed after this time, in seconds."""
Shape = ParamSpec("Shape")
Build = Callable[Concatenate[Path, Shape], Path]


@cache
def copies() -> tempfile.TemporaryDirectory[str]:
    """Return a temporary folder for the copies of runs that this process makes.

    The folder is removed when the process ends.
    """
    return tempfile.TemporaryDirectory(prefix="lab-copies-")


def new_folder() -> Path:
    return Path(tempfile.mkdtemp(dir=copies().name))


@cache
def kept() -> Path:
    """Return the folder of the runs that were built from the present version of the source files.

    All processes of this user share the folder. The folder's name contains a hash of the source
    files. Folders of other versions of the source files are removed after a day.
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
    """Return a function that builds each run by `build` only once, and copies it into `folder`.

    Two calls get copies of one run if the `repr` of their arguments, except `folder`, is equal.
    While a process builds a run, other processes that need the run wait.
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

    Unlike the lab, this function does not wait until the record is on the disk, because this would
    take most of the time in which a synthetic run is built.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{json.dumps(record, indent=1)}\n")


def bare_lab(folder: Path) -> Path:
    """Make a lab without servers and runs in `folder`; return `folder`.

    The lab contains the notebooks and the published numbers.
    """
    (folder / "servers").mkdir(parents=True)
    # The lab recognises a checkout by this file.
    shutil.copy(ROOT / "servers" / "CONTRACT.md", folder / "servers")
    shutil.copytree(ROOT / "notebooks", folder / "notebooks")
    (folder / "data").mkdir(exist_ok=True)
    shutil.copy(ROOT / "data" / "published.csv", folder / "data")
    return folder
