"""Export profiles for other viewers: as folded stacks, and in the file format of speedscope."""

from __future__ import annotations

import pandas as pd

from runner.model import JsonObject

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
NANOSECONDS = 1000


def folded(stacks: pd.Series[float]) -> str:
    """Return folded stacks with ns per request, in the format of flamegraph.pl and inferno.

    `stacks` contains the µs per request of each call stack. flamegraph.pl and inferno read only
    whole numbers, so each value is rounded to whole ns. A stack that is rounded to 0 is left out.
    """
    rounded = ((stack, round(NANOSECONDS * value)) for stack, value in stacks.items())
    return "".join(f"{stack} {value}\n" for stack, value in rounded if value)


def speedscope(stacks: pd.Series[float], name: str) -> JsonObject:
    """Return call stacks in speedscope's file format (file-format-spec.ts), named `name`.

    `stacks` contains the µs per request of each call stack, and the result is in µs, too.
    """
    split = [str(stack).split(";") for stack in stacks.index]
    functions = sorted({function for stack in split for function in stack})
    numbers = {function: number for number, function in enumerate(functions)}
    profile = {
        "type": "sampled",
        "name": name,
        "unit": "microseconds",
        "startValue": 0,
        "endValue": float(stacks.sum()),
        "samples": [[numbers[function] for function in stack] for stack in split],
        "weights": [float(value) for value in stacks],
    }
    return {
        "$schema": SCHEMA,
        "name": name,
        "exporter": "web-bench-lab",
        "activeProfileIndex": 0,
        "shared": {"frames": [{"name": function} for function in functions]},
        "profiles": [profile],
    }
