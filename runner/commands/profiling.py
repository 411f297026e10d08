"""The command that shows profiles."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runner import console
from runner.commands.options import JsonFlag, Run, emit, opened
from runner.model import JsonObject, LabError

if TYPE_CHECKING:
    from runner.present.why.profiles import Profiles

Chosen = Annotated[str, typer.Option(metavar="NAME", help="Show only this server.")]
Load = Annotated[
    str, typer.Option(metavar="LOAD", help=("Show only loads whose name contains this text."))
]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help=("Write the call stacks as folded stacks, weighted by ns of CPU time per request."),
    ),
]
Speedscope = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help=("Write the call stacks as a file that the viewer speedscope opens.")
    ),
]
Flame = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the call stacks as a flame graph (SVG).")
]


@dataclass(frozen=True)
class _Files:
    """Files to which the call stacks of one server under one load are written.

    A file that the user does not want is None.
    """

    folded: Path | None
    speedscope: Path | None
    flame: Path | None

    def __bool__(self) -> bool:
        return any((self.folded, self.speedscope, self.flame))


def profile(
    run: Run = "latest",
    server: Chosen = "",
    load: Load = "",
    folded: Out = None,
    speedscope: Speedscope = None,
    flame: Flame = None,
    json_: JsonFlag = False,
) -> None:
    """Show where the CPU time of a request goes: µs by kind of work, and system calls.

    The call stacks of one server under one load can be written for other viewers.
    """
    from runner.present.why.profiles import need_profiles, read_profiles
    from runner.present.why.words import (
        categories_table,
        database_words,
        events_table,
        remarks,
        sentences,
    )

    folder = opened(run)
    profiles = need_profiles(folder)
    loads = [each for each in profiles.loads if load in each]
    if not loads:
        raise LabError(
            f"No profiled load of run {folder.run_id} has {load!r} in its name: choose from "
            f"{', '.join(profiles.loads)}."
        )
    databases = read_profiles(folder, "database")
    if files := _Files(folded, speedscope, flame):
        _write(profiles, loads, server, files)
        return
    if json_:
        emit(
            {
                "run_id": folder.run_id,
                "loads": {each: _plain(profiles, databases, each) for each in loads},
            }
        )
        return
    for each in loads:
        chosen = [one for one in profiles.of(each) if server in ("", one.server)]
        if not chosen:
            raise LabError(
                f"Run {folder.run_id} has no profile of {server!r} under the load {each}."
            )
        console.frame(f"{each}: CPU time", categories_table(chosen))
        events = events_table(profiles, each)
        console.frame(
            f"{each}: events", events[[events.columns[0], *(one.server for one in chosen)]]
        )
        console.note(*(() if server else sentences(profiles, each)), *remarks(profiles, each))
        if databases is not None and each in databases.loads:
            beside = [one for one in databases.of(each) if server in ("", one.server)]
            console.frame(
                f"{each}: CPU time of PostgreSQL, by the server that sent the requests",
                categories_table(beside),
            )
            console.note(*database_words(databases, each))


def _plain(profiles: Profiles, databases: Profiles | None, load: str) -> JsonObject:
    from runner.present.why.words import sentences

    return {
        "servers": _categories(profiles, load),
        "databases": {} if databases is None else _categories(databases, load),
        "findings": sentences(profiles, load),
    }


def _categories(profiles: Profiles, load: str) -> JsonObject:
    """Return the CPU time per request (µs) with its interval, by server and kind of work."""
    return {
        each.server: {name: vars(value) for name, value in each.categories.items()}
        for each in profiles.of(load)
    }


def _write(profiles: Profiles, loads: list[str], server: str, files: _Files) -> None:
    """Write the call stacks of one server under one load to the files that the user wants.

    `loads` and `server` are the user's choice; an empty `server` stands for all servers. Raise
    LabError unless exactly one profile, of one server under one load, matches this choice.
    """
    from runner.present.why import exports, flame_pictures, flames

    found = [
        (each.server, name)
        for name in loads
        for each in profiles.of(name)
        if server in ("", each.server)
    ]
    if len(found) != 1:
        names = ", ".join(f"{who} under {name}" for who, name in found) or "none"
        raise LabError(
            "A file holds the call stacks of one server under one load, but these profiles "
            f"match: {names}. Choose one by --server and --load."
        )
    who, name = found[0]
    stacks = profiles.stacks_of(who, name)
    if files.folded is not None:
        _save(files.folded, exports.folded(stacks), "Folded stacks")
    if files.speedscope is not None:
        plain = exports.speedscope(stacks, f"{who}, {name}")
        _save(files.speedscope, json.dumps(plain, ensure_ascii=False), "For speedscope")
    if files.flame is not None:
        svg = flame_pictures.svg(flames.of_server(profiles, who, name))
        _save(files.flame, svg, "Flame graph")


def _save(path: Path, text: str, noun: str) -> None:
    """Write a file and print its path; raise LabError if the file cannot be written."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise LabError(
            f"{path} cannot be written ({error.strerror}): name a file in a folder that exists and "
            "that you may write to."
        ) from None
    console.note(f"{noun}: {path}")
