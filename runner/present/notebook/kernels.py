"""Start Jupyter kernels that each execute several notebooks, one notebook after the other.

A kernel loads the project's modules only once, in the background, instead of once per notebook.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import contextlib
import fcntl
import os
import queue
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import AsyncKernelManager, KernelManager
from jupyter_core.utils import run_sync

from runner.model import LabError
from runner.store import lab_root

# The validator of notebooks, which is imported later, must not load `rfc3987_syntax`. That module
# would spend two seconds on compiling the grammar of IRIs, although notebooks contain no IRIs.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

LOAD = "__import__('runner.present.notebook.pages')"
"""Code that loads the project's modules in a kernel without defining a variable.

A variable would have to be removed before the first notebook, which would take half a second.
"""
FORGET = "%reset -f"
"""Code that removes every variable of a notebook."""
FOLDER = "bench-kernels-"  # the name of each folder that contains sockets begins with this
QUIET = ["--log-level=40"]  # log errors only, because kernels warn about sockets on loopback
ANSWERED_WITHIN_S = 1.0
"""If a kernel has not answered for this many seconds, `finish` checks that it is still alive."""
AT_ONCE = min(2, len(os.sched_getaffinity(0)))
"""Number of kernels that run at the same time. Each kernel takes a CPU and a few hundred MB."""


@dataclass(frozen=True, eq=False)
class _Idle:
    """A kernel that executes no notebook.

    `asked` is the id of the last request to this kernel.
    """

    kernel: KernelManager
    client: BlockingKernelClient
    asked: str

    def finish(self) -> None:
        """Wait until the kernel has answered its last request.

        A notebook has its own connection to the kernel, and a kernel may handle the requests of two
        connections in any order. Without this wait, the kernel could execute `FORGET` late, and
        remove the variables of a notebook that has already started. Raise LabError if the kernel
        died.
        """
        while run_sync(self.kernel.is_alive)():  # type: ignore[arg-type]
            with contextlib.suppress(queue.Empty):
                answer = self.client.get_shell_msg(timeout=ANSWERED_WITHIN_S)
                if answer["parent_header"].get("msg_id") == self.asked:
                    return
        raise LabError(
            "The kernel that executes a notebook died: run the command again.", exit_code=1
        )


class Kernels:
    """A context with a few kernels, each of which executes one notebook at a time.

    The kernels load the modules in the background. They are killed at the end of the context. They
    are not asked to end, because a kernel that is asked to end while it works prints a traceback.
    The kernels listen on Unix sockets in a folder of this user, and not on ports, because two
    processes could choose the same free port.
    """

    def __init__(self, count: int = AT_ONCE) -> None:
        self.count = count
        self.started: list[KernelManager] = []
        """All kernels, both those that execute a notebook and those that wait for one."""
        self._idle: queue.SimpleQueue[_Idle] = queue.SimpleQueue()
        made = _new_folder()
        self._folder = made.path
        self._lock = made.lock

    def __enter__(self) -> Kernels:
        for number in range(self.count):
            file = str(self._folder / f"{number}.json")
            kernel: KernelManager = AsyncKernelManager(
                kernel_name="python3", transport="ipc", connection_file=file
            )
            self.started.append(kernel)
            run_sync(kernel.start_kernel)(extra_arguments=QUIET, cwd=str(lab_root()))  # type: ignore[arg-type]
            client = kernel.blocking_client()
            client.start_channels()
            self._idle.put(_Idle(kernel, client, client.execute(LOAD, silent=True)))
        return self

    def __exit__(self, *_: object) -> None:
        for kernel in self.started:
            run_sync(kernel.shutdown_kernel)(now=True)  # type: ignore[arg-type]
        shutil.rmtree(self._folder, ignore_errors=True)
        os.close(self._lock)

    @contextlib.contextmanager
    def one(self) -> Iterator[KernelManager]:
        """Wait for a kernel that executes no notebook, and yield this kernel.

        The kernel is yielded when it has finished its last request. Raise LabError if the kernel
        died.
        """
        idle = self._idle.get()
        try:
            idle.finish()
            yield idle.kernel
        finally:
            asked = idle.client.execute(FORGET, silent=True)
            self._idle.put(_Idle(idle.kernel, idle.client, asked))


@dataclass(frozen=True)
class _LockedFolder:
    """A folder for sockets, which this process has locked."""

    path: Path
    lock: int
    """File descriptor that holds the lock until it is closed, or until this process ends."""


def _new_folder() -> _LockedFolder:
    """Remove the folders of processes that were killed, and return a new, locked folder."""
    for left in Path(tempfile.gettempdir()).glob(f"{FOLDER}*"):
        # Keep a folder that another process has locked or that another user owns. Locking or
        # removing such a folder raises an OSError, which is ignored here.
        with contextlib.suppress(OSError):
            os.close(_locked(left))
            shutil.rmtree(left)
    made = Path(tempfile.mkdtemp(prefix="bench-new-"))
    lock = _locked(made)
    named = made.rename(made.with_name(made.name.replace("bench-new-", FOLDER)))
    return _LockedFolder(named, lock)


def _locked(folder: Path) -> int:
    """Lock a folder, and return a file descriptor that holds the lock until it is closed.

    Raise OSError if another process has locked the folder.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
