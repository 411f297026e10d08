"""Start servers as hardened containers through docker-py."""

from __future__ import annotations

import contextlib
import resource
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import docker
from docker.errors import APIError, DockerException

from runner.measure.engine import Running, RunningDatabase, free_port
from runner.measure.images import DATABASE, ensure_database_image, ensure_image
from runner.measure.leftovers import Ledger, boot_id
from runner.model import LabError, Server

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container

LABEL = "web-bench-lab"
MEMORY_BYTES = 2 * 1024**3
PIDS = 1024
OPEN_FILES = 65_536


def connect() -> DockerClient:
    """Return a client of the Docker engine; DockerException where none answers."""
    client = docker.from_env(timeout=60)
    try:
        client.ping()
    except DockerException:
        client.close()
        raise
    return client


class DockerEngine:
    """Containers with host networking, bound to loopback: a published port passes through Docker's userland proxy."""

    name = "docker"

    def __init__(self, client: DockerClient, ledger: Ledger, reason: str) -> None:
        self.reason = reason
        self._client = client
        self._ledger = ledger
        self._images: dict[str, str] = {}

    def prepare(self, server: Server) -> str | None:
        """Build the server's image; return its id (a sha256 digest)."""
        self._images[server.name] = ensure_image(self._client, server)
        return self._images[server.name]

    @contextlib.contextmanager
    def started(self, server: Server, cpus: tuple[int, ...], env: Mapping[str, str], log: Path) -> Iterator[Running]:
        """Run the server's image read-only, without capabilities or privileges, as nobody, on `cpus`."""
        port = free_port()
        whole = {**env, "ADDR": f"127.0.0.1:{port}"}
        with self._container(server.name, self._images[server.name], cpus, whole, log) as container:
            container.start()
            container.reload()
            yield Running(
                int(container.attrs["State"]["Pid"]),
                port,
                lambda: _exit_code(container),
                lambda: _stop(container),
            )

    def prepare_database(self) -> str | None:
        """Build PostgreSQL's image; return its id (a sha256 digest)."""
        self._images[DATABASE] = ensure_database_image(self._client)
        return self._images[DATABASE]

    @contextlib.contextmanager
    def database(self, cpus: tuple[int, ...], verifier: str, log: Path) -> Iterator[RunningDatabase]:
        """Run PostgreSQL's image like a server's; its cluster lies in a volume that goes with the container."""
        port = free_port()
        env = {"PGPORT": str(port), "LAB_VERIFIER": verifier}
        with self._container(DATABASE, self._images[DATABASE], cpus, env, log) as container:
            container.start()
            container.reload()

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
            )

    @contextlib.contextmanager
    def _container(
        self, name: str, image: str, cpus: tuple[int, ...], env: dict[str, str], log: Path
    ) -> Iterator[Container]:
        try:
            container = self._create(name, image, cpus, env)
        except DockerException as error:
            raise _failure(f"Docker could not create a container of {name}", error) from None
        try:
            yield container
        except DockerException as error:
            raise _failure(f"The Docker engine failed with {name}", error) from None
        finally:
            with contextlib.suppress(DockerException):
                log.write_bytes(container.logs(tail=10_000))
            with contextlib.suppress(DockerException):
                container.remove(force=True, v=True)

    def _create(self, name: str, image: str, cpus: tuple[int, ...], env: dict[str, str]) -> Container:
        # An engine that was started like this runner cannot give more than the runner itself may have.
        files = min(OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        container = self._client.containers.create(
            image,
            name=f"bench-{name}-{secrets.token_hex(4)}",
            environment=env,
            network_mode="host",
            cpuset_cpus=",".join(map(str, cpus)),
            user="65534:65534",
            read_only=True,
            tmpfs={"/tmp": "size=64m,mode=1777"},  # noqa: S108 - inside the container
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            mem_limit=MEMORY_BYTES,
            memswap_limit=MEMORY_BYTES,
            pids_limit=PIDS,
            ulimits=[docker.types.Ulimit(name="nofile", soft=files, hard=files)],
            labels={LABEL: name, f"{LABEL}.boot": boot_id()},
            log_config=docker.types.LogConfig(type="json-file", config={"max-size": "10m"}),
            detach=True,
        )
        self._ledger.add("container", id=container.id)
        return container


def _failure(what: str, error: DockerException) -> LabError:
    reason = str(getattr(error, "explanation", None) or error).strip().splitlines()[0]
    return LabError(f"{what}: {reason.rstrip('.')}.", exit_code=1)


def _exit_code(container: Container) -> int | None:
    container.reload()
    state = container.attrs["State"]
    return None if state["Status"] in ("created", "running") else int(state["ExitCode"])


def _stop(container: Container) -> int:
    with contextlib.suppress(APIError):  # it has ended by itself
        container.stop(timeout=2)
    return int(container.wait(timeout=30)["StatusCode"])
