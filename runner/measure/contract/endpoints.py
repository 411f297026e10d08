"""Checks of what each endpoint answers, one request at a time."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from functools import partial

from runner.measure.contract import cases
from runner.measure.contract.cases import Case
from runner.measure.contract.wire import TIMEOUT_S, Answer, Target, fetch, shorten
from runner.model import Check, LabError, Server

NOT_FOUND = {"code": 404, "message": "not found"}
Step = Callable[[], tuple[bool, str]]


def check(name: str, step: Step) -> Check:
    """Run one step and make its result a Check; a broken or silent connection is a failed one."""
    try:
        ok, detail = step()
    except TimeoutError:
        ok, detail = False, f"{name}: expected an answer; got none within {TIMEOUT_S:g} s"
    except (OSError, LabError) as error:
        ok, detail = False, f"{name}: expected an answer; got this: {error}"
    return Check(name, ok, detail)


def check_endpoints(target: Target, server: Server, nonce: str) -> Iterator[Check]:
    """Check every endpoint that the server implements."""
    implemented = set(server.implements)
    if "health" in implemented:
        yield check_health(target, server, nonce)
    if "count" in implemented:
        yield check_count(target)
    if "fallback" in implemented:
        yield from _check_fallback(target, implemented)
    if "experiments" in implemented:
        yield from _check_cases(target, "/experiments", "experiments")
    if "md5" in implemented:
        yield check_md5(target)
        for case in cases.MD5_CASES:
            yield check_case(target, "/experiments/md5", "md5", case)
    if "devices" in implemented:
        yield check_devices(target)
    if "stats" in implemented:
        yield check("stats: shape", partial(_try_stats, target))
        # A server without counters serves fixed bodies and is excused from refusing methods.
        yield from _check_methods(target, implemented)


def _compare(answer: Answer, status: int, body: object, sent: str) -> tuple[bool, str]:
    ok = answer.status == status and answer.is_json and answer.json() == body
    expected = f"{status} {json.dumps(body, ensure_ascii=False)[:120]} as application/json"
    kind = answer.headers.get("content-type", "no Content-Type")
    return ok, f"sent {sent}; expected {expected}; got {answer.brief} as {kind}"


def check_health(target: Target, server: Server, nonce: str) -> Check:
    """Check that this very process answers: its name, and the nonce that it was started with."""

    def step() -> tuple[bool, str]:
        answer = fetch(target, "GET", "/health")
        expected = {"status": "ok", "server": server.name, "nonce": nonce}
        return _compare(answer, 200, expected, "GET /health")

    return check("health", step)


def check_count(target: Target) -> Check:
    """Check the status and shape of GET /count."""

    def step() -> tuple[bool, str]:
        answer = fetch(target, "GET", "/count")
        body = answer.json()
        number = body.get("message") if isinstance(body, dict) else None
        ok, detail = _compare(answer, 200, {"code": 200, "message": number}, "GET /count")
        return ok and type(number) is int and number >= 0, detail

    return check("count: shape", step)


def _check_fallback(target: Target, implemented: set[str]) -> Iterator[Check]:
    paths = ["/no-such-path", "/", "/no/such/path?x=1", "/count/"]
    if "experiments" in implemented:
        paths.append("/experiments/none")
    for path in paths:
        yield check(
            f"fallback: {path}",
            partial(_try_fallback, target, path),
        )


def _try_fallback(target: Target, path: str) -> tuple[bool, str]:
    return _compare(fetch(target, "GET", path), 200, NOT_FOUND, f"GET {path}")


def _check_cases(target: Target, path: str, label: str) -> Iterator[Check]:
    for case in (*cases.VALID_CASES, *cases.INVALID_CASES, *cases.MALFORMED_CASES, cases.TOO_LARGE):
        yield check_case(target, path, label, case)


def check_case(target: Target, path: str, label: str, case: Case) -> Check:
    """Check one row: its status, and the experiment or the error that comes back."""

    def step() -> tuple[bool, str]:
        answer = fetch(target, "POST", path, case.body)
        body = answer.json()
        ok = answer.status in case.statuses and answer.is_json
        if answer.status == 200:
            ok = ok and (len(case.statuses) > 1 or body == _echo_of(case.body))
        else:
            error = body.get("error") if isinstance(body, dict) else None
            ok = ok and isinstance(error, str) and (case.field or "") in error
        expected = " or ".join(map(str, case.statuses)) + (f" naming {case.field}" if case.field else "")
        return ok, f"sent POST {path} {shorten(case.body, 80)}; expected {expected}; got {answer.brief}"

    return check(f"{label}: {case.name}", step)


def _echo_of(body: bytes) -> dict[str, object]:
    sent = json.loads(body)
    variants = [{key: v[key] for key in ("name", "allocation_percent")} for v in sent["variants"]]
    return {"name": sent["name"], "variants": variants}


def check_md5(target: Target) -> Check:
    """Check the MD5 endpoint against a digest of our own, for any clock second that the request overlapped."""

    def step() -> tuple[bool, str]:
        # One second each way: the server may read a coarser clock than ours.
        first = int(time.time()) - 1
        answer = fetch(target, "POST", "/experiments/md5", cases.PUBLISHED_BODY)
        last = int(time.time()) + 1
        echo = _echo_of(cases.PUBLISHED_BODY)
        texts = [f"{echo['name']}-{second}" for second in range(first, last + 1)]
        digests = [hashlib.md5(text.encode(), usedforsecurity=False).hexdigest() for text in texts]
        body = answer.json()
        name = body.get("name") if isinstance(body, dict) else None
        expected = echo | {"name": name if name in digests else digests[1]}
        return _compare(answer, 200, expected, "POST /experiments/md5 with the published body")

    return check("md5: digest", step)


def check_devices(target: Target) -> Check:
    """Check the fixed list of devices."""
    return check(
        "devices: list",
        lambda: _compare(fetch(target, "GET", "/devices"), 200, cases.DEVICES, "GET /devices"),
    )


def read_stats(target: Target) -> dict[str, object]:
    """Return the body of GET /stats; raise LabError where its shape is not the contract's."""
    answer = fetch(target, "GET", "/stats")
    body = answer.json()
    if answer.status != 200 or not answer.is_json or not isinstance(body, dict) or not _is_stats(body):
        raise LabError(f"GET /stats answered {answer.brief}, which is not the contract's shape", 1)
    return body


def _is_stats(body: dict[str, object]) -> bool:
    gc, pool = body.get("gc"), body.get("pool")
    return (
        set(body) == {"requests", "connections", "gc", "pool"}
        and all(type(body[key]) is int for key in ("requests", "connections"))
        and (gc is None or _are_numbers(gc, {"cycles", "pause_total_ms", "cpu_s"}))
        and (pool is None or _are_numbers(pool, {"size", "in_use", "idle", "waiting"}))
    )


def _are_numbers(value: object, keys: set[str]) -> bool:
    return (
        isinstance(value, dict)
        and set(value) == keys
        and all(type(number) in (int, float) and number >= 0 for number in value.values())
    )


def _try_stats(target: Target) -> tuple[bool, str]:
    return True, f"GET /stats answered {read_stats(target)}"


def _check_methods(target: Target, implemented: set[str]) -> Iterator[Check]:
    for needed, method, path in cases.WRONG_METHODS:
        if needed in implemented:
            yield check(
                f"method: {method} {path}",
                partial(_try_method, target, method, path),
            )


def _try_method(target: Target, method: str, path: str) -> tuple[bool, str]:
    answer = fetch(target, method, path)
    body = answer.json()
    named = isinstance(body, dict) and isinstance(body.get("error"), str)
    ok = answer.status == 405 and answer.is_json and named
    return ok, f'sent {method} {path}; expected 405 {{"error":…}}; got {answer.brief}'
