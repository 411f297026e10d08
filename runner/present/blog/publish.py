"""Publish a run: a folder with post, page, figures, tables and where they come from, ready for a blog.

The folder appears whole or not at all, and replaces nothing but an untouched one of its kind.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from runner.columns import columns
from runner.model import LabError
from runner.present.answers.summary import summarize
from runner.present.blog.plots import draw
from runner.present.blog.post import compose
from runner.present.blog.provenance import KIND, PROVENANCE, file_facts, provenance
from runner.present.frames import Tables, read_tables, sealed_trials
from runner.present.look.content import TextTable
from runner.present.look.markup import literal_table
from runner.store import RunFolder, fsync_folder, read_json, sha256, write_json

LEFT_OUT = ("run_id", "status", "error")
"""Columns of the trials that are alike in all sealed trials of one run."""


@dataclass(frozen=True)
class Bundle:
    """A published folder."""

    folder: Path
    files: tuple[Path, ...]
    figures: int
    page_bytes: int
    """Size of index.html, which holds every figure twice."""


def publish(run: RunFolder, target: Path, say: Callable[[str], None]) -> Bundle:
    """Write the bundle of a run to the folder `target`; the same run gives the same bytes.

    `say` hears what is being done. LabError where `target` holds anything but an untouched bundle, and where no trial
    was sealed; whatever stood at `target` is then as it was.
    """
    target = target.expanduser().resolve()
    check_free(target)
    tables = read_tables(run)
    with staged(target) as folder:
        plots = draw(tables, folder / "figures", say)
        post = compose(tables, plots)
        say("Writing the tables, the post and the page …")
        _write_tables(tables, post.text_tables, folder / "tables")
        (folder / "post.md").write_text(post.markdown(), encoding="utf-8")
        (folder / "index.html").write_text(post.html(), encoding="utf-8")
        shown = {plot.trial_id for plot in plots if plot.trial_id}
        written = sorted(path for path in folder.rglob("*") if path.is_file())
        facts = {path.relative_to(folder).as_posix(): file_facts(path) for path in written}
        write_json(folder / PROVENANCE, provenance(run, tables, shown, facts))
    files = tuple(sorted(path for path in target.rglob("*") if path.is_file()))
    return Bundle(target, files, len(plots), (target / "index.html").stat().st_size)


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
    lost = sorted((there - set(published) - {PROVENANCE}) | changed)
    if lost:
        raise LabError(
            f"{target / lost[0]} was written or changed after publishing and would be lost: move it away, or name "
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


def _write_tables(tables: Tables, sheets: tuple[TextTable, ...], folder: Path) -> None:
    """Write each table as it is printed, as Markdown and CSV, and the numbers behind them as CSV."""
    folder.mkdir()
    for sheet in sheets:
        (folder / f"{sheet.name}.md").write_text(literal_table(sheet.frame) + "\n", encoding="utf-8")
        _write_csv(sheet.frame, folder / f"{sheet.name}.csv")
    _write_csv(summarize(tables), folder / "summary.csv")
    _write_csv(_trials_to_publish(tables), folder / "trials.csv")


def _trials_to_publish(tables: Tables) -> pd.DataFrame:
    """Return the sealed trials in the order of the run: the columns of docs/data.md that have a value, and the load."""
    shown = ["load", *(column.name for column in columns("trials") if column.name not in LEFT_OUT)]
    sealed = sealed_trials(tables.trials).sort_values("trial_order")
    return sealed[shown].replace("", None).dropna(axis="columns", how="all")


def _write_csv(frame: pd.DataFrame, path: Path) -> None:
    frame.to_csv(path, index=False, lineterminator="\n", encoding="utf-8")
