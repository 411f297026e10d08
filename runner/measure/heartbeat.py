"""Signs of life between the runner and its stations, in both directions, and their deadlines.

If a host's network link is down, its connections are not reset. So only silence shows that a host
is lost. After a silence of LOST_S, the runner gives up the host. After a silence of LEASE_S, a
station ends everything that the station watches. LEASE_S is longer than LOST_S, so that the runner
always gives up first.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from runner.model import CannotGoOnError

BEAT_S = 1.0
"""Interval between two signs of life.

Without signs of life, the runner could not notice during a load that a host is lost, because a
station answers the runner's request for a load only when the load ends.
"""
BEAT = "beat"
"""The line that the runner sends to a station as a sign of life."""
LOOK_S = 0.5
"""Interval at which each side checks how long the other side has been silent."""
SAID_S = 3.0
"""The runner reports a host that has been silent for this long."""
LOST_S = 8.0
"""The runner gives up a host that has been silent for this long."""
LEASE_S = 10.0
"""A station ends everything that it watches if the runner has been silent for this long."""
STOPPED_S = 4 * LOOK_S
"""If more than this time passes between two checks, the checking process itself was paused."""


class Silence:
    """A timer that measures how long the other side of a channel has been silent.

    Call `seconds` every LOOK_S. If this process itself was paused between two calls, the silence
    counts from 0 again, because signs of life may have arrived meanwhile and are still unread.
    `clock` returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._heard_s = self._looked_s = clock()
        self._longest_s = 0.0

    def heard(self) -> None:
        """Record that a sign of life has arrived now."""
        now_s = self._clock()
        self._longest_s = max(self._longest_s, now_s - self._heard_s)
        self._heard_s = now_s

    def seconds(self) -> float:
        """Return the time in seconds for which the other side has been silent until now."""
        now_s = self._clock()
        if now_s - self._looked_s > STOPPED_S:
            self._heard_s = now_s
        self._looked_s = now_s
        return now_s - self._heard_s

    def take_longest_s(self) -> float:
        """Return the longest silence, in seconds, since this method was last called."""
        longest_s = max(self._longest_s, self._clock() - self._heard_s)
        self._longest_s = 0.0
        return longest_s


class Line(Protocol):
    """A channel to a station, with only those members that `Vigil` uses."""

    silence: Silence

    @property
    def is_over(self) -> bool:
        """True if the station has ended its side of the channel."""

    def close(self) -> None:
        """End the channel immediately."""


@dataclass
class _Watched:
    """A watched host, its channel, and the function that ends all requests to its Docker engine."""

    name: str
    line: Line
    abandon: Callable[[], None]
    is_reported: bool = False  # True if the runner has reported the present silence


class Vigil:
    """A watch over all hosts of a run, which notices if a host is lost.

    A request to any station checks this watch while it waits for its answer. So if one host is
    lost, the requests to the stations of all hosts end with an error.
    """

    def __init__(self, say: Callable[[str], None], now_s: Callable[[], float] = time.time) -> None:
        self._say = say
        self._now_s = now_s
        self._watched: list[_Watched] = []
        self._lost: dict[str, str] = {}
        """Time of day at which each lost host gave its last sign of life: `10:15:03`."""
        self._lock = threading.Lock()

    def watch(self, name: str, line: Line, abandon: Callable[[], None]) -> None:
        """Watch a host from now on; call `abandon` if the host is lost."""
        with self._lock:
            self._watched.append(_Watched(name, line, abandon))

    def forget(self, line: Line) -> None:
        """Stop watching a host, because its channel is about to be closed."""
        with self._lock:
            self._watched = [each for each in self._watched if each.line is not line]

    @property
    def loss(self) -> str:
        """A sentence that names the lost hosts and says what to do; empty if no host is lost."""
        with self._lock:
            lost = dict(self._lost)
        if not lost:
            return ""
        hosts = " and the host of the ".join(lost)
        since = min(lost.values())
        whose = "its network, its power and its Docker engine"
        if len(lost) > 1:
            whose = "their networks, their power and their Docker engines"
        return f"The host of the {hosts} stopped responding at {since}: check {whose}."

    def require(self) -> None:
        """Raise CannotGoOnError if a host is lost."""
        if self.loss:
            raise CannotGoOnError(self.loss)

    def is_lost(self, name: str) -> bool:
        """Return whether the host of this name is lost."""
        return name in self._lost

    def lose(self, line: Line) -> None:
        """Treat the host at the other end of `line` as lost, and end all requests to it."""
        with self._lock:
            given_up = [each for each in self._watched if each.line is line]
            self._watched = [each for each in self._watched if each.line is not line]
            for each in given_up:
                self._lost[each.name] = self._since(each)
        for each in given_up:
            self._say(
                f"The host of the {each.name} has not responded for too long, so the run ends."
            )
            each.line.close()
            each.abandon()

    def look(self) -> None:
        """Report each host that has been silent for SAID_S, and give up each host after LOST_S.

        Also give up a host whose station has ended the channel. If a reported host responds again,
        report that.
        """
        with self._lock:
            watched: Sequence[_Watched] = tuple(self._watched)
        for each in watched:
            silent_s = each.line.silence.seconds()
            if each.line.is_over or silent_s > LOST_S:
                self.lose(each.line)
            elif silent_s > SAID_S and not each.is_reported:
                each.is_reported = True
                self._say(
                    f"The host of the {each.name} has not responded since "
                    f"{self._since(each)}: the run ends if the host stays silent for "
                    f"{LOST_S:g} s."
                )
            elif silent_s <= SAID_S and each.is_reported:
                each.is_reported = False
                self._say(f"The host of the {each.name} responds again.")

    def _since(self, each: _Watched) -> str:
        """Return the time of day at which a host gave its last sign of life: `10:15:03`.

        The time is by this machine's clock.
        """
        heard_s = self._now_s() - each.line.silence.seconds()
        return time.strftime("%H:%M:%S", time.localtime(heard_s))

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Call `look` every LOOK_S until the context ends."""
        ended = threading.Event()

        def look() -> None:
            while not ended.wait(LOOK_S):
                self.look()

        looking = threading.Thread(target=look, daemon=True)
        looking.start()
        try:
            yield
        finally:
            ended.set()
            looking.join()
