"""What the lab itself costs, in words: the rate with all observers beside the rate without each of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from runner.present.statistics.inference import FEWEST, Ratio, Sample, ratio, sample_of

LAB = "lab"


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
    found: list[Cost] = []
    lab: Sample | None = None
    for name in dict.fromkeys([LAB, *sorted(str(row["variant"]) for row in observations)]):
        rows = [row for row in observations if row["variant"] == name]
        known = {
            column: [row[column] for row in rows if row[column] is not None]
            for column in ("rps", "p50_ms", "sampler_cpu_pct", "probe_cpu_pct")
        }
        rates = sample_of(known["rps"], [row["block"] for row in rows])
        lab_to_variant = None if lab is None else ratio(lab, rates)
        lab = rates if lab is None else lab
        medians: dict[str, Any] = {column: median(values) if values else None for column, values in known.items()}
        found.append(Cost(variant=name, trials=len(rows), lab_to_variant=lab_to_variant, **medians))
    return found
