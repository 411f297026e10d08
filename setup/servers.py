"""Build the servers named on the command line.

If no server is named, print those servers of the quick campaign that have no binary yet, but can be
built here.

This program needs only the standard library, because `make setup` runs it before there is a .venv.
So it cannot use `runner.planning.catalog`, and reads from a server.toml only what a build needs.
"""

import sys
import tomllib
from pathlib import Path
from typing import Any

from runner.measure.tools import build, find_program
from runner.model import LabError, Server

ROOT = Path(__file__).parents[1]


def read(path: Path) -> dict[str, Any]:
    """Return a TOML file's values."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def server(name: str) -> Server:
    """Return the server with this name; only the fields that a build needs have real values."""
    folder = ROOT / "servers" / name
    values = read(folder / "server.toml").get("build", {})
    return Server(
        name=name,
        folder=folder,
        language="",
        framework="",
        tier="realistic",
        implements=(),
        build_needs=tuple(values.get("needs", ())),
        build_command=tuple(values.get("command", ())),
        build_env=tuple(values.get("env", {}).items()),
        artifact=Path(values["artifact"]) if "artifact" in values else None,
    )


def missing() -> list[str]:
    """Return the names of the quick campaign's servers that have no binary, but can be built here.

    A server can be built if its toolchain is installed. If a toolchain is not installed, `bench
    run` names the servers that need the toolchain.
    """
    servers = map(server, read(ROOT / "runner" / "campaigns" / "quick.toml")["servers"])
    return [
        each.name
        for each in servers
        if _to_build(each) and all(map(find_program, each.build_needs))
    ]


def _to_build(each: Server) -> bool:
    return each.artifact is not None and not (each.folder / each.artifact).is_file()


def main(names: list[str]) -> str | None:
    """Build these servers one after the other; return the error if a server cannot be built.

    If `names` is empty, print the names that `missing` returns.
    """
    try:
        for name in names:
            build(server(name))
    except LabError as error:
        return str(error)
    if not names:
        print(*missing())  # noqa: T201 - setup/servers.sh reads the output
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
