"""A hosts file: which hosts a campaign uses, how their Docker engines are reached, and what each is
for.
"""

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
    """One machine with a Docker engine, the user's."""

    name: str
    engine: str
    """`local`, `unix:///SOCKET`, `ssh://USER@HOST` or `tcp://HOST:PORT`, the last with
    certificates.
    """
    address: str  # if it is in the network between the hosts: the load goes there
    certificates: Path | None = None  # folder with ca.pem, cert.pem and key.pem, as Docker has them
    cpus: tuple[int, ...] = ()  # which CPUs the lab may use; all if none are named


@dataclass(frozen=True)
class Hosts:
    """The hosts of a campaign by what they are for."""

    hosts: tuple[Host, ...]
    server: str
    database: str
    generators: tuple[str, ...]
    probe: str

    def __getitem__(self, name: str) -> Host:
        return next(host for host in self.hosts if host.name == name)

    @property
    def used(self) -> tuple[str, ...]:
        """The names of the hosts that have a role, each once, the server's first."""
        return tuple(dict.fromkeys((self.server, *self.generators, self.database, self.probe)))

    def roles(self, name: str) -> str:
        """Return what a host is for: `server and database`, `generator 2`."""
        one = len(self.generators) == 1
        numbered = {
            f"generator{'' if one else f' {at}'}": each
            for at, each in enumerate(self.generators, start=1)
        }
        parts = {"server": self.server, **numbered, "database": self.database, "probe": self.probe}
        return " and ".join(role for role, host in parts.items() if host == name)


def read_hosts(path: str) -> Hosts:
    """Read a hosts file; LabError that names file and line for what is wrong with it."""
    top = read_table(Path(path))
    top.read(HostsFile)
    hosts = top.table("host")
    for name, given in hosts.values.items():
        if not isinstance(given, dict) or not re.fullmatch(r"[A-Za-z0-9_-]{1,32}", name):
            raise hosts.error(name, f"host {name!r} must be a table [host.NAME] with a plain name")
    if not hosts.values:
        raise hosts.error("host", "there is no host: write a table such as [host.sut]")
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
                    key, f"there is no host {name!r}; there are {', '.join(hosts.values)}"
                )
    if len(given.generators) > MOST_GENERATORS:
        raise table.error("generators", f"more than {MOST_GENERATORS} generators")
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
            f"engine {engine!r} is none of local, unix:///SOCKET, ssh://USER@HOST, tcp://HOST:PORT",
        )
    try:
        if ip_address(given.address).is_unspecified:
            raise ValueError
    except ValueError:
        raise table.error(
            "address", f"address {given.address!r} is not the IP address of one host"
        ) from None
    folder = None if given.certificates is None else Path(given.certificates).expanduser()
    if folder is not None:
        for each in ("ca.pem", "cert.pem", "key.pem"):
            if not (folder / each).is_file():
                raise table.error("certificates", f"there is no {each} in {folder}")
    elif engine.startswith("tcp://"):
        raise table.error(
            "engine",
            "an engine at tcp:// without certificates is open to everybody: name their folder, "
            "or use ssh://",
        )
    return Host(name, engine, given.address, folder, given.cpus)
