"""TLS connections to Docker engines on other hosts.

If such a host stops responding, the kernel ends its connections within seconds.
"""

import contextlib
import socket
from abc import ABC, abstractmethod
from typing import Any
from weakref import WeakSet

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPSConnection
from urllib3.connectionpool import HTTPSConnectionPool

CONNECT_S = 8
"""An engine must accept a connection within this many seconds.

After that, if the engine's host does not confirm sent data for this many seconds, the kernel ends
the connection.
"""
LIVELY = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * CONNECT_S),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 2),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
"""Socket options that make the kernel end a connection to a silent host within CONNECT_S.

Without these options, an HTTP request to a host that has lost its network would wait until the
request's own time limit. tcp(7) describes the options.
"""


class Abandonable(ABC):
    """Base class of HTTP adapters that can end requests which wait for an answer."""

    @abstractmethod
    def abandon(self) -> None:
        """End all waiting requests immediately, so that each of them raises an error."""


class OverTls(HTTPAdapter, Abandonable):
    """An HTTP adapter that sends docker-py's requests to an engine over TLS.

    The kernel ends a connection if the engine's host is lost. `abandon` ends all connections.
    """

    def init_poolmanager(self, *given: Any, **named: Any) -> None:
        """Set the options LIVELY on each new connection, and store its socket for `abandon`."""
        super().init_poolmanager(*given, **named, socket_options=LIVELY)
        opened = self._opened = WeakSet[socket.socket]()

        class Connection(HTTPSConnection):
            def connect(self) -> None:
                super().connect()
                opened.add(self.sock)

        class Pool(HTTPSConnectionPool):
            ConnectionCls = Connection

        self.poolmanager.pool_classes_by_scheme = {"https": Pool}

    def send(self, *given: Any, **named: Any) -> Any:
        """Send a request.

        Connecting may take at most CONNECT_S, even if the request has a longer time limit.
        """
        limit_s = named.get("timeout")
        if isinstance(limit_s, (int, float)):
            named["timeout"] = (min(CONNECT_S, limit_s), limit_s)
        return super().send(*given, **named)

    def abandon(self) -> None:
        """End all connections immediately."""
        for each in list(self._opened):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
