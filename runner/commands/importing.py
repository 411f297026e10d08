"""The command that imports files of other people's load tests."""

from pathlib import Path
from typing import Annotated, TypeVar

import typer

from runner import console
from runner.commands.options import JsonFlag, emit
from runner.model import LabError

T = TypeVar("T")


def import_(
    files: Annotated[
        list[Path],
        typer.Argument(help="Files that k6 wrote by --out json or --out csv, also .gz and .zst."),
    ],
    name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Name of what was loaded: one for all files, or one for each."
        ),
    ] = None,
    summary: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="k6's end-of-test summary, one for each file: held against it."
        ),
    ] = None,
    json_: JsonFlag = False,
) -> None:
    """Import files of k6 as a run: each file is a trial, and several of one name are its trials."""
    from runner.importing.run import SUBJECT, Given, import_files

    names = _for_each(files, name or [SUBJECT], "--name")
    summaries = (
        _for_each(files, list(summary or []), "--summary") if summary else [None] * len(files)
    )
    given = [
        Given(file, each, said) for file, each, said in zip(files, names, summaries, strict=True)
    ]
    with console.FileProgress() as progress:
        run = import_files(given, progress.read)
    failed = {
        each["trial_id"]: each["error"] for each in run.records() if each["status"] != "sealed"
    }
    if json_:
        emit({"run_id": run.run_id, "path": str(run.path), "failed": failed})
    else:
        console.note(*run.manifest().host_warnings)
        console.note(f"Run:     {run.run_id} (bench report {run.run_id})")
    for trial_id, error in failed.items():
        console.error(f"{trial_id}: {error}")
    if failed:
        raise typer.Exit(1)


def _for_each(files: list[Path], values: list[T], option: str) -> list[T]:
    """Return one value for each file; raise LabError if there are neither one nor as many."""
    if len(values) == len(files):
        return values
    if len(values) == 1 and option == "--name":
        return values * len(files)
    raise LabError(
        f"{option} is given {len(values)} times for {len(files)} files: give it once for each."
    )
