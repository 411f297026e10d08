"""Warm a server up, and derive the probe's rate and the number of users from the results."""

import contextlib
import math
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import assert_never

from runner.generator_traits import TRAITS
from runner.measure.engine import Running, ask_over
from runner.measure.generators.catalogue import GENERATORS
from runner.measure.generators.command import Shot, WarmedUp
from runner.measure.leftovers import scratch
from runner.measure.loading import Bench, generate
from runner.measure.sites import Job
from runner.measurement import LEAST_PROBED, PROBE_HZ, PROBE_SHARE
from runner.model import Cell, LabError
from runner.shapes import Closed, ForTime, Search, Steps
from runner.store import last_line

FEWEST_DUE = LEAST_PROBED + 2
"""The probe runs only if at least this many of its requests are due in a load.

The number is larger than LEAST_PROBED by two, because the first and the last request may fall
outside of the load.
"""
FEWEST_DUE_IN_SLICES = 2 * LEAST_PROBED
"""The limit that replaces FEWEST_DUE for a load that is divided into slices.

The probe runs only if at least this many of its requests are due in all slices together. The number
is larger than FEWEST_DUE, because a request may fall outside of the load at each end of each slice.
"""
PATIENCE_S = 10.0
"""If a server does not answer a request within this many seconds, the lab stops waiting."""
FEWEST_USERS = 20
USERS_FOR_A_SECOND = 400
"""Up to this rate, in requests/s, an open load gets at least one user for each request per second.

So there are enough users even if every answer takes a second. A load with a higher rate gets at
least this many users.
"""
MOST_USERS = 5000
# The warm-up measures the duration of an iteration. The offered rate times this duration is the
# number of users that the load keeps busy. This number is multiplied by ROOM, because iterations
# take longer under load.
ROOM = 2.0


def warm_up(bench: Bench, cell: Cell, shot: Shot, log: Path) -> WarmedUp:
    """Run a warm-up from every generator; return the combined results.

    `shot` contains the request that the generators send. Keep only the log of the warm-up, and
    delete the other files. Raise LabError if a generator was killed. If `must_warm_up` of the
    generator is True, also raise LabError if the generator ended with another exit code than 0. If
    `must_warm_up` is False, ignore such an exit code.
    """
    generator = GENERATORS[cell.tool]
    with contextlib.ExitStack() as stack:
        jobs = []
        for load_part, site in zip(bench.load_parts, bench.sites.generators, strict=True):
            folder = stack.enter_context(scratch(bench.lab.ledger))
            files = {name: folder / name for name in generator.warm_up_files}
            command = generator.warm_up(load_part.of(cell), site.shot(shot), site.new_paths(files))
            jobs.append(Job(command, bench.cpus_of(site), files, log))
        loads = generate(bench, jobs, None).loads
        codes = [load.generator_exit for load in loads]
        if -signal.SIGKILL in codes:
            raise LabError(f"{cell.tool} was killed in the warm-up.", exit_code=1)
        if generator.must_warm_up and any(codes):
            code = max(codes, key=abs)
            said = last_line(log)
            raise LabError(
                f"{cell.tool} ended with exit code {code} in the warm-up{said}.", exit_code=1
            )
        return _together([generator.read_warm_up(job.files) for job in jobs])


def _together(parts: Sequence[WarmedUp]) -> WarmedUp:
    """Combine the results of generators that ran at the same time.

    Rates are added up. If the rate of one of the generators is unknown, the combined rate is
    unknown. The duration of an iteration is the longest of all generators.
    """
    answers = [part.answers_rps for part in parts if part.answers_rps is not None]
    iterations = [part.iterations_rps for part in parts if part.iterations_rps is not None]
    lengths_ms = [part.iteration_ms for part in parts if part.iteration_ms is not None]
    return WarmedUp(
        answers_rps=sum(answers) if len(answers) == len(parts) else None,
        iterations_rps=sum(iterations) if len(iterations) == len(parts) else None,
        iteration_ms=max(lengths_ms, default=None),
    )


def probe_hz(cell: Cell, warmed: WarmedUp, probe_s: float | None = None) -> float:
    """Return the probe's rate during a load, in requests per second.

    Return 0 if the probe would send too few requests for a median. The rate is at most PROBE_HZ.
    The probe's requests use the server's capacity, as the generator's requests do. So the probe's
    rate is also at most PROBE_SHARE of the warm-up's rate, and at most PROBE_SHARE of an open
    load's lowest rate. If the probe's request differs from the load's request, `probe_s` is the
    time that the server takes to answer the probe's request. In this case, the probe's requests
    together may take at most PROBE_SHARE of the load's duration.
    """
    bounds_hz = [PROBE_HZ]
    if probe_s:
        bounds_hz.append(PROBE_SHARE / probe_s)
    if warmed.answers_rps is not None:
        bounds_hz.append(PROBE_SHARE * warmed.answers_rps)
    if cell.rates_rps:
        bounds_hz.append(PROBE_SHARE * min(cell.rates_rps))
    hz = min(bounds_hz)
    fewest = FEWEST_DUE if cell.slices is None else FEWEST_DUE_IN_SLICES
    return hz if hz * _expected_s(cell, warmed) >= fewest else 0.0


def answer_s(running: Running, path: str) -> float:
    """Send GET for a path three times; return how long the fastest answer took, in seconds.

    The time to connect does not count, because the probe keeps its connection. Over TLS, connecting
    may take longer than the answer.
    """
    lengths_s = []
    for _ in range(3):
        begun_s = time.monotonic()
        with contextlib.suppress(OSError), running.connect(PATIENCE_S) as channel:
            begun_s = time.monotonic()
            ask_over(channel, running, path)
        lengths_s.append(time.monotonic() - begun_s)
    return min(lengths_s)


def _expected_s(cell: Cell, warmed: WarmedUp) -> float:
    """Return the expected duration of a load in seconds, summed over all slices.

    A load with a fixed number of iterations is expected to run at the warm-up's rate. If this rate
    is unknown, return infinity for such a load.
    """
    match cell.shape:
        case Closed() as load:
            return load.iterations / warmed.iterations_rps if warmed.iterations_rps else math.inf
        case ForTime() as load:
            return load.duration_s
        case Steps() | Search():
            return cell.offered_s
        case _:
            assert_never(cell.shape)


def users_of(cell: Cell, warmed: WarmedUp) -> int | None:
    """Return the number of virtual users for an open k6 load that does not set this number itself.

    Return None for any other load. By Little's law, the number of busy users is the rate times the
    duration of an iteration. Response times rise under load, so return ROOM times the number of
    busy users. But return at least one user for each request per second, up to USERS_FOR_A_SECOND
    users, so that there are enough users if every answer takes a second. The result is at least
    FEWEST_USERS and at most MOST_USERS.
    """
    runs_scripts = TRAITS[cell.tool].runs_scripts
    if not runs_scripts or cell.shape.users is not None or not cell.rates_rps:
        return None
    rate_rps = max(cell.rates_rps)
    for_a_second = min(float(USERS_FOR_A_SECOND), rate_rps)
    for_iterations = ROOM * rate_rps * (warmed.iteration_ms or 0.0) / 1000
    return min(MOST_USERS, math.ceil(max(FEWEST_USERS, for_a_second, for_iterations)))
