"""Read a hosts file: the hosts of a campaign, their Docker engines, and their roles."""

import re
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path

from runner.planning.toml_files import HostsFile, HostTable, RolesTable
from runner.planning.toml_tables import Table, read_table

LOCAL = "local"
_ENGINE = re.compile(r"local|unix:///.+|ssh://([\w.-]+@)?[\w.:-]+|tcp://[\w.-]+:\d+")
MOST_GENERATORS = 16


@dataclass(frozen=True)
class Host:
    """One of the user's machines, with a Docker engine."""

    name: str
    engine: str
    """URL of the Docker engine: `local`, `unix:///SOCKET`, `ssh://USER@HOST` or `tcp://HOST:PORT`.

    With `tcp://`, the host also needs `certificates`.
    """
    address: str  # IP address of the host in the network that carries the load
    certificates: Path | None = None  # folder with ca.pem, cert.pem and key.pem (Docker's names)
    cpus: tuple[int, ...] = ()  # the only CPUs that the lab may use; empty for all CPUs


@dataclass(frozen=True)
class Hosts:
    """The hosts of a campaign, by role."""

    hosts: tuple[Host, ...]
    server: str
    database: str
    generators: tuple[str, ...]
    probe: str

    def __getitem__(self, name: str) -> Host:
        return next(host for host in self.hosts if host.name == name)

    @property
    def used(self) -> tuple[str, ...]:
        """Names of the hosts that have a role, without repetition. The server's host is first."""
        return tuple(dict.fromkeys((self.server, *self.generators, self.database, self.probe)))

    def roles(self, name: str) -> str:
        """Return a host's roles in words: `server and database`, `generator 2`."""
        one = len(self.generators) == 1
        numbered = {
            f"generator{'' if one else f' {at}'}": each
            for at, each in enumerate(self.generators, start=1)
        }
        parts = {"server": self.server, **numbered, "database": self.database, "probe": self.probe}
        return " and ".join(role for role, host in parts.items() if host == name)


def read_hosts(path: str) -> Hosts:
    """Read a hosts file; raise LabError with file and line if it is invalid."""
    top = read_table(Path(path))
    top.read(HostsFile)
    hosts = top.table("host")
    for name, given in hosts.values.items():
        if not isinstance(given, dict) or not re.fullmatch(r"[A-Za-z0-9_-]{1,32}", name):
            raise hosts.error(
                name,
                f"host {name!r} must be a table [host.NAME], whose name has 1 to 32 letters, "
                "digits, '-' or '_'",
            )
    if not hosts.values:
        raise hosts.error("host", "the file has no host: add a table such as [host.sut]")
    found = [
        _host(name, replace(top, header=f"[host.{name}]", values=given))
        for name, given in hosts.values.items()
    ]
    table = top.table("roles")
    given = table.read(RolesTable)
    for key, names in {
        "server": (given.server,),
        "generators": given.generators,
        "database": (given.database or given.server,),
        "probe": (given.probe or given.generators[0],),
    }.items():
        for name in names:
            if name not in hosts.values:
                raise table.error(
                    key, f"there is no host {name!r}: choose from {', '.join(hosts.values)}"
                )
    if given.server in given.generators[1:]:
        raise table.error(
            "generators",
            f"a generator on the server's host must be the first generator: name {given.server!r} "
            "first",
        )
    if len(given.generators) > MOST_GENERATORS:
        raise table.error(
            "generators", f"there may be at most {MOST_GENERATORS} generators: name fewer"
        )
    return Hosts(
        tuple(found),
        server=given.server,
        database=given.database or given.server,
        generators=given.generators,
        probe=given.probe or given.generators[0],
    )


def _host(name: str, table: Table) -> Host:
    given = table.read(HostTable)
    engine = given.engine
    if not _ENGINE.fullmatch(engine):
        raise table.error(
            "engine",
            f"engine {engine!r} must be local, unix:///SOCKET, ssh://USER@HOST or tcp://HOST:PORT",
        )
    try:
        if ip_address(given.address).is_unspecified:
            raise ValueError
    except ValueError:
        raise table.error(
            "address", f"address {given.address!r} must be the IP address of the host"
        ) from None
    folder = None if given.certificates is None else Path(given.certificates).expanduser()
    if folder is not None:
        for each in ("ca.pem", "cert.pem", "key.pem"):
            if not (folder / each).is_file():
                raise table.error(
                    "certificates",
                    f"the folder {folder} must contain the files ca.pem, cert.pem and key.pem, "
                    f"but has no {each}",
                )
    elif engine.startswith("tcp://"):
        raise table.error(
            "engine",
            "without certificates, anybody on the network can use an engine at tcp://: set "
            "`certificates` to the folder of the certificates, or reach the engine by "
            "ssh://",
        )
    return Host(name, engine, given.address, folder, given.cpus)
