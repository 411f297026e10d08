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
            metavar="NAME",
            help=(
                "Name of the server that was under load. Give one name for each file, or one "
                "name for all files."
            ),
        ),
    ] = None,
    summary: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help=(
                "k6's end-of-test summary. Give one summary for each file: the import compares the "
                "file's numbers with the summary."
            ),
        ),
    ] = None,
    cpu: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help=(
                "CPU and memory samples of the server, one file of samples for each file of "
                "k6: the output of docker stats, pidstat -h, psrecord or a query_range of "
                "Prometheus, or any CSV with --map."
            ),
        ),
    ] = None,
    cpu_of: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=(
                "The server's container or process, if the file of --cpu has samples of several."
            ),
        ),
    ] = None,
    map_: Annotated[
        str | None,
        typer.Option(
            "--map",
            metavar="time=COL,cpu=COL",
            help=(
                "Names of the columns, if the file of --cpu is a CSV of another tool; also "
                "memory=COL and name=COL."
            ),
        ),
    ] = None,
    json_: JsonFlag = False,
) -> None:
    """Import files of k6 as a run: each file becomes a trial of the server that --name gives."""
    from runner.importing.cpu.catalogue import CpuFile
    from runner.importing.cpu.table import columns_of
    from runner.importing.run import SUBJECT, Given, import_files

    names = _for_each(files, name or [SUBJECT], "--name")
    columns = columns_of(map_) if map_ is not None else None
    if not cpu and (cpu_of is not None or columns is not None):
        raise LabError("--map and --cpu-of describe the file of --cpu: add --cpu FILE.")
    summaries = _for_each(files, summary, "--summary") if summary else [None] * len(files)
    samples = (
        [CpuFile(each, columns, cpu_of) for each in _for_each(files, cpu, "--cpu")]
        if cpu
        else [None] * len(files)
    )
    given = [Given(*beside) for beside in zip(files, names, summaries, samples, strict=True)]
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
    """Return the values of an option, one for each file.

    A single `--name` applies to all files. Any other option needs as many values as there are
    files, and so does `--name` with several values. Raise LabError if the numbers differ.
    """
    if len(values) == len(files):
        return values
    if len(values) == 1 and option == "--name":
        return values * len(files)
    raise LabError(
        f"{option} is given {len(values)} times for {len(files)} files: give it once for each file."
    )
