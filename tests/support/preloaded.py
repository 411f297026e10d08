"""Start Python programs without importing third-party modules again.

Instead of starting `python -m MODULE` or `python -c CODE`, fork a process that has already imported
the third-party modules of `bench`. This costs about 0.2 s of CPU time instead of 1.4 s.

The fork imports the modules of `runner` by itself. It has the same parent, arguments, environment,
folder, standard streams and signal dispositions as a program that was really started. If the caller
asks for it, the fork also has a session of its own (setsid). Two things differ: the command
in /proc/PID/cmdline and the number of BLAS threads are those of the preloaded process.

The result of an import may depend on environment variables (except those in `FREE`), resource
limits, CPUs and the control group. A real program is started, and nothing is forked, if any of
these differs between the caller and the preloaded process.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import inspect
import io
import json
import os
import resource
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

BENCH = "bench"
KERNEL = "ipykernel_launcher"
MODULES = {
    BENCH: (
        *("runner.cli", "runner.running.campaign", "runner.running.user_api"),
        *("runner.running.profiling", "runner.present.blog.publish"),
        "runner.present.two_runs.compare",
    ),
    KERNEL: (
        *("ipykernel.kernelapp", "matplotlib_inline.backend_inline", "seaborn"),
        *("runner.importing.opening", "runner.audit.page", "runner.present.notebook.pages"),
    ),
}
"""For each kind of program, the modules that are imported before the fork.

The imported modules of `runner` are then forgotten, so that each fork imports them again.
"""
FREE = {"BENCH_DATA", "BENCH_ROOT", "COLUMNS", "DOCKER_HOST", "JPY_PARENT_PID", "PATH"} | {
    "PYTEST_CURRENT_TEST",
    "TMPDIR",
}
"""Environment variables that no module reads while it is imported."""
ALONE = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""Environment variables that keep imports from starting threads.

A fork has only the thread that called `fork`, so it would lack the threads of the imports.
"""
WHILE_IMPORTED = {
    BENCH: ALONE,
    KERNEL: {**ALONE, "MPLBACKEND": "module://matplotlib_inline.backend_inline"},
}
"""For each kind of program, environment variables that are set only during the imports.

MPLBACKEND is among them, because a notebook's kernel that is started, not forked, also sets it.
"""
PR_SET_CHILD_SUBREAPER = 36  # prctl(2)
REQUEST_BYTES = 2**17


@dataclass(frozen=True)
class Request:
    """A program to start."""

    argv: list[str]
    """The interpreter, `-m` or `-c`, the module or the code, and the program's arguments."""
    env: dict[str, str]
    own_session: bool


def surroundings(env: Mapping[str, str]) -> dict[str, Any]:
    """Return everything that a program inherits, except what a `Request` contains.

    A fork replaces a program only if both have the same surroundings.
    """
    umask = os.umask(0)
    os.umask(umask)
    names = sorted(name for name in dir(resource) if name.startswith("RLIMIT_"))
    return {
        "env": {name: value for name, value in env.items() if name not in FREE},
        "umask": umask,
        "limits": [list(resource.getrlimit(getattr(resource, name))) for name in names],
        "cpus": sorted(os.sched_getaffinity(0)),
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "groups": Path("/proc/self/cgroup").read_text(),
        "group": [os.getsid(0), os.getpgid(0)],
        "spaces": [str(path.readlink()) for path in sorted(Path("/proc/self/ns").iterdir())],
    }


# --- code that runs in the process of the tests ---------------------------------------------------


class Popen(subprocess.Popen[Any]):
    """A `subprocess.Popen` that forks the program from a preloaded process if this is possible."""

    is_forked = False

    def _execute_child(self, *given: Any) -> None:
        asked = inspect.signature(super()._execute_child).bind(*given).arguments
        env = dict(os.environ if asked["env"] is None else asked["env"])
        if _can_be_forked(asked) and (server := _server(_kind(asked))).serves(env):
            argv = [str(each) for each in asked["args"]]
            request = Request(argv, env, asked["start_new_session"])
            streams = [
                number if asked[name] == -1 else asked[name]
                for number, name in enumerate(("p2cread", "c2pwrite", "errwrite"))
            ]
            self.pid = server.fork(request, asked["cwd"] or ".", streams)
            self.is_forked = True
            self._child_created = True
            ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
            self._close_pipe_fds(*(asked[name] for name in ends))
        else:
            super()._execute_child(*given)


def _can_be_forked(asked: Mapping[str, Any]) -> bool:
    """Return whether a fork could do what a call of `subprocess.Popen` asks for.

    It could if the call runs this interpreter with `-m` or `-c`, and if a `Request` can express all
    arguments of the call.
    """
    argv = asked["args"]
    plain = {
        **{"executable": None, "preexec_fn": None, "pass_fds": (), "shell": False},
        **{"close_fds": True, "restore_signals": True, "process_group": -1, "umask": -1},
        **{"gid": None, "gids": None, "uid": None},
    }
    return (
        not isinstance(argv, str | bytes | os.PathLike)
        and len(argv) > 2
        and str(argv[0]) == sys.executable
        and argv[1] in ("-m", "-c")
        and all(asked[name] == value for name, value in plain.items())
    )


def _kind(asked: Mapping[str, Any]) -> str:
    return KERNEL if asked["args"][2] == KERNEL else BENCH


@functools.cache
def _server(kind: str) -> Server:
    return Server(kind)


class Server:
    """The preloaded process for a kind of program. It ends when the process of the tests ends."""

    def __init__(self, kind: str) -> None:
        self._lock = threading.Lock()
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self._process = subprocess.Popen(
                [sys.executable, __file__, kind, str(other.fileno())],
                # ipykernel reads the process id of the kernels' parent when it is imported. The
                # parent is this process.
                env={**os.environ, **WHILE_IMPORTED[kind], "JPY_PARENT_PID": str(os.getpid())},
                pass_fds=[other.fileno()],
            )
        self.pid = self._process.pid
        self._surroundings = json.loads(self._socket.recv(REQUEST_BYTES))

    def serves(self, env: Mapping[str, str]) -> bool:
        """Return whether a fork can replace a program that this process would start with `env`.

        It can if the program would inherit the same `surroundings` (environment, limits, CPUs,
        control group and so on) as the fork.
        """
        return surroundings(env) == self._surroundings

    def fork(self, request: Request, folder: os.PathLike[str] | str, streams: list[int]) -> int:
        """Let the preloaded process fork a program; return the process id of the program.

        The program is then a child of the process of the tests, which calls this function. Raise
        OSError if `folder` does not exist, and RuntimeError if the preloaded process has several
        threads or has ended.
        """
        at = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        try:
            with self._lock, _adopting():
                socket.send_fds(
                    self._socket, [json.dumps(asdict(request)).encode()], [*streams, at]
                )
                answer = self._socket.recv(REQUEST_BYTES).decode()
        finally:
            os.close(at)
        if not answer.isdecimal():
            raise RuntimeError(answer or "the preloaded process has ended")
        return int(answer)


@contextlib.contextmanager
def _adopting() -> Any:
    """Let this process adopt descendants whose parent ends, until the context ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    try:
        yield
    finally:
        libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


# --- code that runs in the preloaded process and in its forks -------------------------------------


def _preload(kind: str) -> None:
    """Import the `MODULES` of a kind, and forget the modules of `runner`."""
    for module in MODULES[kind]:
        importlib.import_module(module)
    for name in [each for each in sys.modules if each.partition(".")[0] == "runner"]:
        del sys.modules[name]
    for name in WHILE_IMPORTED[kind]:
        os.environ.pop(name, None)


def _serve(kind: str, connection: socket.socket) -> Request:
    """Fork for each request, and return the request in the fork.

    In the preloaded process itself, this function never returns: the process ends when the process
    of the tests closes the connection.
    """
    on_interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends only the tests
    _preload(kind)
    gc.collect()
    gc.freeze()
    connection.send(json.dumps(surroundings(os.environ)).encode())
    while True:
        text, descriptors, _, _ = socket.recv_fds(connection, REQUEST_BYTES, 4)
        if not text:
            os._exit(0)
        threads = len(list(Path("/proc/self/task").iterdir()))
        if threads > 1:
            connection.send(f"it has {threads} threads, which a fork would lack".encode())
        elif _fork_orphan():
            signal.signal(signal.SIGINT, on_interrupt)
            request = Request(**json.loads(text))
            _become(request, *descriptors)
            connection.send(str(os.getpid()).encode())
            connection.close()
            return request
        for descriptor in descriptors:
            os.close(descriptor)


def _fork_orphan() -> bool:
    """Fork a process that the process of the tests adopts.

    Return True in this new process, and False in the preloaded process. The preloaded process forks
    a first child. The first child forks the new process, and ends at once. So the new process loses
    its parent, and the process of the tests adopts it.
    """
    between = os.fork()
    if between:
        os.waitpid(between, 0)
        return False
    parent = os.getpid()
    if os.fork():
        os._exit(0)
    while os.getppid() == parent:
        time.sleep(0.0002)
    return True


def _become(request: Request, *descriptors: int) -> None:
    """Give this fork everything that the requested program would have.

    `descriptors` are the file descriptors of the program's standard streams and of its folder.
    """
    *streams, folder = descriptors
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    os.fchdir(folder)
    for descriptor in descriptors:
        os.close(descriptor)
    if request.own_session:
        os.setsid()
    os.environ.clear()
    os.environ.update(request.env)
    sys.stdin, sys.stdout, sys.stderr = (
        _opened(number, was) for number, was in enumerate((sys.stdin, sys.stdout, sys.stderr))
    )
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    sys.orig_argv = request.argv
    sys.argv = [request.argv[1], *request.argv[3:]]
    sys.path[0] = str(Path.cwd()) if request.argv[1] == "-m" else ""
    tempfile.tempdir = None


def _opened(number: int, was: Any) -> io.TextIOWrapper:
    """Return a standard stream, opened in the same way as the interpreter opens it at its start."""
    mode = "w" if number else "r"
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    raw = io.FileIO(number, mode, closefd=False)
    raw.name = f"<{('stdin', 'stdout', 'stderr')[number]}>"
    binary: Any = raw
    if number == 0 or not unbuffered:
        binary = (io.BufferedWriter if number else io.BufferedReader)(raw)
    text = io.TextIOWrapper(
        binary,
        was.encoding,
        was.errors,
        "\n" if number else None,
        line_buffering=not unbuffered and (number == 2 or raw.isatty()),
        write_through=unbuffered,
    )
    text.mode = mode
    return text


class _Ending:
    """The end of a fork, without the interpreter's own clean-up.

    The clean-up would destroy all modules, which takes 0.6 s of CPU time.
    """

    code: int | None = None
    """Exit code of a program that ended by itself or by SystemExit; None after an error."""

    def run(self, request: Request) -> None:
        """Run the program as the module `__main__`."""
        _, option, what, *_ = request.argv
        try:
            if option == "-m":
                runpy.run_module(what, run_name="__main__", alter_sys=True)
            else:
                main = sys.modules["__main__"] = types.ModuleType("__main__")
                exec(compile(what, "<string>", "exec"), vars(main))
            self.code = 0
        except SystemExit as ended:
            is_number = isinstance(ended.code, int)
            self.code = int(ended.code or 0) & 0xFF if is_number or ended.code is None else 1
            raise

    def end(self) -> None:
        """End the process at once, unless the program failed with an error.

        After an error, the interpreter ends the process, because it reports the error. `atexit`
        calls this function after all others.
        """
        gc.unfreeze()
        if self.code is not None:
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(self.code)


if __name__ == "__main__":
    ending = _Ending()
    atexit.register(ending.end)  # atexit works in reverse order, so it runs `end` last
    ending.run(_serve(sys.argv[1], socket.socket(fileno=int(sys.argv[2]))))
