"""Start servers and their databases as plain processes.

Each server and each database is pinned to CPUs, and runs in a session of its own (setsid(2)). If
the lab may create control groups, each server and each database also has a control group of its
own.
"""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from subprocess import PIPE, STDOUT

import psutil

from runner.measure import cgroups
from runner.measure.engine import BY_FILE, Running, RunningDatabase, free_port
from runner.measure.leftovers import Ledger, kill_session, scratch, start_ticks
from runner.measure.tools import find_program, remedy
from runner.model import POSTGRES, LabError, Server

# This shell script joins its control group and waits for a line. (The names of the group's folders
# contain no spaces.) Then the script replaces itself by the program, which keeps the script's pid.
# So the sampler can watch the program from the program's first instruction on, and the group counts
# all CPU time of the program.
_LAUNCHER = (
    'for folder in $1; do echo $$ > "$folder/cgroup.procs"; done; '
    'read -r _ || exit 1; shift; exec taskset -c "$@" < /dev/null'
)
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Pinned:
    """A started program that waits until `release` is called.

    `asking` is the signal that asks the program to end. If the program still runs `grace_s` seconds
    after this signal, the program is killed.
    """

    popen: subprocess.Popen[bytes]
    group: cgroups.Cgroup | None
    started: int | None
    grace_s: float
    asking: signal.Signals

    @property
    def pid(self) -> int:
        """The program's pid, which is also the id of its session and of its process group."""
        return self.popen.pid

    def limit(self, cores: float) -> None:
        """Limit the program, by a quota, to the CPU time of `cores` cores from now on.

        Raise LabError if the quota cannot be set.
        """
        if self.group is None:
            raise LabError(cgroups.NO_QUOTA, exit_code=1)
        self.group.limit(cores)

    def release(self) -> None:
        """Let the program begin."""
        assert self.popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.popen.stdin.write(b"go\n")
            self.popen.stdin.close()

    def end(self) -> int:
        """Ask the program to end, and return its exit code.

        As soon as the program has ended, but at the latest after `grace_s` seconds, kill all
        processes of the program's session (setsid(2)) that still run. Raise LabError if the program
        cannot be killed.
        """
        if self.popen.poll() is None:
            self.popen.send_signal(self.asking)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.popen.wait(timeout=self.grace_s)
        kill_session(self.pid, self.started)
        try:
            return self.popen.wait(timeout=self.grace_s + 10)
        except subprocess.TimeoutExpired:
            raise LabError(
                f"Process {self.pid} cannot be killed, because it waits for a device inside "
                "the kernel.",
                exit_code=1,
            ) from None


@contextlib.contextmanager
def pinned(
    name: str,
    argv: Sequence[str],
    *,
    cpus: Sequence[int],
    env: Mapping[str, str],
    folder: Path,
    log: Path,
    ledger: Ledger,
    grace_s: float = 2.0,
    asking: signal.Signals = signal.SIGTERM,
) -> Iterator[Pinned]:
    """Start the program `argv` on `cpus` in `folder`, and append its output to `log`.

    The program's environment contains exactly `env`. The program waits until `release` is called.
    When the context ends, the lab ends the program (see `Pinned.end`): the program gets the signal
    `asking`, and is killed if it still runs `grace_s` seconds later.
    """
    with cgroups.temporary(name, ledger.add_group) as group, log.open("ab") as output:
        folders = " ".join(map(str, group.folders)) if group else ""
        launched = ["sh", "-c", _LAUNCHER, "sh", folders, ",".join(map(str, cpus)), *argv]
        popen = subprocess.Popen(
            launched,
            stdin=PIPE,
            stdout=output,
            stderr=STDOUT,
            cwd=folder,
            env=dict(env),
            start_new_session=True,
        )
        ledger.add_process(popen.pid)
        process = Pinned(popen, group, start_ticks(popen.pid), grace_s, asking)
        try:
            yield process
        finally:
            process.end()
            assert popen.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                popen.stdin.close()


class ProcessEngine:
    """An engine that starts servers and databases as processes of this machine.

    `find` returns the path of a program, or None if it is not installed.
    """

    name = "process"

    def __init__(
        self, ledger: Ledger, reason: str, find: Callable[[str], Path | None] = find_program
    ) -> None:
        self.reason = reason
        self._ledger = ledger
        self._find = find

    def prepare(self, server: Server) -> str | None:
        """Check that the programs which the server needs are installed.

        Return None instead of an image's digest, because this engine has no images. Raise LabError
        if a program is missing, or if the server can be started only by a Docker engine.
        """
        if not server.contract and not server.run_command:
            raise LabError(
                "A folder with a Dockerfile needs a Docker engine, and this run has none "
                f"({self.reason}): start a Docker engine, or start the server yourself and "
                "give its address by --url."
            )
        for need in server.run_needs:
            if self._find(need) is None:
                raise LabError(f"Server {server.name} needs {need}: {remedy(need)}.")
        return None

    @contextlib.contextmanager
    def started(
        self, server: Server, cpus: tuple[int, ...], handed: Mapping[str, str], log: Path
    ) -> Iterator[Running]:
        """Start the server's binary or script in its folder, with a temporary folder as TMPDIR."""
        artifact = str(server.folder / server.artifact) if server.artifact else ""
        argv = [part.replace("{artifact}", artifact) for part in server.run_command]
        port = free_port()
        with scratch(self._ledger) as temporary:
            env = {
                **handed,
                "ADDR": f"127.0.0.1:{port}",
                "PATH": os.pathsep.join([SYSTEM_PATH, os.environ.get("PATH", "")]),
                "TMPDIR": str(temporary),
            }
            # A user's own server also gets PORT and HOME, because few programs read ADDR, and many
            # programs need a home folder.
            if not server.contract:
                env |= {"PORT": str(port), "HOME": os.environ.get("HOME", str(temporary))}
            if BY_FILE in handed:
                env[BY_FILE] = str(temporary / BY_FILE)
                with os.fdopen(
                    os.open(env[BY_FILE], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w"
                ) as file:
                    file.write(handed[BY_FILE])
            with pinned(
                "server",
                argv,
                cpus=cpus,
                env=env,
                folder=server.folder,
                log=log,
                ledger=self._ledger,
            ) as held:
                began_ns = time.time_ns()
                held.release()
                yield Running(
                    held.pid,
                    port,
                    held.popen.poll,
                    held.end,
                    limit=held.limit,
                    began_wall_ns=began_ns,
                )

    @contextlib.contextmanager
    def database(
        self, cpus: tuple[int, ...], verifier: str, log: Path
    ) -> Iterator[RunningDatabase]:
        """Start the system's PostgreSQL, never as root, with its data in a temporary folder.

        When the context ends, the signal SIGQUIT lets PostgreSQL shut down immediately, with all
        its processes. Unlike SIGTERM, SIGQUIT does not make PostgreSQL wait for its clients. After
        SIGQUIT, PostgreSQL also writes no checkpoint, which is not needed because the data are
        discarded. Raise LabError if PostgreSQL is not installed.
        """
        found = self._find("postgres")
        port = free_port()
        if found is None or not (found.parent / "initdb").exists():
            raise LabError(f"The database workloads need PostgreSQL: {remedy('postgres')}.")
        with scratch(self._ledger) as folder, contextlib.ExitStack() as stack:
            for name in ("start.sh", "postgresql.conf"):
                shutil.copy(POSTGRES / name, folder / name)
            argv = [*_unprivileged(folder), "sh", str(folder / "start.sh")]
            env = {
                "PATH": SYSTEM_PATH,
                "PG_BIN": str(found.parent),
                "PGDATA": str(folder / "cluster"),
            }
            env |= {"PGPORT": str(port), "LAB_VERIFIER": verifier}
            held = partial(
                pinned,
                "database",
                argv,
                cpus=cpus,
                env=env,
                folder=folder,
                log=log,
                ledger=self._ledger,
            )

            def start() -> Pinned:
                process = stack.enter_context(held(grace_s=5.0, asking=signal.SIGQUIT))
                process.release()
                return process

            running = _controlled(start, port)
            try:
                yield running
            finally:
                running.stop()


def _controlled(start: Callable[[], Pinned], port: int) -> RunningDatabase:
    """Start a database; return it with functions to pause, restart and stop it.

    `stop` first lets paused processes continue, because a paused process does not handle SIGQUIT.
    After the database has ended, `stop` kills those of its processes that still run.
    """
    starts = [start()]

    def stop() -> int:
        tree = _tree(starts[-1])
        _signal(tree, signal.SIGCONT)
        code = starts[-1].end()
        _signal(tree, signal.SIGKILL)
        return code

    def restart() -> None:
        _signal(_tree(starts[-1]), signal.SIGKILL)
        starts[-1].popen.wait()
        starts.append(start())

    return RunningDatabase(
        starts[0].pid,
        port,
        exit_code=lambda: starts[-1].popen.poll(),  # noqa: PLW0108 - a restart changes it
        stop=stop,
        image=None,
        pause=lambda: _signal(_tree(starts[-1]), signal.SIGSTOP),
        resume=lambda: _signal(_tree(starts[-1]), signal.SIGCONT),
        restart=restart,
        limit=lambda cores: starts[-1].limit(cores),  # noqa: PLW0108 - a restart changes it
    )


def _tree(process: Pinned) -> list[psutil.Process]:
    """Return the processes of a database, or an empty list if the database has ended.

    The processes must be signalled one by one, because each process leads a session of its own.
    Call this function before ending the database. Afterwards the processes can no longer be found,
    because they are no longer children of the database's first process.
    """
    if process.popen.poll() is None:
        with contextlib.suppress(psutil.NoSuchProcess):
            leader = psutil.Process(process.pid)
            return [leader, *leader.children(recursive=True)]
    return []


def _signal(tree: Sequence[psutil.Process], number: signal.Signals) -> None:
    """Send a signal to each living process.

    If a process has ended and another process has got its pid, psutil sends no signal.
    """
    for each in tree:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.send_signal(number)


def _unprivileged(folder: Path) -> list[str]:
    """Return words to put before a command, so that the command does not run as root.

    PostgreSQL refuses to run as root. So the words make the command run as the user `postgres` or,
    if there is no such user, as `nobody`. This user becomes the owner of `folder` and of the files
    in it. If the lab does not run as root, return an empty list and change no owner. Raise LabError
    if neither user exists.
    """
    if os.geteuid() != 0:
        return []
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    user = names.get("postgres") or names.get("nobody")
    if user is None:
        raise LabError(
            "PostgreSQL refuses to run as root, and there is no user `postgres` or `nobody` to "
            "run it as."
        )
    for path in (folder, *folder.iterdir()):
        os.chown(path, user.pw_uid, user.pw_gid)
    return [
        "setpriv",
        f"--reuid={user.pw_uid}",
        f"--regid={user.pw_gid}",
        "--clear-groups",
        "--no-new-privs",
    ]
