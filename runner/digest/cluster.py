"""Rebuild a run's tables by many processes, on this machine or others: Dask's workers, an optional
extra.

Digesting a session depends on its raw files only, and each table appears at once: a worker may die,
and its task runs again on another. The folder of the run must be the same one for all of them, as
on a shared file system.
"""

import contextlib
import importlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from runner.digest.tables import Spread
from runner.model import LabError

WORKER_BYTES = (
    2**30
)  # memory of a worker: DuckDB takes 400 MB at most, Python with its libraries 200 MB
LOST_WORKERS = 3  # how often a task may lose its worker before it counts as at fault itself


@contextlib.contextmanager
def spread_over(
    address: str, say: Callable[[str], None], *, workers: int | None = None
) -> Iterator[Spread]:
    """Yield a `map()` that runs on Dask workers: `local` ones, or those of a scheduler's address.

    `local` starts `workers` processes, one for each CPU that this one may use, reached by TLS with
    keys of the moment. For a scheduler's (tcp://host:port, tls://host:port) keys are as Dask's
    configuration says. LabError if Dask is not installed, or nobody answers.
    """
    try:
        dask, distributed = map(importlib.import_module, ("dask", "distributed"))
    except ImportError:
        raise LabError("--cluster needs Dask: pip install '.[cluster]'.") from None
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
                f"There is no Dask scheduler at {address}: {error}.", exit_code=1
            ) from None

        def spread(
            function: Callable[[Any], dict[str, Any]], items: Iterable[Any]
        ) -> Iterator[dict[str, Any]]:
            """Yield what a function returns for each item as they are done.

            The error of the first that fails.
            """
            futures = client.map(function, list(items), pure=False)
            for done, future in enumerate(distributed.as_completed(futures), start=1):
                try:
                    found = future.result()
                except distributed.KilledWorker as error:
                    raise LabError(
                        f"A task lost its worker {LOST_WORKERS + 1} times: {error}.", exit_code=1
                    ) from None
                say(f"[{done}/{len(futures)}] sessions and trials rebuilt")
                yield found

        yield spread
