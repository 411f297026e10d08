"""ssh connections to Docker engines. A connection ends soon after its host is lost.

This module needs paramiko.
"""

import socket
from typing import Any

from docker.errors import DockerException
from docker.transport.sshconn import SSHConnectionPool, SSHHTTPAdapter
from paramiko import SSHException
from paramiko.config import SSH_PORT
from requests.exceptions import ConnectionError as NotConnectedError

from runner.measure.adapters import CONNECT_S, LIVELY, Abandonable

GREETING_S = 15  # a busy host may need this long for a step of the handshake


class _Calls(SSHConnectionPool):
    """A connection pool of docker-py that opens a channel for one API call, and then closes it.

    A channel is a stream within the ssh connection. Each open channel has a process on the host,
    `docker system dial-stdio`. If docker-py kept the channel for later API calls, this process
    would go on running after a failure of the network. By default, docker-py keeps a channel open
    for each of the most recently used URLs, but sshd allows only ten channels per connection
    (MaxSessions).
    """

    def _put_conn(self, conn: Any) -> None:
        if conn is not None:
            conn.close()


class OverSsh(SSHHTTPAdapter, Abandonable):
    """An ssh connection to a Docker engine.

    The kernel ends the connection soon after the engine's host is lost. `abandon` ends the
    connection immediately.
    """

    ssh_client: Any
    ssh_params: Any

    def __init__(self, engine: str, timeout_s: int) -> None:
        self._connect_s = min(CONNECT_S, timeout_s)
        super().__init__(engine, timeout_s)

    def _connect(self) -> None:
        try:
            self.ssh_client.connect(
                **{**self.ssh_params, "port": int(self.ssh_params["port"] or SSH_PORT)},
                timeout=self._connect_s,
                banner_timeout=GREETING_S,
                auth_timeout=GREETING_S,
                channel_timeout=GREETING_S,
            )
        except (SSHException, OSError, EOFError) as error:
            raise DockerException(str(error) or type(error).__name__) from error
        connection = self.ssh_client.get_transport().sock
        if isinstance(connection, socket.socket):  # a ProxyCommand has no socket
            for option in LIVELY:
                connection.setsockopt(*option)

    def get_connection(self, _url: Any, _proxies: Any = None) -> Any:
        """Return a new pool for one API call; first connect to the host if necessary."""
        if not self.ssh_client.get_transport():
            self._connect()
        return _Calls(ssh_client=self.ssh_client, timeout=self.timeout, host=self.ssh_host)

    def send(self, *given: Any, **named: Any) -> Any:
        """Send an HTTP request to the engine.

        Turn errors of ssh into errors of the library `requests`, which callers of `send` expect.
        """
        try:
            return super().send(*given, **named)
        except (SSHException, EOFError) as error:
            raise NotConnectedError(str(error) or type(error).__name__) from error

    def abandon(self) -> None:
        """End the ssh connection and all its channels immediately."""
        self.ssh_client.close()
