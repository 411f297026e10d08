"""Hit campaigns at random moments by random faults, and check that nothing is lost or left.

Run: PYTHONPATH=benchmarks python -m chaos [--campaigns N] [--seed N] [--containers SHARE]

The program prints a line for each campaign, and ends with exit code 1 if a promise was broken. It
writes the outcomes into docs/reliability.md, even if Ctrl-C ends the program early. The same seed
gives the same campaigns, faults and moments. But the trial that runs at such a moment also depends
on the machine's speed.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from chaos.faults import FAULTS, Fault
from chaos.labs import Engine, Lab

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reliability.md"
BEGIN = "<!-- chaos: begin -->\n"
END = "<!-- chaos: end -->\n"
LONGEST_BUILD_S = 900
TARGET_S = 6.0
"""A fault waits at most this long for something that it can hit, such as a generator."""
RESUMES = 4
"""A run is resumed at most this many times.

A run that is still unfinished after the last of these times breaks a promise of the lab.
"""


@dataclass(frozen=True)
class Outcome:
    """The result of one campaign that a fault hit, with the promises that were broken."""

    fault: str
    moment_s: float
    hit: str
    """The name of the process, file or other thing that the fault hit.

    Empty if nothing that the fault can hit appeared in time.
    """
    exit_code: int | None
    """The exit code of the runner, or None if the runner did not end by itself."""
    resumes: int
    sealed: int
    failed: int
    broken: tuple[str, ...]
    """Sentences about the lab's promises that were broken.

    For example, the lab promises that no file of a sealed trial changes, and that no process is
    left behind.
    """


def main() -> int:
    """Hit the campaigns, print and store their outcomes; return 1 if a promise was broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--campaigns", type=int, default=100)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--containers", type=float, default=0.2, help="share of the campaigns")
    parser.add_argument("--fault", help="only this one")
    asked = parser.parse_args()
    numbers = random.Random(asked.seed)  # noqa: S311 - the faults must be reproducible
    faults = [each for each in FAULTS if asked.fault in (None, each.name)]
    if not faults:
        parser.error(f"no such fault: choose from {', '.join(each.name for each in FAULTS)}")
    # Let SIGTERM raise KeyboardInterrupt, so that this program ends the running campaign and the
    # engine before it ends itself.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    outcomes: list[Outcome] = []
    sys.stdout.write(f"seed {asked.seed}\n")
    with Engine.available() as engine, contextlib.suppress(KeyboardInterrupt):
        if engine is None:
            faults = [each for each in faults if not each.needs_engine]
        if not faults:
            sys.exit(f"The fault {asked.fault!r} needs a Docker engine: start one.")
        length_s = undisturbed_s(engine)
        for number in range(1, asked.campaigns + 1):
            outcome = hit_one(faults, numbers, asked.containers, engine, length_s)
            outcomes.append(outcome)
            sys.stdout.write(f"[{number}/{asked.campaigns}] {in_words(outcome)}\n")
            sys.stdout.flush()
    keep(asked.seed, outcomes)
    return int(any(each.broken for each in outcomes))


def undisturbed_s(engine: Engine | None) -> float:
    """Return the duration, in seconds, of a campaign that runs as plain processes without a fault.

    Before this campaign, run a campaign that builds the servers' binaries. If there is an engine,
    also run a campaign that builds the servers' images.
    """
    for builder in (None, engine) if engine is not None else (None,):
        _unhit(builder)
    return _unhit(None)


def _unhit(engine: Engine | None) -> float:
    """Run a campaign to its end without a fault, and return its duration in seconds."""
    with (
        tempfile.TemporaryDirectory(prefix="chaos-") as folder,
        Lab.made(Path(folder), engine) as lab,
    ):
        began = time.monotonic()
        runner = lab.start("run", "chaos.toml", "--engine", lab.engine_name)
        exit_code = runner.wait(LONGEST_BUILD_S)
        if exit_code != 0:
            sys.exit(f"A campaign that nothing hits ended with exit code {exit_code}: {lab.said()}")
        return time.monotonic() - began


def hit_one(
    faults: Sequence[Fault],
    numbers: random.Random,
    containers: float,
    engine: Engine | None,
    length_s: float,
) -> Outcome:
    """Run a campaign in a lab of its own, hit it with one fault, and resume the run until its end.

    The fault, the moment, and whether the servers are containers are chosen at random.
    """
    in_containers = numbers.random() < containers and engine is not None
    fitting = [each for each in faults if in_containers or not each.needs_engine] or list(faults)
    fault = numbers.choice(fitting)
    in_containers = in_containers or fault.needs_engine
    moment_s = numbers.uniform(0.5, length_s)
    with (
        tempfile.TemporaryDirectory(prefix="chaos-") as folder,
        Lab.made(Path(folder), engine if in_containers else None) as lab,
    ):
        return _hit(lab, fault, moment_s, numbers)


def _hit(lab: Lab, fault: Fault, moment_s: float, numbers: random.Random) -> Outcome:
    """Start the lab's campaign, cause the fault, and resume the run until its end.

    Return the outcome, which names the broken promises.
    """
    runner = lab.start("run", "chaos.toml", "--engine", lab.engine_name)
    lab.wait(runner, moment_s)
    hit = fault.hit(lab, numbers)
    deadline_s = time.monotonic() + TARGET_S
    while not hit and runner.poll() is None and time.monotonic() < deadline_s:
        time.sleep(0.02)
        hit = fault.hit(lab, numbers)
    before = lab.sealed_files()
    exit_code = lab.ended(runner)
    fault.mend(lab)
    broken = lab.left_behind(killed_watchdog=fault.kills_watchdog)
    resumes = 0
    while (run := lab.run()) is not None and to_resume(lab) and resumes < RESUMES:
        resumes += 1
        resumed = lab.start("run", "--resume", run.name)
        code = lab.ended(resumed)
        if code not in (0, 1):
            broken.append(f"resume {resumes} ended with exit code {code}: {lab.said()}")
    broken += lab.left_behind(killed_watchdog=False)
    broken += lab.changed(before)
    broken += lab.contradictions()
    if exit_code is None:
        broken.append("the run did not end")
    if "Traceback" in lab.all_said():
        broken.append("a traceback was printed")
    if lab.unfinished():
        broken.append(f"unfinished after {resumes} resumes: {lab.said()}")
    states = list(lab.states().values())
    return Outcome(
        fault=fault.name,
        moment_s=moment_s,
        hit=hit,
        exit_code=exit_code,
        resumes=resumes,
        sealed=states.count("sealed"),
        failed=states.count("failed"),
        broken=tuple(broken),
    )


def to_resume(lab: Lab) -> bool:
    """Return True if trials are unfinished, or if sealed trials are missing from the tables.

    Then the run must be resumed.
    """
    return lab.unfinished() or bool(lab.contradictions())


def in_words(outcome: Outcome) -> str:
    """Return an outcome as a line for the terminal."""
    what = f"{outcome.fault} after {outcome.moment_s:.1f} s"
    target = outcome.hit or "nothing of its kind was there"
    counts = f"{outcome.sealed} sealed, {outcome.failed} failed, {outcome.resumes} resumes"
    promises = f"BROKEN: {'; '.join(outcome.broken)}" if outcome.broken else "all promises kept"
    return f"{what} ({target}): exit code {outcome.exit_code}, {counts}; {promises}"


def keep(seed: int, outcomes: Sequence[Outcome]) -> None:
    """Write the outcomes into docs/reliability.md, between the marks BEGIN and END."""
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    tail = rest.partition(END)[2]
    PAGE.write_text(f"{head}{BEGIN}{report(seed, outcomes)}{END}{tail}", encoding="utf-8")


def report(seed: int, outcomes: Sequence[Outcome]) -> str:
    """Return the outcomes as a sentence and a table with a row per fault, in Markdown."""
    day = datetime.now(UTC).date().isoformat()
    broken = sum(bool(each.broken) for each in outcomes)
    lines = [
        f"{len(outcomes)} campaigns on {day}, seed {seed}: {broken} broke a promise.",
        "",
        "| fault | campaigns | hit something | resumed | trials sealed | failed | broken |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in sorted({each.fault for each in outcomes}):
        those = [each for each in outcomes if each.fault == name]
        cells = (
            name,
            len(those),
            sum(bool(each.hit) for each in those),
            sum(each.resumes > 0 for each in those),
            sum(each.sealed for each in those),
            sum(each.failed for each in those),
            sum(bool(each.broken) for each in those),
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
