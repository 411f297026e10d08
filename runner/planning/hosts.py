"""A hosts file: which hosts a campaign uses, how their Docker engines are reached, and what each is for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from runner.planning import toml_tables
from runner.planning.toml_tables import Table, read_table

LOCAL = "local"
_ENGINE = re.compile(r"local|unix:///.+|ssh://([\w.-]+@)?[\w.:-]+|tcp://[\w.-]+:\d+")
MOST_GENERATORS = 16


@dataclass(frozen=True)
class Host:
    """One machine with a Docker engine, the user's own."""

    name: str
    engine: str
    """`local`, `unix:///SOCKET`, `ssh://USER@HOST` or `tcp://HOST:PORT`, the last with certificates."""
    address: str
    """Where it is in the network between the hosts: the load goes there."""
    certificates: Path | None = None
    """Folder with ca.pem, cert.pem and key.pem, as Docker has them."""
    cpus: tuple[int, ...] = ()
    """Which CPUs the lab may use; all where none are named."""


@dataclass(frozen=True)
class Hosts:
    """The hosts of a campaign by what they are for."""

    hosts: tuple[Host, ...]
    server: str
    database: str
    generators: tuple[str, ...]
    probe: str

    def __getitem__(self, name: str) -> Host:
        """Return a host by its name."""
        return next(host for host in self.hosts if host.name == name)

    @property
    def used(self) -> tuple[str, ...]:
        """The names of the hosts that have a role, each once, the server's first."""
        return tuple(dict.fromkeys((self.server, *self.generators, self.database, self.probe)))

    def roles(self, name: str) -> str:
        """Return what a host is for: `server and database`, `generator 2`."""
        numbered = {each: f"generator {at}" for at, each in enumerate(self.generators, start=1)}
        if len(numbered) == 1:
            numbered = {self.generators[0]: "generator"}
        parts = ["server" if name == self.server else "", numbered.get(name, "")]
        parts += ["database" if name == self.database else "", "probe" if name == self.probe else ""]
        return " and ".join(filter(None, parts))


def read_hosts(path: str) -> Hosts:
    """Read a hosts file; LabError that names file and line for what is wrong with it."""
    top = read_table(Path(path))
    top.allow("host", "roles")
    named = top.table("host")
    hosts = tuple(
        _host(Table(top.path, top.text, f"[host.{name}]", 0, given)) for name, given in _tables(named).items()
    )
    return _with_roles(top.table("roles"), hosts)


def _tables(named: Table) -> dict[str, dict[str, object]]:
    for name, given in named.values.items():
        if not isinstance(given, dict) or not re.fullmatch(r"[A-Za-z0-9_-]{1,32}", name):
            raise named.error(name, f"host {name!r} must be a table [host.NAME] with a plain name")
    if not named.values:
        raise named.error("host", "there is no host: write a table such as [host.sut]")
    return dict(named.values)


def _host(table: Table) -> Host:
    table.allow("engine", "address", "certificates", "cpus")
    name = table.header[len("[host.") : -1]
    engine, address = table.get("engine", toml_tables.text), table.get("address", toml_tables.text)
    if not _ENGINE.fullmatch(engine):
        raise table.error(
            "engine", f"engine {engine!r} is none of local, unix:///SOCKET, ssh://USER@HOST, tcp://HOST:PORT"
        )
    try:
        if ip_address(address).is_unspecified:
            raise ValueError
    except ValueError:
        raise table.error("address", f"address {address!r} is not the IP address of one host") from None
    folder = table.get("certificates", toml_tables.text, "")
    certificates = Path(folder).expanduser() if folder else None
    if engine.startswith("tcp://") and certificates is None:
        raise table.error(
            "engine", "an engine at tcp:// without certificates is open to everybody: name their folder, or use ssh://"
        )
    for each in ("ca.pem", "cert.pem", "key.pem") if certificates else ():
        if certificates is not None and not (certificates / each).is_file():
            raise table.error("certificates", f"there is no {each} in {certificates}")
    return Host(name, engine, address, certificates, table.get("cpus", toml_tables.cpu_numbers, ()))


def _with_roles(table: Table, hosts: tuple[Host, ...]) -> Hosts:
    table.allow("server", "database", "generators", "probe")
    names = [host.name for host in hosts]
    server, generators = table.get("server", toml_tables.text), table.get("generators", toml_tables.names)
    database, probe = (
        table.get("database", toml_tables.text, server),
        table.get("probe", toml_tables.text, generators[0]),
    )
    for key, each in (
        ("server", server),
        ("database", database),
        ("probe", probe),
        *(("generators", g) for g in generators),
    ):
        if each not in names:
            raise table.error(key, f"there is no host {each!r}; there are {', '.join(names)}")
    if len(generators) > MOST_GENERATORS:
        raise table.error("generators", f"more than {MOST_GENERATORS} generators")
    return Hosts(hosts, server, database, generators, probe)
