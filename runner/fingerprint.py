"""Distinguish machines by what changes their numbers. Imports nothing of ours: measuring and presenting both ask."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

KEYS = ("cpu_model", "cpus", "kernel", "governor", "turbo", "hypervisor")
"""Facts of a manifest's `machine` that a number depends on, beside the memory."""
DIGITS = 12


def fingerprint(facts: Mapping[str, Any]) -> str:
    """Return 12 hexadecimal digits of a SHA-256 over what changes a machine's numbers.

    `facts` is `machine` of a manifest. Memory counts in whole GiB, as the kernel keeps a few MiB more or less for
    itself at each boot. A fact that an older manifest lacks is unknown (null), as is one that a machine does not
    report: two machines count as one only where all facts are equal.
    """
    memory = facts.get("memory_bytes")
    memory_gib = round(memory / 2**30) if isinstance(memory, int | float) else None
    known = {key: facts.get(key) for key in KEYS} | {"memory_gib": memory_gib}
    text = json.dumps(known, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]
