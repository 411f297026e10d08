"""A published folder on disk: it appears whole or not at all, and replaces nothing but an untouched one of its kind."""

from __future__ import annotations

import contextlib
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runner.model import LabError
from runner.store import fsync_folder, read_json, sha256

PROVENANCE = "provenance.json"
KIND = "bench publish"
"""By this a folder is known as ours."""


def check_free(target: Path) -> None:
    """Raise LabError unless `target` is new, empty, or a bundle in which every file is as it was published."""
    if not target.exists() and not target.is_symlink():
        return
    if not target.is_dir():
        raise LabError(f"{target} is no folder: name an empty or a new one.")
    there = {path.relative_to(target).as_posix() for path in target.rglob("*") if not path.is_dir()}
    if not there:
        return
    published = _published(target)
    if published is None:
        raise LabError(f"{target} holds something that `bench publish` did not write: name an empty or a new folder.")
    changed = {name for name, facts in published.items() if name in there and sha256(target / name) != facts["sha256"]}
    own = sorted((there - set(published) - {PROVENANCE}) | changed)
    if own:
        raise LabError(
            f"{target / own[0]} was written or changed after publishing and would be lost: move it away, or name "
            "another folder."
        )


def _published(target: Path) -> dict[str, Any] | None:
    """Return the files that a bundle was published with; None where the folder is no bundle."""
    try:
        facts = read_json(target / PROVENANCE)
        return dict(facts["files"]) if facts["made_by"] == KIND else None
    except (LabError, KeyError, TypeError, ValueError):
        return None


@contextlib.contextmanager
def staged(target: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `target`, which takes its place once all is written; else nothing changes."""
    target.parent.mkdir(parents=True, exist_ok=True)
    suffix = secrets.token_hex(4)
    new, old = (target.with_name(f".{target.name}.{suffix}.{end}") for end in ("tmp", "old"))
    new.mkdir()
    try:
        yield new
        if target.exists():
            target.rename(old)
        try:
            new.rename(target)
        except OSError:
            if old.exists():
                old.rename(target)
            raise
        fsync_folder(target.parent)
    finally:
        shutil.rmtree(new, ignore_errors=True)
        if target.exists():
            shutil.rmtree(old, ignore_errors=True)


def hashes(folder: Path) -> dict[str, dict[str, Any]]:
    """Return size and SHA-256 of each file in a folder, by its path in it."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): file_facts(path) for path in paths}


def file_facts(path: Path) -> dict[str, Any]:
    """Return size and SHA-256 of a file."""
    return {"bytes": path.stat().st_size, "sha256": sha256(path)}
