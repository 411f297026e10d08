"""Build images, and start servers as hardened containers, through docker-py."""

import contextlib
import io
import os
import resource
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from secrets import token_hex
from typing import IO, Any, cast

import docker
from docker import DockerClient
from docker.errors import APIError, BuildError, DockerException, ImageNotFound
from docker.models.containers import Container
from docker.utils.build import tar

from runner.measure.cgroups import PERIOD_US
from runner.measure.connecting import TROUBLE, last_line
from runner.measure.engine import BY_FILE, LOOPBACK, Running, RunningDatabase, free_port
from runner.measure.leftovers import ContainerEntry, Ledger, identity, lives
from runner.measure.tools import find_program
from runner.model import POSTGRES, CannotGoOnError, LabError, Server

BASE_TAG = "web-bench-lab/debian:bookworm"
OFFICIAL_BASE = "debian:bookworm-slim"
OFFICIAL_POSTGRES = "postgres:15-bookworm"
DATABASE = "database.postgres"
"""Name of the database's image and containers.

No server has the same name, because this name contains a dot and servers' names contain no dot.
"""


def ensure_image(client: DockerClient, server: Server) -> str:
    """Build `server`'s image and return its id; an unchanged image comes from Docker's cache.

    The stage `prebuilt` of the Dockerfile copies the same binary that the process engine runs. If
    this machine lacks the binary, because the toolchain is missing, the last stage of the
    Dockerfile builds the binary in the toolchain's official image.
    """
    folder = server.folder
    others = list[str]()
    # The server's image needs the code that servers share, but not the other servers.
    if server.shared:
        folder = server.folder.resolve().parent
        names = [path.parent.name for path in folder.glob("*/server.toml")]
        others = [name for name in names if name != server.implementation]
    with contextlib.ExitStack() as stack:
        path = server.folder / (server.artifact or "")
        binary = server.artifact is None or path.is_file()
        # Docker's classic builder always runs the stage `prebuilt`, which copies the binary. So
        # give that stage an empty file if there is no binary.
        if not binary:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            stack.callback(path.unlink)
        return build_image(
            client,
            server.name,
            _context(folder, others),
            arguments={"BASE": debian_base(client)} if server.base == "debian" else {},
            dockerfile=f"{server.implementation}/Dockerfile" if server.shared else "Dockerfile",
            target="prebuilt" if server.artifact and binary else "",
        )


def ensure_database_image(client: DockerClient) -> str:
    """Build PostgreSQL's image and return its id.

    The image's base is the official image of PostgreSQL or, if that is not available, a Debian
    image.
    """
    official = {} if _pulled(client, OFFICIAL_POSTGRES) else {"BASE": debian_base(client)}
    return build_image(client, DATABASE, _context(POSTGRES), official)


def build_image(
    client: DockerClient,
    name: str,
    context: IO[bytes],
    arguments: dict[str, str],
    dockerfile: str = "Dockerfile",
    target: str = "",
) -> str:
    """Build an image from `context`, which is a tar file; return the image's id.

    An unchanged image comes from Docker's cache, which takes little time.
    """
    try:
        with context:
            image, _ = client.images.build(
                fileobj=context,
                custom_context=True,
                dockerfile=dockerfile,
                tag=f"web-bench-lab/{name}",
                target=target,
                buildargs=arguments,
                network_mode="host",
                rm=True,
                forcerm=True,
            )
    except (BuildError, DockerException) as error:
        raise LabError(
            f"The image of {name} could not be built: {last_line(error)}.", exit_code=1
        ) from None
    return str(image.id)


def _context(folder: Path, others: Sequence[str] = ()) -> IO[bytes]:
    """Return a folder as a tar file for Docker.

    Leave out the files and folders that `others` or the folder's .dockerignore names.
    """
    ignore = folder / ".dockerignore"
    lines = ignore.read_text(encoding="utf-8").splitlines() if ignore.is_file() else []
    patterns = [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]
    return cast(IO[bytes], tar(folder, exclude=[*others, *patterns]))


def debian_base(client: DockerClient) -> str:
    """Return the tag of a Debian base image.

    `_pulled` chooses between the official image and the lab's own image. If the lab's own image is
    chosen but does not exist yet, `_pulled` makes it with mmdebstrap.
    """
    return OFFICIAL_BASE if _pulled(client, OFFICIAL_BASE) else BASE_TAG


def _pulled(client: DockerClient, official: str) -> bool:
    """Return True to use the official image, and False to use the lab's own base image.

    If the official image is present, return True. Otherwise, if the lab's own base image exists,
    return False. If neither exists, pull the official image, and return True. If the official image
    cannot be pulled, make the lab's own base image with mmdebstrap from the host's package sources,
    which takes about 15 s, and return False. Raise LabError if mmdebstrap is needed, but is not
    installed or fails.
    """
    for tag, answer in ((official, True), (BASE_TAG, False)):
        with contextlib.suppress(ImageNotFound):
            client.images.get(tag)
            return answer
    mmdebstrap = find_program("mmdebstrap")
    try:
        client.images.pull(official)
        return True
    except DockerException as error:
        if mmdebstrap is None:
            raise LabError(
                f"The Docker engine cannot pull a base image ({last_line(error)}). The lab could "
                "make a base image with mmdebstrap, but mmdebstrap is not installed: run "
                "`apt-get install mmdebstrap`.",
                exit_code=1,
            ) from None
    listed = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    argv = [
        str(mmdebstrap),
        "--variant=minbase",
        "--quiet",
        "bookworm",
        "-",
        *map(str, filter(Path.is_file, listed)),
    ]
    try:
        done = subprocess.run(argv, capture_output=True, timeout=300, check=True)
    except subprocess.SubprocessError as error:
        said = (getattr(error, "stderr", None) or b"").decode(errors="replace")
        raise LabError(
            f"mmdebstrap could not make the Debian base image: {last_line(said or error)}.",
            exit_code=1,
        ) from None
    repository, _, tag = BASE_TAG.partition(":")
    client.api.import_image_from_data(done.stdout, repository=repository, tag=tag)
    return False


LABEL = "web-bench-lab"
RUNNER = f"{LABEL}.runner"
"""Name of the label that stores the identity of the process that started a container.

With this identity, `sweep` checks whether that process still lives.
"""
MEMORY_BYTES = 2 * 1024**3
PIDS = 1024
OPEN_FILES = 65_536
NOBODY = 65_534
SECRETS = "/run/lab"  # folder of the secrets' files in a container
HARDENED: dict[str, Any] = {
    "network_mode": "host",
    "read_only": True,
    "tmpfs": {"/tmp": "size=64m,mode=1777"},  # noqa: S108 - inside the container
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges"],
}
"""Options of every container of the lab. They remove rights that the containers do not need."""


def labels(what: str) -> dict[str, str]:
    """Return a container's labels: its role, and the runner that started it."""
    return {LABEL: what, RUNNER: identity(os.getpid())}


def sweep(client: DockerClient) -> list[str]:
    """Remove the lab's containers whose runner is dead; return a description of each of them."""
    removed = []
    for container in client.containers.list(
        all=True, filters={"label": RUNNER}, ignore_removed=True
    ):
        if not lives(container.labels[RUNNER]):
            with contextlib.suppress(*TROUBLE):
                container.remove(force=True, v=True)
                removed.append(f"container {container.short_id}")
    return removed


class DockerHost:
    """This machine, whose Docker engine runs containers. Other hosts are of class `fleet.Place`."""

    role = ""
    address = LOOPBACK
    reached: tuple[str, str] | None = None
    """The URL of the host's engine, and the folder of the engine's certificates.

    None for this machine. The clean-up needs both values to reach the engine.
    """
    clients: tuple[str, ...] = ()
    """Addresses that may connect to a database on this host.

    Each is written as a network that contains only one address: `10.0.0.1/32`.
    """

    def __init__(self, client: DockerClient) -> None:
        self.client = client

    @property
    def open_files(self) -> int:
        """The largest number of files that a container on this host can have open.

        A container cannot open more files than its engine, and the engine has the same limit as
        this runner.
        """
        return resource.getrlimit(resource.RLIMIT_NOFILE)[1]

    def free_port(self) -> int:
        """Return a port that was free just now at this host's address."""
        return free_port()

    def image(self, make: Callable[[DockerClient], str]) -> str:
        """Build an image with `make`, bring it to this host, and return its id."""
        return make(self.client)

    def wall_ahead_ns(self) -> int:
        """Return 0, because the wall clock of this host is the wall clock of this machine."""
        return 0

    def watch(self, container: str) -> None:
        """Register a container by its full id.

        The host ends its registered containers if this runner is lost. On this machine there is
        nothing to register, because the runner's watchdog ends the containers.
        """


class DockerEngine:
    """An engine that starts servers and databases as containers in the host's own network.

    A container with a network of its own would need a published port. Connections to such a port
    pass through Docker's userland proxy, which would distort the measurement.
    """

    name = "docker"

    def __init__(
        self, server: DockerHost, database: DockerHost, ledger: Ledger, reason: str
    ) -> None:
        self.reason = reason
        self._server = server
        self._database = database
        self._ledger = ledger
        self._images: dict[str, str] = {}

    def prepare(self, server: Server) -> str | None:
        """Build the server's image; return its id (a sha256 digest)."""
        self._images[server.name] = self._server.image(lambda client: ensure_image(client, server))
        return self._images[server.name]

    @contextlib.contextmanager
    def started(
        self, server: Server, cpus: tuple[int, ...], handed: Mapping[str, str], log: Path
    ) -> Iterator[Running]:
        """Run the server's image on `cpus`, as the user nobody.

        The container has no capabilities, and a read-only file system.
        """
        port = self._server.free_port()
        env = {**handed, "ADDR": f"{self._server.address}:{port}"}
        env |= {} if server.contract else {"PORT": str(port)}
        # Compare the clocks before the start. After the start, the server may become ready at any
        # moment, and the lab must notice this moment without delay.
        ahead_ns = self._server.wall_ahead_ns()
        with self._container(self._server, server.name, cpus, env, log) as container:
            facts = _facts(self._server, container, port, log)
            yield Running(**facts, **_start(container, ahead_ns))

    @contextlib.contextmanager
    def database(
        self, cpus: tuple[int, ...], verifier: str, log: Path
    ) -> Iterator[RunningDatabase]:
        """Run PostgreSQL's image with the same restrictions as a server's image.

        The database's data are in a volume that is removed with the container.
        """
        host = self._database
        if DATABASE not in self._images:
            self._images[DATABASE] = host.image(ensure_database_image)
        port = host.free_port()
        env = {"PGPORT": str(port), "LAB_VERIFIER": verifier}
        if host.clients:
            env |= {"LAB_ADDRESS": host.address, "LAB_CLIENTS": " ".join(host.clients)}
        with self._container(host, DATABASE, cpus, env, log) as container:

            def restart() -> None:
                container.kill()
                container.wait(timeout=30)
                container.start()

            facts = _facts(host, container, port, log)
            image = self._images[DATABASE]
            control: dict[str, Any] = {
                "pause": container.pause,
                "resume": container.unpause,
                "restart": restart,
            }
            yield RunningDatabase(**facts, **control, image=image)

    @contextlib.contextmanager
    def _container(
        self, host: DockerHost, name: str, cpus: tuple[int, ...], env: Mapping[str, str], log: Path
    ) -> Iterator[Container]:
        """Run a container of the server or database `name`.

        When the context ends, write the container's output to `log`, and remove the container. A
        secret that is passed as a file lies in a volume that is removed with the container.
        """
        files = min(OPEN_FILES, host.open_files)
        secret = env.get(BY_FILE)
        try:
            container = host.client.containers.create(
                self._images[name],
                name=f"bench-{name}-{token_hex(4)}",
                environment={
                    **env,
                    **({} if secret is None else {BY_FILE: f"{SECRETS}/{BY_FILE}"}),
                },
                mounts=[] if secret is None else [docker.types.Mount(SECRETS, None, type="volume")],
                cpuset_cpus=",".join(map(str, cpus)),
                user=f"{NOBODY}:{NOBODY}",
                mem_limit=MEMORY_BYTES,
                memswap_limit=MEMORY_BYTES,
                pids_limit=PIDS,
                ulimits=[docker.types.Ulimit(name="nofile", soft=files, hard=files)],
                labels=labels(name),
                log_config=docker.types.LogConfig(type="json-file", config={"max-size": "10m"}),
                detach=True,
                **HARDENED,
            )
            self._ledger.add(ContainerEntry(str(container.id), host.reached))
        except TROUBLE as error:
            raise _failure(host, f"Docker could not create a container of {name}", error) from None
        try:
            if secret is not None:
                container.put_archive(SECRETS, _packed(BY_FILE, secret.encode()))
            host.watch(str(container.id))
            container.start()
            container.reload()
            yield container
        except TROUBLE as error:
            raise _failure(host, f"The Docker engine failed with {name}", error) from None
        finally:
            _write_log(container, log)
            with contextlib.suppress(*TROUBLE):
                container.remove(force=True, v=True)


def _failure(host: DockerHost, what: str, error: Exception) -> LabError:
    """Return the LabError that reports `error`, which a container or its engine caused.

    If the engine has stopped responding, return CannotGoOnError, which ends the run.
    """
    try:
        host.client.ping()
    except TROUBLE:
        return CannotGoOnError(
            f"The Docker engine{host.role and f' of the {host.role}'} stopped responding: "
            "restart it."
        )
    said = str(getattr(error, "explanation", None) or error).strip().splitlines()[0]
    return LabError(f"{what}: {said.rstrip('.')}.", exit_code=1)


def _packed(name: str, data: bytes) -> bytes:
    """Return a tar archive of one file that only the containers' user can read."""
    packed = io.BytesIO()
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    entry.mode = 0o400
    entry.uid = NOBODY
    entry.gid = NOBODY
    with tarfile.open(fileobj=packed, mode="w") as tar_file:
        tar_file.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


def _facts(host: DockerHost, container: Container, port: int, log: Path) -> dict[str, Any]:
    """Return keyword arguments of Running for a started container.

    The arguments are `pid`, `port`, `address`, and the functions `exit_code`, `stop` and `limit`.
    """

    def exit_code() -> int | None:
        container.reload()
        state = container.attrs["State"]
        if state["Running"]:
            return None
        _write_log(container, log)
        return int(state["ExitCode"])

    def stop() -> int:
        with contextlib.suppress(APIError):  # the container has ended by itself
            container.stop(timeout=2)
        return int(container.wait(timeout=30)["StatusCode"])

    def limit(cores: float) -> None:
        container.update(cpu_period=PERIOD_US, cpu_quota=round(cores * PERIOD_US))

    known = {"pid": container.attrs["State"]["Pid"], "port": port, "address": host.address}
    return {**known, "exit_code": exit_code, "stop": stop, "limit": limit}


def _start(container: Container, ahead_ns: int) -> dict[str, Any]:
    """Return further keyword arguments of Running for a started container.

    The arguments are the size of the container's image, and the instant at which the container's
    program began. A value that the engine does not report is left out.

    The engine reports the instant by the wall clock of the container's host. That clock is ahead of
    this machine's wall clock by `ahead_ns`. The returned instant is by this machine's wall clock.
    """
    known: dict[str, Any] = {}
    with contextlib.suppress(*TROUBLE, ValueError, KeyError, AttributeError):
        image = container.image
        known["image_bytes"] = None if image is None else int(image.attrs["Size"])
        began = datetime.fromisoformat(container.attrs["State"]["StartedAt"])
        known["began_wall_ns"] = round(1e9 * began.timestamp()) - ahead_ns
    return known


def _write_log(container: Container, log: Path) -> None:
    with contextlib.suppress(*TROUBLE):
        log.write_bytes(container.logs(tail=10_000))
