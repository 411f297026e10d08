"""Connect to a Docker engine, on this machine or at a URL, or report why that fails."""

from typing import Any

import docker
from docker import DockerClient
from docker.errors import DockerException
from requests.exceptions import RequestException

from runner.store import public

TROUBLE = (DockerException, RequestException)
"""Errors raised by docker-py and by the HTTP client below it."""
_KNOWN = (
    *(
        "no such file or directory",
        "permission denied",
        "connection refused",
        "timed out",
        "no route to host",
    ),
    *("certificate verify failed", "known_hosts"),
)


class _Secured(docker.APIClient):
    """A client that trusts only the certificates given to it.

    By default, requests would use those of $REQUESTS_CA_BUNDLE instead, and send calls through
    $HTTPS_PROXY.
    """

    trust_env = property(lambda _: False, lambda _, __: None)


def connect(engine: str = "", certificates: str = "", *, timeout_s: int = 60) -> DockerClient:
    """Return a client of this machine's engine, or of the one at a URL.

    `certificates` is a folder with ca.pem, cert.pem and key.pem, in Docker's format. ssh:// uses
    the user's configuration, keys and known hosts, and rejects unknown hosts. Raise DockerException
    if no engine answers.
    """
    if certificates:
        pair: Any = (f"{certificates}/cert.pem", f"{certificates}/key.pem")
        tls = docker.tls.TLSConfig(client_cert=pair, ca_cert=f"{certificates}/ca.pem", verify=True)
        client = docker.DockerClient.__new__(docker.DockerClient)
        client.api = _Secured(base_url=engine, tls=tls, timeout=timeout_s)
    elif engine:
        # Over ssh, docker-py keeps a channel for each of the last URLs, but sshd allows only ten
        # (MaxSessions).
        client = docker.DockerClient(base_url=engine, timeout=timeout_s, num_pools=3)
    else:
        client = docker.from_env(timeout=timeout_s)
    try:
        client.ping()
    except DockerException:
        client.close()
        raise
    return client


def reason(error: Exception) -> str:
    """Return the last sentence of an error, without the addresses that urllib3 adds."""
    text = last_line(str(error) or type(error).__name__)
    return next((known for known in _KNOWN if known in text.lower()), public(text)[:200])


def last_line(error: Exception | str) -> str:
    """Return the last line of an error or a text, without its full stop."""
    return (str(error).strip().splitlines() or ["no reason given"])[-1].rstrip(".")
