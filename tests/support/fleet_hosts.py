"""Three hosts on one machine: network namespaces joined by a bridge, each with a Docker engine.

The hosts share the machine's CPUs and file system. The names of the network namespaces contain the
last digits of this process's id. When the context of `hosts` ends, everything is removed.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import docker
import pytest
import real_lab
from docker.errors import DockerException
from requests.exceptions import RequestException

NETWORK = f"10.77.{1 + os.getpid() % 254}"
NAMES = ("sut", "gen1", "gen2")
NOBODYS = "02:00:00:00:00:99"
"""A hardware address that no network device has."""


def why_not() -> str | None:
    """Return the reason why this machine cannot run the three hosts, or None if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "dockerd", "openssl", "nsenter"):
        if shutil.which(program) is None:
            return f"there is no {program}"
    try:
        docker.from_env().close()
    except DockerException:
        return "no Docker engine answers"
    tried = subprocess.run(
        ["ip", "netns", "add", f"try{os.getpid()}"], capture_output=True, check=False
    )
    if tried.returncode != 0:
        return f"no network namespace can be made: {tried.stderr.decode().strip()}"
    subprocess.run(["ip", "netns", "delete", f"try{os.getpid()}"], check=True)
    return None


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=30)


@dataclass
class Machine:
    """One host: a network namespace with an address and a Docker engine."""

    name: str
    space: str
    """Name of the host's network namespace."""
    address: str
    folder: Path
    switch: str
    """Name of the network namespace that contains the bridge between the hosts."""
    cable: str
    """Name of the network device that is the cable's end in the namespace of the switch."""

    def __post_init__(self) -> None:
        self.socket = f"unix://{self.folder}/docker.sock"
        self.enter = ["nsenter", f"--net=/var/run/netns/{self.space}"]
        """First words of a command that runs another command in the host's network."""

    def start(self, certificates: Path) -> None:
        command = [
            *self.enter,
            "dockerd",
            "--bridge=none",
            "--iptables=false",
            f"--data-root={self.folder}/data",
        ]
        command += [
            f"--exec-root={self.folder}/exec",
            f"--pidfile={self.folder}/docker.pid",
            "--host",
            self.socket,
        ]
        command += [
            "--host",
            f"tcp://{self.address}:2376",
            "--tlsverify",
            f"--tlscacert={certificates / 'ca.pem'}",
        ]
        command += [
            f"--tlscert={certificates / 'server.pem'}",
            f"--tlskey={certificates / 'server-key.pem'}",
        ]
        with (self.folder / "dockerd.log").open("ab") as log:
            self.engine = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def await_engine(self) -> None:
        for _ in range(300):
            with contextlib.suppress(DockerException, RequestException), self.client() as client:
                client.ping()
                return
            time.sleep(0.1)
        raise AssertionError((self.folder / "dockerd.log").read_text()[-2000:])

    def serve_ssh(self, folder: Path) -> "subprocess.Popen[bytes]":
        """Start an sshd in the host's network that accepts the key in `folder`.

        Programs that a user starts by ssh use the host's engine.
        """
        options = [
            "PidFile=none",
            "StrictModes=no",
            "PermitRootLogin=yes",
            f"ListenAddress={self.address}",
        ]
        options += [f"AuthorizedKeysFile={folder}/id_ed25519.pub"]
        options += [f"SetEnv=DOCKER_HOST={self.socket} PATH={os.environ['PATH']}"]
        command = [*self.enter, "/usr/sbin/sshd", "-D", "-e", "-f", "/dev/null"]
        command += [
            "-h",
            f"{folder}/host_key",
            *(part for option in options for part in ("-o", option)),
        ]
        with (self.folder / "sshd.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)

    @contextlib.contextmanager
    def pulled(self) -> Iterator[None]:
        """Pull the host's cable, and plug the cable in again when the context ends."""
        run("ip", "-n", self.switch, "link", "set", self.cable, "down")
        try:
            yield
        finally:
            run("ip", "-n", self.switch, "link", "set", self.cable, "up")

    @contextlib.contextmanager
    def far_away(self, delay_s: float, loss: float) -> Iterator[None]:
        """Until the context ends, replace the host's cable by a cable that disturbs packets.

        The new cable delays each packet by `delay_s`, and loses the share `loss` of the packets, in
        both directions.
        """
        ends = (self.space, "far0", self.switch, f"far-{self.name}")
        relay = [sys.executable, real_lab.HERE / "slow_cable.py", *ends, delay_s, loss]
        with real_lab.process(*relay, stdout=subprocess.PIPE, text=True) as relaying:
            assert relaying.stdout.readline() == "ready\n"
            run("ip", "-n", self.switch, "link", "set", ends[3], "master", "br0", "up")
            shown = subprocess.check_output(
                ["ip", "-n", self.space, "-json", "link", "show", "eth0"]
            )
            run(
                "ip",
                "-n",
                self.space,
                "link",
                "set",
                "far0",
                "address",
                json.loads(shown)[0]["address"],
            )
            try:
                self._connect("eth0", "far0")
                yield
            finally:
                self._connect("far0", "eth0")

    def _connect(self, before: str, after: str) -> None:
        """Move the host's address from its network device `before` to its device `after`."""
        run("ip", "-n", self.space, "address", "flush", "dev", before)
        run("ip", "-n", self.space, "link", "set", before, "down")
        run("ip", "-n", self.space, "address", "add", f"{self.address}/24", "dev", after)
        run("ip", "-n", self.space, "link", "set", after, "up")
        run("ip", "-n", self.space, "route", "add", "default", "via", f"{NETWORK}.1")

    @contextlib.contextmanager
    def narrow(self, megabits: int) -> Iterator[None]:
        """Limit the throughput of the host's cable in both directions."""
        limit = ["root", "tbf", "rate", f"{megabits}mbit", "burst", "64kb", "latency", "50ms"]
        run("tc", "-n", self.space, "qdisc", "add", "dev", "eth0", *limit)
        run("tc", "-n", self.switch, "qdisc", "add", "dev", self.cable, *limit)
        try:
            yield
        finally:
            run("tc", "-n", self.space, "qdisc", "delete", "dev", "eth0", "root")
            run("tc", "-n", self.switch, "qdisc", "delete", "dev", self.cable, "root")

    @contextlib.contextmanager
    def small_disk(self, megabytes: int) -> Iterator[Path]:
        """Put the volumes of the host's containers on a small disk; yield the disk's folder."""
        volumes = self.folder / "data" / "volumes"
        run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(volumes))
        try:
            yield volumes
        finally:
            run("umount", "--lazy", str(volumes))

    def stop(self) -> None:
        """End the host's engine, which also ends the host's containers."""
        self.engine.terminate()
        try:
            self.engine.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.engine.kill()
            self.engine.wait()
        namespace = self.folder / "exec" / "netns" / "default"  # the engine leaves this mounted
        subprocess.run(["umount", "--lazy", str(namespace)], capture_output=True, check=False)

    def client(self) -> "contextlib.closing[docker.DockerClient]":
        return contextlib.closing(docker.DockerClient(base_url=self.socket, timeout=30))

    def programs(self) -> set[str]:
        """Return the names of the programs in the host's network, even if its cable is pulled."""
        pids = subprocess.check_output(["ip", "netns", "pids", self.space], text=True).split()
        found = set()
        for pid in pids:
            with contextlib.suppress(OSError):
                status = Path(f"/proc/{pid}/status").read_text()
                if "State:\tZ" not in status:
                    found.add(status.split()[1])
        return {name for name in found if not name.startswith("containerd-shim")}

    def listening(self) -> set[str]:
        """Return the addresses at which programs in the host's network listen.

        The addresses of the host's container engine and of its sshd are left out.
        """
        found = subprocess.check_output([*self.enter, "ss", "-Hltn"], text=True)
        ours = {f"{self.address}:{port}" for port in (2376, 22)}
        return {line.split()[3] for line in found.splitlines()} - ours


def make_certificates(folder: Path, addresses: list[str]) -> None:
    """Make an authority, a certificate for all engines, and a certificate for the client.

    The certificates are valid for a day.
    """
    names = ",".join(f"IP:{address}" for address in addresses)
    new = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "1",
    ]
    folder.mkdir()
    run(
        *new, "-subj", "/CN=lab test", "-keyout", f"{folder}/ca-key.pem", "-out", f"{folder}/ca.pem"
    )
    for name, file, key, extension in (
        ("server", "server.pem", "server-key.pem", f"subjectAltName={names}"),
        ("client", "cert.pem", "key.pem", "extendedKeyUsage=clientAuth"),
    ):
        signed = ["-CA", f"{folder}/ca.pem", "-CAkey", f"{folder}/ca-key.pem", "-addext", extension]
        signed += ["-addext", "basicConstraints=CA:FALSE"]
        run(
            *new,
            *signed,
            "-subj",
            f"/CN={name}",
            "-keyout",
            f"{folder}/{key}",
            "-out",
            f"{folder}/{file}",
        )


@dataclass
class Fleet:
    """The hosts, and the certificates for their engines."""

    machines: dict[str, Machine]
    certificates: Path
    device: str
    """Name of this machine's network device in the network of the hosts."""

    @contextlib.contextmanager
    def one_way(self, name: str, *, heard: bool) -> Iterator[None]:
        """Lose all packets in one direction between the host `name` and all other machines.

        If `heard` is True, the packets to the host are lost, but the packets from the host still
        arrive. If `heard` is False, the packets from the host are lost, but the packets to the host
        still arrive. Lost packets are sent to a hardware address that no device has, so no program
        gets an error.
        """
        machine = self.machines[name]
        others = [each for each in self.machines.values() if each is not machine]
        ways = [(["-n", each.space], "eth0", machine.address) for each in others]
        ways.append(([], self.device, machine.address))
        if not heard:
            addresses = [f"{NETWORK}.1", *(each.address for each in others)]
            ways = [(["-n", machine.space], "eth0", address) for address in addresses]
        with contextlib.ExitStack() as stack:
            for space, device, address in ways:
                wrong = [address, "lladdr", NOBODYS, "nud", "permanent", "dev", device]
                run("ip", *space, "neighbour", "replace", *wrong)
                forgotten = ["neighbour", "delete", address, "dev", device]
                stack.callback(run, "ip", *space, *forgotten)
            yield

    def containers(self) -> list[str]:
        """Return the names of the containers on all hosts, whether they are running or not."""
        found = []
        for machine in self.machines.values():
            with machine.client() as client:
                found += [each.name for each in client.containers.list(all=True)]
        return found

    def file(
        self,
        folder: Path,
        generators: Sequence[str] = NAMES[1:],
        engine: str = "tcp",
        probe: str = "",
    ) -> str:
        """Write a hosts file in `folder` with these generators, and return its path.

        `engine` says how the lab reaches the hosts' engines: by `tcp` with certificates, by `ssh`,
        or, with any other text, by a Unix socket.
        """
        lines = []
        for name, machine in self.machines.items():
            ways = {
                "tcp": f"tcp://{machine.address}:2376",
                "ssh": f"ssh://root@{machine.address}",
            }
            reached = ways.get(engine, machine.socket)
            lines += [f"[host.{name}]", f'engine = "{reached}"', f'address = "{machine.address}"']
            lines += [f'certificates = "{self.certificates}"'] if engine == "tcp" else []
            lines += [f"cpus = [{int(name != 'sut')}]"]
        lines += [
            "[roles]",
            'server = "sut"',
            'database = "gen1"',
            f"generators = {json.dumps(generators)}",
        ]
        lines += [f'probe = "{probe}"'] if probe else []
        (folder / "hosts.toml").write_text("\n".join(lines))
        return str(folder / "hosts.toml")


@contextlib.contextmanager
def reached_by_ssh(fleet: Fleet, home: Path) -> Iterator[dict[str, str]]:
    """Start an sshd on every host.

    Yield the environment variables of a user who can log in on every host: the user has a key that
    the hosts accept, and a file known_hosts with the hosts' own keys.
    """
    if not Path("/usr/sbin/sshd").exists():
        pytest.skip("there is no sshd")
    folder = home / ".ssh"
    folder.mkdir(mode=0o700, parents=True)
    for name in (".cache", "go"):  # so that Go finds what it has already compiled
        (home / name).symlink_to(Path.home() / name)
    Path("/run/sshd").mkdir(exist_ok=True)
    for name in ("host_key", "id_ed25519"):
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{folder}/{name}")
    servers = [machine.serve_ssh(folder) for machine in fleet.machines.values()]
    key = (folder / "host_key.pub").read_text().split()[:2]
    known = [f"{machine.address} {' '.join(key)}" for machine in fleet.machines.values()]
    (folder / "known_hosts").write_text("\n".join(known) + "\n")
    try:
        time.sleep(0.5)
        yield {"HOME": str(home)}
    finally:
        for server in servers:
            server.terminate()
            server.wait()


def make_space(stack: contextlib.ExitStack, name: str) -> None:
    """Make a network namespace. It is removed, with its cables, when `stack` is closed."""
    run("ip", "netns", "add", name)
    stack.callback(
        subprocess.run, ["ip", "netns", "delete", name], capture_output=True, check=False
    )


def plug_in(switch: str, cable: str, address: str, space: str | None) -> None:
    """Connect the namespace `space` by a cable to the bridge in the namespace `switch`.

    If `space` is None, connect this machine's own namespace.
    """
    inside, device = (["ip", "-n", space], "eth0") if space else (["ip"], f"{cable}h")
    where = ["netns", space] if space else ["netns", "1"]
    run("ip", "-n", switch, "link", "add", cable, "type", "veth", "peer", "name", device, *where)
    run("ip", "-n", switch, "link", "set", cable, "master", "br0", "up")
    run(*inside, "address", "add", f"{address}/24", "dev", device)
    run(*inside, "link", "set", device, "up")
    if space:
        run(*inside, "link", "set", "lo", "up")
        run(*inside, "route", "add", "default", "via", f"{NETWORK}.1")


@contextlib.contextmanager
def hosts() -> Iterator[Fleet]:
    """Yield the hosts, and remove them afterwards; skip the test if they cannot be made."""
    if why := why_not():
        pytest.skip(why)
    with contextlib.ExitStack() as stack:
        folder = Path(
            stack.enter_context(
                tempfile.TemporaryDirectory(prefix="fleet-", ignore_cleanup_errors=True)
            )
        )
        run("mount", "-t", "tmpfs", "tmpfs", str(folder))  # so that images are copied fast
        stack.callback(run, "umount", "--lazy", str(folder))
        label = f"lab{os.getpid() % 100_000}"
        # The switch has a namespace of its own, because a firewall of this machine would stop the
        # packets of a bridge.
        switch = f"{label}-net"
        make_space(stack, switch)
        run("ip", "-n", switch, "link", "add", "br0", "type", "bridge")
        run("ip", "-n", switch, "link", "set", "br0", "up")
        plug_in(switch, label, f"{NETWORK}.1", None)
        machines = {}
        for number, name in enumerate(NAMES, start=2):
            machine = Machine(
                name, f"{label}-{name}", f"{NETWORK}.{number}", folder / name, switch, f"to-{name}"
            )
            machine.folder.mkdir()
            make_space(stack, machine.space)
            plug_in(switch, machine.cable, machine.address, machine.space)
            machines[name] = machine
        certificates = folder / "certificates"
        make_certificates(certificates, [machine.address for machine in machines.values()])
        for machine in machines.values():
            machine.start(certificates)
            stack.callback(machine.stop)
        for machine in machines.values():
            # The stack calls each `terminate` before the first `machine.stop`, so that the engines
            # end at the same time.
            stack.callback(machine.engine.terminate)
            machine.await_engine()
        yield Fleet(machines, certificates, f"{label}h")
