"""Start servers as hardened containers through docker-py."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator, Mapping
from pathlib import Path
from secrets import token_hex
from types import MappingProxyType
from typing import TYPE_CHECKING

import docker
from docker.errors import APIError, DockerException
from requests.exceptions import RequestException

from runner.measure.cgroups import PERIOD_US
from runner.measure.engine import Handed, Running, RunningDatabase, free_port
from runner.measure.images import DATABASE, ensure_database_image, ensure_image
from runner.measure.leftovers import Ledger, identity, lives
from runner.measure.scratch import scratch, write_secrets
from runner.model import CannotGoOnError, LabError, Server

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container

LABEL = "web-bench-lab"
RUNNER = f"{LABEL}.runner"
"""Label with the process that started a container: one in no ledger can be told from a living run's."""
MEMORY_BYTES = 2 * 1024**3
PIDS = 1024
OPEN_FILES = 65_536
NOBODY = 65_534
SECRETS = "/run/lab"
"""Where a container finds the files of its secrets."""
TROUBLE = (DockerException, RequestException)
"""What docker-py raises: its own errors, and those of the HTTP client below it."""


def connect() -> DockerClient:
    """Return a client of the Docker engine; DockerException where none answers."""
    client = docker.from_env(timeout=60)
    try:
        client.ping()
    except DockerException:
        client.close()
        raise
    return client


def sweep(client: DockerClient) -> list[str]:
    """Remove the lab's containers whose runner is dead, and no other; return what was removed, in words."""
    removed = []
    for container in client.containers.list(all=True, filters={"label": RUNNER}):
        if not lives(container.labels[RUNNER]):
            with contextlib.suppress(*TROUBLE):
                container.remove(force=True, v=True)
                removed.append(f"container {container.short_id}")
    return removed


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
    def started(self, server: Server, cpus: tuple[int, ...], handed: Handed, log: Path) -> Iterator[Running]:
        """Run the server's image read-only, without capabilities or privileges, as nobody, on `cpus`."""
        port = free_port()
        image = self._images[server.name]
        env = {**handed.environment, "ADDR": f"127.0.0.1:{port}"} | ({} if server.contract else {"PORT": str(port)})
        with (
            scratch(self._ledger) as folder,
            self._container(
                server.name, image, cpus, env, log, write_secrets(folder, handed.secrets, NOBODY)
            ) as container,
        ):
            container.start()
            container.reload()
            yield Running(
                int(container.attrs["State"]["Pid"]),
                port,
                lambda: _logged_exit(container, log),
                lambda: _stop(container),
                limit=lambda cores: _limit(container, cores),
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
                limit=lambda cores: _limit(container, cores),
            )

    @contextlib.contextmanager
    def _container(
        self,
        name: str,
        image: str,
        cpus: tuple[int, ...],
        env: dict[str, str],
        log: Path,
        secrets: Mapping[str, Path] = MappingProxyType({}),
    ) -> Iterator[Container]:
        inside = {variable: f"{SECRETS}/{variable}" for variable in secrets}
        mounts = [
            docker.types.Mount(inside[variable], str(path), type="bind", read_only=True)
            for variable, path in secrets.items()
        ]
        try:
            container = self._create(name, image, cpus, {**env, **inside}, mounts)
        except TROUBLE as error:
            raise self._failure(f"Docker could not create a container of {name}", error) from None
        try:
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
            return CannotGoOnError("The Docker engine has gone: start it again.")
        reason = str(getattr(error, "explanation", None) or error).strip().splitlines()[0]
        return LabError(f"{what}: {reason.rstrip('.')}.", exit_code=1)

    def _create(
        self, name: str, image: str, cpus: tuple[int, ...], env: dict[str, str], mounts: list[docker.types.Mount]
    ) -> Container:
        # An engine that was started like this runner cannot give more than the runner itself may have.
        files = min(OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
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
        self._ledger.add("container", id=container.id)
        return container


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
