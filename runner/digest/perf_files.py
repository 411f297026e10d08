"""Read the raw files of a profile: call stacks and events, as perf wrote them."""

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from runner.model import LabError
from runner.profiled import KERNEL

_HEAD = re.compile(r"^(?P<comm>\S.*?)\s+-?\d+/-?\d+\s+(?P<at>\d+\.\d+):\s+(?P<period>\d+)\s*$")
_FRAME = re.compile(r"^\s+(?P<ip>[0-9a-f]+) (?P<name>.*) \((?P<module>[^()]*)(?: \(deleted\))?\)$")
_KERNEL_ADDRESS = 1 << 63


@dataclass(frozen=True)
class Sample:
    """A sample of perf: a call stack, and the CPU time for which the sample stands.

    The stack begins with the thread's first function and ends with the running function.
    """

    stack: tuple[str, ...]
    period_ns: int
    at_s: float
    """Time of the sample in seconds, by the monotonic clock."""


@dataclass(frozen=True)
class Stacks:
    """The number of samples and the CPU time of each call stack in a recorded slice."""

    samples: Counter[str]
    cpu_ns: Counter[str]


@dataclass(frozen=True)
class Event:
    """An event, and how often perf counted it."""

    name: str
    count: float | None
    """Number of times the event occurred; None if the machine cannot count the event."""


def read_stacks(path: Path, begin_s: float, end_s: float) -> Stacks:
    """Return the call stacks in a slice's file that perf sampled from `begin_s` until `end_s`.

    Both times are in seconds, by the monotonic clock. The functions of a stack are joined by `;`.
    Raise LabError if the file is damaged.
    """
    found = Stacks(Counter(), Counter())
    for sample in read_samples(path, begin_s, end_s):
        stack = ";".join(sample.stack)
        found.samples[stack] += 1
        found.cpu_ns[stack] += sample.period_ns
    return found


def read_samples(path: Path, begin_s: float, end_s: float) -> Iterator[Sample]:
    """Yield the samples in a slice's file that perf took from `begin_s` until `end_s`.

    Both times are in seconds, by the monotonic clock. Raise LabError if the file is damaged.
    """
    try:
        with gzip.open(path, "rt", encoding="utf-8", errors="replace") as lines:
            for sample in parse_stacks(lines):
                if begin_s <= sample.at_s < end_s:
                    yield sample
    except (OSError, EOFError, ValueError) as error:
        raise LabError(f"{path} is damaged: {error}.", exit_code=1) from None


def parse_stacks(lines: Iterable[str]) -> Iterator[Sample]:
    """Yield the samples in the text of `perf script`; raise ValueError for an unknown line."""
    head: re.Match[str] | None = None
    frames: list[str] = []
    for line in (*lines, ""):
        text = line.rstrip("\n")
        if found := _HEAD.match(text):
            head = found
            frames = []
        elif frame := _FRAME.match(text):
            frames.append(_function(frame))
        elif text.strip():
            raise ValueError(
                f"the output of `perf script` has a line of an unknown form: {text[:80]!r}"
            )
        elif head is not None:
            yield Sample(tuple(reversed(frames)), int(head["period"]), float(head["at"]))
            head = None


def _function(frame: re.Match[str]) -> str:
    """Return the name of a function, with the suffix KERNEL if the function is in the kernel.

    For a function without a symbol, return the name of the module in brackets.
    """
    name = frame["name"].replace(";", ":")
    if name == "[unknown]":
        module = frame["module"].rpartition("/")[2].strip("[]")
        name = f"[{module}]"
    return name + KERNEL if int(frame["ip"], 16) >= _KERNEL_ADDRESS else name


def read_events(path: Path) -> list[Event]:
    """Return the events of a counted slice; raise LabError if the file is damaged.

    If perf counted an event for only a part of the time, perf has extrapolated the count.
    """
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return [_event(row) for row in rows]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise LabError(f"{path} is damaged: {error}.", exit_code=1) from None


def _event(row: dict[str, object]) -> Event:
    name = str(row["event"])
    value = str(row["counter-value"])
    if value == "<not supported>":
        return Event(name, None)
    return Event(name, 0.0 if value == "<not counted>" else float(value))
