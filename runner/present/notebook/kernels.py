"""Kernels that execute one notebook after the other: each loads the project's modules once, while others still work."""

# mypy: allow-untyped-calls

from __future__ import annotations

import contextlib
import os
import queue
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import AsyncKernelManager, KernelManager
from jupyter_core.utils import run_sync

from runner.model import LabError
from runner.store import lab_root

# What checks notebooks is imported after this, and would build the grammar of IRIs for two seconds: they have none.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

KERNEL = "python3"
LOAD = "__import__('runner.present.notebook.run_page')"
"""Leaves no name behind: the first notebook needs no empty namespace made for it, which takes half a second."""
PATIENCE_S = 60.0
"""How long a kernel has to load modules, or to end by itself: it takes seconds."""


def at_once() -> int:
    """Return how many notebooks may be executed at the same time: each takes a CPU and a few hundred MB."""
    return min(2, len(os.sched_getaffinity(0)))


class Kernels:
    """A few kernels, each with one notebook at a time. They load modules while others still work.

    Leaving the context ends them, at once where an exception leaves it. They listen on sockets in a folder of this
    user's: of two processes that look for free ports at the same time, one would speak to the other's kernel.
    """

    def __init__(self, count: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="bench-kernels-", ignore_cleanup_errors=True)
        self._all: list[KernelManager] = [
            AsyncKernelManager(
                kernel_name=KERNEL, transport="ipc", connection_file=str(Path(self._folder.name, f"{number}.json"))
            )
            for number in range(count)
        ]
        self._idle: queue.SimpleQueue[tuple[KernelManager, BlockingKernelClient, str]] = queue.SimpleQueue()
        """Each with the request that it has to answer before its next notebook: to load, or to forget the last one."""

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._all)

    def __enter__(self) -> Kernels:
        for kernel in self._all:
            # Errors only: its warnings are about a socket on loopback.
            run_sync(kernel.start_kernel)(  # type: ignore[arg-type]
                extra_arguments=["--log-level=40"], cwd=str(lab_root())
            )
            client = kernel.blocking_client()
            client.start_channels()
            self._idle.put((kernel, client, client.execute(LOAD, silent=True)))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._settle()
            for kernel in self._all:  # `shutdown_kernel` would interrupt them first, and they would complain
                run_sync(kernel.request_shutdown)()  # type: ignore[arg-type]
            for kernel in self._all:
                run_sync(kernel.finish_shutdown)(PATIENCE_S, 0.01)  # type: ignore[arg-type]
        for kernel in self._all:
            run_sync(kernel.shutdown_kernel)(now=True)  # type: ignore[arg-type]
        self._folder.cleanup()

    def _settle(self) -> None:
        """Wait until no kernel works any more: one that is asked to end in mid-work says so with a traceback."""
        while not self._idle.empty():
            with contextlib.suppress(LabError):  # it has died, after its work was done
                _await(*self._idle.get())

    @contextlib.contextmanager
    def one(self) -> Iterator[KernelManager]:
        """Wait for a kernel that is idle, and have it with an empty namespace."""
        kernel, client, request = self._idle.get()
        try:
            _await(kernel, client, request)
            yield kernel
        finally:
            # Removes every variable of this notebook, and numbers the next one's cells from 1.
            self._idle.put((kernel, client, client.execute("%reset -f", silent=True)))


def _await(kernel: KernelManager, client: BlockingKernelClient, request: str) -> None:
    """Return when the kernel has answered a request; LabError where it has died, or does not answer."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and _is_alive(kernel):
        with contextlib.suppress(queue.Empty):
            if client.get_shell_msg(timeout=0.5)["parent_header"].get("msg_id") == request:
                return
    raise LabError("A notebook's kernel died, or does not answer: try again.", exit_code=1)


def _is_alive(kernel: KernelManager) -> bool:
    return bool(run_sync(kernel.is_alive)())  # type: ignore[arg-type]
