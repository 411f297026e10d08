"""Build images, and start servers as hardened containers through docker-py."""

from __future__ import annotations

import contextlib
import io
import os
import resource
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from secrets import token_hex
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Protocol, cast

import docker
from docker.errors import APIError, BuildError, DockerException, ImageNotFound
from docker.utils.build import tar
from requests.exceptions import RequestException

from runner.measure.cgroups import PERIOD_US
from runner.measure.engine import LOOPBACK, Handed, Running, RunningDatabase, free_port
from runner.measure.leftovers import Ledger, identity, lives, scratch, write_secrets
from runner.measure.tools import find_program
from runner.model import POSTGRES, CannotGoOnError, LabError, Server

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container

BASE_TAG = "web-bench-lab/debian:bookworm"
OFFICIAL_BASE = "debian:bookworm-slim"
OFFICIAL_POSTGRES = "postgres:15-bookworm"
DATABASE = "database.postgres"
"""Name of the database's image and containers: a server's name has no dot."""


def ensure_image(client: DockerClient, server: Server) -> str:
    """Build `server`'s image (Docker's cache makes an unchanged one cheap) and return its id.

    The stage `prebuilt` holds the very binary that the process engine runs. Where the host has no binary, because its
    toolchain is missing, the last stage builds from source in the toolchain's official image.
    """
    binary = server.artifact is None or (server.folder / server.artifact).is_file()
    with contextlib.nullcontext() if binary else _placeholder(server):
        return build_image(
            client,
            server.name,
            context=_shared_context(server) if server.shared else _context(server.folder, ()),
            dockerfile=f"{server.implementation}/Dockerfile" if server.shared else "Dockerfile",
            target="prebuilt" if server.artifact and binary else "",
            arguments={"BASE": debian_base(client)} if server.base == "debian" else {},
        )


def ensure_database_image(client: DockerClient) -> str:
    """Build PostgreSQL's image, on the official one or, where that cannot be had, a Debian base; return its id."""
    official = {} if _pulled(client, OFFICIAL_POSTGRES) else {"BASE": debian_base(client)}
    return build_image(client, DATABASE, _context(POSTGRES, ()), "Dockerfile", "", official)


def build_image(
    client: DockerClient, name: str, context: IO[bytes], dockerfile: str, target: str, arguments: dict[str, str]
) -> str:
    """Build an image of a packed context (Docker's cache makes an unchanged one cheap) and return its id."""
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
        raise LabError(f"The image of {name} could not be built: {_last_line(error)}.", exit_code=1) from None
    return str(image.id)


def _context(folder: Path, others: Sequence[str]) -> IO[bytes]:
    """Return a folder as a tar for Docker, without `others` and what its .dockerignore names."""
    ignore = folder / ".dockerignore"
    lines = [line.strip() for line in ignore.read_text(encoding="utf-8").splitlines()] if ignore.is_file() else []
    patterns = [line for line in lines if line and not line.startswith("#")]
    return cast(IO[bytes], tar(folder, exclude=[*others, *patterns]))


def _shared_context(server: Server) -> IO[bytes]:
    """Return servers/ with this server and the code that servers share, but no other server."""
    servers = server.folder.resolve().parent
    others = [path.parent.name for path in servers.glob("*/server.toml") if path.parent.name != server.implementation]
    return _context(servers, others)


@contextlib.contextmanager
def _placeholder(server: Server) -> Iterator[None]:
    """Stand an empty file in for the missing binary: the classic builder runs the stage `prebuilt` in any case."""
    path = server.folder / (server.artifact or "server")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    try:
        yield
    finally:
        path.unlink()


def _last_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no reason given"])[-1].rstrip(".")


def debian_base(client: DockerClient) -> str:
    """Return a Debian base image: one made before, the official one where it can be pulled, else made by mmdebstrap."""
    return OFFICIAL_BASE if _pulled(client, OFFICIAL_BASE) else BASE_TAG


def _pulled(client: DockerClient, official: str) -> bool:
    """Return whether an official image is here or can be pulled; where not, our Debian base is.

    Once that base had to be made, no registry is asked again.
    """
    for tag, answer in ((official, True), (BASE_TAG, False)):
        with contextlib.suppress(ImageNotFound):
            client.images.get(tag)
            return answer
    try:
        client.images.pull(official)
    except DockerException as error:
        _make_base(client, refused=_last_line(error))
        return False
    return True


def _make_base(client: DockerClient, refused: str) -> None:
    """Make a minimal Debian with mmdebstrap (about 15 s) and import it, with the host's package sources."""
    mmdebstrap = find_program("mmdebstrap")
    if mmdebstrap is None:
        raise LabError(
            f"No image can be pulled ({refused}) and mmdebstrap is not installed to make a base: "
            "install it with `apt-get install mmdebstrap`.",
            exit_code=1,
        )
    apt = Path("/etc/apt")
    listed = [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]
    sources = [path for path in listed if path.is_file()]
    try:
        done = subprocess.run(
            [str(mmdebstrap), "--variant=minbase", "--quiet", "bookworm", "-", *map(str, sources)],
            capture_output=True,
            timeout=300,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise LabError("mmdebstrap did not make a Debian base within 300 s.", exit_code=1) from None
    if done.returncode != 0:
        reason = _last_line(RuntimeError(done.stderr.decode(errors="replace")))
        raise LabError(f"mmdebstrap could not make a Debian base: {reason}.", exit_code=1)
    repository, _, tag = BASE_TAG.partition(":")
    client.api.import_image_from_data(done.stdout, repository=repository, tag=tag)


LABEL = "web-bench-lab"
RUNNER = f"{LABEL}.runner"
"""Label with the process that started a container: it says whether that still lives."""
MEMORY_BYTES = 2 * 1024**3
PIDS = 1024
OPEN_FILES = 65_536
NOBODY = 65_534
SECRETS = "/run/lab"
"""Where a container finds the files of its secrets."""
TROUBLE = (DockerException, RequestException)
"""What docker-py raises: its errors, and those of the HTTP client below it."""


def sweep(client: DockerClient) -> list[str]:
    """Remove the lab's containers whose runner is dead, and no other; return what was removed, in words."""
    removed = []
    for container in client.containers.list(all=True, filters={"label": RUNNER}, ignore_removed=True):
        if not lives(container.labels[RUNNER]):
            with contextlib.suppress(*TROUBLE):
                container.remove(force=True, v=True)
                removed.append(f"container {container.short_id}")
    return removed


class Remote(Protocol):
    """Another host, as the engine there needs it."""

    role: str
    engine: tuple[str, str]
    """How the engine is reached, and the folder of its certificates, for who cleans up."""
    address: str
    clients: tuple[str, ...]
    """Addresses that may connect to a database, as networks of one: `10.0.0.1/32`."""

    open_files: int
    """As many as a container may have there."""

    def free_port(self) -> int:
        """Return a port of the address that was free a moment ago."""

    def load(self, make: Callable[[DockerClient], str]) -> str:
        """Have an image made where images are made, and return its id once it is there."""

    def watch(self, pid: int) -> None:
        """Have a container's process ended there if this runner is gone."""


class DockerEngine:
    """Containers with host networking, bound to loopback: a published port passes through Docker's userland proxy."""

    name = "docker"

    def __init__(self, client: DockerClient, ledger: Ledger, reason: str, remote: Remote | None = None) -> None:
        self.reason = reason
        self._client = client
        self._ledger = ledger
        self._remote = remote
        self._address = remote.address if remote else LOOPBACK
        self._images: dict[str, str] = {}

    def prepare(self, server: Server) -> str | None:
        """Build the server's image; return its id (a sha256 digest)."""
        return self._made(server.name, lambda client: ensure_image(client, server))

    def _made(self, name: str, make: Callable[[DockerClient], str]) -> str:
        self._images[name] = make(self._client) if self._remote is None else self._remote.load(make)
        return self._images[name]

    def _port(self) -> int:
        return free_port() if self._remote is None else self._remote.free_port()

    @contextlib.contextmanager
    def started(self, server: Server, cpus: tuple[int, ...], handed: Handed, log: Path) -> Iterator[Running]:
        """Run the server's image read-only, without capabilities or privileges, as nobody, on `cpus`."""
        port = self._port()
        image = self._images[server.name]
        env = {**handed.environment, "ADDR": f"{self._address}:{port}"}
        env |= {} if server.contract else {"PORT": str(port)}
        with self._container(server.name, image, cpus, env, log, handed.secrets) as container:
            yield Running(
                int(container.attrs["State"]["Pid"]),
                port,
                lambda: _logged_exit(container, log),
                lambda: _stop(container),
                limit=lambda cores: _limit(container, cores),
                address=self._address,
            )

    def prepare_database(self) -> str | None:
        """Build PostgreSQL's image; return its id (a sha256 digest)."""
        return self._made(DATABASE, ensure_database_image)

    @contextlib.contextmanager
    def database(self, cpus: tuple[int, ...], verifier: str, log: Path) -> Iterator[RunningDatabase]:
        """Run PostgreSQL's image like a server's; its cluster lies in a volume that goes with the container."""
        port = self._port()
        env = {"PGPORT": str(port), "LAB_VERIFIER": verifier}
        if self._remote is not None:
            env |= {"LAB_ADDRESS": self._address, "LAB_CLIENTS": " ".join(self._remote.clients)}
        with self._container(DATABASE, self._images[DATABASE], cpus, env, log) as container:

            def restart() -> None:
                container.kill()
                container.wait(timeout=30)
                container.start()

            yield RunningDatabase(
                int(container.attrs["State"]["Pid"]),
                port,
                lambda: _exit_code(container),
                lambda: _stop(container),
                container.pause,
                container.unpause,
                restart,
                limit=lambda cores: _limit(container, cores),
                address=self._address,
            )

    @contextlib.contextmanager
    def _container(
        self,
        name: str,
        image: str,
        cpus: tuple[int, ...],
        env: dict[str, str],
        log: Path,
        secrets: Mapping[str, str] = MappingProxyType({}),
    ) -> Iterator[Container]:
        inside = {variable: f"{SECRETS}/{variable}" for variable in secrets}
        with contextlib.ExitStack() as stack:
            mounts = []
            if secrets and self._remote is None:
                paths = write_secrets(stack.enter_context(scratch(self._ledger)), secrets, NOBODY)
                mounts = [
                    docker.types.Mount(inside[variable], str(path), type="bind", read_only=True)
                    for variable, path in paths.items()
                ]
            elif secrets:  # a volume that goes with the container: no file of this machine is there
                mounts = [docker.types.Mount(SECRETS, None, type="volume")]
            yield from self._run(name, image, cpus, {**env, **inside}, mounts, log, secrets)

    def _run(
        self,
        name: str,
        image: str,
        cpus: tuple[int, ...],
        env: dict[str, str],
        mounts: list[docker.types.Mount],
        log: Path,
        secrets: Mapping[str, str],
    ) -> Iterator[Container]:
        try:
            container = self._create(name, image, cpus, env, mounts)
        except TROUBLE as error:
            raise self._failure(f"Docker could not create a container of {name}", error) from None
        try:
            if secrets and self._remote is not None:
                container.put_archive(SECRETS, _packed(secrets))
            container.start()
            container.reload()
            if self._remote is not None:
                self._remote.watch(int(container.attrs["State"]["Pid"]))
            yield container
        except TROUBLE as error:
            raise self._failure(f"The Docker engine failed with {name}", error) from None
        finally:
            _write_log(container, log)
            with contextlib.suppress(*TROUBLE):
                container.remove(force=True, v=True)

    def _failure(self, what: str, error: Exception) -> LabError:
        """Return the error of one container, or that there is no engine any more."""
        try:
            self._client.ping()
        except TROUBLE:
            whose = f" of the {self._remote.role}" if self._remote else ""
            return CannotGoOnError(f"The Docker engine{whose} has gone: start it again.")
        reason = str(getattr(error, "explanation", None) or error).strip().splitlines()[0]
        return LabError(f"{what}: {reason.rstrip('.')}.", exit_code=1)

    def _create(
        self, name: str, image: str, cpus: tuple[int, ...], env: dict[str, str], mounts: list[docker.types.Mount]
    ) -> Container:
        # An engine that was started like this runner cannot give more than the runner itself may have.
        here = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        files = min(OPEN_FILES, self._remote.open_files if self._remote else here)
        container = self._client.containers.create(
            image,
            name=f"bench-{name}-{token_hex(4)}",
            environment=env,
            mounts=mounts,
            network_mode="host",
            cpuset_cpus=",".join(map(str, cpus)),
            user=f"{NOBODY}:{NOBODY}",
            read_only=True,
            tmpfs={"/tmp": "size=64m,mode=1777"},  # noqa: S108 - inside the container
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            mem_limit=MEMORY_BYTES,
            memswap_limit=MEMORY_BYTES,
            pids_limit=PIDS,
            ulimits=[docker.types.Ulimit(name="nofile", soft=files, hard=files)],
            labels={LABEL: name, RUNNER: identity(os.getpid())},
            log_config=docker.types.LogConfig(type="json-file", config={"max-size": "10m"}),
            detach=True,
        )
        self._ledger.add("container", id=container.id, **({"engine": self._remote.engine} if self._remote else {}))
        return container


def _packed(secrets: Mapping[str, str]) -> bytes:
    """Return a tar of a file for each secret, which only a server's user can read."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar_file:
        for name, value in secrets.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.uid, entry.gid = len(value.encode()), 0o400, NOBODY, NOBODY
            tar_file.addfile(entry, io.BytesIO(value.encode()))
    return packed.getvalue()


def _limit(container: Container, cores: float) -> None:
    container.update(cpu_period=PERIOD_US, cpu_quota=round(cores * PERIOD_US))


def _exit_code(container: Container) -> int | None:
    container.reload()
    state = container.attrs["State"]
    return None if state["Status"] in ("created", "running") else int(state["ExitCode"])


def _logged_exit(container: Container, log: Path) -> int | None:
    """Return the exit code as `_exit_code` does; what an ended server said last then stands in its log."""
    code = _exit_code(container)
    if code is not None:
        _write_log(container, log)
    return code


def _write_log(container: Container, log: Path) -> None:
    with contextlib.suppress(*TROUBLE):
        log.write_bytes(container.logs(tail=10_000))


def _stop(container: Container) -> int:
    with contextlib.suppress(APIError):  # it has ended by itself
        container.stop(timeout=2)
    return int(container.wait(timeout=30)["StatusCode"])
