"""Checks of the experiment endpoints: every rule of validation, and the answers' content."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from functools import partial

from runner.measure.contract import cases
from runner.measure.contract.cases import PUBLISHED_ANSWER, PUBLISHED_BODY
from runner.measure.contract.endpoints import compare
from runner.measure.contract.json_cases import Case
from runner.measure.contract.steps import Result, check
from runner.measure.contract.wire import Answer, Target, fetch, shorten
from runner.model import Check, Server

Accepts = Callable[[Case, Answer], bool]


def check_experiments(target: Target, server: Server) -> Iterator[Check]:
    """Check the rows of `cases` on those experiment endpoints that the server implements."""
    if "experiments" in server.implements:
        for case in (*cases.VALID_CASES, *cases.INVALID_CASES, *cases.MALFORMED_CASES):
            yield check_experiment(target, case)
        yield check("experiments: byte for byte", partial(_try_bytes, target))
    if "md5" in server.implements:
        yield check_md5(target)
        for case in cases.MD5_CASES:
            yield check_case(target, "/experiments/md5", "md5", case, lambda _case, _answer: False)


def check_experiment(target: Target, case: Case) -> Check:
    """Check one row on POST /experiments."""
    return check_case(target, "/experiments", "experiments", case, is_echo)


def check_case(target: Target, path: str, label: str, case: Case, accepts: Accepts) -> Check:
    """Check one row: its status, and that the error names the field, or that `accepts` holds."""

    def step() -> Result:
        answer = fetch(target, "POST", path, case.body)
        ok = verdict(case, answer, accepts)
        field = f" naming {case.field}" if case.field else ""
        expected = {"accepted": "success", "rejected": f"400{field}", "open": "success or 400"}[case.expected]
        return ok, f"sent POST {path} {shorten(case.body, 80)}; expected {expected}; got {answer.brief}"

    return check(f"{label}: {case.name}", step)


def verdict(case: Case, answer: Answer, accepts: Accepts) -> bool:
    """Whether an answer is what the case expects."""
    if answer.status == 400:
        error = answer.error
        return case.expected != "accepted" and error is not None and (case.field or "") in error
    if case.expected == "open":
        return answer.status in (200, 201) and answer.is_json
    return case.expected == "accepted" and answer.is_json and accepts(case, answer)


def is_echo(case: Case, answer: Answer) -> bool:
    """Whether the answer is the experiment that was sent."""
    return answer.status == 200 and answer.json() == echo_of(case.body)


def echo_of(body: bytes) -> dict[str, object]:
    """Return the experiment that a valid body describes, without what the contract ignores."""
    sent = json.loads(body)
    variants = [{key: v[key] for key in ("name", "allocation_percent")} for v in sent["variants"]]
    return {"name": sent["name"], "variants": variants}


def _try_bytes(target: Target) -> Result:
    body = fetch(target, "POST", "/experiments", PUBLISHED_BODY).body
    return body == PUBLISHED_ANSWER, f"sent the published body; expected {PUBLISHED_ANSWER!r}; got {body!r}"


def digests_of(name: str, first_s: int, last_s: int) -> list[str]:
    """Return the MD5 of `NAME-UNIXSECONDS` for each of these seconds."""
    texts = [f"{name}-{second}" for second in range(first_s, last_s + 1)]
    return [hashlib.md5(text.encode(), usedforsecurity=False).hexdigest() for text in texts]


def check_md5(target: Target) -> Check:
    """Check the MD5 endpoint against a digest of our own, for any clock second that the request overlapped."""

    def step() -> Result:
        # One second each way: the server may read a coarser clock than ours.
        first = int(time.time()) - 1
        answer = fetch(target, "POST", "/experiments/md5", PUBLISHED_BODY)
        echo = echo_of(PUBLISHED_BODY)
        digests = digests_of(str(echo["name"]), first, int(time.time()) + 1)
        body = answer.json()
        name = body.get("name") if isinstance(body, dict) else None
        expected = echo | {"name": name if name in digests else digests[1]}
        return compare(answer, 200, expected, "POST /experiments/md5 with the published body")

    return check("md5: digest", step)
