"""Everything between `nothing started` and `servers can be started`: lock, ledger, watchdog, engine, clean-up."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType

from runner.measure.engine import Engine, EngineChoice
from runner.measure.leftovers import Ledger, dead_ledgers, ledger, reap
from runner.measure.process_engine import ProcessEngine
from runner.measure.watchdog import watching
from runner.model import LabError
from runner.store import lab_root


@dataclass(frozen=True)
class Session:
    """The right to start servers on this machine, with an engine to do it."""

    engine: Engine
    ledger: Ledger
    reaped: tuple[str, ...]
    """What was left by runs that died, and is now gone."""


@contextlib.contextmanager
def session(choice: EngineChoice) -> Iterator[Session]:
    """Open the lab for measuring; on leaving, however that comes, nothing of it is left running.

    SIGTERM and SIGHUP end it as Ctrl-C does. A second session is refused: two would measure each other.
    """
    with _lock(), _signals():
        reaped = clean_up()
        with ledger() as book, watching(book), _engine(choice, book) as engine:
            yield Session(engine, book, tuple(reaped))


@contextlib.contextmanager
def _lock() -> Iterator[None]:
    path = lab_root() / "data" / ".lock"
    path.parent.mkdir(exist_ok=True)
    with path.open("a+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.seek(0)
            holder = handle.read().strip() or "unknown"
            raise LabError(f"Another run (pid {holder}) is measuring here: wait for its end or stop it.") from None
        handle.truncate(0)
        handle.write(str(os.getpid()))
        handle.flush()
        yield


def _interrupt(number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers; a caller in another one has its own ways of ending
        return
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _engine(choice: EngineChoice, book: Ledger) -> Iterator[Engine]:
    if choice == "process":
        yield ProcessEngine(book, "asked for with --engine process")
        return
    # docker-py takes 0.2 s to import, which a run of plain processes need not wait for.
    from docker.errors import DockerException  # noqa: PLC0415

    from runner.measure.docker_engine import DockerEngine, connect  # noqa: PLC0415

    try:
        client = connect()
    except DockerException as error:
        reason = _reason(error)
        if choice == "docker":
            raise LabError(f"No Docker engine answers ({reason}): start one, or use --engine process.") from None
        yield ProcessEngine(book, f"no Docker engine answers ({reason}); servers run as plain processes")
        return
    try:
        asked = "asked for with --engine docker" if choice == "docker" else "a Docker engine answers"
        yield DockerEngine(client, book, asked)
    finally:
        client.close()


def _reason(error: Exception) -> str:
    text = str(error)
    for known in ("No such file or directory", "Permission denied", "Connection refused"):
        if known in text:
            return known.lower()
    return text.splitlines()[0][:200] if text else type(error).__name__


def clean_up() -> list[str]:
    """Remove what dead runs left, and nothing of a living one; return what was removed, in words."""
    return [what for path in dead_ledgers() for what in reap(path)]
