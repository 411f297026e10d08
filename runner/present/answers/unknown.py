"""Explain why the limit of trials is unknown."""

from collections import Counter

import pandas as pd

from runner.present.frames import limits_of
from runner.verdict.limits import Limit

NOT_RECORDED = "the reason is not recorded"


def why_unknown(compared: pd.DataFrame) -> str:
    """Return the most frequent reason why the limit of a cell's compared trials is unknown.

    Return an empty text if all limits are known. If the reason does not apply to all trials, the
    text says to how many trials it applies. Numbers in the reason come from the first of these
    trials.
    """
    unknown = compared[limits_of(compared).eq(Limit.UNKNOWN)]
    if unknown.empty:
        return ""
    # Group the trials by cause. A trial whose cause is not known to this version of the lab has an
    # empty `verdict_cause`, so `verdict_rule` takes the place of the cause.
    kinds = unknown["verdict_cause"].mask(unknown["verdict_cause"].eq(""), unknown["verdict_rule"])
    kind, count = Counter(kinds).most_common(1)[0]
    reason = unknown.loc[kinds.eq(kind), "verdict_rule"].iloc[0] or NOT_RECORDED
    return reason if count == len(compared) else f"{reason} ({count} of {len(compared)} trials)"
