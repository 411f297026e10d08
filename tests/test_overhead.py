"""What the lab costs: known rates give known ratios; real loads are observed as each variant says."""

import json

import numpy as np
import pytest
import real_lab

from runner.running.overhead import VARIANTS, costs


def observations(variants, blocks=8, noise=0.01, seed=1):
    rng = np.random.default_rng(seed)
    effect = rng.normal(0, 0.1, blocks)  # the machine is faster in some blocks than in others
    return [
        {"variant": name, "block": block, "rps": rate * np.exp(effect[block] + rng.normal(0, noise)), "p50_ms": 1.0}
        | {"sampler_cpu_pct": 0.8 if name == "lab" else None, "probe_cpu_pct": None}
        for name, rate in variants.items()
        for block in range(blocks)
    ]


def test_a_known_cost_comes_back_as_a_ratio_whatever_the_machine_does_from_block_to_block():
    lab, free, slow = costs(observations({"lab": 1000.0, "no probe": 1000.0, "stock k6": 900.0}))
    assert (lab.variant, lab.in_words, lab.sampler_cpu_pct) == ("lab", "", 0.8)
    assert "not distinguishable from 1" in free.in_words
    assert slow.lab_to_variant.low <= 1000 / 900 <= slow.lab_to_variant.high
    assert slow.lab_to_variant.high - slow.lab_to_variant.low < 0.05
    assert slow.in_words.startswith("1.1")


def test_few_blocks_give_no_ratio():
    _, other = costs(observations({"lab": 1000.0, "no probe": 1000.0}, blocks=4))
    assert other.in_words == "fewer than 5 blocks"


@pytest.mark.load
@pytest.mark.long
@real_lab.needs("k6")
def test_every_variant_is_loaded_and_only_the_observers_that_it_has_cost_anything(root):
    arguments = ("--engine", "process", "--vus", "50", "--iterations", "3000", "--repeats", "1")
    done = real_lab.bench(root, "overhead", *arguments, "--json", code=0)
    rows = {row["variant"]: row for row in json.loads(done.stdout)}
    assert set(rows) == set(VARIANTS)
    assert all(row["rps"] > 100 for row in rows.values())
    assert {name for name, row in rows.items() if row["sampler_cpu_pct"]} == {"lab", "summary only", "no probe"}
    assert {name for name, row in rows.items() if row["probe_cpu_pct"]} == {"lab", "summary only", "no sampler"}
    stored = json.loads((root / "data" / "overhead.json").read_text())
    assert len(stored["observations"]) == len(VARIANTS)
    assert not list(root.glob("data/runs/*"))
