"""Rebuild a run's tables on Dask workers, on this machine or on others. Dask is an optional extra.

A task rebuilds the parts of the tables that belong to one session. The task reads only the raw
files of this session, and writes each part atomically. So if a worker dies, another worker can
repeat the task. All workers must have access to the run's folder, for example by a network file
system.
"""

import contextlib
import importlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from runner.digest.tables import Spread
from runner.model import LabError
from runner.store import Values

WORKER_BYTES = 2**30
"""Memory limit of a worker: 400 MB for DuckDB, 200 MB for Python and libraries, and a reserve."""
LOST_WORKERS = 3  # Dask gives up a task if more than this many workers die while running the task


@contextlib.contextmanager
def spread_over(
    address: str, say: Callable[[str], None], *, workers: int | None = None
) -> Iterator[Spread]:
    """Yield a `map()` that runs on Dask workers.

    If `address` is `local`, start `workers` processes, by default one per usable CPU. These
    processes communicate by TLS with temporary keys. Any other `address` is that of a running
    scheduler (tcp://host:port or tls://host:port), and the keys come from Dask's configuration.
    Raise LabError if Dask is not installed or the scheduler does not answer.
    """
    try:
        dask, distributed = map(importlib.import_module, ("dask", "distributed"))
    except ImportError:
        raise LabError("--cluster needs Dask: pip install 'web-bench-lab[cluster]'.") from None
    dask.config.set({"distributed.scheduler.allowed-failures": LOST_WORKERS})
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with contextlib.ExitStack() as stack:
        try:
            if address == "local":
                cluster = distributed.LocalCluster(
                    n_workers=workers or len(os.sched_getaffinity(0)),
                    threads_per_worker=1,
                    memory_limit=WORKER_BYTES,
                    host="127.0.0.1",
                    dashboard_address=None,
                    security=True,
                    silence_logs=logging.CRITICAL,
                )
                client = stack.enter_context(distributed.Client(stack.enter_context(cluster)))
            else:
                client = stack.enter_context(distributed.Client(address, timeout="10s"))
        except (OSError, ValueError, TypeError) as error:
            raise LabError(
                f"No Dask scheduler answers at {address}: {error}.", exit_code=1
            ) from None

        def spread(function: Callable[[Any], Values], items: Iterable[Any]) -> Iterator[Values]:
            """Yield the function's result for each item, in order of completion.

            If the function raises an error for an item, raise this error.
            """
            futures = client.map(function, list(items), pure=False)
            for done, future in enumerate(distributed.as_completed(futures), start=1):
                try:
                    found = future.result()
                except distributed.KilledWorker as error:
                    raise LabError(
                        "A task was given up, because the worker that ran it was lost "
                        f"{LOST_WORKERS + 1} times: {error}.",
                        exit_code=1,
                    ) from None
                say(f"[{done}/{len(futures)}] sessions and trials rebuilt")
                yield found

        yield spread
