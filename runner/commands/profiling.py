"""The command that shows profiles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runner import console
from runner.commands.options import JsonFlag, Run, emit, opened
from runner.model import LabError

if TYPE_CHECKING:
    from runner.present.why.profiles import Profiles

Chosen = Annotated[str, typer.Option(metavar="NAME", help="Only this server.")]
Load = Annotated[str, typer.Option(metavar="LOAD", help="Only loads with this in their name.")]
Out = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the call stacks, folded, in ns/request.")
]
Speedscope = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the call stacks for speedscope.")
]


def profile(
    run: Run = "latest",
    server: Chosen = "",
    load: Load = "",
    folded: Out = None,
    speedscope: Speedscope = None,
    json_: JsonFlag = False,
) -> None:
    """Show where the CPU time of a request goes: µs by kind of work, and system calls.

    The call stacks of one server under one load can be written for other viewers.
    """
    from runner.present.why.profiles import need_profiles
    from runner.present.why.words import (
        categories_table,
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
    if folded is not None or speedscope is not None:
        _write(profiles, loads, server, folded, speedscope)
        return
    if json_:
        emit({"run_id": folder.run_id, "loads": {each: _plain(profiles, each) for each in loads}})
        return
    for each in loads:
        chosen = [one for one in profiles.of(each) if server in ("", one.server)]
        if not chosen:
            raise LabError(f"Run {folder.run_id} has no profile of {server!r} under {each}.")
        console.frame(f"{each}: CPU time", categories_table(chosen))
        events = events_table(profiles, each)
        console.frame(
            f"{each}: events", events[[events.columns[0], *(one.server for one in chosen)]]
        )
        console.note(*(() if server else sentences(profiles, each)), *remarks(profiles, each))


def _plain(profiles: Profiles, load: str) -> dict[str, Any]:
    from runner.present.why.words import sentences

    return {
        "servers": {
            each.server: {name: vars(value) for name, value in each.categories.items()}
            for each in profiles.of(load)
        },
        "findings": sentences(profiles, load),
    }


def _write(
    profiles: Profiles, loads: list[str], server: str, folded: Path | None, speedscope: Path | None
) -> None:
    """Write the call stacks of one server under one load."""
    from runner.present.why import exports

    found = [
        (each.server, name)
        for name in loads
        for each in profiles.of(name)
        if server in ("", each.server)
    ]
    if len(found) != 1:
        names = ", ".join(f"{who} under {name}" for who, name in found) or "none"
        raise LabError(
            f"A file has the stacks of one server under one load, but these fit: {names}. Name one "
            "with --server and --load."
        )
    who, name = found[0]
    stacks = profiles.stacks_of(who, name)
    if folded is not None:
        folded.write_text(exports.folded(stacks), encoding="utf-8")
        console.note(f"Folded stacks: {folded}")
    if speedscope is not None:
        text = json.dumps(exports.speedscope(stacks, f"{who}, {name}"), ensure_ascii=False)
        speedscope.write_text(text, encoding="utf-8")
        console.note(f"For speedscope: {speedscope}")
