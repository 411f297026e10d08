"""The files whose change would make other trials, beside binaries and images: a run goes on with the same ones only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from runner.model import OWN, POSTGRES, Campaign, Server
from runner.planning.catalog import PACKAGE, campaign_workload
from runner.store import lab_root, sha256


def changed(begun_with: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """Say which file of `begun_with` is not what it was, or not there; None where all are the same."""
    for name, digest in begun_with.items():
        if now.get(name) != digest:
            return f"The run cannot go on: {name} is not the file that it began with"
    return None


_BUILT = ("target", "build", "__pycache__")


def inputs_of(campaign: Campaign, servers: Sequence[Server]) -> dict[str, str]:
    """Return the SHA-256 of requests, scripts, the database's settings, and servers that are not built, by name."""
    found = [*_of_servers(servers), *_of_workloads(campaign)]
    return {name: sha256(path) for name, path in sorted(found)}


def _of_servers(servers: Sequence[Server]) -> Iterator[tuple[str, Path]]:
    for folder in dict.fromkeys(server.folder for server in servers if server.contract):
        yield f"{folder.name}/server.toml", folder / "server.toml"
    for folder in dict.fromkeys(server.folder for server in servers if server.contract and server.artifact is None):
        for path in sorted(folder.rglob("*")):
            inside = path.relative_to(folder)
            if path.is_file() and inside.parts[0] not in _BUILT and not inside.name.startswith("."):
                yield f"{folder.name}/{inside}", path


def _of_workloads(campaign: Campaign) -> Iterator[tuple[str, Path]]:
    workloads = PACKAGE / "workloads"
    for name in dict.fromkeys(load.workload for load in campaign.loads if load.workload not in OWN):
        workload = campaign_workload(campaign, name)
        yield f"workloads/{name}.toml", workloads / f"{name}.toml"
        yield f"workloads/{workload.script.name}", workload.script
        if workload.database:
            yield "schema.sql", lab_root() / "servers" / "schema.sql"
            for path in sorted(POSTGRES.iterdir()):
                yield f"postgres/{path.name}", path
