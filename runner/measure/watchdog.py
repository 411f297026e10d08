"""A process that outlives the runner by a moment, to end what a killed runner could not.

It holds the read end of a pipe whose write end only the runner has. However the runner ends, SIGKILL
included, the kernel closes the pipe, and the watchdog reaps the runner's ledger.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from runner.measure.leftovers import Ledger, reap
from runner.measure.scratch import sweep_temporary


@contextlib.contextmanager
def watching(ledger: Ledger) -> Iterator[None]:
    """Keep a watchdog over `ledger` as long as this process lives or the context lasts, then reap it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "runner.measure.watchdog", str(ledger.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdin is not None
    try:
        yield
    finally:
        reap(ledger.path)
        # A line before the end of the file says that the runner cleans up by itself.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(b"done\n")
            process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=30)


def main() -> None:
    """Wait for the runner's end; reap its ledger unless it said that it is done."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    path = Path(sys.argv[1])
    if not sys.stdin.buffer.read() and path.exists():
        reap(path)
        sweep_temporary()


if __name__ == "__main__":
    main()
