"""Run a load with its observers, the sampler and the probe, and store what they observed.

This module writes the Parquet files of the sampler and the probe, because the sampler and the probe
do not import pyarrow.
"""

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
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
"""Types of those columns of resources.parquet that contain other values than whole numbers."""
Sampled = tuple[Mapping[str, Sequence[Any]], Mapping[str, Subject], Clock]
"""The rows of one sampler, with the names and the clock that are needed to store the rows.

The first element contains the sampler's rows, as one list of values per column. The second element
is a dict from the sampler's name of each subject to the name under which the subject is stored. A
subject is a thing that the sampler observes: a server, a database, the generator, the sampler
itself or the host. The third element is the clock of the sampler's host.
"""


def write_rows(parts: Sequence[Sampled], out: Path) -> None:
    """Write the rows of one or more samplers to the Parquet file `out`.

    Sampled describes the elements of `parts`. Replace the sampler's name of each subject by the
    name under which the subject is stored, and leave out the rows of subjects without such a name.
    Convert monotonic times by the clock of the sampler's host to times by this machine's clock.
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


@dataclass(frozen=True)
class ProbeSeries:
    """The requests that the probe sent during one load, and the probe's own CPU time."""

    samples: Mapping[str, Sequence[int]]
    """The requests' values in the order of sending: one list for each column of probe.parquet."""
    cpu_ns: int
    """CPU time of the probe during the series."""
    lived_ns: int
    """Duration of the series."""


def write_samples(probed: Sequence[ProbeSeries], out: Path, clock: Clock) -> None:
    """Write the probe's samples of one or more series to `out` (probe.parquet).

    Each sample is a row, whose column `series` contains the index in `probed` of the sample's
    series. The metadata of the file contain the probe's CPU time and the duration, each summed over
    all series. Times by `clock`, the clock of the probe's host, are converted to times by this
    machine's clock.
    """
    cost = {
        "cpu_ns": str(sum(each.cpu_ns for each in probed)),
        "lived_ns": str(sum(each.lived_ns for each in probed)),
    }
    tables = []
    for index, each in enumerate(probed):
        samples = {**each.samples, "series": [index] * len(each.samples["status"])}
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
    """Everything that the trials of a run share.

    The observers (sampler and probe) are normally on. They are switched off only in order to
    measure how much the observers themselves change the results.
    """

    lab: Lab
    sites: Sites  # where servers, generators and instruments run
    campaign: Campaign
    placement: Placement
    tools: Mapping[str, Path]
    calibration: Calibration | None
    """The generators' ceilings; None without a valid calibration of this machine."""
    output: Output = "samples"  # what k6 writes: samples, or only a summary
    with_sampler: bool = True
    with_probe: bool = True

    @property
    def load_parts(self) -> tuple[LoadPart, ...]:
        """Each generator's part of a load."""
        return LoadPart.all(len(self.sites.generators))

    def cpus_of(self, site: Site) -> tuple[int, ...]:
        """Return the CPUs of generators and instruments at a site.

        On the server's host, these are CPUs that the server does not use.
        """
        return self.sites.cpus.get(site.name, self.placement.generator)


class Watchers:
    """The samplers (one at each site) and the probe, which observe the loads of some servers.

    The samplers, the probe, or both may be missing. Calls for a missing observer do nothing.
    """

    def __init__(self, samplers: Mapping[Site, Ask], probe: Ask | None) -> None:
        self.samplers = samplers
        self._probe = probe
        self._is_probing = False
        self._polling: Ask | None = None

    def add_server(
        self, site: Site, subject: str, running: Running, cpus: Sequence[int] | None
    ) -> None:
        """Sample a server from now on, including the time for which its threads wait for a CPU."""
        self._add(site, {"add": subject, "cpus": cpus, "threads": True}, running)

    def add_database(
        self, site: Site, subject: str, running: Running, cpus: Sequence[int] | None
    ) -> None:
        """Sample a database from now on."""
        self._add(site, {"add": subject, "cpus": cpus}, running)

    def _add(self, site: Site, command: Mapping[str, object], running: Running) -> None:
        """Let a site's sampler sample a process.

        The command contains the process's CPUs as `cpus`; None if the lab did not choose the CPUs.
        """
        if site in self.samplers:
            self.samplers[site]({**command, "pid": running.pid, "alone": running.alone})

    def begin(
        self, site: Site, subject: str, server: Server, running: Running, shot: Shot, hz: float
    ) -> None:
        """Start to poll a server's /stats, and let the probe send requests to the server.

        `shot` contains the request that the probe sends, `hz` times per second. If `hz` is 0, the
        probe sends nothing. If the server does not implement /stats, do not poll it.
        """
        if site in self.samplers and "stats" in server.implements:
            self._polling = self.samplers[site]
            self._polling({"poll": running.port, "address": running.address, "of": subject})
        self._is_probing = self._probe is not None and hz > 0
        if self._probe is not None and self._is_probing:
            request: dict[str, object] = {
                "method": shot.method,
                "path": shot.path,
                "body": shot.body,
                "host": shot.host,
            }
            if running.tls is not None:
                request["tls"] = asdict(running.tls)
            self._probe({**request, "port": running.port, "address": running.address, "hz": hz})

    def end(self) -> ProbeSeries | None:
        """Stop polling and probing the server.

        Wait until the last answer to the probe has arrived, and return the probe's samples. Return
        None if the server was not probed.
        """
        seen = None
        if self._probe is not None and self._is_probing:
            seen = ProbeSeries(**json.loads(self._probe({"pause": True})))
        if self._polling is not None:
            self._polling({"poll": None})
            self._polling = None
        return seen

    def stop(self) -> dict[Site, dict[str, list[Any]]]:
        """Let every sampler read its subjects a last time, and end the samplers.

        Return all rows of each site as a dict from the columns of resources.parquet to values.
        """
        return {
            site: json.loads(sampler({"stop": True})) for site, sampler in self.samplers.items()
        }


@contextlib.contextmanager
def watching(bench: Bench) -> Iterator[Watchers]:
    """Start the observers that `bench` switches on, each on its site's CPUs for instruments."""
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
"""Time in seconds for which several generators of a load wait, so that they begin together.

The time counts from the moment when the runner starts the generators' processes. To start these
processes takes less time, so all generators are ready when they have to begin.
"""


@dataclass(frozen=True)
class GeneratedByAll:
    """The results of a load, from each of its generators."""

    loads: tuple[Loaded, ...]
    between: Between | None
    """Facts about the network between the hosts during the load; None without other hosts."""


def generate(bench: Bench, loads: Sequence[Job], watchers: Watchers | None) -> GeneratedByAll:
    """Run the loads of all generators to their end. The loads begin at the same instant.

    Return the loads' results, and the facts about the network between the hosts. If a generator
    fails, wait until all generators have ended, and then raise the error of the failed generator.
    If several generators failed, raise the error of the one that comes first in `loads`.
    """
    sites = bench.sites
    for site in sites.all:
        site.look_at_clock()
        site.take_longest_silence_s()
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
        return GeneratedByAll(tuple(done), None)
    rose = [
        {name: value - before[name] for name, value in site.network().items()}
        for site, before in networks.items()
    ]
    silent_s = max(site.take_longest_silence_s() for site in sites.all)
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
        silent_ns=round(1e9 * silent_s),
    )
    return GeneratedByAll(tuple(done), between)
