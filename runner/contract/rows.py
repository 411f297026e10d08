"""The building blocks of checks.

Most checks are an Exchange with a name. The other checks are functions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from runner.contract.client import TIMEOUT_S, CheckConnection, Target, TimedResponse, shorten
from runner.contract.messages import HEALTH, Message
from runner.model import Check, LabError

Result = tuple[bool, str]
"""True if the check succeeded, and a text that says what was sent, expected and received."""
Procedure = Callable[[Target], Result]
Rows = Mapping[str, Procedure | tuple[Procedure, ...]]
"""The procedure or procedures of each check, by the check's name.

A check succeeds if all of its procedures succeed.
"""


@dataclass(frozen=True)
class Expected:
    """An expected answer.

    `words` describes the expected answer. The function `holds` returns True if an answer is as
    expected. If an answer is not as expected, `holds` returns False, or raises LabError with the
    reason.
    """

    words: str
    holds: Callable[[TimedResponse], bool]


def status(*statuses: int) -> Expected:
    """Expect one of these statuses."""
    return Expected(" or ".join(map(str, statuses)), lambda answer: answer.status in statuses)


def json_body(code: int, body: object) -> Expected:
    """Expect a status, the Content-Type of JSON, and a body with this JSON value.

    The value may be written in any way, for example with or without spaces.
    """
    words = f"{code} {json.dumps(body, ensure_ascii=False)[:120]} as application/json"
    return Expected(
        words, lambda answer: answer.status == code and answer.is_json and answer.json() == body
    )


def same_bytes(body: bytes) -> Expected:
    """Expect a body of exactly these bytes."""
    return Expected(f"{len(body)} bytes, {body[:100]!r}", lambda answer: answer.body == body)


def error(code: int) -> Expected:
    """Expect a status, and `{"error":"…"}` with any text as the body."""
    return Expected(
        f'{code} {{"error":…}}', lambda answer: answer.status == code and answer.error is not None
    )


OK = status(200)


class End(Enum):
    """Expected state of a connection after the answers. The value describes the state in words."""

    ANY = "anything"
    CLOSED = "no further answer, and that the server closes the connection"
    SERVED_OR_CLOSED = (
        "no further answer, and that the server closes the connection unless it answered 200"
    )
    USABLE_OR_CLOSED = "then 200 for GET /health, or that the server closes without an answer"


@dataclass(frozen=True)
class Exchange:
    """A check that sends a message, and compares the answers with the expected answers.

    Then it checks the state of the connection, or runs another exchange on the same connection.
    """

    send: Message
    expect: Expected | tuple[Expected, ...]
    then: End | Exchange = End.ANY  # an Exchange is run next, on the same connection
    excused: tuple[int, ...] = ()
    """If the first answer has one of these statuses, the check succeeds, whatever follows."""
    may_be_silent: bool = False  # the server may close without any answer
    may_continue: bool = False  # an answer with status 100 may come before the first answer

    def __call__(self, target: Target) -> Result:
        """Run the exchange over a new connection."""
        with target.connect() as connection:
            return self.run(connection)

    def run(self, connection: CheckConnection) -> Result:
        """Run the exchange over an open connection, and return the check's result."""
        expected = self.expect if isinstance(self.expect, tuple) else (self.expect,)
        connection.send(self.send)
        closed: bool | None = None
        if self.then in (End.CLOSED, End.SERVED_OR_CLOSED):
            last = connection.read_to_the_end()
            answers = last.answers
            closed = last.closed
        else:
            answers = [connection.read() for _ in expected[:1]]
            if self.may_continue and answers[0].status == 100:
                answers = [connection.read()]
            while len(answers) < len(expected) and answers[0].status not in self.excused:
                answers.append(connection.read())
        sent = f"sent {shorten(self.send.data)!r}"
        if answers and answers[0].status in self.excused:
            return True, f"{sent}; got {answers[0].brief}, which is allowed here"
        ok = len(answers) == len(expected) and all(
            map(lambda e, answer: e.holds(answer), expected, answers)
        )
        ok = ok or (self.may_be_silent and not answers)
        words = ", ".join(each.words for each in expected) + (
            " (or no answer)" if self.may_be_silent else ""
        )
        detail = f"{sent}; expected {words}; got {shown(answers, closed)}"
        if isinstance(self.then, End) and closed is not None:
            served = self.then is End.SERVED_OR_CLOSED and [
                answer.status for answer in answers
            ] == [200]
            return ok and (closed or served), f"{detail}; expected then {self.then.value}"
        if not ok or self.then is End.ANY:
            return ok, detail
        return (
            self.then.run(connection)
            if isinstance(self.then, Exchange)
            else usable_or_closed(connection)
        )


def usable_or_closed(connection: CheckConnection, unsent: bytes = b"") -> Result:
    """Check that the server either still serves the connection or closes it.

    Send `unsent`, the rest of a body, and then GET /health. The check succeeds if the only answer
    has the status 200, or if the server closes the connection without an answer.
    """
    connection.send(Message((unsent,)) + HEALTH)
    last = connection.read_to_the_end()
    statuses = [answer.status for answer in last.answers]
    ok = statuses == [200] or (not statuses and last.closed)
    return ok, f"expected {End.USABLE_OR_CLOSED.value}; got {shown(last.answers, last.closed)}"


def shown(answers: list[TimedResponse], closed: bool | None = None) -> str:
    """Return the answers as a text for a check's detail.

    If `closed` is not None, the text also says whether the server closed the connection.
    """
    words = [answer.brief for answer in answers[:5]] + ["…"] * (len(answers) > 5) or ["no answer"]
    return ", ".join(words + ([] if closed is None else ["closed" if closed else "still open"]))


def check_rows(target: Target, rows: Rows) -> Iterator[Check]:
    """Run the checks in order, and yield the result of each.

    A check fails if its connection breaks, or if an answer does not come in time.
    """
    for name, row in rows.items():
        try:
            for check in row if isinstance(row, tuple) else (row,):
                ok, detail = check(target)
                if not ok:
                    break
        except TimeoutError:
            ok = False
            detail = f"{name}: expected an answer; got none within {TIMEOUT_S:g} s"
        except (OSError, LabError, ValueError) as problem:
            ok = False
            detail = f"{name}: expected an answer; got an error: {problem}"
        yield Check(name, ok, detail)
