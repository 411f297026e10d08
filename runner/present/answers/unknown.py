"""Why the limit of trials is unknown, in words."""

import re
from collections import Counter

import pandas as pd

from runner.limits import Limit
from runner.present.frames import limits_of

NOT_RECORDED = "the reason is not recorded"


def why_unknown(sealed: pd.DataFrame) -> str:
    """Return the commonest reason why the limit of a cell's sealed trials is unknown; empty if all limits are known.

    Its count is said unless all trials have it. Reasons that differ in their numbers only are one, and the numbers are
    those of the first such trial.
    """
    unknown = sealed[limits_of(sealed).eq(Limit.UNKNOWN)]
    if unknown.empty:
        return ""
    reasons = [_head(str(reason)) for reason in unknown["verdict_reason"]]
    kinds = [re.sub(r"[\d.,]*\d", "#", reason) for reason in reasons]
    kind, count = Counter(kinds).most_common(1)[0]
    reason = reasons[kinds.index(kind)]
    return reason if count == len(sealed) else f"{reason} ({count} of {len(sealed)} trials)"


def _head(reason: str) -> str:
    """Return a verdict's reason without the numbers behind it, which follow a colon."""
    head, colon, _ = reason.partition(": ")
    return head if colon and head else reason or NOT_RECORDED
