"""Build servers; without names, print those of the quick campaign that can be built here and are not yet.

It needs the standard library only: `make setup` runs it before there is a .venv.
"""

import sys

from runner.measure.tools import build, find_program
from runner.model import LabError, Server
from runner.planning.catalog import load_campaign, load_server


def missing() -> list[str]:
    """Return the servers that have no binary yet, and whose toolchain is there: of others `bench run` tells."""
    servers = [load_server(name) for name in load_campaign("quick").servers]
    return [server.name for server in servers if _to_build(server) and all(map(find_program, server.build_needs))]


def _to_build(server: Server) -> bool:
    return server.artifact is not None and not (server.folder / server.artifact).is_file()


def main(names: list[str]) -> str | None:
    """Build them one after the other; return why one could not be."""
    try:
        for name in names:
            build(load_server(name))
    except LabError as error:
        return str(error)
    if not names:
        print(*missing())  # noqa: T201 - for setup/servers.sh
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
