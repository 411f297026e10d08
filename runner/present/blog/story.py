"""Define `Story`, which contains everything from which a post about a run is made."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from runner.manifest import Manifest
from runner.model import LabError, Workload
from runner.planning.catalog import load_workload
from runner.present.answers import findings
from runner.present.answers.findings import Row
from runner.present.frames import Case, Tables, sealed_trials

REPORTS_ONLY = ("--no-usage-report", "--quiet", "--log-output", "--summary", "--system-tags")
"""Prefixes of the k6 options that only decide what k6 reports. Posts omit these options."""


@dataclass(frozen=True)
class Command:
    """The command of a trial's load generator."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "Command":
        """Return the command in a trial's record.

        If the record contains no command, return a command without arguments.
        """
        measurement = record.get("measurement") or {}
        pairs = measurement.get("generator_env") or ()
        environment = {str(name): str(value) for name, value in pairs}
        return cls(tuple(map(str, measurement.get("argv") or ())), environment)

    @property
    def words(self) -> str:
        """The command as a reader would type it.

        Options that only decide what k6 reports are left out. Paths are shortened to file names,
        and `server` replaces the server's address. The environment variable SCENARIO is included,
        because k6 scripts read it.
        """
        typed = [_typed(each) for each in self.arguments if not each.startswith(REPORTS_ONLY)]
        scenario = self.environment.get("SCENARIO")
        if scenario:
            typed.insert(0, f"SCENARIO='{scenario}'")
        return " ".join(typed)


def _typed(argument: str) -> str:
    """Return an argument without folders, and with `server` as the address of the server."""
    if "://" in argument:
        return re.sub(r"^https?://[^/]+", "http://server", argument)
    if argument.startswith("--out=json="):
        return f"--out=json={Path(argument).name}"
    return Path(argument).name


def workload_of(row: Mapping[Any, Any]) -> Workload | None:
    """Return the workload of a trial, or None if the lab does not know this workload."""
    try:
        return load_workload(str(row["workload"]))
    except LabError:
        return None


@dataclass(frozen=True, eq=False)
class Story:
    """A run, with everything from which a post about it is made.

    `public` is the part of the run's manifest that may be published. `commands` are the commands of
    the load generators, by trial.
    """

    tables: Tables
    public: Manifest
    commands: Mapping[str, Command]

    @property
    def sealed(self) -> pd.DataFrame:
        """The sealed trials."""
        return sealed_trials(self.tables.trials)

    @property
    def case(self) -> Case | None:
        """The trial that shows best that a generator can time its own queue instead of the server.

        It is None if the generator timed its own queue in no trial.
        """
        return findings.queued_case(self.tables)

    @property
    def load(self) -> Row | None:
        """A trial of the load under which the post compares servers.

        It is None if the run has no such load.
        """
        return findings.best_known_load(findings.known_ratios(self.tables), self.sealed)

    def phrase_of(self, load: str) -> str:
        """Return a load as a phrase: `on half a core, with 100 kept connections (wrk-matrix)`."""
        trial = self.sealed[self.sealed["load"] == load].iloc[0].to_dict()
        words = findings.load_phrase(trial).rstrip(",")
        return words[0].lower() + words[1:]
