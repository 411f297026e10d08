"""The load generators' ceilings on this machine, as `bench calibrate` found them, and which machine
that is.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from operator import attrgetter

from runner.manifest import Machine
from runner.model import Cell
from runner.store import data_folder, decode, read_json, write_json
from runner.verdict.limits import Limit

FEWEST_OF_A_CEILING = 3  # trials that a ceiling needs before a verdict leans on it


@dataclass(frozen=True)
class Ceiling:
    """The most requests a second that a generator reached, against the fastest of the servers it
    was tried with.
    """

    tool: str
    load_model: str
    mode: str
    connections: int  # connections of wrk, virtual users of k6
    rps: float  # median of the trials; of an open load the highest rate of a step
    rps_min: float
    rps_max: float
    trials: int
    server: str
    verdict: str
    """`generator-bound` if it is the generator's ceiling; anything else makes it a lower bound.
    """

    @property
    def known(self) -> bool:
        """Whether the generator itself was the limit, in as many trials as make a noisy moment
        unlikely.
        """
        return self.verdict == Limit.GENERATOR.verdict and self.trials >= FEWEST_OF_A_CEILING

    @property
    def in_words(self) -> str:
        """The rate as it may be said: `12,300`, or `at least 12,300` where something else was the
        limit.
        """
        return f"{'' if self.known else 'at least '}{self.rps:,.0f}"


@dataclass(frozen=True)
class Calibration:
    """The ceilings found by one run, and what they are valid for."""

    run_id: str
    made_at: str
    fingerprint: str
    tools: dict[str, str]
    generator_cpus: int
    ceilings: tuple[Ceiling, ...]

    def valid_for(self, machine: Machine, tools: Mapping[str, str], generator_cpus: int) -> bool:
        """Return whether it was made on such a machine, with these versions of the tools, on as
        many CPUs.
        """
        same_tools = all(
            self.tools.get(name, version) == version for name, version in tools.items()
        )
        return (
            self.fingerprint == machine.fingerprint
            and same_tools
            and self.generator_cpus == generator_cpus
        )

    def ceiling_of(self, cell: Cell) -> Ceiling | None:
        """Return the ceiling for a cell's tool, load model and mode: the higher one of its
        neighbours in connections.

        None if the generator was not the limit at both: a lower bound says nothing about a rate
        above it.
        """
        kind = attrgetter("tool", "load_model", "mode")
        alike = sorted(
            (one for one in self.ceilings if kind(one) == kind(cell)), key=attrgetter("connections")
        )
        below = [one for one in alike if one.connections <= cell.sockets][-1:]
        above = [one for one in alike if one.connections >= cell.sockets][:1]
        if not alike or not cell.sockets or not all(one.known for one in below + above):
            return None
        return max(below + above, key=attrgetter("rps_max"))


FILES = ("calibration.json", "calibration-hosts.json")


def save_calibration(calibration: Calibration, *, of_hosts: bool = False) -> None:
    """Write the calibration of this machine, or of several hosts; the one before is replaced."""
    write_json(data_folder() / FILES[of_hosts], asdict(calibration))


def load_calibration(*, of_hosts: bool = False) -> Calibration | None:
    """Return the calibration; None if there is none, LabError if the file is damaged."""
    path = data_folder() / FILES[of_hosts]
    if not path.is_file():
        return None
    said = f"{path} is no calibration, make it anew with `bench calibrate`"
    return decode(Calibration, read_json(path), said, exit_code=2)
