"""Options of `bench run` that are about an API of one's own."""

from __future__ import annotations

from typing import Annotated, Any

import typer

PANEL = "An API of your own (docs/own-api.md)"


def _option(*names: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=PANEL, **more)


Url = Annotated[
    list[str] | None,
    _option("--url", help="Load the server that answers there, and leave it running; several are compared in turn."),
]
Folder = Annotated[
    str | None, _option("--folder", help="Start the server from this folder, by its Dockerfile or server.toml.")
]
ScriptFile = Annotated[
    str | None, _option("--script", help="A k6 script whose default function is an iteration; without it, a plain GET.")
]
Vus = Annotated[
    int | None, _option("--vus", min=1, max=10_000, help="Users of a closed load; the most that an open one may have.")
]
Iterations = Annotated[
    int | None, _option("--iterations", min=1, max=1_000_000, help="Iterations of a closed load, all users together.")
]
Rates = Annotated[
    list[int] | None,
    _option("--rate", min=1, max=100_000, help="Iterations a second of an open load; repeatable, a trial each."),
]
Duration = Annotated[
    float | None, _option("--duration", min=1.0, max=3600.0, help="Seconds of an open load (15 without it).")
]
Close = Annotated[bool, _option("--close", help="A new connection for each request.")]
ProbePath = Annotated[
    str | None,
    _option("--probe-path", help="What the probe asks for by GET beside a script; the URL's path without it."),
]
ServerCpus = Annotated[
    int | None, _option("--server-cpus", min=1, max=1024, help="CPUs of a server from a --folder (1 without it).")
]
OwnedHost = Annotated[
    str | None, _option("--i-own-this-host", metavar="HOST", help="The URL's host, where it is not this machine.")
]
