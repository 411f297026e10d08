"""What the lab itself costs, in words: the rate with all observers beside the rate without each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from runner.present.statistics.inference import FEWEST, Ratio, Sample, ratio

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
    names = dict.fromkeys([LAB, *sorted(str(row["variant"]) for row in observations)])
    by_variant = {name: [row for row in observations if row["variant"] == name] for name in names}
    samples = {
        name: Sample.of([row["rps"] for row in rows], [row["block"] for row in rows])
        for name, rows in by_variant.items()
    }
    return [
        Cost(
            variant=name,
            trials=len(rows),
            rps=median(row["rps"] for row in rows),
            p50_ms=median(row["p50_ms"] for row in rows),
            lab_to_variant=None if name == LAB else ratio(samples[LAB], samples[name]),
            sampler_cpu_pct=_median(rows, "sampler_cpu_pct"),
            probe_cpu_pct=_median(rows, "probe_cpu_pct"),
        )
        for name, rows in by_variant.items()
    ]


def _median(rows: Sequence[Mapping[str, Any]], name: str) -> float | None:
    known = [value for row in rows if (value := row[name]) is not None]
    return median(known) if known else None
