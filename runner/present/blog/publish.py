"""Publish a run: a folder with post, page, figures, tables and where they come from, ready for a blog."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from runner.columns import columns
from runner.present.answers.summary import summarize
from runner.present.blog.bundle import PROVENANCE, check_free, hashes, staged
from runner.present.blog.plots import draw
from runner.present.blog.post import Sheet, compose
from runner.present.blog.post_html import post_html
from runner.present.blog.post_markdown import post_markdown, table_markdown
from runner.present.blog.provenance import provenance
from runner.present.frames import Tables, read_tables, sealed_trials
from runner.store import RunFolder, write_json

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
        _write_tables(tables, post.sheets, folder / "tables")
        (folder / "post.md").write_text(post_markdown(post), encoding="utf-8")
        (folder / "index.html").write_text(post_html(post, folder / "figures"), encoding="utf-8")
        shown = {plot.trial_id for plot in plots if plot.trial_id}
        write_json(folder / PROVENANCE, provenance(run, tables, shown, hashes(folder)))
    files = tuple(sorted(path for path in target.rglob("*") if path.is_file()))
    return Bundle(target, files, len(plots), (target / "index.html").stat().st_size)


def _write_tables(tables: Tables, sheets: tuple[Sheet, ...], folder: Path) -> None:
    """Write each table as it is printed, as Markdown and CSV, and the numbers behind them as CSV."""
    folder.mkdir()
    for sheet in sheets:
        (folder / f"{sheet.name}.md").write_text(table_markdown(sheet.frame) + "\n", encoding="utf-8")
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
