"""Tests of a post's advice on which server to take.

For each server, the lab computes the share of the server's loads under which no other server was
better. The advice names the servers with the largest share.
"""

import re

import numpy as np
import pytest
import synthetic_run
from figure_checks import changed, read, tables_of

from runner.present.blog.advice import advice
from runner.present.blog.story import Story
from runner.present.frames import Tables


def with_rates(folder, rates_rps) -> Tables:
    """Return a run of six blocks in which servers have these rates, with 0.4 % of noise.

    The CPU time per request is inverse to the rate.
    """
    tables = read(synthetic_run.build(folder / "run", trials=6, failed=False))
    noise = np.random.default_rng(3).lognormal(0, 0.004, len(tables.trials))
    rps = tables.trials["server"].map(rates_rps).to_numpy(dtype=float) * noise
    cost = 1000 / rps
    return changed(tables, served_rps=rps, server_cpu_ms_per_request=cost, verdict="server-bound")


def advised(tables: Tables) -> list[str]:
    (block,) = advice(Story(tables, tables.manifest, {}))
    return list(block.sentences)


@pytest.mark.parametrize(
    ("rates_rps", "best"),
    [
        ({"axum": 40_000, "gin": 20_000, "nginx": 90_000}, "axum"),
        ({"axum": 20_000, "gin": 40_000, "nginx": 90_000}, "gin"),
    ],
)
def test_the_faster_server_is_advised_and_no_yardstick(tmp_path, rates_rps, best):
    said, *others = advised(with_rates(tmp_path, rates_rps))
    assert said.startswith(f"Take {best} if requests per second or CPU time count: ")
    (other,) = {"axum", "gin"} - {best}
    assert f": {other} never beat {best} in requests per second (" in said
    assert "nginx" not in said
    assert not any("requests per second" in other or "CPU time" in other for other in others)


def test_a_server_that_is_cheaper_but_slower_is_advised_for_its_cost_only(tmp_path):
    tables = with_rates(tmp_path, {"axum": 40_000, "gin": 20_000, "nginx": 90_000})
    cheap = tables.trials["server"].eq("gin")
    cost = tables.trials["server_cpu_ms_per_request"].where(~cheap, 0.001)
    rates, costs, *_ = advised(changed(tables, server_cpu_ms_per_request=cost.to_numpy()))
    assert rates.startswith(
        "Take axum if requests per second count: compared with gin, axum comes first under "
    )
    assert costs.startswith(
        "Take gin if CPU time is what you pay for: compared with axum, gin comes first under "
    )
    loads = int(rates.split(" of its ")[-1].split()[0])
    assert rates.endswith(f" under {loads} of its {loads} loads.")


def test_the_advice_depends_on_whether_clients_keep_their_connections(tmp_path):
    tables = with_rates(tmp_path, {"axum": 40_000, "gin": 20_000, "nginx": 90_000})
    trials = tables.trials
    swapped = trials["mode"].eq("close") & trials["server"].isin(["axum", "gin"])
    assert swapped.any() and not swapped.all()
    rps = trials["served_rps"].where(~swapped, 8e8 / trials["served_rps"])
    cost = 1000 / rps
    said = advised(
        changed(tables, served_rps=rps.to_numpy(), server_cpu_ms_per_request=cost.to_numpy())
    )
    count = "if requests per second or CPU time count"
    assert said[0].startswith(f"Take axum {count} and clients keep their connections: ")
    assert said[1].startswith(f"Take gin {count} and each request opens a connection: ")


def test_servers_that_do_not_differ_get_no_advice(tmp_path):
    same = dict.fromkeys(("axum", "gin", "nginx"), 40_000)
    assert not any("if requests per second" in each for each in advised(with_rates(tmp_path, same)))


def test_only_servers_with_a_common_load_are_named():
    """A server that ran under other loads than the advised server was not compared with it."""
    tables = tables_of("sample")
    trials = tables.trials[tables.trials["tier"].ne("calibration")]
    loads = trials.groupby("server")["load"].agg(set)
    said = [each for each in advised(tables) if "never beat" in each]
    assert len(said) == 2
    for sentence in said:
        found = re.search(r": (?P<beaten>.*) never beat (?P<best>\w+) in", sentence)
        best = found["best"]
        named = set(re.split(r", | and ", found["beaten"]))
        strangers = {name for name in loads.index if not loads[name] & loads[best]}
        assert named and not named & (strangers | {"nginx", best})
    assert not loads["gnet"] & loads["actix"], "no server of the sample is a stranger to another"
