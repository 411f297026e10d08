"""Temporary folders that no killed runner leaves behind, and the secrets that servers find in them.

The name of one says which process made it: `bench-NUMBERING-PID-START-…`, as in `leftovers.identity`. Whoever cleans up
removes those of processes that have ended, and no other.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from runner.measure.leftovers import PREFIX, Ledger, pid_namespace, start_ticks

_NAME = re.compile(rf"{PREFIX}(?P<numbering>\d+)-(?P<pid>\d+)-(?P<start>\d+)-\w+")


@contextlib.contextmanager
def temporary() -> Iterator[Path]:
    """Yield a temporary folder that only this user can enter."""
    own = os.getpid()
    prefix = f"{PREFIX}{pid_namespace()}-{own}-{start_ticks(own)}-"
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextlib.contextmanager
def scratch(ledger: Ledger) -> Iterator[Path]:
    """Yield a temporary folder that stands in the ledger, for what others than the runner write to."""
    with temporary() as folder:
        ledger.add("folder", path=str(folder))
        yield folder


def sweep_temporary() -> list[str]:
    """Remove this user's temporary folders of runners that have ended; return what was removed, in words."""
    removed = []
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        by = _NAME.fullmatch(folder.name)
        if by is None or by["numbering"] != str(pid_namespace()) or str(start_ticks(int(by["pid"]))) == by["start"]:
            continue
        with contextlib.suppress(OSError):
            if folder.is_dir() and not folder.is_symlink() and folder.lstat().st_uid == os.geteuid():
                shutil.rmtree(folder)
                removed.append(f"folder {folder}")
    return removed


def write_secrets(folder: Path, secrets: Mapping[str, str], owner: int | None = None) -> dict[str, Path]:
    """Write each secret to a file of its name in `folder`, which its user alone can read; return the paths by name.

    The files go to the user with the id `owner`, where that is given and this user may give them away. Where it may
    not, all may read the file, and only the mode of `folder` keeps them from it.
    """
    paths = {}
    for name, value in secrets.items():
        paths[name] = folder / name
        handle = os.open(paths[name], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(value)
        if owner is not None and os.geteuid() == 0:
            os.chown(paths[name], owner, owner)
        elif owner is not None:
            paths[name].chmod(0o444)
    return paths
