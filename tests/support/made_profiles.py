"""Tables of profiles in which the CPU time of each call stack is known.

In each slice, random noise is added to the known time.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from runner.present.why.profiles import Profiles

LOAD = "wrk-matrix-c100"
PLACES = (3, 4, 7, 8, 9, 10)


def profiles_of(
    us: Mapping[str, Mapping[str, tuple[str, float]]], noise_us: float = 0.0, seed: int = 1
) -> Profiles:
    """Return profiles of servers.

    `us` maps a server to its call stacks, and each call stack to its kind of work and its CPU time
    in µs per request.
    """
    random = np.random.default_rng(seed)
    stacks, slices = [], []
    for server, work in us.items():
        names = {"trial_id": f"p-{server}", "server": server, "load": LOAD}
        for place in PLACES:
            total_us = 0.0
            for stack, (category, mean_us) in work.items():
                value = max(0.0, mean_us + noise_us * random.standard_normal())
                total_us += value
                row = {"stack": stack, "category": category, "samples": 9}
                stacks.append({**names, "place": place, **row, "us_per_request": value})
            row = {"kind": "recorded", "requests": 1000, "cpu_us_per_request": total_us}
            slices.append({**names, "place": place, **row, "sampled_us_per_request": total_us})
    counters = pd.DataFrame(
        columns=["trial_id", "server", "load", "event", "per_request", "supported"]
    )
    return Profiles(pd.DataFrame(stacks), pd.DataFrame(slices), counters)
