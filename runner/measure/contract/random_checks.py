"""Checks with random valid experiments: the answer must mean the same, number by number as doubles."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from runner.measure.contract.experiments import digests_of, is_echo, verdict
from runner.measure.contract.json_cases import Case
from runner.measure.contract.mutations import judge, mutations
from runner.measure.contract.random_experiments import Sample, samples
from runner.measure.contract.steps import Result, check
from runner.measure.contract.wire import ONCE, Answer, Target, connect, request, shorten
from runner.model import Check, LabError, Server

EXPERIMENTS = 250
PER_CONNECTION = 50
PATH = "/experiments"
MD5_PATH = "/experiments/md5"


def check_random(target: Target, server: Server, seed: int, size: int = EXPERIMENTS) -> Iterator[Check]:
    """Send `size` random experiments, as many damaged ones, and a fifth to the MD5 endpoint, over kept connections."""
    if "experiments" in server.implements:
        yield check("experiments: random valid bodies", lambda: _try_samples(target, PATH, seed, size, _names))
        yield check("experiments: random damaged bodies", lambda: _try_mutations(target, seed, size))
    if "md5" in server.implements:
        yield check("md5: random valid bodies", lambda: _try_samples(target, MD5_PATH, seed, size // 5, _digests))


Names = Callable[[Sample, int, int], list[str]]


def _names(sample: Sample, _first_s: int, _last_s: int) -> list[str]:
    return [sample.name]


def _digests(sample: Sample, first_s: int, last_s: int) -> list[str]:
    return digests_of(sample.name, first_s, last_s)


def _try_samples(target: Target, path: str, seed: int, size: int, names: Names) -> Result:
    made = samples(seed, size)
    for start in range(0, size, PER_CONNECTION):
        with connect(target) as connection:
            for number, sample in enumerate(made[start : start + PER_CONNECTION], start):
                first_s = int(time.time()) - 1
                connection.send(request("POST", path, sample.body), ONCE)
                answer = connection.read_answer()
                difference = difference_of(sample, answer, names(sample, first_s, int(time.time()) + 1))
                if difference:
                    place = f"seed {seed}, body {number} of {size}"
                    return False, f"{place}: {difference}; the body is {shorten(sample.body, 500)}"
    return True, f"seed {seed}: {size} random bodies came back the same"


def _try_mutations(target: Target, seed: int, size: int) -> Result:
    made = mutations(seed, size)
    found = {"accepted": 0, "rejected": 0, "open": 0}
    for start in range(0, size, PER_CONNECTION):
        with connect(target) as connection:
            for number, body in enumerate(made[start : start + PER_CONNECTION], start):
                connection.send(request("POST", PATH, body), ONCE)
                answer = connection.read_answer()
                expected = judge(body)
                found[expected] += 1
                if not verdict(Case("", body, expected), answer, is_echo):
                    place = f"seed {seed}, body {number} of {size}"
                    return False, f"{place}: expected {expected}; got {answer.brief}; the body is {body!r}"
    return True, f"seed {seed}: {size} damaged bodies were judged as they must be: {found}"


def difference_of(sample: Sample, answer: Answer, names: list[str]) -> str | None:
    """Return how an answer differs from the experiment that was sent, if it does; `names` are the right ones."""
    if answer.status != 200 or not answer.is_json:
        return f"expected 200; got {answer.brief}"
    try:
        body = answer.json()
    except LabError as error:
        return str(error)
    if not isinstance(body, dict) or set(body) != {"name", "variants"} or not isinstance(body["variants"], list):
        return f"expected name and variants; got {answer.brief}"
    if body["name"] not in names:
        return f"expected the name {names[0]!r}; got {body['name']!r}"
    return _difference_of_variants(sample, body["variants"])


def _difference_of_variants(sample: Sample, got: list[Any]) -> str | None:
    if len(got) != len(sample.variants):
        return f"expected {len(sample.variants)} variants; got {len(got)}"
    for index, (variant, (name, percent)) in enumerate(zip(got, sample.variants, strict=True)):
        expected = {"name": name, "allocation_percent": percent}
        if variant != expected or isinstance(variant["allocation_percent"], bool):
            return f"variants[{index}]: expected {expected!r}; got {variant!r}"
    return None
