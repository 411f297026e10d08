"""The random bodies and their judge, held against JSON libraries and rules that know nothing of them."""

import contextlib
import json
import math
from fractions import Fraction

import pytest
from contract_http import RefusedError
from contract_rules import read_experiment

from runner.contract.experiments import CASES, ExperimentCase
from runner.contract.random_experiments import RandomExperiment, judge, mutations, samples


@pytest.fixture(scope="module")
def made() -> list[RandomExperiment]:
    return list(samples(20261121, 400))


def test_samples_are_what_they_say_and_keep_the_rules(made: list[RandomExperiment]) -> None:
    for sample in made:
        read = json.loads(sample.body)
        assert read["name"] == sample.name
        assert tuple((v["name"], float(v["allocation_percent"])) for v in read["variants"]) == sample.variants
        assert len(sample.body) <= 65536
        assert 1 <= len(sample.name) <= 200
        assert 1 <= len(sample.variants) <= 100
        assert all(1 <= len(name) <= 200 and 0 <= percent <= 100 for name, percent in sample.variants)
        assert abs(sum(Fraction(percent) for _, percent in sample.variants) - 100) < Fraction(1, 1000)


def test_samples_reach_every_corner(made: list[RandomExperiment]) -> None:
    bodies = b"".join(sample.body for sample in made)
    names = "".join(sample.name for sample in made)
    percents = [percent for sample in made for _, percent in sample.variants]
    sizes = {len(sample.variants) for sample in made}
    assert {ord(letter) >> 16 for letter in names} == set(range(17))
    assert sizes >= {1, 2, 3} and max(sizes) > 90
    assert max(len(sample.name) for sample in made) == 200
    assert any(percent == 0 and math.copysign(1, percent) < 0 for percent in percents)
    assert all(mark in bodies for mark in (b"\\/", b"\\u0000", b"\\uD8", b"\\ud8", b'"\\u006', b"E+", b"e-", b"\r\n"))


def test_the_same_seed_makes_the_same() -> None:
    assert [*samples(5, 20)] == [*samples(5, 20)] != [*samples(6, 20)]
    assert mutations(5, 20) == mutations(5, 20) != mutations(6, 20)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_the_judge_agrees_with_the_cases(case: ExperimentCase) -> None:
    judgement = judge(case.body)
    assert judgement == case.expected or "open" in (judgement, case.expected)


def test_the_judge_leaves_little_open() -> None:
    decided = [case for case in CASES if case.expected != "open"]
    # Sums at 0.01 from 100, numbers beyond a double, half surrogate pairs and a byte order mark.
    assert sum(judge(case.body) == "open" for case in decided) < 10


def test_the_judge_agrees_with_another_reading_of_the_rules() -> None:
    judged = {"accepted": 0, "rejected": 0, "open": 0}
    for body in mutations(20261121, 3000):
        judgement = judge(body)
        judged[judgement] += 1
        if judgement != "open":
            refusal = pytest.raises(RefusedError) if judgement == "rejected" else contextlib.nullcontext()
            with refusal:
                read_experiment(body, "")
    assert min(judged["accepted"], judged["rejected"]) > 150
