"""Build the servers' images; make the Debian base where no registry answers."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from docker.errors import BuildError, DockerException, ImageNotFound

from runner.measure.tools import find_program
from runner.model import LabError, Server

if TYPE_CHECKING:
    from docker import DockerClient

BASE_TAG = "web-bench-lab/debian:bookworm"
OFFICIAL_BASE = "debian:bookworm-slim"


def ensure_image(client: DockerClient, server: Server) -> str:
    """Build `server`'s image (Docker's own cache makes an unchanged one cheap) and return its id.

    The stage `prebuilt` holds the very binary that the process engine runs. Where the host has no binary, because its
    toolchain is missing, the last stage builds from source in the toolchain's official image.
    """
    binary = server.artifact is None or (server.folder / server.artifact).is_file()
    arguments = {"BASE": debian_base(client)} if server.base == "debian" else {}
    try:
        with contextlib.nullcontext() if binary else _placeholder(server):
            image, _ = client.images.build(
                path=str(server.folder),
                tag=f"web-bench-lab/{server.name}",
                target="prebuilt" if server.artifact and binary else "",
                buildargs=arguments,
                network_mode="host",
                rm=True,
                forcerm=True,
            )
    except (BuildError, DockerException) as error:
        raise LabError(f"The image of {server.name} could not be built: {_last_line(error)}.", exit_code=1) from None
    return str(image.id)


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
    for tag in (BASE_TAG, OFFICIAL_BASE):
        try:
            client.images.get(tag)
        except ImageNotFound:
            continue
        return tag
    try:
        client.images.pull(OFFICIAL_BASE)
    except DockerException as error:
        _make_base(client, refused=_last_line(error))
        return BASE_TAG
    return OFFICIAL_BASE


def _make_base(client: DockerClient, refused: str) -> None:
    """Make a minimal Debian with mmdebstrap (about 15 s) and import it, with the host's own package sources."""
    mmdebstrap = find_program("mmdebstrap")
    if mmdebstrap is None:
        raise LabError(
            f"{OFFICIAL_BASE} cannot be pulled ({refused}) and mmdebstrap is not installed to make a base: "
            "install it with `apt-get install mmdebstrap`.",
            exit_code=1,
        )
    sources = [path for path in _package_sources() if path.is_file()]
    done = subprocess.run(
        [str(mmdebstrap), "--variant=minbase", "--quiet", "bookworm", "-", *map(str, sources)],
        capture_output=True,
        timeout=300,
        check=False,
    )
    if done.returncode != 0:
        reason = _last_line(RuntimeError(done.stderr.decode(errors="replace")))
        raise LabError(f"mmdebstrap could not make a Debian base: {reason}.", exit_code=1)
    repository, _, tag = BASE_TAG.partition(":")
    client.api.import_image_from_data(done.stdout, repository=repository, tag=tag)


def _package_sources() -> list[Path]:
    apt = Path("/etc/apt")
    return [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]
