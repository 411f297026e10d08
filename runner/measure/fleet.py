"""Several hosts as one lab: their Docker engines, the stations in them, and what the network between them carries.

Nothing is installed on a host but its Docker engine, and nothing of the lab listens there but the server under test.
"""

from __future__ import annotations

import contextlib
import io
import os
import socket
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

from docker.errors import APIError, DockerException
from docker.types import Mount

from runner.measure.connecting import connect
from runner.measure.docker_engine import LABEL, RUNNER, TROUBLE, DockerEngine, build_image, debian_base, sweep
from runner.measure.engine import Handed, Running, RunningDatabase
from runner.measure.idle import IdleCpus
from runner.measure.leftovers import Ledger, identity
from runner.measure.machine import Hazard
from runner.measure.sites import Sites, Transfer
from runner.measure.station_client import Channel, Station
from runner.measure.tools import need_tool
from runner.measurement import GeneratorHost, Placement
from runner.model import Idle, LabError, Server
from runner.planning.hosts import LOCAL, Host, Hosts

INSTRUMENTS = "station.instruments"
LONGEST_S = 86_400
"""A station ends itself after a day, whatever becomes of its runner."""
TRANSFER_S = 1.0
KNOWN_REASONS = ("Connection refused", "timed out", "No route to host", "certificate verify failed", "known_hosts")
LATENCY_DEVICE = "/dev/cpu_dma_latency:/dev/cpu_dma_latency:rw"
OPEN_TO_ALL = (
    "During a trial the server can be reached by everybody in the network of its host's address: use a network that is "
    "the lab's alone, or a firewall."
)
NEEDS = (
    *("http_response.py", "measurement.py", "model.py", "store.py", "__init__.py", "limits.py"),
    *("measure", "planning", "workloads"),
)
"""What of runner/ is in the instruments' image."""


@dataclass(frozen=True)
class Place:
    """One host that is reached: its engine, its station, and what it said of itself."""

    host: Host
    role: str
    client: Any
    station: Station
    said: Mapping[str, Any]
    architecture: str

    @property
    def cpus(self) -> tuple[int, ...]:
        """The CPUs that the lab may use there."""
        return self.host.cpus or tuple(self.said["cpus"])


class FleetIdle(IdleCpus):
    """The idle CPUs of all hosts together."""

    def __init__(self, stations: Sequence[Station]) -> None:
        super().__init__()
        self._stations = stations

    def ask(self, state: Idle) -> None:
        """Have idle CPUs of every host do the same from now on."""
        for station in self._stations if state != self.state and self.problem is None else ():
            found = station.ask("idle", state=state)
            if state == "polling" and found["state"] != "polling":
                self.problem = f"on the host of the {station.name} {found['problem']}"
        self.state = "system" if self.problem else state

    def release(self) -> None:
        """Leave it to the stations, which end."""


@dataclass
class Fleet:
    """Engines and sites of a campaign on several hosts; an Engine itself."""

    hosts: Hosts
    places: Mapping[str, Place]
    transfer: Transfer | None
    engines: Mapping[str, DockerEngine]
    name: str = "docker"
    reason: str = "the hosts file names its engines"
    taken: int = 1
    """How many CPUs of the server's host are the server's, and its database's where that is there too."""

    def prepare(self, server: Server) -> str | None:
        """Have the server's image on its host; return its id."""
        return self.engines["server"].prepare(server)

    def started(
        self, server: Server, cpus: tuple[int, ...], handed: Handed, log: Path
    ) -> AbstractContextManager[Running]:
        """Start a server on its host."""
        return self.engines["server"].started(server, cpus, handed, log)

    def prepare_database(self) -> str | None:
        """Have PostgreSQL's image on its host; return its id."""
        return self.engines["database"].prepare_database()

    def database(self, cpus: tuple[int, ...], verifier: str, log: Path) -> AbstractContextManager[RunningDatabase]:
        """Start a cluster on its host."""
        return self.engines["database"].database(cpus, verifier, log)

    @property
    def sites(self) -> Sites:
        """Who is where."""
        stations = {name: place.station for name, place in self.places.items()}
        hosts = self.hosts
        return Sites(
            stations[hosts.server],
            tuple(stations[name] for name in hosts.generators),
            stations[hosts.database],
            stations[hosts.probe],
            {station.name: self._others_cpus(name) for name, station in stations.items()},
            tuple(self._generator_host(name) for name in hosts.generators),
            self.transfer,
        )

    def _generator_host(self, name: str) -> GeneratorHost:
        place = self.places[name]
        return GeneratorHost(len(self._others_cpus(name)), int(place.said["facts"]["cpus"]), self._machine(name))

    def _machine(self, name: str) -> str:
        """Return a number for the machine that a host is: several hosts of a file may be one machine."""
        boots = list(dict.fromkeys(str(place.said["boot"]) for place in self.places.values()))
        return str(boots.index(str(self.places[name].said["boot"])))

    @property
    def server_cpus(self) -> int:
        """How many CPUs the server's host has."""
        return int(self.places[self.hosts.server].said["facts"]["cpus"])

    @property
    def generator_cpus(self) -> int:
        """How many CPUs all generators have together."""
        return sum(len(self._others_cpus(name)) for name in self.hosts.generators)

    def _others_cpus(self, name: str) -> tuple[int, ...]:
        """Return where generators and instruments run on a host: beside a server on the CPUs that are left, if any."""
        cpus = self.places[name].cpus
        return cpus if name != self.hosts.server else cpus[self.taken :] or cpus[-1:]

    def place(self, server_cpus: int, database_cpus: int) -> Placement:
        """Return which CPUs each side gets, from now on; LabError where the server's host has too few."""
        hosts, own = self.hosts, self.places[self.hosts.server].cpus
        together = hosts.database == hosts.server
        self.taken = server_cpus + (database_cpus if together else 0)
        needed = self.taken + (1 if hosts.server in hosts.generators else 0)
        if needed > len(own):
            raise LabError(
                f"The campaign needs {needed} CPUs on the server's host, which has {len(own)}: give the server fewer, "
                "or the database and the generators a host of their own."
            )
        free = own[server_cpus : self.taken] if together else self.places[hosts.database].cpus
        machines = tuple(map(self._machine, (hosts.server, hosts.generators[0], hosts.database)))
        generator = self._others_cpus(hosts.generators[0])
        return Placement(own[:server_cpus], generator, free[:database_cpus], hosts=machines)

    def hazards(self, connections: int, opened: int) -> dict[str, list[Hazard]]:
        """Return what can spoil the numbers of a campaign, harmless or not, by the roles of each host."""
        return {
            place.role: [
                Hazard(**each)
                for each in place.station.ask(
                    "hazards",
                    server=list(place.cpus) if name == self.hosts.server else [],
                    others=list(place.cpus) if name != self.hosts.server else [],
                    connections=connections,
                    opened=opened,
                )
            ]
            for name, place in self.places.items()
        }

    def warnings(self, connections: int, opened: int) -> list[str]:
        """Say what on the hosts will spoil the numbers of such a campaign, and what to do about it."""
        found: dict[str, list[str]] = {}
        for role, hazards in self.hazards(connections, opened).items():
            for each in hazards:
                if not each.harmless:
                    found.setdefault(each.text, []).append(role)
        return [OPEN_TO_ALL, *(f"On the host of the {', the '.join(roles)}: {text}" for text, roles in found.items())]

    def facts(self) -> list[dict[str, Any]]:
        """Return what the manifest says of each host: by its roles, never by its name or address."""
        return [
            {"roles": place.role, "cpus_used": place.cpus, "clock_error_ns": place.station.clock.error_ns}
            | {"machine": place.said["facts"]}
            for place in self.places.values()
        ]


@contextlib.contextmanager
def open_fleet(hosts: Hosts, ledger: Ledger, say: Callable[[str], None]) -> Iterator[Fleet]:
    """Reach every host and start its station; on leaving they have ended. LabError for a host that cannot serve."""
    with contextlib.ExitStack() as stack:
        clients = {name: stack.enter_context(_client(hosts[name], hosts.roles(name))) for name in hosts.used}
        for client in clients.values():
            sweep(client)
        kinds = {name: str(client.version().get("Arch", "")) for name, client in clients.items()}
        builder = stack.enter_context(_builder(clients[hosts.server]))
        built_for = str(builder.version().get("Arch", ""))
        for name, kind in kinds.items():
            if kind != built_for:
                raise LabError(f"The host of the {hosts.roles(name)} is {kind}, and images are built for {built_for}.")
        say("Building the instruments' image …")
        image = _instruments(builder)
        places = {}
        for name, client in clients.items():
            role = hosts.roles(name)
            say(f"Reaching the host of the {role} …")
            _bring(builder, client, image)
            station = stack.enter_context(_station(client, image, hosts[name], role, ledger))
            places[name] = Place(hosts[name], role, client, station, station.ask("hello"), kinds[name])
            station.look_at_clock()
        _require_apart(hosts, places)
        engines = {
            role: DockerEngine(clients[name], ledger, "", _Remote(places[name], builder, tuple(places.values())))
            for role, name in (("server", hosts.server), ("database", hosts.database))
        }
        yield Fleet(hosts, places, _transfer(hosts, places), engines)


def reap_fleet(hosts: Hosts) -> list[str]:
    """Remove from every host the containers of runners that are dead; return what was removed, in words."""
    removed = []
    for name in hosts.used:
        with _client(hosts[name], hosts.roles(name)) as client:
            removed += [f"{each} of the {hosts.roles(name)}" for each in sweep(client)]
    return removed


@contextlib.contextmanager
def _client(host: Host, role: str) -> Iterator[Any]:
    try:
        client = connect(*_reached(host))
    except ModuleNotFoundError:
        raise LabError("ssh:// needs paramiko: pip install '.[fleet]'.") from None
    except Exception as error:  # noqa: BLE001 - paramiko, ssl, requests and docker-py each raise errors of their own
        raise LabError(f"The engine of the {role} cannot be reached: {_reason(error)}.", exit_code=1) from None
    try:
        yield client
    finally:
        client.close()


def _reached(host: Host) -> tuple[str, str]:
    return "" if host.engine == LOCAL else host.engine, str(host.certificates or "")


def _reason(error: Exception) -> str:
    """Return the last sentence of an error, without the addresses that urllib3 puts around it."""
    text = (str(error).strip().splitlines() or [type(error).__name__])[-1]
    for known in KNOWN_REASONS:
        if known.lower() in text.lower():
            return known.lower()
    return text[:200].rstrip(".")


@contextlib.contextmanager
def _builder(fallback: Any) -> Iterator[Any]:
    """Yield the engine that builds images: this machine's, or the server's host's where there is none."""
    try:
        client = connect()
    except DockerException:
        yield fallback
        return
    try:
        yield client
    finally:
        client.close()


def _instruments(builder: Any) -> str:
    """Build the instruments' image; Docker's cache makes an unchanged one cheap."""
    packed = io.BytesIO()
    package = Path(__file__).parents[1]
    with tarfile.open(fileobj=packed, mode="w") as context:
        context.add(package / "station" / "Dockerfile", "Dockerfile", filter=_plain)
        context.add(need_tool("k6").path.resolve(), "k6", filter=_plain)
        for name in NEEDS:
            context.add(package / name, f"runner/{name}", filter=_plain)
    packed.seek(0)
    return build_image(builder, INSTRUMENTS, packed, "Dockerfile", "", {"BASE": debian_base(builder)})


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out what differs from one checkout to the next: it would make another image of the same files."""
    if "__pycache__" in entry.name:
        return None
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
    return entry


def _bring(builder: Any, client: Any, image: str) -> None:
    """Load an image into another engine, and see that it is the same."""
    with contextlib.suppress(DockerException):
        client.images.get(image)
        return
    try:
        client.images.load(builder.images.get(image).save(named=True))
        client.images.get(image)
    except TROUBLE as error:
        raise LabError(f"An image could not be loaded into an engine: {_reason(error)}.", exit_code=1) from None


@contextlib.contextmanager
def _station(client: Any, image: str, host: Host, role: str, ledger: Ledger) -> Iterator[Station]:
    """Start the station of a host; it ends with its input, and its container goes."""
    try:
        container = _started(client, image, role, ledger, _reached(host))
    except TROUBLE as error:
        raise LabError(f"The station of the {role} could not be started: {_reason(error)}.", exit_code=1) from None
    channel = station = None
    try:
        channel = Channel(container)
        container.start()
        station = Station(role, container, channel, host.address)
        yield station
    finally:
        if channel is not None:
            channel.close()
        if station is None or not station.is_lost:  # else it is tried once more with the ledger
            with contextlib.suppress(*TROUBLE):
                container.remove(force=True, v=True)


def _started(client: Any, image: str, role: str, ledger: Ledger, reached: tuple[str, str]) -> Any:
    options: dict[str, Any] = {
        "name": f"bench-station-{token_hex(4)}",
        "command": [str(LONGEST_S)],
        "network_mode": "host",
        "pid_mode": "host",
        "cgroupns": "host",
        "stdin_open": True,
        "read_only": True,
        "tmpfs": {"/tmp": "size=64m,mode=1777"},  # noqa: S108 - inside the container
        "mounts": [
            Mount("/sys/fs/cgroup", "/sys/fs/cgroup", type="bind", read_only=True),
            Mount("/work", None, type="volume"),
        ],
        "cap_drop": ["ALL"],
        # Real-time priority, ending a server whose runner is gone, reading other users' processes, and pinning them.
        "cap_add": ["SYS_NICE", "KILL", "SYS_PTRACE", "DAC_READ_SEARCH"],
        "security_opt": ["no-new-privileges"],
        "labels": {LABEL: f"station {role}", RUNNER: identity(os.getpid())},
    }
    try:
        container = client.containers.create(image, **options, devices=[LATENCY_DEVICE])
    except APIError as error:
        if "cpu_dma_latency" not in str(error):
            raise
        container = client.containers.create(image, **options)  # a host without it: its idle CPUs sleep
    ledger.add("container", id=container.id, engine=reached)
    return container


def _require_apart(hosts: Hosts, places: Mapping[str, Place]) -> None:
    """Raise LabError where the server shares a CPU with a generator: two hosts of the file may be one machine."""
    server = places[hosts.server]
    for place in places.values():
        unknown = set(place.host.cpus) - set(place.said["cpus"])
        if unknown:
            raise LabError(f"The host of the {place.role} has no CPU {min(unknown)}: it has {place.said['cpus']}.")
        one_machine = place is not server and place.said["boot"] == server.said["boot"]
        if one_machine and set(place.cpus) & set(server.cpus):
            raise LabError(
                f"The hosts of the server and of the {place.role} are one machine, and share a CPU: give each `cpus` "
                "of its own in the hosts file."
            )


def _transfer(hosts: Hosts, places: Mapping[str, Place]) -> Transfer | None:
    """Return what the slowest generator's host and the server's can send each other, and how far apart they are.

    None where the only generator is on the server's host.
    """
    server, rates, ways = places[hosts.server].station, list[float](), list[int]()
    for name in [name for name in hosts.generators if name != hosts.server]:
        generator = places[name].station
        ways.append(generator.ask("way", address=server.address, port=server.ask("listen", address=server.address)))
        for sender, receiver in ((generator, server), (server, generator)):
            port = receiver.ask("listen", address=receiver.address)
            answer = receiver.begin("receive", peer=sender.address)
            sender.ask("send", address=receiver.address, port=port, seconds=TRANSFER_S)
            rates.append(float(answer()))
    return Transfer(min(rates), max(ways)) if rates else None


class _Remote:
    """A host as the engine there needs it (docker_engine.Remote)."""

    def __init__(self, place: Place, builder: Any, places: tuple[Place, ...]) -> None:
        self.role, self.address, self.engine = place.role, place.host.address, _reached(place.host)
        self.open_files = int(place.said["facts"]["open_files"])
        self._place, self._builder = place, builder
        self.clients = tuple(dict.fromkeys([f"{each.host.address}/32" for each in places] + _own_addresses(place)))

    def free_port(self) -> int:
        """Return a port of the address that was free a moment ago."""
        return int(self._place.station.ask("port", address=self.address))

    def load(self, make: Callable[[Any], str]) -> str:
        """Have an image made where images are made, and return its id once it is there."""
        image = make(self._builder)
        _bring(self._builder, self._place.client, image)
        return image

    def watch(self, pid: int) -> None:
        """Have a container's process ended there if this runner is gone."""
        self._place.station.ask("watch", pid=pid)


def _own_addresses(place: Place) -> list[str]:
    """Return this machine's address as a host sees it: the runner asks the database for its counts."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect((place.host.address, 9))  # sends nothing
        return [f"{probe.getsockname()[0]}/32"]
    return []
