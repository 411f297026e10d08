"""Use several hosts as one lab, through their Docker engines and their stations.

A station is a container that runs the lab's generators and instruments on a host. Each host needs
only a Docker engine, because the lab starts the station through this engine. During a trial, only
the server under test and its database listen on the network between the hosts.
"""

import contextlib
import io
import socket
import tarfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from secrets import token_hex
from typing import Any, Literal, TypedDict

from docker.errors import APIError, DockerException
from docker.types import Mount

from runner.measure import docker_engine
from runner.measure.connecting import TROUBLE, abandon, connect, reason
from runner.measure.docker_engine import DockerEngine, DockerHost, build_image, debian_base, sweep
from runner.measure.heartbeat import Vigil
from runner.measure.idle import IdleCpus
from runner.measure.leftovers import ContainerEntry, Ledger
from runner.measure.machine import Diagnosis, Hello, MachineFacts
from runner.measure.sites import Sites, Transfer
from runner.measure.station_client import Channel, StationClient
from runner.measure.tools import need_tool
from runner.measurement import GeneratorHost, Placement
from runner.model import CannotGoOnError, LabError
from runner.planning.hosts import LOCAL, Host, Hosts
from runner.shapes import Idle

STATIONS = "station."
"""The name of a station's image is this text, followed by a stage of runner/station/Dockerfile."""
Stage = Literal["instruments", "profiler"]
LONGEST_S = 86_400  # a station ends itself after a day, even if its runner is lost
TRANSFER_S = 1.0
"""Duration of the transfer that measures the capacity of the network between two hosts."""
WAYS = 10
"""Number of connections opened to measure the round-trip time between two hosts."""
LATENCY_DEVICE = "/dev/cpu_dma_latency:/dev/cpu_dma_latency:rw"
OPEN_TO_ALL = (
    "During a trial everybody in the network of the server's host can reach the server: "
    "use a network that only the lab uses, or a firewall."
)
NEEDS = (
    "__init__.py",
    "flat.py",
    "generator_traits.py",
    "http_response.py",
    "measure",
    "measurement.py",
    "model.py",
    "places.py",
    "planning",
    "profiled.py",
    "shapes.py",
    "store.py",
    "workloads",
)
"""Files and folders of runner/ that the instruments' image contains."""


class HostFacts(TypedDict):
    """The values from which `runner.manifest.HostOfRun` is made."""

    roles: str
    cpus_used: tuple[int, ...]
    clock_error_ns: int
    machine: MachineFacts


class Place(DockerHost):
    """One connected host: its engine, its station, and the facts that the station reported."""

    def __init__(
        self, host: Host, role: str, client: Any, builder: Any, station: StationClient
    ) -> None:
        super().__init__(client)
        self.role = role
        self.address = host.address
        self.reached = _reached(host)
        self.station = station
        self._builder = builder
        self.said: Hello = station.ask("hello")
        self.cpus: tuple[int, ...] = host.cpus or tuple(self.said["cpus"])
        """The CPUs that the lab may use on this host."""

    @property
    def open_files(self) -> int:
        """The largest number of files that a container on this host can have open."""
        return int(self.said["facts"]["open_files"])

    def free_port(self) -> int:
        """Return a port that was free just now at this host's address."""
        return int(self.station.ask("free_port", address=self.address))

    def image(self, make: Callable[[Any], str]) -> str:
        """Build an image with `make`, load it into this host's engine, and return its id.

        One engine builds the images of all hosts: see `open_fleet`.
        """
        image = make(self._builder)
        _bring(self._builder, self.client, image)
        return image

    def wall_ahead_ns(self) -> int:
        """Return the time by which the host's wall clock is ahead of this machine's, in ns."""
        return self.station.wall_ahead_ns()

    def watch(self, container: str) -> None:
        """Register a container, so that the station ends it if this runner dies or is cut off."""
        self.station.ask("watch", container=container)


class FleetIdle(IdleCpus):
    """A switch that lets idle CPUs poll or sleep, on all hosts in the same way."""

    def __init__(self, places: Mapping[str, Place]) -> None:
        super().__init__()
        self._places = places

    def ask(self, state: Idle) -> None:
        """Let the idle CPUs of every host poll, or sleep as the host's system decides.

        If the CPUs of one host cannot poll, the CPUs of all hosts sleep.
        """
        if state == self.state or self.problem is not None:
            return
        self._tell_all(state)
        if self.problem is not None:
            state = "system"
            self._tell_all(state)
        self.state = state

    def _tell_all(self, state: Idle) -> None:
        """Ask the stations of all hosts for a state, and keep the first problem with polling."""
        for place in self._places.values():
            problem = place.station.ask("idle", state=state)
            if state == "polling" and problem is not None and self.problem is None:
                self.problem = f"on the host of the {place.role} {problem}"


class Fleet:
    """The hosts of a campaign, and the engine that starts the campaign's servers and databases."""

    def __init__(self, hosts: Hosts, places: Mapping[str, Place], ledger: Ledger) -> None:
        self.hosts = hosts
        self.places = places
        self.server = places[hosts.server]
        self.database = places[hosts.database]
        self.transfer = self._measured_transfer()
        self.idle = FleetIdle(places)
        self.engine = DockerEngine(
            self.server, self.database, ledger, "the hosts file names the engine of each host"
        )
        self._taken: int | None = None
        """Number of CPUs that the server and its database use on the server's host.

        The database's CPUs count only if the database runs on the server's host. None until `place`
        has been called.
        """

    @property
    def sites(self) -> Sites:
        """The site of each role.

        Raise RuntimeError if `place` has not been called yet, because `place` chooses the CPUs.
        """
        places = self.places
        hosts = self.hosts
        generators = [places[name] for name in hosts.generators]
        return Sites(
            self.server.station,
            tuple(place.station for place in generators),
            self.database.station,
            places[hosts.probe].station,
            {place.role: self._others_cpus(place) for place in places.values()},
            tuple(
                GeneratorHost(
                    len(self._others_cpus(place)),
                    int(place.said["facts"]["cpus"]),
                    self._machine(place),
                )
                for place in generators
            ),
            self.transfer,
        )

    def _machine(self, place: Place) -> str:
        """Return a number that identifies a host's machine.

        Several hosts of a hosts file may be the same machine. Such hosts get the same number,
        because they report the same boot id.
        """
        boots = list(dict.fromkeys(each.said["boot"] for each in self.places.values()))
        return str(boots.index(place.said["boot"]))

    def _others_cpus(self, place: Place) -> tuple[int, ...]:
        """Return the CPUs of generators and instruments on a host.

        On the server's host, these are the CPUs that the server and its database do not use, or
        the last CPU if no other remains.
        """
        if place is not self.server:
            return place.cpus
        if self._taken is None:
            raise RuntimeError("Call Fleet.place() before Fleet.sites: it chooses the CPUs.")
        return place.cpus[self._taken :] or place.cpus[-1:]

    def place(self, server_cpus: int, database_cpus: int) -> Placement:
        """Choose and return the CPUs of each role.

        Raise LabError if the server's host has too few CPUs.
        """
        hosts = self.hosts
        cpus = self.server.cpus
        together = hosts.database == hosts.server
        self._taken = server_cpus + (database_cpus if together else 0)
        needed = self._taken + (1 if hosts.server in hosts.generators else 0)
        if needed > len(cpus):
            raise LabError(
                f"The roles of the server's host need {needed} CPUs, but the host has "
                f"{len(cpus)}: give the server fewer CPUs, or move the database and the "
                "generators to another host."
            )
        generator = self.places[hosts.generators[0]]
        free = cpus[server_cpus : self._taken] if together else self.database.cpus
        machines = tuple(map(self._machine, (self.server, generator, self.database)))
        return Placement(
            cpus[:server_cpus], self._others_cpus(generator), free[:database_cpus], hosts=machines
        )

    def hazards(self, connections: int, opened: int) -> dict[str, list[Diagnosis]]:
        """Return the diagnoses of everything that can distort a campaign's numbers, by host.

        The keys are the roles of the hosts. `connections` and `opened` mean the same as in
        `machine.examine`.
        """
        found = {}
        for place in self.places.values():
            is_server = place is self.server
            said = place.station.ask(
                "hazards",
                server=place.cpus if is_server else (),
                others=() if is_server else place.cpus,
                connections=connections,
                opened=opened,
            )
            found[place.role] = [Diagnosis(**each) for each in said]
        return found

    def warnings(self, connections: int, opened: int) -> list[str]:
        """Return a warning, with a remedy, for each fact of the hosts that distorts a campaign.

        The first warning is always that other programs in the network can reach the server (see
        OPEN_TO_ALL). `connections` and `opened` mean the same as in `machine.examine`.
        """
        found: dict[str, list[str]] = {}
        for role, hazards in self.hazards(connections, opened).items():
            for each in hazards:
                if each.level != "ok":
                    found.setdefault(each.text, []).append(role)
        return [
            OPEN_TO_ALL,
            *(
                f"On the host of the {', the '.join(roles)}: {text}"
                for text, roles in found.items()
            ),
        ]

    def facts(self) -> list[HostFacts]:
        """Return the manifest's entry of each host.

        An entry names the roles of the host, but neither the host's name nor its address.
        """
        return [
            {
                "roles": place.role,
                "cpus_used": place.cpus,
                "clock_error_ns": place.station.clock.error_ns,
                "machine": place.said["facts"],
            }
            for place in self.places.values()
        ]

    def _measured_transfer(self) -> Transfer | None:
        """Measure the network between the server's host and each generator's host.

        Return the lowest transfer rate and the longest round trip found. Return None if all
        generators run on the server's host.
        """
        server = self.server.station
        rates = list[float]()
        ways = list[int]()
        for name in self.hosts.generators:
            generator = self.places[name].station
            if generator is server:
                continue
            port = server.ask("listen", address=server.address)
            ways.append(generator.reach(server.address, port, WAYS))
            for sender, receiver in ((generator, server), (server, generator)):
                secret = token_hex(16)
                port = receiver.ask("listen", address=receiver.address)
                answer = receiver.begin("receive", secret=secret)
                to = {"address": receiver.address, "port": port, "secret": secret}
                sender.ask("send", seconds=TRANSFER_S, **to)
                rates.append(float(answer()))
        return Transfer(min(rates), max(ways)) if rates else None


@contextlib.contextmanager
def open_fleet(hosts: Hosts, ledger: Ledger, say: Callable[[str], None]) -> Iterator[Fleet]:
    """Connect to every host, start its station, and yield the fleet.

    When the context ends, end the stations. Raise LabError if a host cannot be used.
    """
    vigil = Vigil(say)
    with _naming_the_lost(vigil), contextlib.ExitStack() as stack:
        clients = {
            name: stack.enter_context(_client(hosts[name], hosts.roles(name)))
            for name in hosts.used
        }
        for client in clients.values():
            sweep(client)
        # This machine's engine builds the images. If this machine has no engine, the engine of the
        # server's host builds them.
        try:
            builder = stack.enter_context(contextlib.closing(connect()))
        except DockerException:
            builder = clients[hosts.server]
        built_for = builder.version().get("Arch")
        for name, client in clients.items():
            if (kind := client.version().get("Arch")) != built_for:
                raise LabError(
                    f"The host of the {hosts.roles(name)} has the architecture {kind}, but "
                    f"this machine builds images for {built_for}: use hosts of one "
                    "architecture."
                )
        say("Building the image of the instruments …")
        image = station_image(builder, "instruments")
        stack.enter_context(vigil.kept())
        places = {}
        for name, client in clients.items():
            role = hosts.roles(name)
            say(f"Connecting to the host of the {role} …")
            _bring(builder, client, image)
            station = stack.enter_context(_station(client, image, hosts[name], role, ledger, vigil))
            places[name] = Place(hosts[name], role, client, builder, station)
            station.look_at_clock()
        _require_apart(hosts, places)
        for place in places.values():
            place.clients = _clients_of(place, places)
        yield Fleet(hosts, places, ledger)


@contextlib.contextmanager
def _naming_the_lost(vigil: Vigil) -> Iterator[None]:
    """Replace an error in the context by an error that names the lost hosts, if a host was lost.

    The original error is for example a timeout, which does not say that a host is lost.
    """
    try:
        yield
    except (LabError, OSError, *TROUBLE) as error:
        if vigil.loss and vigil.loss not in str(error):
            raise CannotGoOnError(vigil.loss) from error
        raise


def _clients_of(place: Place, places: Mapping[str, Place]) -> tuple[str, ...]:
    """Return the addresses that may connect to a database on a host.

    Each is written as a network that contains only one address: `10.0.0.1/32`. The address from
    which this machine connects to the host is included, because the runner queries the database.
    """
    addresses = [each.address for each in places.values()]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect((place.address, 9))  # connecting a UDP socket sends nothing
        addresses.append(str(probe.getsockname()[0]))
    return tuple(dict.fromkeys(f"{address}/32" for address in addresses))


def reap_fleet(hosts: Hosts) -> list[str]:
    """Remove the containers of dead runners from every host; return a description of each one.

    If a host cannot be reached, clean up the other hosts first, and then raise LabError.
    """
    removed = []
    unreached = list[LabError]()
    for name in hosts.used:
        try:
            with _client(hosts[name], hosts.roles(name)) as client:
                removed += [f"{each} of the {hosts.roles(name)}" for each in sweep(client)]
        except LabError as error:
            unreached.append(error)
    if unreached:
        done = f" Removed from the other hosts: {', '.join(removed)}." if removed else ""
        raise LabError(f"{unreached[0]}{done}", exit_code=1)
    return removed


def _client(host: Host, role: str) -> contextlib.closing[Any]:
    try:
        return contextlib.closing(connect(*_reached(host)))
    except ModuleNotFoundError:
        raise LabError("ssh:// needs paramiko: pip install '.[fleet]'.") from None
    # Catch every exception, because paramiko, ssl, requests and docker-py share no error class.
    except Exception as error:  # noqa: BLE001
        raise LabError(
            f"The engine of the {role} cannot be reached: {reason(error)}.", exit_code=1
        ) from None


def _reached(host: Host) -> tuple[str, str]:
    """Return the URL and the folder of certificates of a host's engine.

    Both are empty for this machine's engine.
    """
    return "" if host.engine == LOCAL else host.engine, str(host.certificates or "")


def station_image(builder: Any, stage: Stage) -> str:
    """Build a station's image and return its id; `stage` is a stage of runner/station/Dockerfile.

    An unchanged image comes from Docker's cache.
    """
    packed = io.BytesIO()
    package = Path(__file__).parents[1]
    with tarfile.open(fileobj=packed, mode="w") as context:
        context.add(package / "station" / "Dockerfile", "Dockerfile", filter=_plain)
        context.add(need_tool("k6").path.resolve(), "k6", filter=_plain)
        for name in NEEDS:
            context.add(package / name, f"runner/{name}", filter=_plain)
    packed.seek(0)
    base = {"BASE": debian_base(builder)}
    return build_image(builder, f"{STATIONS}{stage}", packed, base, target=stage)


def station_options(name: str, role: str) -> dict[str, Any]:
    """Return the options of a station's container, except its mounts and its capabilities.

    The container's name is `bench-`, then `name`, then random digits. `role` is the role of the
    container's host.
    """
    return {
        **docker_engine.HARDENED,
        "name": f"bench-{name}-{token_hex(4)}",
        "command": [str(LONGEST_S)],
        "pid_mode": "host",
        "cgroupns": "host",
        "stdin_open": True,
        "labels": docker_engine.labels(f"{name} {role}"),
    }


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Return a tar entry without the metadata that differs between checkouts.

    So equal files always give equal images. Return None for a file that does not belong in the
    image.
    """
    if "__pycache__" in entry.name:
        return None
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
    return entry


def _bring(builder: Any, client: Any, image: str) -> None:
    """Copy an image from the builder's engine to the client's engine, if it is not there yet.

    Raise LabError if the client's engine has no image of this id after the copy.
    """
    with contextlib.suppress(DockerException):
        client.images.get(image)
        return
    try:
        client.images.load(builder.images.get(image).save(named=True))
        client.images.get(image)
    except TROUBLE as error:
        raise LabError(
            f"An image could not be loaded into an engine: {reason(error)}.", exit_code=1
        ) from None


@contextlib.contextmanager
def _station(
    client: Any, image: str, host: Host, role: str, ledger: Ledger, vigil: Vigil
) -> Iterator[StationClient]:
    """Start the station of a host, and yield a client of the station.

    When the context ends, end the station and, unless the host is lost, remove the station's
    container.
    """
    options: dict[str, object] = {
        **station_options("station", role),
        "mounts": [
            Mount("/sys/fs/cgroup", "/sys/fs/cgroup", type="bind", read_only=True),
            Mount("/work", None, type="volume"),
        ],
        # The station needs these rights to use real-time priority, to end a server whose runner
        # died, and to read and pin processes of other users.
        "cap_add": ["SYS_NICE", "KILL", "SYS_PTRACE", "DAC_READ_SEARCH"],
    }
    try:
        try:
            container = client.containers.create(image, **options, devices=[LATENCY_DEVICE])
        except APIError as error:
            if "cpu_dma_latency" not in str(error):
                raise
            # The host lacks the device, so its idle CPUs cannot be kept awake.
            container = client.containers.create(image, **options)
    except TROUBLE as error:
        raise LabError(
            f"The station of the {role} could not be started: {reason(error)}.", exit_code=1
        ) from None
    ledger.add(ContainerEntry(str(container.id), _reached(host)))
    channel = None
    try:
        channel = Channel(container)
        container.start()
        # The lab counts how long the station has been silent. Count from now on, because the
        # station did not run yet when the channel was created.
        channel.silence.heard()
        vigil.watch(role, channel, lambda: abandon(client))
        yield StationClient(role, container, channel, host.address, vigil)
    finally:
        if channel is not None:
            vigil.forget(channel)
            channel.close()
        # If the host is lost, the container cannot be removed now. It stays in the ledger, so that
        # the next run or `bench clean` removes it.
        if not vigil.is_lost(role):
            with contextlib.suppress(*TROUBLE):
                container.remove(force=True, v=True)


def _require_apart(hosts: Hosts, places: Mapping[str, Place]) -> None:
    """Raise LabError if the server's host and another host of the hosts file use the same CPU.

    This is possible because two hosts of the hosts file may be the same machine. Also raise
    LabError if the hosts file gives a host a CPU that the host lacks.
    """
    server = places[hosts.server]
    for place in places.values():
        unknown = set(place.cpus) - set(place.said["cpus"])
        if unknown:
            raise LabError(
                f"The host of the {place.role} has no CPU {min(unknown)}: choose from its "
                f"CPUs {place.said['cpus']}."
            )
        one_machine = place is not server and place.said["boot"] == server.said["boot"]
        if one_machine and set(place.cpus) & set(server.cpus):
            raise LabError(
                f"The host of the server and the host of the {place.role} are the same "
                "machine, and use the same CPU: give each of the two hosts different "
                "`cpus` in the hosts file."
            )
