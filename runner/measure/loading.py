"""Run a load beside its observers: the generator on its CPUs, the sampler and the probe with it.

What sampler and probe saw is written here: they themselves do not import pyarrow.
"""

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from runner.calibration import Calibration
from runner.measure.engine import Running
from runner.measure.generators.command import Output, Shot
from runner.measure.lab import Lab
from runner.measure.sites import Ask, Clock, Job, Site, Sites
from runner.measurement import PROBE_HZ, Between, Loaded, Placement
from runner.model import Campaign, LabError, LoadPart, Server, Subject
from runner.store import replacing

_TYPES = {
    "subject": pa.string(),
    "source": pa.string(),
    "gc_pause_total_ms": pa.float64(),
    "gc_cpu_s": pa.float64(),
}
"""Column types; whole numbers if nothing is said."""
Sampled = tuple[Mapping[str, Sequence[Any]], Mapping[str, Subject], Clock]
"""What a sampler returned, by column.

The names that its subjects are to have; and its host's clock.
"""


def write_rows(parts: Sequence[Sampled], out: Path) -> None:
    """Write the rows of the named subjects to `out` (resources.parquet), with times of this
    machine's clock.
    """
    tables = []
    for sampled, names, clock in parts:
        columns = {**sampled, "mono_ns": [at - clock.offset_ns for at in sampled["mono_ns"]]}
        columns["subject"] = [names.get(subject) for subject in sampled["subject"]]
        rows = pa.table(
            {
                name: pa.array(values, _TYPES.get(name, pa.int64()))
                for name, values in columns.items()
            }
        )
        tables.append(rows.filter(rows["subject"].is_valid()))
    _write(pa.concat_tables(tables), out)


def write_samples(answers: Sequence[dict[str, Any]], out: Path, clock: Clock) -> None:
    """Write what the probe answered of one or more series to `out` (probe.parquet).

    Its CPU time is the metadata.

    `series` counts the answers from 0. Times of the probe's `clock` become times of this machine's.
    """
    cost = {name: str(sum(answer[name] for answer in answers)) for name in ("cpu_ns", "lived_ns")}
    tables = []
    for series, answer in enumerate(answers):
        samples = {**answer["samples"], "series": [series] * len(answer["samples"]["status"])}
        for name in ("scheduled_ns", "sent_ns", "received_ns"):
            samples[name] = [at - clock.offset_ns for at in samples[name]]
        tables.append(
            pa.table({name: pa.array(values, pa.int64()) for name, values in samples.items()})
        )
    _write(pa.concat_tables(tables).replace_schema_metadata(cost), out)


def _write(table: pa.Table, out: Path) -> None:
    with replacing(out) as temporary:
        pq.write_table(table, temporary, compression="zstd")


@dataclass(frozen=True)
class Bench:
    """What all trials of a run share.

    All observers look on, unless it is their cost that is measured.
    """

    lab: Lab
    sites: Sites  # where servers, generators and instruments run
    campaign: Campaign
    placement: Placement
    tools: Mapping[str, Path]
    calibration: (
        Calibration | None
    )  # the generators' ceilings; None if this machine has none that is valid
    output: Output = "samples"  # what k6 writes
    with_sampler: bool = True
    with_probe: bool = True

    @property
    def load_parts(self) -> tuple[LoadPart, ...]:
        """Each generator's part of a load."""
        return LoadPart.all(len(self.sites.generators))

    def cpus_of(self, site: Site) -> tuple[int, ...]:
        """Return the CPUs of generators and instruments in a place: on the server's host those that
        are not its.
        """
        return self.sites.cpus.get(site.name, self.placement.generator)


class Watchers:
    """A sampler in each place, and the probe, beside the loads of one or more servers.

    Each may be left out.
    """

    def __init__(self, samplers: Mapping[Site, Ask], probe: Ask | None) -> None:
        self.samplers = samplers
        self._probe = probe
        self._is_probing = False
        self._polling: Ask | None = None

    def add(self, site: Site, subject: str, running: Running, cpus: Sequence[int] | None) -> None:
        """Sample a server or a database from now on.

        `cpus` are those that it was given, where the lab gave it some.
        """
        if site in self.samplers:
            self.samplers[site](
                {"add": subject, "pid": running.pid, "alone": running.alone, "cpus": cpus}
            )

    def begin(
        self, site: Site, subject: str, server: Server, running: Running, shot: Shot, hz: float
    ) -> None:
        """Start to poll a server's /stats, and to probe it by `shot`, `hz` times a second.

        0 is never.
        """
        if site in self.samplers and "stats" in server.implements:
            self._polling = self.samplers[site]
            self._polling({"poll": running.port, "address": running.address, "of": subject})
        self._is_probing = self._probe is not None and hz > 0
        if self._probe is not None and self._is_probing:
            request = {
                "method": shot.method,
                "path": shot.path,
                "body": shot.body,
                "host": shot.host,
            }
            self._probe({**request, "port": running.port, "address": running.address, "hz": hz})

    def end(self) -> dict[str, Any] | None:
        """Stop to poll and to probe the server.

        Return what the probe saw, once its answers are there.
        """
        seen = None
        if self._probe is not None and self._is_probing:
            seen = dict(json.loads(self._probe({"pause": True})))
        if self._polling is not None:
            self._polling({"poll": None})
            self._polling = None
        return seen

    def stop(self) -> dict[Site, dict[str, list[Any]]]:
        """Have a last row taken in each place.

        Return all rows of all subjects by the columns of resources.parquet.
        """
        return {
            site: json.loads(sampler({"stop": True})) for site, sampler in self.samplers.items()
        }


@contextlib.contextmanager
def watching(bench: Bench) -> Iterator[Watchers]:
    """Start the observers that `bench` asks for, each on the CPUs that the lab's instruments have
    in its place.
    """
    sites = bench.sites
    hz = bench.campaign.sample_hz
    with contextlib.ExitStack() as stack:
        samplers = {
            site: stack.enter_context(site.instrument("sampler", hz, bench.cpus_of(site)))
            for site in (sites.all if bench.with_sampler else ())
        }
        probe = None
        if bench.with_probe:
            probe = stack.enter_context(
                sites.probe.instrument("probe", PROBE_HZ, bench.cpus_of(sites.probe))
            )
        yield Watchers(samplers, probe)


AHEAD_S = 0.5
"""How long before their beginning several generators are started: longer than that takes."""


@dataclass(frozen=True)
class Generated:
    """A load by all its generators."""

    loads: tuple[Loaded, ...]
    between: Between | None
    """What was between the hosts; None if all is on one."""


def generate(bench: Bench, loads: Sequence[Job], watchers: Watchers | None) -> Generated:
    """Run every generator's load to its end, all from the same instant on.

    If one fails, its error is raised when none is under way any more.
    """
    sites = bench.sites
    for site in sites.all:
        site.look_at_clock()
    networks = {site: site.network() for site in sites.all} if sites.transfer else {}
    begin = None if len(loads) == 1 else time.monotonic_ns() + round(1e9 * AHEAD_S)
    samplers = {} if watchers is None else watchers.samplers
    waits = [
        site.load(replace(load, begin_mono_ns=begin), samplers.get(site))
        for site, load in zip(sites.generators, loads, strict=True)
    ]
    done = list[Loaded]()
    errors = list[LabError]()
    for wait in waits:
        try:
            done.append(wait())
        except LabError as error:
            errors.append(error)
    if errors:
        raise errors[0]
    if sites.transfer is None:
        return Generated(tuple(done), None)
    rose = [
        {name: value - before[name] for name, value in site.network().items()}
        for site, before in networks.items()
    ]
    moved_ns = max(site.look_at_clock() for site in sites.all)
    between = Between(
        clock_error_ns=max(site.clock.error_ns for site in sites.all),
        clock_moved_ns=moved_ns,
        received_bytes=rose[0]["received"],
        sent_bytes=rose[0]["sent"],
        segments=sum(each["segments"] for each in rose),
        retransmitted=sum(each["retransmitted"] for each in rose),
        transfer_bytes_s=sites.transfer.bytes_s,
        generators=sites.generator_hosts,
        round_trip_ns=sites.transfer.round_trip_ns,
    )
    return Generated(tuple(done), between)
