"""What the lab itself costs, in words: the rate with all observers beside the rate without each of them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from runner.present.statistics.inference import FEWEST, Ratio, ratio, sample_of

LAB = "lab"
MEASURED = ["rps", "p50_ms", "sampler_cpu_pct", "probe_cpu_pct"]


@dataclass(frozen=True)
class Cost:
    """One variant beside the lab as it measures; rates in requests/s, CPU in percent of a core (None: not there)."""

    variant: str
    trials: int
    rps: float
    p50_ms: float
    lab_to_variant: Ratio | None
    """Rate of the lab divided by the variant's, compared within blocks; None for the lab itself, and for few trials."""
    sampler_cpu_pct: float | None
    probe_cpu_pct: float | None

    @property
    def in_words(self) -> str:
        """The ratio as it may be said: with its interval, and whether it differs from no cost at all."""
        if self.variant == LAB:
            return ""
        found = self.lab_to_variant
        if found is None:
            return f"fewer than {FEWEST} blocks"
        said = f"{found.ratio:.3f} ({found.low:.3f} to {found.high:.3f})"
        return f"{said}, not distinguishable from 1" if found.low <= 1 <= found.high else said


def costs(observations: Sequence[Mapping[str, Any]]) -> list[Cost]:
    """Return each variant's cost, the lab first.

    An observation has `variant`, `block`, `rps`, `p50_ms`, `sampler_cpu_pct`, `probe_cpu_pct`.
    """
    table = pd.DataFrame(observations).astype(dict.fromkeys(MEASURED, float))
    table = table.sort_values("variant", key=lambda names: names.where(names != LAB, ""))
    rates = {name: sample_of(rows["rps"], rows["block"]) for name, rows in table.groupby("variant", sort=False)}
    found = []
    for name, rows in table.groupby("variant", sort=False):
        lab_to_variant = ratio(rates[LAB], rates[name]) if name != LAB else None
        rps, p50_ms, *cpu_pct = rows[MEASURED].median().replace({math.nan: None})
        found.append(Cost(str(name), len(rows), rps, p50_ms, lab_to_variant, *cpu_pct))
    return found
