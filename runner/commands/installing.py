"""Commands about the programs and notebooks that the lab brings along."""

import json
import shutil
from pathlib import Path
from typing import Annotated

import typer

from runner import console
from runner.commands.options import JsonFlag, emit
from runner.model import LabError
from runner.places import places

NEEDED = ("k6",)
"""Programs that `bench run --url` needs."""


def setup(
    programs: Annotated[
        list[str] | None,
        typer.Argument(help="k6, wrk, vegeta, oha, nginx, postgres or perf; default: k6."),
    ] = None,
    json_: JsonFlag = False,
) -> None:
    """Build or install programs that the lab drives, unless they are on PATH.

    k6, vegeta (by Go) and oha (by Rust) are built from locked modules into .tools/ in a checkout,
    and into ~/.cache/web-bench-lab/tools elsewhere. The others are installed from Debian packages.
    """
    from runner.measure.tool_setup import set_up

    found = []
    with console.SetupProgress() as progress:
        for name in programs or NEEDED:
            tool = set_up(name, progress.show)
            found.append(tool)
            progress.done(f"{name} {tool.version}: {tool.path}")
    if json_:
        emit([{"name": t.name, "version": t.version, "path": str(t.path)} for t in found])


def notebooks(
    copy: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Copy the notebooks into this folder.")
    ] = None,
    json_: JsonFlag = False,
) -> None:
    """List the lab's notebooks, or copy them into a folder, to change or execute them there."""
    paths = sorted(places().notebooks.glob("*.ipynb"))
    if copy is not None:
        paths = [_copied(path, copy / path.name) for path in paths]
    found = [{"notebook": path.stem, "title": _title(path), "path": str(path)} for path in paths]
    if json_:
        emit(found)
        return
    console.table("notebooks", ("name", "title", "path"), [tuple(each.values()) for each in found])


def _copied(path: Path, target: Path) -> Path:
    """Copy a notebook to `target`, and return `target`.

    Raise LabError if a file with other content is already there.
    """
    if target.exists() and target.read_bytes() != path.read_bytes():
        raise LabError(
            f"{target} exists and differs from the lab's notebook of this name: name another "
            "folder, or remove the file."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copyfile(path, target))


def _title(path: Path) -> str:
    """Return a notebook's first heading."""
    first = json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"]
    return "".join(first).splitlines()[0].lstrip("# ")
