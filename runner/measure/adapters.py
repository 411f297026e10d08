"""TLS connections to Docker engines on other hosts; they end soon after the host is lost."""

import contextlib
import socket
from abc import ABC, abstractmethod
from typing import Any
from weakref import WeakSet

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPSConnection
from urllib3.connectionpool import HTTPSConnectionPool

CONNECT_S = 8
"""Longest wait until a connection to an engine is open.

Also the longest wait for a host that no longer confirms the data sent to it.
"""
LIVELY = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * CONNECT_S),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 2),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
"""Socket options: the kernel ends a connection within CONNECT_S if the other host is silent.

Without these options, a call to a host that has lost its network would wait until the call's own
time limit (tcp(7)).
"""


class Abandonable(ABC):
    """A connection to an engine that can be given up while calls are under way."""

    @abstractmethod
    def abandon(self) -> None:
        """End all calls at once; a caller that waits for an answer gets an error."""


class OverTls(HTTPAdapter, Abandonable):
    """TLS connections that end when their host is lost, and that can be abandoned."""

    def init_poolmanager(self, *given: Any, **named: Any) -> None:
        """Make connections with the options LIVELY, and remember their sockets for `abandon`."""
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
        """Send a request; connect within CONNECT_S, even if the answer may take longer."""
        limit_s = named.get("timeout")
        if isinstance(limit_s, (int, float)):
            named["timeout"] = (min(CONNECT_S, limit_s), limit_s)
        return super().send(*given, **named)

    def abandon(self) -> None:
        """End all connections at once."""
        for each in list(self._opened):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
