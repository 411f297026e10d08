"""The answer in a few lines, against runs in which the winner and the lead are known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import synthetic_rates
import synthetic_run

from runner.present.answers.headline import Headline, doubled, headlines, printable, untold
from runner.present.frames import Tables, read_tables
from runner.store import RunFolder


def read(path: Path) -> Tables:
    return read_tables(RunFolder(path))


@pytest.fixture(scope="module")
def six(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Six blocks, three servers; every server has a rate of its own, and noise that its blocks share."""
    tables = read(synthetic_run.build(tmp_path_factory.mktemp("six") / "run", trials=6, failed=False))
    rng = np.random.default_rng(5)
    noise = rng.lognormal(0, 0.002, len(tables.trials))
    trials = tables.trials.assign(
        rps=tables.trials["rps"] * noise, server_cpu_ms_per_request=tables.trials["server_cpu_ms_per_request"] / noise
    )
    return replace(tables, trials=trials)


def of(found: tuple[Headline, ...], question: str) -> Headline:
    return next(each for each in found if each.question.startswith(question))


def test_the_leader_the_lead_and_the_trials_are_named(six: Tables) -> None:
    """nginx is generator-bound everywhere, axum is 6 % ahead of gin: known from synthetic_run.wrk_rate."""
    rate = of(headlines(six), "Most requests")
    assert rate.answer == "axum on 6 of 6 loads"
    least, most = (float(part.split("×")[1].split(" ")[0]) for part in rate.margin.split(" to "))
    assert least == pytest.approx(1 / 0.94, rel=0.01) and most == pytest.approx(1 / 0.94, rel=0.01)
    assert least <= most
    assert rate.sureness.startswith("6 trials each; p ≤ 0.0")
    assert "4 of 10 loads cannot tell: the generator was the limit (4)" in rate.untold


def test_cpu_per_request_counts_every_load(six: Tables) -> None:
    cost = of(headlines(six), "Least CPU")
    assert cost.answer.startswith("nginx on 9 of 10 loads")
    assert cost.untold == ""


def test_swapped_servers_swap_the_answer(six: Tables) -> None:
    swapped = six.trials["server"].map({"axum": "gin", "gin": "axum", "nginx": "nginx"})
    found = headlines(replace(six, trials=six.trials.assign(server=swapped)))
    assert of(found, "Most requests").answer == "gin on 6 of 6 loads"


def test_equal_servers_are_a_tie(six: Tables) -> None:
    rng = np.random.default_rng(9)
    even = six.trials.assign(rps=1000 * rng.lognormal(0, 0.02, len(six.trials)))
    rate = of(headlines(replace(six, trials=even)), "Most requests")
    assert "a tie of" in rate.answer and "axum" in rate.answer and "gin" in rate.answer


def test_too_few_trials_rank_nobody_and_say_so(tmp_path: Path) -> None:
    found = headlines(read(synthetic_run.build(tmp_path / "run", trials=3)))
    assert {each.answer for each in found} == {"nobody"}
    assert "fewer than 5 trials" in of(found, "Least CPU").untold
    assert len(untold(found)) == len(found) == len(printable(found))


def test_open_loads_ask_for_response_times_and_objectives(tmp_path: Path) -> None:
    found = headlines(read(synthetic_rates.build(tmp_path / "run")))
    questions = [each.question for each in found]
    assert "Shortest response time, p50" in questions
    assert any(question.startswith("Highest rate: ") for question in questions)


def test_every_number_of_the_table_is_a_text(six: Tables) -> None:
    table = printable(headlines(six))
    assert list(table.columns) == ["question", "answer", "ahead of the next by", "how sure"]
    assert all(isinstance(value, str) and value for row in table.to_numpy() for value in row)


def test_a_second_label_of_a_server_is_in_no_answer(six: Tables) -> None:
    copies = {"campaign": {**(six.manifest.get("campaign") or {}), "copies": [["gin-b", "gin"]]}}
    again = six.trials[six.trials["server"] == "gin"].assign(server="gin-b")
    again = again.assign(trial_id=again["trial_id"] + "-b")
    both = replace(six, manifest={**six.manifest, **copies}, trials=pd.concat([six.trials, again], ignore_index=True))
    assert [(h.question, h.answer, h.margin) for h in headlines(both)] == [
        (h.question, h.answer, h.margin) for h in headlines(six)
    ]
    assert [sentence.split(":")[0] for sentence in doubled(both)] == ["gin-b is gin under a second label"]
    assert doubled(six) == ()
    alone = replace(both, trials=both.trials[both.trials["server"].isin(["gin", "gin-b"])])
    assert doubled(alone) == ()
    cost = of(headlines(alone), "Least CPU")
    assert cost.answer == "a tie of gin and gin-b on 10 of 10 loads"
