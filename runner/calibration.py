"""The highest rates of the load generators (ceilings), as measured by `bench calibrate`.

A fingerprint says on which machine the ceilings were measured.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from operator import attrgetter

from pydantic import JsonValue

from runner.manifest import Machine
from runner.model import Cell
from runner.store import data_folder, decode, read_json, write_json
from runner.verdict.limits import Limit

FEWEST_OF_A_CEILING = 3  # verdicts use a ceiling only if at least this many trials measured it


@dataclass(frozen=True)
class Ceiling:
    """The highest rate that a generator reached, measured with the fastest of several servers."""

    tool: str
    load_model: str
    mode: str
    connections: int  # number of connections, or of virtual users if the generator has users
    rps: float
    """Median of the trials' rates.

    In an open load, the rate of a trial is the rate of the trial's fastest step.
    """
    rps_min: float
    rps_max: float
    trials: int
    server: str
    verdict: str
    """The most frequent verdict of the trials: `generator-bound` if the generator was the limit.

    With any other verdict, the generator can reach at least `rps`, and perhaps a higher rate.
    """

    @property
    def known(self) -> bool:
        """True if the generator was the limit in enough trials (FEWEST_OF_A_CEILING).

        If this is False, the generator may be able to exceed the ceiling.
        """
        return self.verdict == Limit.GENERATOR.verdict and self.trials >= FEWEST_OF_A_CEILING

    @property
    def in_words(self) -> str:
        """The rate in words: `12,300`, or `at least 12,300` if the ceiling is not `known`."""
        return f"{'' if self.known else 'at least '}{self.rps:,.0f}"


@dataclass(frozen=True)
class Calibration:
    """The ceilings that one run measured, and the conditions under which the ceilings are valid."""

    run_id: str
    made_at: str
    fingerprint: str
    tools: dict[str, str]
    generator_cpus: int
    ceilings: tuple[Ceiling, ...]

    def as_json(self) -> dict[str, JsonValue]:
        """Return the calibration in the form that manifests and calibration.json contain."""
        ceilings: list[JsonValue] = [asdict(ceiling) for ceiling in self.ceilings]
        return {**asdict(self), "ceilings": ceilings}

    def valid_for(self, machine: Machine, tools: Mapping[str, str], generator_cpus: int) -> bool:
        """Return True if the calibration applies to this machine, with these tools and CPUs.

        The machine, the versions of the tools, and the number of the generator's CPUs must be those
        of the calibration. A tool that the calibration does not contain is not compared.
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
        """Return the ceiling that applies to a cell.

        Only ceilings for the cell's tool, load model and mode are considered. They were measured
        with a few numbers of connections, so the cell's number may lie between two of them. Of
        these two ceilings, return the one with the higher rate. If there is a ceiling with exactly
        the cell's number, or if all ceilings have higher or all have lower numbers, return the
        nearest ceiling.

        Return None if there is no ceiling, or if the cell's number of connections is unknown. Also
        return None if a ceiling that is used in this way is not `known`, because the generator may
        then be able to exceed the measured rate.
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
    """Store a calibration, and replace the one that was stored before.

    There are two files: one for this machine, and one for several hosts (`of_hosts`).
    """
    write_json(data_folder() / FILES[of_hosts], calibration.as_json())


def load_calibration(*, of_hosts: bool = False) -> Calibration | None:
    """Return the stored calibration of this machine or, with `of_hosts`, of several hosts.

    Return None if there is no stored calibration. Raise LabError if the file is damaged.
    """
    path = data_folder() / FILES[of_hosts]
    if not path.is_file():
        return None
    said = f"{path} is not a calibration: make a new one with `bench calibrate`"
    return decode(Calibration, read_json(path), said, exit_code=2)
