"""Mark the long cases of a test (CONTRIBUTING.md, Run the tests)."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def long_but(short: Collection[Any], cases: Iterable[Any]) -> list[Any]:
    """Return the cases of a parametrised test, with the mark `long` on all but the short cases."""
    return [
        case
        if case in short
        else pytest.param(*(case if isinstance(case, tuple) else [case]), marks=pytest.mark.long)
        for case in cases
    ]
