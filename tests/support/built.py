"""Labs without servers, and synthetic runs: they are built once, and whoever asks for the same one
gets a copy.
"""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from functools import cache, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

ROOT = Path(__file__).parents[2]
Shape = ParamSpec("Shape")
Build = Callable[Concatenate[Path, Shape], Path]


@cache
def kept() -> tempfile.TemporaryDirectory[str]:
    """The folder of what was built; it goes with the process."""
    return tempfile.TemporaryDirectory(prefix="lab-built-")


def new_folder() -> Path:
    return Path(tempfile.mkdtemp(dir=kept().name))


def once(build: Build[Shape]) -> Build[Shape]:
    """Make a builder of run folders copy what it built before from arguments that read the same."""

    @wraps(build)
    def made(folder: Path, *args: Shape.args, **kwargs: Shape.kwargs) -> Path:
        shape = repr((build.__module__, args, sorted(kwargs.items())))
        first = Path(kept().name) / hashlib.sha256(shape.encode()).hexdigest()
        if not first.exists():
            build(first.with_suffix(".new"), *args, **kwargs).rename(first)
        shutil.copytree(first, folder, dirs_exist_ok=True)
        return folder

    return made


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Write a record of a synthetic run, with the bytes that the lab would write.

    The lab waits for the disk at each of its own, which takes most of the time of a whole run.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{json.dumps(record, indent=1)}\n")


def bare_lab(folder: Path) -> Path:
    """Make `folder` a lab without servers and runs, with the notebooks and the published numbers.

    Return it.
    """
    (folder / "servers").mkdir(parents=True)
    shutil.copytree(ROOT / "notebooks", folder / "notebooks")
    (folder / "data").mkdir(exist_ok=True)
    shutil.copy(ROOT / "data" / "published.csv", folder / "data")
    return folder
