"""Open the lab: lock it, remove leftovers of dead runs, and choose the engine for servers."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import FrameType
from typing import TYPE_CHECKING

from runner.measure.attached import AttachedEngine
from runner.measure.engine import Engine, EngineChoice
from runner.measure.idle import IdleCpus
from runner.measure.leftovers import Ledger, dead_ledgers, ledger, reap, sweep_temporary
from runner.measure.process_engine import ProcessEngine
from runner.measure.sites import Sites
from runner.model import Campaign, LabError, Server, UserApi
from runner.planning.hosts import Hosts
from runner.store import data_folder

if TYPE_CHECKING:
    from runner.measure.fleet import Fleet

# docker-py takes 0.2 s to import. It is imported only in the functions that need it, so that runs
# of plain processes do not wait for the import.

ONE_A_MACHINE = "\0web-bench-lab"


@dataclass(frozen=True)
class Lab:
    """The opened lab. To start a server, use the engine that `engine_for` returns, not `engine`."""

    engine: Engine
    ledger: Ledger
    idle: IdleCpus
    reaped: tuple[str, ...]  # descriptions of the leftovers of dead runs that the lab has removed
    warnings: tuple[str, ...]  # warnings about other measurements that run on this machine
    fleet: Fleet | None = None  # the hosts of a hosts file; None without a hosts file

    @property
    def sites(self) -> Sites:
        """The site of each role. Sites are compared by identity, so each site is created only once.

        If the run has a hosts file, call `fleet.place` first, because it chooses the CPUs.
        """
        return self.fleet.sites if self.fleet else self._here

    @cached_property
    def _here(self) -> Sites:
        return Sites.here(self.ledger)

    def engine_for(self, campaign: Campaign, server: Server) -> Engine:
        """Return the engine that starts a server of the campaign."""
        return self._processes if server.name in campaign.processes else self.engine

    @cached_property
    def _processes(self) -> ProcessEngine:
        """The engine for those servers that a campaign runs as plain processes.

        The campaign's other servers may run in containers.
        """
        return ProcessEngine(self.ledger, "as the campaign asks for")

    @property
    def host_cpus(self) -> int | None:
        """Number of CPUs of the server's machine, including those that the lab may not use."""
        return int(self.fleet.server.said["facts"]["cpus"]) if self.fleet else os.cpu_count()


@contextlib.contextmanager
def open_lab(
    choice: EngineChoice,
    apis: Sequence[UserApi] = (),
    hosts: Hosts | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Iterator[Lab]:
    """Open the lab for measuring, and yield the opened lab.

    When the context ends, for whatever reason, end everything that the lab started. SIGTERM and
    SIGHUP end the context like Ctrl-C. If the APIs have URLs, their servers run already, and the
    lab neither starts nor ends them. With `hosts`, use the hosts' engines. Raise LabError if
    another lab is open in the same checkout, because two labs would distort each other's numbers.
    """
    with _lock(), _alone() as warnings, _signals():
        reaped = clean_up()
        with ledger() as book, contextlib.ExitStack() as stack:
            if hosts is not None:
                from runner.measure.fleet import open_fleet  # noqa: PLC0415

                fleet = stack.enter_context(open_fleet(hosts, book, say))
                yield Lab(fleet.engine, book, fleet.idle, tuple(reaped), warnings, fleet)
            else:
                engine = stack.enter_context(_engine(choice, book, apis, reaped))
                idle = stack.enter_context(contextlib.closing(IdleCpus()))
                yield Lab(engine, book, idle, tuple(reaped), warnings)


@contextlib.contextmanager
def _lock() -> Iterator[None]:
    with (data_folder() / ".lock").open("a+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.seek(0)
            holder = handle.read().strip() or "unknown"
            raise LabError(
                f"Another run (pid {holder}) is measuring here: wait for its end, or stop it."
            ) from None
        handle.truncate(0)
        handle.write(str(os.getpid()))
        handle.flush()
        yield


@contextlib.contextmanager
def _alone() -> Iterator[tuple[str, ...]]:
    """Reserve a socket name that only one lab on this machine can hold (unix(7)).

    The kernel frees the name when its holder ends. If another lab holds the name, yield a tuple
    with one warning, otherwise an empty tuple.
    """
    with socket.socket(socket.AF_UNIX) as name:
        try:
            name.bind(ONE_A_MACHINE)
        except OSError:
            yield (
                "Another lab is measuring on this machine, and two labs at once distort "
                "each other's numbers: wait until the other one has ended.",
            )
        else:
            yield ()


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """Raise KeyboardInterrupt at the first SIGINT, SIGTERM or SIGHUP.

    A later signal only prints a message, because it must not interrupt the clean-up.
    """
    if threading.current_thread() is not threading.main_thread():
        # Only the main thread may set signal handlers. So a caller in another thread must end the
        # lab itself when a signal arrives.
        yield
        return
    came: list[int] = []

    def interrupt(number: int, _frame: FrameType | None) -> None:
        came.append(number)
        if len(came) == 1:
            raise KeyboardInterrupt(signal.Signals(number).name)
        os.write(2, b"Cleaning up what was started: this takes some seconds.\n")

    before = {
        number: signal.signal(number, interrupt)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            # After a signal the process is about to end. Ignore further signals, so that they do
            # not change the exit code of the process.
            signal.signal(number, signal.SIG_IGN if came else handler)


@contextlib.contextmanager
def _engine(
    choice: EngineChoice, book: Ledger, apis: Sequence[UserApi], reaped: list[str]
) -> Iterator[Engine]:
    """Yield the engine that starts the servers.

    If the servers run already, yield an AttachedEngine. Otherwise yield the engine that the user
    chose. If the user chose `auto`, yield a DockerEngine if Docker answers, or else a
    ProcessEngine. Before yielding a DockerEngine, remove the containers of dead runs that no ledger
    lists, and add a description of each removed container to `reaped`. Raise LabError if the user
    chose `docker`, but no Docker engine answers.
    """
    if any(api.url is not None for api in apis):
        yield AttachedEngine(apis)
        return
    if choice == "process":
        yield ProcessEngine(book, "as --engine process asks for")
        return
    from docker.errors import DockerException  # noqa: PLC0415

    from runner.measure.connecting import connect, reason  # noqa: PLC0415
    from runner.measure.docker_engine import DockerEngine, DockerHost, sweep  # noqa: PLC0415

    try:
        client = connect()
    except DockerException as error:
        why = reason(error)
        if choice == "docker":
            raise LabError(
                f"No Docker engine answers ({why}): start one, or use --engine process."
            ) from None
        yield ProcessEngine(
            book, f"no Docker engine answers ({why}); servers run as plain processes"
        )
        return
    with contextlib.closing(client):
        reaped += sweep(client)
        host = DockerHost(client)
        asked = "as --engine docker asks for" if choice == "docker" else "a Docker engine answers"
        yield DockerEngine(host, host, book, asked)


def clean_up() -> list[str]:
    """Remove everything that the ledgers of dead runs list, and the temporary folders of dead runs.

    Return a description of each removed thing.
    """
    return [what for path in dead_ledgers() for what in reap(path)] + sweep_temporary()


def clean_up_all(hosts: Hosts | None = None) -> list[str]:
    """Do the same as `clean_up`, and also remove containers of dead runs that no ledger lists.

    With `hosts`, remove such containers from these hosts, too.
    """
    from docker.errors import DockerException  # noqa: PLC0415

    from runner.measure.connecting import connect  # noqa: PLC0415
    from runner.measure.docker_engine import sweep  # noqa: PLC0415

    removed = clean_up()
    with contextlib.suppress(DockerException), contextlib.closing(connect()) as client:
        removed += sweep(client)
    if hosts is not None:
        from runner.measure.fleet import reap_fleet  # noqa: PLC0415

        removed += reap_fleet(hosts)
    return removed
