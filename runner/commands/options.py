"""What several commands share: their options, and how a result is printed for programs."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from runner.model import LabError

JsonFlag = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for programs.")]
EngineOption = Annotated[
    str, typer.Option("--engine", help="How servers are started: auto, docker or process.", show_default=True)
]
Servers = Annotated[list[str] | None, typer.Argument(help="Server names; all where none is given.")]
Run = Annotated[str, typer.Argument(help="A run id, a path, `latest` or `sample`.")]


def emit(value: Any) -> None:
    """Print a result as JSON, in letters that the output's encoding has."""
    ascii_only = "utf" not in (sys.stdout.encoding or "").lower()
    sys.stdout.write(json.dumps(value, indent=1, ensure_ascii=ascii_only, default=str) + "\n")


def engine_name(name: str) -> Any:
    """Return the name of an engine; LabError where there is none of it."""
    if name not in ("auto", "docker", "process"):
        raise LabError(f"There is no engine {name!r}; there are auto, docker and process.")
    return name
