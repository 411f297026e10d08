"""How a check is made: a step that talks to the server says whether it went well, and what was compared."""

from __future__ import annotations

from collections.abc import Callable

from runner.measure.contract.wire import TIMEOUT_S, Connection, Target, connect
from runner.model import Check, LabError

Result = tuple[bool, str]
Step = Callable[[], Result]
Trial = Callable[[Connection], Result]


def check(name: str, step: Step) -> Check:
    """Run one step and make its result a Check; a broken or silent connection is a failed one."""
    try:
        ok, detail = step()
    except TimeoutError:
        ok, detail = False, f"{name}: expected an answer; got none within {TIMEOUT_S:g} s"
    except (OSError, LabError) as error:
        ok, detail = False, f"{name}: expected an answer; got this: {error}"
    return Check(name, ok, detail)


def check_connection(name: str, target: Target, trial: Trial) -> Check:
    """Run one trial on a connection of its own."""

    def step() -> Result:
        with connect(target) as connection:
            return trial(connection)

    return check(name, step)


def ended(closed: bool) -> str:
    """Return how a connection ended, for a detail."""
    return "closed" if closed else "still open"
