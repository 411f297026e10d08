"""The list of all load generators that the lab drives."""

from runner.measure.generators.command import Generator
from runner.measure.generators.k6 import K6
from runner.measure.generators.oha import OHA
from runner.measure.generators.vegeta import VEGETA
from runner.measure.generators.wrk import WRK

GENERATORS: dict[str, Generator] = {"k6": K6, "wrk": WRK, "vegeta": VEGETA, "oha": OHA}
"""Generators by name. The field `tool` of a workload contains such a name."""
