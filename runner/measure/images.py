"""Build the servers' images; make the Debian base where no registry answers."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from docker.errors import BuildError, DockerException, ImageNotFound
from docker.utils.build import tar

from runner.measure.tools import find_program
from runner.model import POSTGRES, LabError, Server

if TYPE_CHECKING:
    from docker import DockerClient

BASE_TAG = "web-bench-lab/debian:bookworm"
OFFICIAL_BASE = "debian:bookworm-slim"
OFFICIAL_POSTGRES = "postgres:15-bookworm"
DATABASE = "database.postgres"
"""Name of the database's image and containers: a server's name has no dot."""


def ensure_image(client: DockerClient, server: Server) -> str:
    """Build `server`'s image (Docker's own cache makes an unchanged one cheap) and return its id.

    The stage `prebuilt` holds the very binary that the process engine runs. Where the host has no binary, because its
    toolchain is missing, the last stage builds from source in the toolchain's official image.
    """
    binary = server.artifact is None or (server.folder / server.artifact).is_file()
    with contextlib.nullcontext() if binary else _placeholder(server):
        return _build(
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
    return _build(client, DATABASE, _context(POSTGRES, ()), "Dockerfile", "", official)


def _build(
    client: DockerClient, name: str, context: IO[bytes], dockerfile: str, target: str, arguments: dict[str, str]
) -> str:
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
    if not _pulled(client, OFFICIAL_BASE):
        return BASE_TAG
    return OFFICIAL_BASE


def _pulled(client: DockerClient, official: str) -> bool:
    """Return whether an official image is here or can be pulled; where not, a Debian base of our own is.

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
    """Make a minimal Debian with mmdebstrap (about 15 s) and import it, with the host's own package sources."""
    mmdebstrap = find_program("mmdebstrap")
    if mmdebstrap is None:
        raise LabError(
            f"No image can be pulled ({refused}) and mmdebstrap is not installed to make a base: "
            "install it with `apt-get install mmdebstrap`.",
            exit_code=1,
        )
    sources = [path for path in _package_sources() if path.is_file()]
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


def _package_sources() -> list[Path]:
    apt = Path("/etc/apt")
    return [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]
