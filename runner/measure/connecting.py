"""Connect to a Docker engine, on this machine or at a URL, and report why a connection fails."""

from typing import Any

import docker
from docker import DockerClient
from docker.errors import DockerException
from requests.exceptions import RequestException

from runner.measure.adapters import Abandonable, OverTls
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
        "unable to connect",
    ),
    *("certificate verify failed", "known_hosts"),
)


class _Secured(docker.APIClient):
    """A client of a Docker engine that is reached over TLS. It trusts only the given certificates.

    By default, the library `requests` would trust the certificates in $REQUESTS_CA_BUNDLE instead,
    and would connect through the proxy in $HTTPS_PROXY.
    """

    trust_env = property(lambda _: False, lambda _, __: None)

    def __init__(self, engine: str, tls: Any, timeout_s: int) -> None:
        super().__init__(engine, version=_FIRST_VERSION, tls=tls, timeout=timeout_s)
        self.mount("https://", OverTls())
        _ask_version(self)


_FIRST_VERSION = "1.41"
"""API version of Docker 20.10. A client uses this version to ask which version the engine has."""


class _Tunnelled(docker.APIClient):
    """A client of a Docker engine that is reached over ssh."""

    def __init__(self, engine: str, timeout_s: int) -> None:
        from runner.measure.over_ssh import OverSsh  # noqa: PLC0415 - paramiko is optional

        super().__init__("http://ssh:22", version=_FIRST_VERSION, timeout=timeout_s)
        self._custom_adapter = OverSsh(engine, timeout_s)
        self.mount("http+docker://ssh", self._custom_adapter)
        self.base_url = "http+docker://ssh"
        _ask_version(self)


def _ask_version(api: Any) -> None:
    """Ask the engine for its API version, and use that version from now on.

    docker-py asks by itself only if it uses one of its own adapters. The lab's clients use other
    adapters, so the lab has to ask.
    """
    api._version = api._retrieve_server_version()


def abandon(client: DockerClient) -> None:
    """End all requests to an engine whose host is lost, and refuse further requests."""
    api: Any = client.api
    adapters = list(api.adapters.values())
    api.adapters.clear()
    api._custom_adapter = None  # docker-py uses this adapter if no other adapter fits
    for each in adapters:
        if isinstance(each, Abandonable):
            each.abandon()


def connect(engine: str = "", certificates: str = "", *, timeout_s: int = 60) -> DockerClient:
    """Return a client of this machine's engine, or of the engine at the URL `engine`.

    `certificates` is a folder with ca.pem, cert.pem and key.pem, in Docker's format. If the URL
    begins with ssh://, the connection uses the user's ssh configuration, keys and known hosts, and
    an unknown host is rejected. Raise DockerException if no engine answers.
    """
    if certificates:
        pair: Any = (f"{certificates}/cert.pem", f"{certificates}/key.pem")
        tls = docker.tls.TLSConfig(client_cert=pair, ca_cert=f"{certificates}/ca.pem", verify=True)
        client = docker.DockerClient.__new__(docker.DockerClient)
        client.api = _Secured(engine, tls, timeout_s)
    elif engine.startswith("ssh://"):
        client = docker.DockerClient.__new__(docker.DockerClient)
        client.api = _Tunnelled(engine, timeout_s)
    elif engine:
        client = docker.DockerClient(base_url=engine, timeout=timeout_s)
    else:
        client = docker.from_env(timeout=timeout_s)
    try:
        client.ping()
    except DockerException:
        client.close()
        raise
    return client


def reason(error: Exception) -> str:
    """Return a few words that say why a connection failed, without the addresses that urllib3 adds.

    If the last line of the error contains a phrase of _KNOWN, return only this phrase. Otherwise
    return the last line, shortened to 200 characters.
    """
    text = last_line(str(error) or type(error).__name__)
    return next((known for known in _KNOWN if known in text.lower()), public(text)[:200])


def last_line(error: Exception | str) -> str:
    """Return the last line of an error or a text, without its full stop."""
    return (str(error).strip().splitlines() or ["no reason given"])[-1].rstrip(".")
