"""Tests of the benchmark of the lab's own overhead, which must calculate ratios from known rates.

Further tests check `bench overhead`, the command that starts this benchmark.
"""

import json

import numpy as np
import pytest
import real_lab
from built import bare_lab
from overhead import VARIANTS, costs, in_words

from runner import places


def observations(variants, blocks=8, noise=0.01, seed=1):
    rng = np.random.default_rng(seed)
    effect = rng.normal(0, 0.1, blocks)  # in some blocks the machine is faster than in others
    return [
        {
            "variant": name,
            "block": block,
            "rps": rate * np.exp(effect[block] + rng.normal(0, noise)),
            "p50_ms": 1.0,
        }
        | {"sampler_cpu_pct": 0.8 if name == "lab" else None, "probe_cpu_pct": None}
        for name, rate in variants.items()
        for block in range(blocks)
    ]


def test_a_known_cost_comes_back_as_a_ratio_whatever_the_machine_does_from_block_to_block():
    lab, free, slow = costs(observations({"lab": 1000.0, "no probe": 1000.0, "stock k6": 900.0}))
    assert (lab["variant"], in_words(lab), lab["sampler_cpu_pct"]) == ("lab", "", 0.8)
    assert "not distinguishable from 1" in in_words(free)
    found = slow["lab_to_variant"]
    assert found.low <= 1000 / 900 <= found.high and found.high - found.low < 0.05
    assert in_words(slow).startswith("1.1")


def test_few_blocks_give_no_ratio():
    _, other = costs(observations({"lab": 1000.0, "no probe": 1000.0}, blocks=4))
    assert in_words(other) == "fewer than 5 blocks"


@pytest.mark.load
@pytest.mark.long
@real_lab.needs("k6")
def test_every_variant_is_loaded_and_only_the_observers_that_it_has_cost_anything(root):
    # With 40,000 iterations the load is long enough for the probe, even on a fast machine.
    arguments = ("--engine", "process", "--vus", "50", "--iterations", "40000", "--repeats", "1")
    done = real_lab.bench(root, "overhead", *arguments, "--json", code=0)
    printed = json.loads(done.stdout)
    rows = {row["variant"]: row for row in printed if row["load"] == "gin, N = 50"}
    assert set(rows) == set(VARIANTS)
    assert all(row["rps"] > 100 for row in rows.values())
    costly = {
        row["variant"]: row["rps"] for row in printed if row["load"] == "5 ms of CPU a request"
    }
    assert costly["lab"] == pytest.approx(costly["stock k6"], rel=0.05)
    assert costly["stock k6"] == pytest.approx(200, rel=0.1)
    assert {name for name, row in rows.items() if row["sampler_cpu_pct"]} == {
        "lab",
        "summary only",
        "no probe",
    }
    assert {name for name, row in rows.items() if row["probe_cpu_pct"]} == {
        "lab",
        "summary only",
        "no sampler",
    }
    stored = json.loads((root / "data" / "overhead.json").read_text())
    assert len(stored["observations"]) == len(VARIANTS) + len(costly)
    assert not list(root.glob("data/runs/*"))


# --- `bench overhead`, the command that starts the benchmark --------------------------------------


def test_the_command_has_the_benchmarks_options(bench):
    code, out, _ = bench("--help", command="overhead")
    assert code == 0
    options = ("--engine", "--server", "--vus", "--iterations", "--repeats", "--seed", "--json")
    assert [option for option in options if option not in out] == []


def test_an_option_that_the_benchmark_does_not_have_is_refused(bench):
    code, _, err = bench("--vus", "0", command="overhead")
    assert code == 2 and "--vus" in err


@pytest.mark.parametrize(
    ("is_lab", "says"),
    [
        (False, "`bench overhead` needs a checkout of the lab: run `git clone"),
        (True, "does not contain: use a complete checkout of the lab"),
    ],
)
def test_without_a_checkout_one_sentence_says_so(bench, tmp_path, monkeypatch, is_lab, says):
    if is_lab:
        bare_lab(tmp_path)
    monkeypatch.setattr(places, "OWN_CHECKOUT", tmp_path / "site-packages")
    monkeypatch.setenv("BENCH_ROOT", str(tmp_path))
    code, _, err = bench(command="overhead")
    assert code == 2
    assert says in " ".join(err.split())
