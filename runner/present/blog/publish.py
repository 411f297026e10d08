"""Publish a run: write a folder for a blog, with post, page, figures, tables and provenance.

The folder appears under its name only when it is complete. An existing folder is replaced only if
it is empty, or if `bench publish` wrote it and its files have not been changed since.
"""

import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from runner.columns import columns
from runner.manifest import Manifest
from runner.model import LabError
from runner.places import places
from runner.present.answers.summary import summarize
from runner.present.blog.card import draw_card
from runner.present.blog.front_matter import Site
from runner.present.blog.post import CARD, OF_A_POST, allowed, compose
from runner.present.blog.story import Command
from runner.present.chart.drawing import draw as drawn
from runner.present.chart.sentences import describe
from runner.present.chart.value import Registered, charts
from runner.present.frames import Case, Tables, choose, read_tables, sealed_trials
from runner.present.look import captions
from runner.present.look.markup import Picture, TextTable, literal_table
from runner.present.look.palette import identities
from runner.present.look.themes import save_both
from runner.present.spikes.view import View, most_pronounced, survey, view
from runner.store import (
    TABLES,
    RunFolder,
    read_json,
    replacing_folder,
    sha256,
    write_json,
)
from runner.verdict.evidence import PREFIX

FIGURES = "figures"
"""Folder of the figures in a published folder."""
PROVENANCE = "provenance.json"
KIND = "bench publish"  # value of `made_by` in the provenance.json that this command writes
SIGNIFICANT_DIGITS = 12
"""Number of significant digits with which the floats of the summary are written."""
LEFT_OUT = (
    "run_id",
    "status",
    "error",
)
"""Columns that the published CSV of trials leaves out.

Each of these columns has the same value in all sealed trials of a run.
"""


@dataclass(frozen=True)
class Bundle:
    """A folder that `publish` wrote: its files, and the number of figures."""

    folder: Path
    files: tuple[Path, ...]
    figures: int
    figures_in_post: int
    page_bytes: int  # size of index.html, which embeds a light and a dark version of each figure


def publish(
    run: RunFolder,
    target: Path,
    say: Callable[[str], None],
    figures: Mapping[str, Registered] | None = None,
    site: Site | None = None,
    *,
    page_only: bool = False,
) -> Bundle:
    """Write the post about a run, and all files that belong to it, to the folder `target`.

    The same run always gives the same bytes. `say` is called with progress messages. `figures` are
    the figures to draw. If `figures` is None, all registered figures are drawn. `site` is the
    static site generator that will read the post's front matter. If `page_only` is True, write only
    a page that contains the post and its figures, and the files that the page links to. In this
    case, write neither Markdown nor a report.

    Raise LabError if no trial is sealed, if a sealed trial has no record, or if its record
    contradicts the tables. Also raise LabError if `target` contains files, unless `bench publish`
    wrote them and nobody has changed them. After an error, `target` is unchanged.
    """
    target = target.expanduser().resolve()
    check_free(target)
    tables = read_tables(run)
    with replacing_folder(target) as folder:
        named = charts() if figures is None else figures
        if page_only:
            named = {name: named[name] for name in OF_A_POST if name in named}
        pictures = draw(tables, named, folder / FIGURES, say)
        commands = {record["trial_id"]: Command.of(record) for record in run.records()}
        post = compose(tables, pictures, commands, with_report=not page_only)
        say("Writing the tables, the post and the page …")
        _write_tables(tables, post.text_tables, folder / "tables")
        (folder / "index.html").write_text(post.html(), encoding="utf-8")
        if page_only:
            shutil.rmtree(folder / FIGURES)
        else:
            (folder / "post.md").write_text(post.markdown(site), encoding="utf-8")
            (folder / "report.html").write_text(post.report_html(), encoding="utf-8")
        draw_card(folder / CARD, post.title, post.about)
        write_json(folder / PROVENANCE, _provenance(run, tables, pictures, folder))
    files = _files(target)
    size = files["index.html"].stat().st_size
    return Bundle(target, tuple(files.values()), len(pictures), post.figures, size)


def check_free(target: Path) -> None:
    """Raise LabError if writing to the folder `target` could overwrite files of the user.

    The folder is free if it does not exist, if it is empty, or if all of its files were written by
    `bench publish` and are unchanged.
    """
    if not target.exists() and not target.is_symlink():
        return
    if not target.is_dir():
        raise LabError(f"{target} is not a folder: name an empty or a new folder.")
    if not (there := _files(target)):
        return
    try:
        facts = read_json(target / PROVENANCE)
        published = dict(facts["files"]) if facts["made_by"] == KIND else None
    except (LabError, KeyError, TypeError, ValueError):
        published = None
    if published is None:
        raise LabError(
            f"{target} holds files that `bench publish` did not write: name an empty or a new "
            "folder."
        )
    for name, path in there.items():
        if name != PROVENANCE and (
            name not in published or sha256(path) != published[name]["sha256"]
        ):
            words = (
                "was added or changed after publishing and would be lost: move it, or name another "
                "folder"
            )
            raise LabError(f"{path} {words}.")


def _files(folder: Path) -> dict[str, Path]:
    """Return all files in a folder by their relative paths."""
    paths = sorted(path for path in folder.rglob("*") if not path.is_dir())
    return {path.relative_to(folder).as_posix(): path for path in paths}


def _facts(files: dict[str, Path]) -> dict[str, dict[str, object]]:
    """Return the size and the SHA-256 of each file."""
    return {
        name: {"bytes": path.stat().st_size, "sha256": sha256(path)} for name, path in files.items()
    }


def _provenance(
    run: RunFolder, tables: Tables, pictures: Iterable[Picture], folder: Path
) -> dict[str, object]:
    """Return the provenance of a published folder: the hashes of its inputs and of its files.

    Raise LabError if a sealed trial has no record, or if its record contradicts the tables.
    """
    statuses = {record["trial_id"]: record["status"] for record in run.records()}
    sealed = sorted(sealed_trials(tables.trials)["trial_id"])
    for trial_id in sealed:
        status = statuses.get(trial_id)
        if status != "sealed":
            record = "it has no record" if status is None else f"its record says {status}"
            raise LabError(
                f"The tables say that {trial_id} is sealed, but {record}: rebuild the "
                "tables with `bench report`.",
                exit_code=1,
            )
    hashes = run.record_hashes()
    names = (*TABLES, *sorted({f"probe/{picture.trial_id}" for picture in pictures}))
    used = {
        f"tables/{name}.parquet": run.table(name) for name in names if run.table(name).is_file()
    }
    inputs = {
        "run.json": run.path / "run.json",
        **used,
        "published.csv": places().published,
    }
    return {
        "made_by": KIND,
        "schema": 1,
        "run": allowed(tables.manifest),
        "inputs": _facts(inputs),
        "sealed_trials": {trial_id: hashes[trial_id] for trial_id in sealed},
        "files": _facts(_files(folder)),
    }


def draw(
    tables: Tables, figures: Mapping[str, Registered], folder: Path, say: Callable[[str], None]
) -> tuple[Picture, ...]:
    """Draw figures of a run into `folder`, and return them with captions and descriptions.

    `say` is called with a message for each figure. A figure is left out if the run has no data for
    it. Captions are not drawn into the figures, because pages print them as text below the figures.
    """
    case = choose(tables)
    trial_id = most_pronounced(survey(tables))
    subjects: dict[type, tuple[Any, str]] = {
        Tables: (tables, ""),
        Case: (case, case.trial_id if case else ""),
        View: (view(tables, trial_id, "") if trial_id else None, trial_id),
    }
    full = []
    for name, found in figures.items():
        subject, trial = subjects[found.subject]
        if found.needs(tables) and subject is not None:
            made = found.make(subject)
            figure = drawn(replace(made, caption=""))
            if any(ax.axison for ax in figure.axes):
                full.append((name, trial, made, figure))
    looks = list(identities(tables.trials).values())
    public = replace(tables, manifest=Manifest.of(allowed(tables.manifest)))
    provenance = captions.provenance(public)
    pictures = []
    for number, (name, trial, made, figure) in enumerate(full, start=1):
        say(f"[{number}/{len(full)}] {name}")
        save_both(figure, folder, name, looks, provenance)
        width, height = (round(100 * inches) for inches in figure.get_size_inches())
        pictures.append(Picture(folder, name, describe(made), made.caption, width, height, trial))
    return tuple(pictures)


def _write_tables(tables: Tables, sheets: Iterable[TextTable], folder: Path) -> None:
    """Write the tables of texts (`sheets`) as Markdown and CSV, and the tables of numbers as CSV.

    There are two tables of numbers: the summary and the trials. The CSV of trials has a row for
    each sealed trial, in the order of the run. The first column is the load. The other columns are
    those that docs/data.md describes, with three exceptions. Columns that have no value in any
    trial are left out. The columns in `LEFT_OUT` are left out, because each of these columns has
    the same value in all sealed trials. Columns with the evidence for verdicts are left out,
    because `verdict_reason` gives the evidence in words.
    """
    known = [column.name for column in columns("trials")]
    kept = [name for name in known if name not in LEFT_OUT and not name.startswith(PREFIX)]
    shown = ["load", *kept]
    trials = sealed_trials(tables.trials).sort_values("trial_order")[shown]
    numbers = {
        "summary": rounded(summarize(tables)),
        "trials": trials.replace("", None).dropna(axis="columns", how="all"),
    }
    folder.mkdir()
    for sheet in sheets:
        (folder / f"{sheet.name}.md").write_text(
            literal_table(sheet.frame) + "\n", encoding="utf-8"
        )
    for name, frame in ({sheet.name: sheet.frame for sheet in sheets} | numbers).items():
        frame.to_csv(folder / f"{name}.csv", index=False, lineterminator="\n", encoding="utf-8")


def rounded(summary: pd.DataFrame) -> pd.DataFrame:
    """Return the summary with its floats rounded to `SIGNIFICANT_DIGITS` digits.

    The last digit of a logarithm depends on the vector instructions of the CPU (for example AVX2 or
    AVX-512), so without rounding, two machines would write different files from the same run.
    """
    floats = summary.select_dtypes("float")
    return summary.assign(**floats.map(lambda value: float(f"{value:.{SIGNIFICANT_DIGITS}g}")))
